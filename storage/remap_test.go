package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
)

// asOnWindows has the test write as one has to there.
func asOnWindows(t *testing.T) {
	old := files.EmulateWindows
	files.EmulateWindows = true
	t.Cleanup(func() { files.EmulateWindows = old })
}

// bbolt's lock of its mapping is where it is looked for.
func TestMappingLock(t *testing.T) {
	db, err := bolt.Open(filepath.Join(t.TempDir(), "x"), 0o600, nil)
	require.NoError(t, err)
	lock := boltMappingLock(db)
	require.NotNil(t, lock)
	tx, err := db.Begin(false)
	require.NoError(t, err)
	require.False(t, lock.TryLock(), "a read transaction holds it")
	require.NoError(t, tx.Rollback())
	require.True(t, lock.TryLock())
	lock.Unlock()
	require.NoError(t, db.Close())
}

// What is true of commits, snapshots and rewrites is true of those of Windows.
func TestAsOnWindows(t *testing.T) {
	if files.EmulateWindows {
		t.Skip("all tests are")
	}
	asOnWindows(t)
	for name, test := range map[string]func(*testing.T){
		"UnknownOutcome":              TestUnknownOutcome,
		"UnknownOutcomeOfARewrite":    TestUnknownOutcomeOfARewrite,
		"ViewsWaitForTheLastSync":     TestViewsWaitForTheLastSync,
		"FailedWriteGoesOn":           TestFailedWriteGoesOn,
		"ViewsKeepTheirPicture":       TestViewsKeepTheirPicture,
		"ViewsShareWhatHasNotChanged": TestViewsShareWhatHasNotChanged,
		"ViewsLookUpWhatHasChanged":   TestViewsLookUpWhatHasChanged,
		"ViewAfterAnotherFile":        TestViewAfterAnotherFile,
		"CheckedValuesAreForgotten":   TestCheckedValuesAreForgotten,
		"RoundTrip":                   TestRoundTrip,
		"DigestIsOfContentOnly":       TestDigestIsOfContentOnly,
		"OpenErrors":                  TestOpenErrors,
		"Locks":                       TestLocks,
		"StagedIsInvisibleAndSwept":   TestStagedIsInvisibleAndSwept,
		"ViewsBesideAGrowingFile":     TestViewsBesideAGrowingFile,
		"Mirror":                      TestMirror,
		"Guard":                       TestGuard,
		"PanicWithinATransaction":     TestPanicWithinATransaction,
	} {
		t.Run(name, test)
	}
}

// picture is a snapshot that is held, and what it showed at first.
type picture struct {
	v    *Snapshot
	text string
}

func (p picture) close(t *testing.T) {
	t.Helper()
	now, err := contents(p.v)
	require.NoError(t, err)
	require.Equal(t, p.text, now)
	require.NoError(t, p.v.Verify(context.Background()))
	require.NoError(t, p.v.Close())
}

// growing is an index, and what ought to be in it.
type growing struct {
	t     *testing.T
	f     *File
	docs  map[string]bool
	fill  []int // notes: no part of the content, but of the file
	held  []picture
	next  int
	maps  map[*readOnlyMapping]bool
	files int
}

func (g *growing) step(rng *rand.Rand) {
	t := g.t
	switch rng.IntN(12) {
	case 0, 1, 2:
		id := fmt.Sprint("n", g.next)
		g.next++
		require.NoError(t, appendDocs(g.f, testDoc{id, []uint16{uint16(rng.IntN(3)), 1}, strings.Repeat("p", rng.IntN(9000))}))
		g.docs[id] = true
	case 3, 4: // much at once: the mapping is made anew in the middle of a commit
		n := rng.IntN(200_000)
		require.NoError(t, g.f.Update(func(tx *Tx) error {
			return tx.PutNote(fmt.Sprint("fill", g.next), bytes.Repeat([]byte{byte(g.next)}, n))
		}))
		g.fill = append(g.fill, g.next)
		g.next++
	case 5, 6: // pages become free, and are written again if no snapshot has them
		if len(g.fill) > 0 {
			i := rng.IntN(len(g.fill))
			require.NoError(t, g.f.Update(func(tx *Tx) error {
				return tx.PutNote(fmt.Sprint("fill", g.fill[i]), "")
			}))
			g.fill = slices.Delete(g.fill, i, i+1)
		}
	case 7, 8:
		var older *Snapshot
		if len(g.held) > 0 && rng.IntN(2) == 0 {
			older = g.held[rng.IntN(len(g.held))].v
		}
		v, err := g.f.SnapshotAfter(context.Background(), older)
		require.NoError(t, err)
		g.maps[v.readTx.from] = true
		text, err := contents(v)
		require.NoError(t, err)
		for id := range g.docs {
			_, ok, err := v.Ordinal(id)
			require.NoError(t, err)
			require.True(t, ok, id)
		}
		require.Equal(t, int(v.state.Live), len(testDocs)+len(g.docs))
		g.held = append(g.held, picture{v, text})
		if len(g.held) > 6 {
			g.release(rng)
		}
	case 9:
		g.release(rng)
	case 10:
		if rng.IntN(3) == 0 {
			require.NoError(t, g.f.Replace(fillTestIndex))
			g.docs, g.fill = map[string]bool{}, nil
			g.files++
		}
	case 11:
		if rng.IntN(3) == 0 { // nothing is left open or locked
			for len(g.held) > 0 {
				g.release(rng)
			}
			path := g.f.Path()
			require.NoError(t, g.f.Close())
			require.Equal(t, []string{filepath.Base(path)}, names(t, filepath.Dir(path)))
			f := openWriting(t, path)
			g.f = f
		}
	}
}

