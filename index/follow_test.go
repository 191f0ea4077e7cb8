//go:build unix

package index

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// lockedBuffer is a log that is read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); !ok(); time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(deadline), what)
	}
}

// descriptors counts the open files of a folder, those removed included.
func descriptors(t *testing.T, dir string) (n int) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("open files cannot be listed here")
	}
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(to, dir) {
			n++
		}
	}
	return n
}

// One process writes and makes backups, readers follow the copy: each snapshot
// is one of the states, never an older one than before, and nothing leaks.
func TestFollowBackups(t *testing.T) {
	dir := testenv.RAMDir(t)
	path, to := filepath.Join(dir, "x.plaid"), filepath.Join(dir, "copy.plaid")
	ctx := context.Background()
	docs := corpusUpTo(10)
	build(t, path, 8, docs, nil)
	ix := writing(t, path)
	_, err := ix.BackupTo(ctx, to, nil)
	require.NoError(t, err)
	goroutines := runtime.NumGoroutine()

	followers := make([]*Index, 3)
	for i := range followers {
		followers[i], err = Open(context.Background(), to, &Options{Follow: time.Millisecond})
		require.NoError(t, err)
	}
	held, err := followers[0].Snapshot()
	require.NoError(t, err)
	var stop atomic.Bool
	var wg sync.WaitGroup
	for i, f := range followers {
		for range 2 {
			wg.Go(func() {
				seen := uint32(0)
				for !stop.Load() {
					s, err := f.Snapshot()
					if err != nil {
						t.Error(err)
						return
					}
					n := s.State().Docs
					err = errors.Join(differs(s, corpusUpTo(n)), s.Verify(ctx), s.Close())
					if n < seen {
						err = errors.Join(err, fmt.Errorf("%d documents after %d", n, seen))
					}
					if seen = n; err != nil {
						t.Errorf("follower %d: %v", i, err)
						return
					}
				}
			})
		}
	}
	rounds := effort.Cases(16, 60)
	for i := range rounds {
		add(t, ix, 8, corpusUpTo(uint32(11 + i))[10+i:]...)
		_, err := ix.BackupTo(ctx, to, &BackupOptions{Incremental: i%2 == 0}) // in place if nobody is there yet
		require.NoError(t, err)
		if i%4 == 0 {
			_, err := followers[i%3].Refresh(ctx)
			require.NoError(t, err)
		}
	}
	for i, f := range followers {
		eventually(t, fmt.Sprint("follower ", i, " does not arrive"), func() bool {
			s := taken(t, f)
			defer s.Close()
			return int(s.State().Docs) == 10+rounds
		})
	}
	stop.Store(true)
	wg.Wait()
	requireIndex(t, held, docs)
	require.NoError(t, held.Close())
	own := 1
	if files.EmulateWindows {
		own = 2 // a second one of the file for its views
	}
	require.Equal(t, own+3, descriptors(t, dir), "the index and three copies")
	for _, f := range followers {
		require.NoError(t, f.Close())
		require.NoError(t, f.Close())
		_, err := f.Refresh(ctx)
		require.ErrorIs(t, err, storage.ErrClosed)
	}
	require.Equal(t, own, descriptors(t, dir))
	eventually(t, "goroutines are left", func() bool { return runtime.NumGoroutine() <= goroutines })
	// Nobody holds it: now it can be brought up to date.
	r, err := ix.BackupTo(ctx, to, &BackupOptions{Incremental: true})
	require.NoError(t, err)
	require.True(t, r.Incremental, r.WholeReason)
}

// corpusUpTo are the first n documents of one sequence.
func corpusUpTo(n uint32) []vectors.Document { return manyDocs()[:n] }

var manyDocs = sync.OnceValue(func() []vectors.Document { return corpus(100, 6, 8, 1) })

