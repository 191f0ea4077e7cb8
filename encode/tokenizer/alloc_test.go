//go:build !race

package tokenizer

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Once buffers have grown, a text costs one allocation: that of its ids.
func TestAllocations(t *testing.T) {
	f := loadFixtures(t)
	for _, v := range f.variants[len(f.variants)-3:] {
		tok, err := Parse(f.file(t, v))
		require.NoError(t, err)
		line := strings.Repeat("the index of the collection ", 20)
		got := testing.AllocsPerRun(100, func() {
			if _, err := tok.EncodeIDs(nil, line); err != nil {
				t.Fatal(err)
			}
		})
		require.LessOrEqual(t, got, 2.0, string(v["name"]))
	}
}
