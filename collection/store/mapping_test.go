package store

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/storage"
)

// A file that has reached the end of the address space that is mapped for it is mapped again, and the
// change is made after all. One that has no room then either is refused; the collection goes on.
func TestFileIsMappedAgain(t *testing.T) {
	s := openStore(t, t.TempDir(), nil)
	c := declare(t, s, "docs", collection.Config{})
	_, err := c.Update(t.Context(), []collection.DocumentInput{randomDoc("a", 1)}, collection.UpdateOptions{})
	require.NoError(t, err)
	for failures, want := range []error{nil, nil, storage.ErrTooLarge} {
		before, err := c.worker.currentIndex()
		require.NoError(t, err)
		tries := 0
		err = c.submit(t.Context(), &request{kind: acting, action: func(context.Context) error {
			if tries++; tries <= failures {
				return fmt.Errorf("writing: %w", storage.ErrTooLarge)
			}
			return nil
		}})
		require.ErrorIs(t, err, want)
		require.Equal(t, min(failures+1, 2), tries)
		now, err := c.worker.currentIndex()
		require.NoError(t, err)
		require.Equal(t, failures == 0, before == now)
	}
	_, err = c.Update(t.Context(), []collection.DocumentInput{randomDoc("b", 2)}, collection.UpdateOptions{})
	require.NoError(t, err)
	st, err := c.Stats(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2, st.Documents)
}
