package index

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/storage"
)

func TestReadOnlyIndexRefusesChanges(t *testing.T) {
	path := newPath(t)
	docs := corpus(5, 5, 8, 1)
	build(t, path, 8, docs, nil)
	require.NoError(t, os.WriteFile(path+".rewrite.tmp", []byte("x"), 0o600))
	ix, err := Open(context.Background(), path, nil)
	require.NoError(t, err)
	_, err = ix.Add(context.Background(), fromDocs(t, 8, corpus(9, 5, 8, 3)[5:]), nil)
	require.ErrorIs(t, err, storage.ErrReadOnly)
	_, _, err = ix.Delete(context.Background(), []string{"d1"})
	require.ErrorIs(t, err, storage.ErrReadOnly)
	require.ErrorIs(t, ix.Compact(context.Background(), nil), storage.ErrReadOnly)
	require.FileExists(t, path+".rewrite.tmp", "a reader touches nothing")
	require.NoError(t, ix.Close())
	requireFile(t, path, docs)
}

func TestClose(t *testing.T) {
	path := newPath(t)
	docs := corpus(5, 5, 8, 1)
	build(t, path, 8, docs, nil)
	ix, err := Open(context.Background(), path, &Options{Write: true})
	require.NoError(t, err)
	s, err := ix.Snapshot()
	require.NoError(t, err)
	require.NoError(t, ix.Close())
	require.NoError(t, ix.Close())
	requireIndex(t, s, docs) // still there
	_, err = Open(context.Background(), path, nil)
	require.ErrorIs(t, err, storage.ErrLocked)
	for _, err := range []error{
		second(ix.Snapshot()), second(ix.Add(context.Background(), fromDocs(t, 8, docs), nil)), ix.Compact(context.Background(), nil),
	} {
		require.ErrorIs(t, err, storage.ErrClosed)
	}
	_, _, err = ix.Delete(context.Background(), []string{"d1"})
	require.ErrorIs(t, err, storage.ErrClosed)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	requireFile(t, path, docs)
}

// Snapshots are taken, read and closed while the index changes under them.
func TestReadersBesideTheWriter(t *testing.T) {
	small(t)
	path := newPath(t)
	docs := corpus(10, 6, 8, 1)
	build(t, path, 8, docs, nil)
	ix := writing(t, path)
	more := corpus(40, 6, 8, 2)[10:]
	docs = append(docs, more...)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				s, err := ix.Snapshot()
				if err == nil {
					// The first documents are always there, the others come one by one.
					err = errors.Join(differs(s, docs[:s.Len()]), s.Verify(context.Background()), s.Close())
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i, d := range more {
		add(t, ix, 8, d)
		if i%10 == 9 {
			require.NoError(t, ix.Compact(context.Background(), nil))
		}
	}
	close(stop)
	wg.Wait()
}
