package index

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/vectors"
)

func taken(t tb, ix *Index) *Snapshot {
	t.Helper()
	s, err := ix.Snapshot()
	require.NoError(t, err)
	return s
}

// many makes n documents of two tokens, under ids of their own.
func many(prefix string, n, dim int) []vectors.Document {
	rng := rand.New(rand.NewPCG(uint64(n), 3))
	docs := make([]vectors.Document, n)
	for i := range docs {
		docs[i] = vectors.Document{ID: fmt.Sprint(prefix, i), Tokens: clustered(rng, 2, dim)}
	}
	return docs
}

// A snapshot shares with the one before what the change has left alone.
func TestSnapshotsShare(t *testing.T) {
	const dim = 32
	small(t)
	if files.EmulateWindows {
		t.Skip("snapshots of two mappings share nothing")
	}
	path := newPath(t)
	build(t, path, dim, many("d", 300, dim), &BuildOptions{Centroids: 64})
	ix := writing(t, path)
	ctx := context.Background()
	before := taken(t, ix)
	shared := func(now *Snapshot) int {
		t.Helper()
		require.Same(t, before.Codec(), now.Codec())
		require.Same(t, before.Quantizer(), now.Quantizer())
		require.Equal(t, before.Scorer(), now.Scorer())
		n := now.SharedChunks(before.fileSnapshot)
		for i := range n {
			_, a := before.ChunkDocs(i)
			_, b := now.ChunkDocs(i)
			require.Same(t, unsafe.SliceData(a), unsafe.SliceData(b))
		}
		return n
	}
	words := func(s *Snapshot) *uint64 {
		w, _ := s.LiveSet()
		return unsafe.SliceData(w)
	}
	step := func(change func() error) *Snapshot {
		t.Helper()
		require.NoError(t, change())
		now := taken(t, ix)
		t.Cleanup(func() { require.NoError(t, now.Close()) })
		return now
	}

	now := step(func() error { return ix.SetDefaults(nil) })
	require.Equal(t, before.Chunks(), shared(now))
	require.Same(t, words(before), words(now), "the same content")

	now = step(func() error { _, err := ix.Add(ctx, fromDocs(t, dim, many("n", 3, dim)), nil); return err })
	require.Equal(t, before.Chunks(), shared(now))
	require.Greater(t, now.Chunks(), before.Chunks())
	require.NotSame(t, words(before), words(now))

	require.NoError(t, before.Close())
	before = now
	now = step(func() error { _, _, err := ix.Delete(ctx, []string{"d7"}); return err })
	require.Equal(t, now.Chunks(), shared(now))
	require.NotSame(t, words(before), words(now))
	require.NoError(t, now.Verify(ctx))

	now = step(func() error { return ix.Compact(ctx, nil) })
	require.Zero(t, now.SharedChunks(before.fileSnapshot))
	require.NoError(t, now.Verify(ctx))
}

// Whatever changes, the live set that is made from the one before is the one made
// from nothing, and all snapshots keep what they had.
func TestLiveSetsFollowChanges(t *testing.T) {
	small(t)
	const dim = 8
	rounds := effort.Cases(60, 300)
	rng := rand.New(rand.NewPCG(5, 5))
	path := newPath(t)
	docs := corpus(4000, 3, dim, 8) // a fourth of them is empty
	build(t, path, dim, docs[:150], nil)
	next, ids := 150, []string{}
	for _, d := range docs[:150] {
		ids = append(ids, d.ID)
	}
	ix := writing(t, path)
	ctx := context.Background()
	type kept struct {
		s     *Snapshot
		words []uint64
	}
	var held []kept
	for range rounds {
		switch rng.IntN(8) {
		case 0, 1, 2:
			n := 1 + rng.IntN(5)
			add(t, ix, dim, docs[next:next+n]...)
			for _, d := range docs[next : next+n] {
				ids = append(ids, d.ID)
			}
			next += n
		case 3, 4:
			_, _, err := ix.Delete(ctx, []string{ids[rng.IntN(len(ids))], ids[rng.IntN(len(ids))]})
			require.NoError(t, err)
		case 5, 6:
			again := docs[next]
			again.ID = ids[rng.IntN(len(ids))]
			next++
			_, err := ix.Add(ctx, fromDocs(t, dim, []vectors.Document{again}), &AddOptions{Replace: true})
			require.NoError(t, err)
		case 7:
			if rng.IntN(6) == 0 {
				require.NoError(t, ix.Compact(ctx, nil))
			}
		}
		s := taken(t, ix)
		words, n := s.LiveSet()
		want := newLiveSet(s.fileSnapshot)
		require.Equal(t, want, liveSet{words, n})
		for ordinal := range s.State().Docs {
			chunk, doc, _ := s.Locate(ordinal)
			_, offsets := s.ChunkDocs(chunk)
			live := s.Live(ordinal) && offsets[doc] < offsets[doc+1]
			require.Equal(t, live, words[ordinal/64]>>(ordinal%64)&1 == 1, "%d", ordinal)
		}
		if held = append(held, kept{s, slices.Clone(words)}); len(held) > 20 {
			i := rng.IntN(len(held))
			h := held[i]
			words, _ := h.s.LiveSet()
			require.Equal(t, h.words, words)
			require.NoError(t, h.s.Verify(ctx))
			require.NoError(t, h.s.Close())
			held = slices.Delete(held, i, i+1)
		}
	}
	for _, h := range held {
		require.NoError(t, h.s.Close())
	}
}

// Snapshots are to be had while a change goes on and its picture is made.
func TestSnapshotsWaitForNobody(t *testing.T) {
	path := newPath(t)
	build(t, path, 8, corpus(5, 5, 8, 1), nil)
	ix := writing(t, path)
	ix.writeLock <- struct{}{}
	ix.stateMu.Lock()
	s := taken(t, ix)
	require.NoError(t, s.Close())
	ix.stateMu.Unlock()
	ix.writeLock.unlock()
}