// What cannot be opened is not gone over to. It is logged once, and what comes
// after it is taken.
func TestFollowPassesOverDamage(t *testing.T) {
	dir := testenv.RAMDir(t)
	path := filepath.Join(dir, "x.plaid")
	docs, others := corpus(10, 6, 8, 1), corpus(20, 6, 12, 5)
	build(t, path, 8, docs, nil)
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	var log lockedBuffer
	ix, err := Open(context.Background(), path, &Options{Follow: time.Millisecond, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	put := func(from string) { require.NoError(t, os.Rename(from, path)) }
	logged := func(what string) {
		t.Helper()
		eventually(t, what, func() bool { return strings.Contains(log.String(), what) })
		time.Sleep(20 * time.Millisecond) // many more looks
		require.Equal(t, 1, strings.Count(log.String(), what), log.String())
		require.NoError(t, holds(ix, docs))
	}
	for cut, what := range map[int]string{len(good) / 2: "cut short", 10: "not a plaid index"} {
		require.NoError(t, os.WriteFile(path+".new", good[:cut], 0o600))
		put(path + ".new")
		logged(what)
	}
	require.NoError(t, os.Remove(path))
	logged("no such file")
	build(t, path+".other", 12, others, nil)
	w := writing(t, path+".other")
	put(path + ".other")
	logged("index is locked: it is open in this program already")
	require.NoError(t, w.Close())
	eventually(t, "the new index is not taken", func() bool { return strings.Contains(log.String(), "was replaced and has been opened") })
	require.NoError(t, holds(ix, others))
	require.NoError(t, ix.Close())

	_, err = Open(context.Background(), path, &Options{Follow: time.Second, Write: true})
	require.ErrorIs(t, err, ErrOption)
	w = writing(t, path)
	_, err = w.Refresh(context.Background())
	require.ErrorIs(t, err, ErrOption)
}

// A symbolic link that is pointed elsewhere is followed too.
func TestFollowLink(t *testing.T) {
	dir := testenv.RAMDir(t)
	a, b, link := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "current")
	docs, others := corpus(10, 6, 8, 1), corpus(20, 6, 12, 5)
	build(t, a, 8, docs, nil)
	build(t, b, 12, others, nil)
	require.NoError(t, os.Symlink("a", link))
	ix, err := Open(context.Background(), link, nil)
	require.NoError(t, err)
	defer ix.Close()
	changed, err := ix.Refresh(context.Background())
	require.NoError(t, err)
	require.False(t, changed)
	require.NoError(t, os.Symlink("b", link+"2"))
	require.NoError(t, os.Rename(link+"2", link))
	changed, err = ix.Refresh(context.Background())
	require.NoError(t, err)
	require.True(t, changed)
	require.NoError(t, holds(ix, others))
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = ix.Refresh(canceled)
	require.ErrorIs(t, err, context.Canceled)
}

// Devices keep documents by lineage and ordinal, whatever becomes of chunks.
func TestLineageOfSnapshots(t *testing.T) {
	small(t)
	path := newPath(t)
	docs := corpus(80, 6, 8, 1)
	build(t, path, 8, docs[:40], nil)
	ix := writing(t, path)
	type place struct {
		lineage uint64
		ordinal uint32
	}
	first := map[place]string{} // ids, as they were first seen
	lineages := map[uint64]bool{}
	look := func(ix *Index) {
		s := taken(t, ix)
		defer s.Close()
		lineages[s.Lineage()] = true
		for o := range s.State().Docs {
			if !s.Live(o) {
				continue
			}
			p := place{s.Lineage(), o}
			if was, ok := first[p]; ok {
				require.Equal(t, was, s.ID(o), "document %d of lineage %d", o, s.Lineage())
			}
			first[p] = s.ID(o)
		}
	}
	look(ix)
	for i := 40; i < 80; i += 2 {
		add(t, ix, 8, docs[i:i+2]...)
		look(ix)
		_, _, err := ix.Delete(context.Background(), []string{docs[i-40].ID})
		require.NoError(t, err)
		look(ix)
		if i == 60 {
			require.NoError(t, ix.Compact(context.Background(), nil))
			look(ix)
		}
	}
	require.Len(t, lineages, 1, "a device need not begin anew")
	require.NoError(t, ix.Close())
	build(t, path, 8, docs[40:], &BuildOptions{Force: true})
	look(writing(t, path))
	require.Len(t, lineages, 2)
}
