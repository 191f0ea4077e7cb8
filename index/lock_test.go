package index

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/storage"
)

func TestLocks(t *testing.T) {
	path := newPath(t)
	docs := corpus(5, 5, 8, 1)
	src := fromDocs(t, 8, docs)
	build(t, path, 8, docs, nil)
	refused := func(what string, errs ...error) {
		t.Helper()
		for _, err := range errs {
			require.ErrorIs(t, err, storage.ErrLocked, what)
			require.ErrorContains(t, err, path)
		}
	}
	w, err := Open(context.Background(), path, &Options{Write: true})
	require.NoError(t, err)
	refused("beside a writer", second(Open(context.Background(), path, nil)), second(Open(context.Background(), path, &Options{Write: true})),
		second(Build(context.Background(), path, src, nil)),
		second(Build(context.Background(), path, src, &BuildOptions{Force: true, LockTimeout: 60 * time.Millisecond})))
	// Compaction keeps the lock, on another file of the same name.
	require.NoError(t, w.Compact(context.Background(), nil))
	refused("after a compaction", second(Open(context.Background(), path, nil)), second(Open(context.Background(), path, &Options{Write: true})))
	require.NoError(t, w.Close())

	r, err := Open(context.Background(), path, nil)
	require.NoError(t, err)
	requireFile(t, path, docs) // any number of readers
	refused("beside a reader", second(Open(context.Background(), path, &Options{Write: true})),
		second(Build(context.Background(), path, src, &BuildOptions{Force: true})))
	require.NoError(t, r.Close())
	requireFile(t, path, docs)
}

// waiting gives a channel on which a test hears that somebody looked for a lock and goes
// on waiting for it.
func waiting(t *testing.T) <-chan struct{} {
	if runtime.GOOS == "windows" {
		t.Skip("there are no locks to wait for")
	}
	looked := make(chan struct{})
	t.Cleanup(func() { files.HookWaiting = nil })
	files.HookWaiting = func(string) {
		select {
		case looked <- struct{}{}:
		default:
		}
	}
	return looked
}

// Who waits for the lock gets the index that is there when it is given back:
// also where the file was replaced, or came to be, meanwhile.
func TestLockTimeoutWaits(t *testing.T) {
	docs := corpus(30, 5, 8, 1)
	waits := waiting(t)
	for _, compact := range []bool{false, true} {
		for _, write := range []bool{false, true} {
			path := newPath(t)
			build(t, path, 8, docs[:20], nil)
			w, err := Open(context.Background(), path, &Options{Write: true})
			require.NoError(t, err)
			opened := make(chan *Index, 1)
			go func() {
				ix, err := Open(context.Background(), path, &Options{Write: write, LockTimeout: time.Minute})
				if err != nil {
					t.Error(err)
				}
				opened <- ix
			}()
			<-waits
			add(t, w, 8, docs[20:]...)
			if compact {
				require.NoError(t, w.Compact(context.Background(), nil))
			}
			for range 2 { // the first may have looked before the change was done
				select {
				case <-opened:
					require.Fail(t, "opened beside a writer")
				case <-waits:
				}
			}
			require.NoError(t, w.Close())
			ix := <-opened
			s, err := ix.Snapshot()
			require.NoError(t, err)
			requireIndex(t, s, docs)
			require.NoError(t, s.Close())
			require.NoError(t, ix.Close())
		}
	}
}

// A build that waits for another, which fails and takes its file away, makes
// its own.
func TestBuildAfterAFailedOne(t *testing.T) {
	waits := waiting(t)
	for _, force := range []bool{true, false} {
		path := newPath(t)
		docs := corpus(30, 5, 8, 1)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		_, err := Build(ctx, path, fromDocs(t, 8, docs), &BuildOptions{Progress: func(p Progress) {
			if p.Stage != "encode" {
				return
			}
			go func() {
				_, err := Build(context.Background(), path, fromDocs(t, 8, docs[:9]), &BuildOptions{Force: force, LockTimeout: time.Minute})
				done <- err
			}()
			<-waits
			cancel()
		}})
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, <-done)
		requireFile(t, path, docs[:9])
	}
}
