package index

import (
	"context"
	"errors"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/storage"
)

// Each kind of change whose last sync fails: the open index shows what it held
// before and takes no more changes, and opened again it is sound, with the change.
func TestChangesOfUnknownOutcome(t *testing.T) {
	const dim = 8
	ctx := context.Background()
	docs := corpus(40, 6, dim, 3)
	renewed := corpus(3, 6, dim, 9)
	change := map[string]func(*Index) error{
		"add": func(ix *Index) error {
			_, err := ix.Add(ctx, fromDocs(t, dim, docs[30:]), nil)
			return err
		},
		"replace": func(ix *Index) error {
			_, err := ix.Add(ctx, fromDocs(t, dim, renewed), &AddOptions{Replace: true})
			return err
		},
		"delete": func(ix *Index) error {
			_, _, err := ix.Delete(ctx, []string{"d1", "d5"})
			return err
		},
		"tune": func(ix *Index) error {
			return ix.SetDefaults(&storage.Defaults{Classes: []storage.DefaultClass{{K: 10, Probes: 3}}})
		},
		"compact": func(ix *Index) error { return ix.Compact(ctx, nil) },
	}
	for name, first := range change {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			build(t, path, dim, docs[:30], nil)
			ix := writing(t, path)
			_, _, err := ix.Delete(ctx, []string{"d7"}) // for compaction to leave out
			require.NoError(t, err)
			want := append(docs[:7:7], docs[8:30]...)
			held := taken(t, ix)
			before := snapshotDigest(t, held)

			t.Cleanup(func() { files.HookSynced = nil })
			last := ix.Path()
			if name == "compact" {
				last = filepath.Dir(last)
				files.HookSynced = func(string) error { return errors.New("no answer") } // of the new file, which goes again
				err := first(ix)
				require.ErrorContains(t, err, "no answer")
				require.NotErrorIs(t, err, storage.ErrOutcomeUnknown)
			}
			files.HookSynced = func(path string) error {
				if path == last {
					return errors.New("no answer")
				}
				return nil
			}
			require.ErrorIs(t, first(ix), storage.ErrOutcomeUnknown)
			files.HookSynced = nil

			check := func() {
				now := taken(t, ix)
				for _, s := range []*Snapshot{held, now} {
					requireIndex(t, s, want)
					d, err := s.Defaults()
					require.NoError(t, err)
					require.Nil(t, d)
				}
				require.NoError(t, now.Close())
			}
			check()
			for _, next := range change {
				require.ErrorIs(t, next(ix), storage.ErrOutcomeUnknown)
			}
			check()
			require.NoError(t, held.Close())
			require.NoError(t, ix.Close())

			ix = writing(t, path)
			now := taken(t, ix)
			require.NoError(t, now.Verify(ctx))
			d, err := now.Defaults()
			require.NoError(t, err)
			require.True(t, snapshotDigest(t, now) != before || d != nil)
			require.NoError(t, now.Close())
			require.NoError(t, ix.Compact(ctx, nil))
			require.NoError(t, ix.Close())
		})
	}
}

// A first build whose last sync fails leaves nothing, and so has a known outcome.
func TestFirstBuildOfUnknownOutcome(t *testing.T) {
	path := newPath(t)
	docs := corpus(10, 6, 8, 3)
	o := &BuildOptions{Progress: func(p Progress) {
		if p.Stage == "encode" {
			files.HookSynced = func(string) error { return errors.New("no answer") }
		}
	}}
	t.Cleanup(func() { files.HookSynced = nil })
	_, err := Build(context.Background(), path, fromDocs(t, 8, docs), o)
	require.ErrorContains(t, err, "removed again")
	require.NotErrorIs(t, err, storage.ErrOutcomeUnknown)
	require.NoFileExists(t, path)
	files.HookSynced = nil
	build(t, path, 8, docs, nil)

	_, err = Build(context.Background(), path, fromDocs(t, 8, docs[:4]), &BuildOptions{Force: true, Progress: o.Progress})
	require.ErrorIs(t, err, storage.ErrOutcomeUnknown)
	files.HookSynced = nil
	reading(t, path, func(s *Snapshot) { require.NoError(t, s.Verify(context.Background())) })
}

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
			s := taken(t, ix)
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
