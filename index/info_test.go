package index

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/storage"
)

// What is replaced while a snapshot is open stays in the file for it, and is
// free afterwards.
func TestInfoOfALiveIndex(t *testing.T) {
	ctx := context.Background()
	path := newPath(t)
	docs := corpus(40, 6, 8, 1)
	build(t, path, 8, docs, nil)
	ix := writing(t, path)
	info := func() *Info {
		in, err := ix.Info(ctx)
		require.NoError(t, err)
		require.LessOrEqual(t, int64(in.Pages.Free+in.Pages.Pending)*int64(in.Pages.Page), in.Pages.Size)
		return in
	}
	replace := func(n int) {
		for range n {
			_, err := ix.Add(ctx, fromDocs(t, 8, docs[:20]), &AddOptions{Replace: true})
			require.NoError(t, err)
		}
	}
	replace(5)
	before := info()
	require.EqualValues(t, 140, before.Ordinals)
	require.EqualValues(t, 100, before.Deleted)
	require.EqualValues(t, storage.MaxDocs, before.MaxOrdinals)
	require.Equal(t, 1, before.Pages.Views)

	held, err := ix.Snapshot()
	require.NoError(t, err)
	replace(10)
	in := info()
	require.Equal(t, 2, in.Pages.Views)
	require.Greater(t, in.Pages.Pending, before.Pages.Pending+20)
	require.NoError(t, held.Close())
	replace(1)
	after := info()
	require.Less(t, after.Pages.Pending, in.Pages.Pending)
	require.Greater(t, after.Pages.Free, in.Pages.Free+20)

	require.NoError(t, ix.Close())
	reading(t, path, func(s *Snapshot) { // who only reads knows the free pages
		in, err := s.Info(ctx)
		require.NoError(t, err)
		require.Zero(t, in.Pages.Pending)
		require.Equal(t, after.Pages.Free+after.Pages.Pending, in.Pages.Free)
		require.Equal(t, after.Ordinals, in.Ordinals)
	})
}
