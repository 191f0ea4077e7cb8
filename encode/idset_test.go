package encode

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Ids beyond the vocabulary take no memory, and a set of nothing but such ids is not an empty one:
// a model that keeps these alone keeps nothing.
func TestIDSet(t *testing.T) {
	require.Empty(t, newIDSet(nil, 100))
	s := newIDSet([]int32{0, 63, 64, 99, 100, -1, 1 << 30}, 100)
	for id := range int32(300) {
		require.Equal(t, id == 0 || id == 63 || id == 64 || id == 99, s.contains(id), "%d", id)
	}
	only := newIDSet([]int32{1 << 30}, 100)
	require.NotEmpty(t, only)
	require.False(t, only.contains(5))
}