func (g *growing) release(rng *rand.Rand) {
	if len(g.held) > 0 {
		i := rng.IntN(len(g.held))
		g.held[i].close(g.t)
		g.held = slices.Delete(g.held, i, i+1)
	}
}

// Random changes of an index whose file grows and is replaced below snapshots that are held:
// each shows to its end what it showed at first.
func TestFilesGrowBelowTheirViews(t *testing.T) {
	asOnWindows(t)
	steps := effort.Cases(300, 1500)
	for seed := range uint64(effort.Cases(1, 3)) {
		rng := rand.New(rand.NewPCG(seed, 22))
		f := openWriting(t, writeTestIndex(t))
		g := &growing{t: t, f: f, docs: map[string]bool{}, maps: map[*readOnlyMapping]bool{}}
		for range steps {
			g.step(rng)
		}
		for len(g.held) > 0 {
			g.release(rng)
		}
		require.NoError(t, g.f.Close())
		require.Greater(t, len(g.maps), 5)
		require.Positive(t, g.files)
	}
}

// Snapshots are opened, read and closed beside a writer whose file grows.
func TestViewsBesideAGrowingFile(t *testing.T) {
	f := openWriting(t, writeTestIndex(t))
	var stop atomic.Bool
	var readers sync.WaitGroup
	for i := range 3 {
		readers.Go(func() {
			var older *Snapshot
			for n := 0; !stop.Load(); n++ {
				v, err := f.SnapshotAfter(context.Background(), older)
				if err == nil {
					_, err = contents(v)
				}
				if err == nil && len(v.state.Segments) != 1+int(v.state.Docs)-len(testDocs) {
					err = fmt.Errorf("%d documents in %d segments", v.state.Docs, len(v.state.Segments))
				}
				if err == nil && n%3 == i {
					err = v.Verify(context.Background())
				}
				if older != nil {
					err = errors.Join(err, older.Close())
				}
				if older = v; err != nil {
					t.Error(err)
					break
				}
			}
			if older != nil {
				if err := older.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range 60 {
		require.NoError(t, appendDocs(f, testDoc{fmt.Sprint("n", i), []uint16{0, 1, uint16(i % 3)}, strings.Repeat("p", 5000)}))
		require.NoError(t, f.Update(func(tx *Tx) error {
			return tx.PutNote(fmt.Sprint("fill", i%7), bytes.Repeat([]byte{7}, i<<10))
		}))
	}
	stop.Store(true)
	readers.Wait()
	require.NoError(t, f.Close())
}

// A program that dies while one file takes the place of another leaves an index that
// opens, with nothing beside it.
func TestInterruptedReplacement(t *testing.T) {
	asOnWindows(t)
	ctx := context.Background()
	text := func(path string) string {
		f, v := openViewNow(t, path)
		s, err := contents(v)
		require.NoError(t, errors.Join(err, v.Close(), f.Close()))
		return s
	}
	interrupted := func() string { // after the first step
		path := writeTestIndex(t)
		require.NoError(t, os.WriteFile(siblingPath(path, rewriteSuffix), []byte("whatever"), 0o600))
		require.NoError(t, os.Rename(path, siblingPath(path, replacedSuffix)))
		return path
	}
	want := text(writeTestIndex(t))

	require.Equal(t, want, text(interrupted()), "opened to be read")

	for _, create := range []bool{false, true} { // the index that is there is found, and no new one is made
		path := interrupted()
		f, err := Open(ctx, path, Options{Write: true, Create: create})
		require.NoError(t, err)
		require.False(t, f.Created())
		require.Equal(t, want, seen(t, f))
		require.NoError(t, f.Close())
		require.Equal(t, []string{filepath.Base(path)}, names(t, filepath.Dir(path)))
	}

	// Who is at it has the lock.
	path := interrupted()
	busy, err := files.OpenFile(siblingPath(path, replacedSuffix), os.O_RDWR, 0)
	require.NoError(t, err)
	require.NoError(t, files.LockExclusive(busy))
	_, err = Open(ctx, path, Options{})
	require.ErrorIs(t, err, ErrLocked)
	time.AfterFunc(50*time.Millisecond, func() { busy.Close() })
	f, err := Open(ctx, path, Options{Write: true, LockTimeout: time.Minute})
	require.NoError(t, err)
	require.NoError(t, f.Close())

	// After the second and the third step.
	for _, left := range []string{replacedSuffix, "-0123abcd" + removalSuffix} {
		path := writeTestIndex(t)
		require.NoError(t, os.WriteFile(siblingPath(path, left), []byte("the old one"), 0o600))
		require.Equal(t, want, text(path))
		f := openWriting(t, path)
		require.NoError(t, f.Close())
		require.Equal(t, []string{filepath.Base(path)}, names(t, filepath.Dir(path)))
	}

	_, err = Open(ctx, filepath.Join(t.TempDir(), "none"), Options{})
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// An index whose building failed gives its name free at once.
func TestRemove(t *testing.T) {
	asOnWindows(t)
	path := writeTestIndex(t)
	f := openWriting(t, path)
	v, err := f.Snapshot()
	require.NoError(t, err)
	require.NoError(t, f.Remove())
	require.NoFileExists(t, path)
	require.NoError(t, f.Close())
	_, err = contents(v)
	require.NoError(t, err)
	require.NoError(t, v.Close())
	require.Empty(t, names(t, filepath.Dir(path)))
}