// What a change has committed is seen by all who ask when it has returned.
func TestChangesAreSeenWhenTheyReturn(t *testing.T) {
	small(t)
	const dim = 8
	path := newPath(t)
	docs := corpus(effort.Cases(60, 120), 4, dim, 3)
	build(t, path, dim, docs[:20], nil)
	ix := writing(t, path)
	var done atomic.Int64
	done.Store(20)
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
				least := int(done.Load())
				s, err := ix.Snapshot()
				if err == nil {
					if s.Len() < least {
						err = fmt.Errorf("%d documents, after %d had been added", s.Len(), least)
					}
					err = errors.Join(err, differs(s, docs[:s.Len()]), s.Verify(context.Background()), s.Close())
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := 20; i < len(docs); i++ {
		add(t, ix, dim, docs[i])
		done.Store(int64(i + 1))
		if i%20 == 19 {
			require.NoError(t, ix.Compact(context.Background(), nil))
		}
	}
	close(stop)
	wg.Wait()
}

// brittle is a backend that makes no scorers for a while.
type brittle struct {
	kernels.Backend
	down *atomic.Bool
	made *atomic.Int64
	wait time.Duration
}

func (b brittle) Scorer(c *kernels.Codec) (kernels.Scorer, error) {
	if b.down.Load() {
		return nil, errors.New("no scorer")
	}
	b.made.Add(1)
	time.Sleep(b.wait) // for others to come meanwhile
	return b.Backend.Scorer(c)
}

// A change that is done and cannot be shown is no failure. There are no snapshots
// then; the first that is asked for afterwards makes the picture, one for all.
func TestChangeThatCannotBeShown(t *testing.T) {
	const dim = 8
	path := newPath(t)
	docs := corpus(20, 5, dim, 1)
	build(t, path, dim, docs, nil)
	ix := writing(t, path)
	b := brittle{ix.backend, new(atomic.Bool), new(atomic.Int64), 20 * time.Millisecond}
	ix.backend = b
	held := taken(t, ix)
	b.down.Store(true)
	require.NoError(t, ix.Compact(context.Background(), nil))
	_, err := ix.Snapshot()
	require.ErrorContains(t, err, "no scorer")
	_, err = ix.Add(context.Background(), fromDocs(t, dim, many("n", 1, dim)), nil)
	require.ErrorContains(t, err, "no scorer")
	require.NoError(t, held.Verify(context.Background()))
	require.NoError(t, held.Close())

	b.down.Store(false)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			s, err := ix.Snapshot()
			if err == nil {
				err = errors.Join(differs(s, docs), s.Close())
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, b.made.Load())
}

// Thousands of changes leave neither memory nor transactions behind.
func TestRefreshesLeaveNothing(t *testing.T) {
	const dim = 8
	rounds := effort.Cases(240, 8000)
	if effort.RaceDetector {
		rounds = 800
	}
	path := newPath(t)
	build(t, path, dim, many("d", 200, dim), nil)
	ix := writing(t, path)
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	one := many("n", 1, dim)
	closed := new(atomic.Int64)
	var settled uint64
	for i := range rounds {
		if i == rounds/4 {
			settled = heap()
		}
		_, err := ix.Add(context.Background(), fromDocs(t, dim, one), &AddOptions{Replace: true})
		require.NoError(t, err)
		if i%50 == 49 { // what was replaced leaves places of its own
			require.NoError(t, ix.Compact(context.Background(), nil))
		}
		s := taken(t, ix)
		if i%10 == 0 {
			runtime.AddCleanup(s.state, func(*atomic.Int64) { closed.Add(1) }, closed)
		}
		require.NoError(t, s.Close())
	}
	require.Less(t, heap(), settled+settled/2+1<<20)
	require.Eventually(t, func() bool {
		runtime.GC()
		return closed.Load() >= int64(rounds/10)-1
	}, 5*time.Minute, time.Millisecond, "pictures are kept")
}

// BenchmarkRefresh is the picture after an addition of one document, beside the older
// one and made anew. The former must not take longer where there are more documents.
func BenchmarkRefresh(b *testing.B) {
	const dim = 32
	for _, n := range []int{10_000, 100_000} {
		path := b.TempDir() + "/x.plaid"
		_, err := Build(context.Background(), path, fromDocs(b, dim, many("d", n, dim)), &BuildOptions{Centroids: 1024, Iterations: 1, SampleDocs: 2000})
		require.NoError(b, err)
		ix, err := Open(context.Background(), path, &Options{Write: true})
		require.NoError(b, err)
		added := 0
		for _, anew := range []bool{false, true} {
			b.Run(fmt.Sprintf("docs=%d/anew=%v", n, anew), func(b *testing.B) {
				b.ReportAllocs()
				for range b.N {
					b.StopTimer()
					older := taken(b, ix)
					added++
					_, err = ix.Add(context.Background(), fromDocs(b, dim, many(fmt.Sprint("n", added, " "), 1, dim)), nil)
					require.NoError(b, err)
					from, fromView := older.state, older.fileSnapshot
					if anew {
						from, fromView = nil, nil
					}
					b.StartTimer()
					v, err := ix.file.SnapshotAfter(context.Background(), fromView)
					require.NoError(b, err)
					p, err := ix.readState(v, from)
					require.NoError(b, err)
					b.StopTimer()
					require.NoError(b, p.fileSnapshot.Close())
					require.NoError(b, older.Close())
				}
			})
		}
		require.NoError(b, ix.Close())
	}
}
