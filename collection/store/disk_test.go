package store

import (
	"fmt"
	"math"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
)

// A deletion that finds nothing writes nothing: it does not show that there is room again.
func TestADeletionOfNothingShowsNoRoom(t *testing.T) {
	s := openStore(t, t.TempDir(), nil)
	c := declare(t, s, "docs", collection.Config{})
	_, err := c.Update(t.Context(), []collection.Document{randomDoc("a", 1), randomDoc("b", 2)}, collection.UpdateOptions{})
	require.NoError(t, err)
	isFull := func() bool {
		s.disk.mu.Lock()
		defer s.disk.mu.Unlock()
		s.disk.free = math.MaxUint64 - muchFree // room is not seen by itself
		return s.disk.full
	}
	s.noteDisk(fmt.Errorf("a write: %w", syscall.ENOSPC), true)
	require.True(t, isFull())
	for id, full := range map[string]bool{"none": true, "a": false} {
		s.noteDisk(syscall.ENOSPC, true)
		_, err = c.Delete(t.Context(), collection.Selection{IDs: []string{id}})
		require.NoError(t, err)
		require.Equal(t, full, isFull(), id)
	}
}
