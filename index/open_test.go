//go:build unix

package index

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/storage"

	"github.com/plaid-ir/plaid/internal/testing/countdown"
)

// An opening that is broken off anywhere says so, calls nothing damaged and leaves
// nothing open.
func TestOpenCancelled(t *testing.T) {
	small(t)
	path := newPath(t)
	docs := corpus(60, 6, 8, 1)
	build(t, path, 8, docs, nil)
	for _, o := range []*Options{nil, {Write: true}} {
		n := 0
		for ; ; n++ {
			ix, err := Open(countdown.New(n), path, o)
			if err == nil {
				require.NoError(t, ix.Close())
				break
			}
			require.ErrorIs(t, err, context.Canceled)
			require.NotErrorIs(t, err, storage.ErrCorrupt)
		}
		require.Greater(t, n, 15, "pages and document tables are read with it")
	}
	requireFile(t, path, docs)
}

// Whoever waits for a lock, of the file or of another change, can give up.
func TestWaitingIsCancelled(t *testing.T) {
	path := newPath(t)
	docs := corpus(10, 6, 8, 1)
	build(t, path, 8, docs, nil)
	ix := writing(t, path)
	ctx, cancel := context.WithCancel(context.Background())
	tried := make(chan error)
	go func() {
		_, err := Open(ctx, path, &Options{Write: true, LockTimeout: time.Hour})
		tried <- err
	}()
	ix.writeLock <- struct{}{}
	for _, change := range []func() error{
		func() error { return second(ix.Add(ctx, fromDocs(t, 8, many("n", 1, 8)), nil)) },
		func() error { _, _, err := ix.Delete(ctx, []string{"d1"}); return err },
		func() error { return ix.Compact(ctx, nil) },
	} {
		go func() { tried <- change() }()
	}
	cancel()
	for range 4 {
		err := <-tried
		require.ErrorIs(t, err, context.Canceled)
		require.False(t, errors.Is(err, storage.ErrLocked))
	}
	ix.writeLock.unlock()
	s := taken(t, ix)
	requireIndex(t, s, docs)
	require.NoError(t, s.Close())
}

// A check that is broken off finds no damage.
func TestVerifyCancelled(t *testing.T) {
	path := newPath(t)
	build(t, path, 8, corpus(30, 6, 8, 1), nil)
	reading(t, path, func(s *Snapshot) {
		for _, check := range []func(context.Context) error{s.Verify, s.VerifyChecksums} {
			n := 0
			for ; ; n++ {
				err := check(countdown.New(n))
				if err == nil {
					break
				}
				require.ErrorIs(t, err, context.Canceled)
				require.NotErrorIs(t, err, storage.ErrCorrupt)
			}
			require.Greater(t, n, 5)
		}
	})
}
