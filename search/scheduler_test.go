package search

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
)

func newTurn(s *Scheduler) *callSlots {
	return &callSlots{scheduler: s, lifetime: context.Background()}
}

// untilWaiting returns when so many queries of a call wait.
func untilWaiting(t *callSlots, n int) {
	for {
		t.scheduler.mu.Lock()
		waiting := len(t.waiting)
		t.scheduler.mu.Unlock()
		if waiting == n {
			return
		}
		runtime.Gosched()
	}
}

// Calls take turns, a query each, however many queries one of them has.
func TestSchedulerTakesTurns(t *testing.T) {
	s := NewScheduler(1, 100)
	first := newTurn(s)
	_, err := first.acquire(t.Context(), 100)
	require.NoError(t, err)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var order []string
	query := func(name string, of *callSlots) {
		wg.Go(func() {
			if _, err := of.acquire(context.Background(), 10); err != nil {
				t.Error(err)
			}
			mu.Lock()
			order = append(order, name)
			mu.Unlock()
			of.release(10)
		})
	}
	batch := newTurn(s)
	for i := range 5 {
		query("batch", batch)
		untilWaiting(batch, i+1)
	}
	for _, name := range []string{"a", "b", "c"} {
		single := newTurn(s)
		query(name, single)
		untilWaiting(single, 1)
	}
	first.release(100)
	wg.Wait()
	require.Equal(t, []string{"batch", "a", "b", "c", "batch", "batch", "batch", "batch"}, order)
	requireIdle(t, s)
}

func requireIdle(t *testing.T, s *Scheduler) {
	t.Helper()
	require.Equal(t, s.workers, s.idleWorkers)
	require.Equal(t, s.bytes, s.freeBytes)
	require.Empty(t, s.waitingCalls)
}

// None overtakes one that waits for bytes, and one that needs more than there are
// runs alone.
func TestSchedulerBytes(t *testing.T) {
	s := NewScheduler(4, 100)
	running := newTurn(s)
	for _, bytes := range []int64{20, 60} {
		_, err := running.acquire(t.Context(), bytes)
		require.NoError(t, err)
	}
	large, small := newTurn(s), newTurn(s)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var order []int64
	for _, c := range []struct {
		of    *callSlots
		bytes int64
	}{{large, 1000}, {small, 10}} {
		wg.Go(func() {
			if _, err := c.of.acquire(context.Background(), c.bytes); err != nil {
				t.Error(err)
			}
			mu.Lock()
			order = append(order, c.bytes)
			s.mu.Lock()
			if c.bytes == 1000 && (s.freeBytes != 0 || s.idleWorkers != 3) {
				t.Errorf("%d bytes and %d workers are free beside the large one", s.freeBytes, s.idleWorkers)
			}
			s.mu.Unlock()
			mu.Unlock()
			c.of.release(c.bytes)
		})
		untilWaiting(c.of, 1)
	}
	require.Zero(t, newTurn(s).borrowWorkers(2), "a query waits")
	running.release(20) // enough for the small one, which is behind
	running.release(60)
	wg.Wait()
	require.Equal(t, []int64{1000, 10}, order)
	requireIdle(t, s)

	got := newTurn(s).borrowWorkers(9)
	require.Equal(t, 4, got)
	require.Zero(t, newTurn(s).borrowWorkers(1))
	newTurn(s).returnWorkers(got)
	requireIdle(t, s)
}

func TestSchedulerCancelled(t *testing.T) {
	s := NewScheduler(1, 100)
	running := newTurn(s)
	_, err := running.acquire(t.Context(), 60)
	require.NoError(t, err)
	running.scheduler.idleWorkers++ // a worker is free, bytes are not
	ctx, cancel := context.WithCancel(context.Background())
	end, close := context.WithCancel(context.Background())
	errs := make(chan error, 3)
	large, ended, small := newTurn(s), newTurn(s), newTurn(s)
	ended.lifetime = end
	for _, c := range []struct {
		of    *callSlots
		ctx   context.Context
		bytes int64
	}{{large, ctx, 100}, {ended, context.Background(), 100}, {small, context.Background(), 10}} {
		go func() {
			_, err := c.of.acquire(c.ctx, c.bytes)
			errs <- err
		}()
		untilWaiting(c.of, 1)
	}
	cancel()
	require.ErrorIs(t, <-errs, context.Canceled)
	close()
	require.ErrorIs(t, <-errs, ErrClosed)
	require.NoError(t, <-errs, "it waited for those before it alone")
	small.release(10)
	s.idleWorkers--
	running.release(60)
	requireIdle(t, s)
}

// A query that is let through in the moment in which its context ends gives back
// what it got.
func TestSchedulerCancelledAsItIsLetThrough(t *testing.T) {
	for range 50 {
		s := NewScheduler(1, 100)
		running, waiting := newTurn(s), newTurn(s)
		_, err := running.acquire(t.Context(), 100)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			if _, err := waiting.acquire(ctx, 50); err == nil {
				waiting.release(50)
			}
		}()
		untilWaiting(waiting, 1)
		s.mu.Lock()
		cancel()
		s.idleWorkers, s.freeBytes = 1, 100
		s.admitWaiting()
		s.mu.Unlock()
		<-done
		requireIdle(t, s)
	}
}

// counting is stages that count what runs at a time.
type counting struct {
	processor
	bytes       func() int64
	now, most   atomic.Int64 // queries
	held, heavy atomic.Int64 // bytes
	done        atomic.Int64
}

func (c *counting) answer(ctx context.Context, call *call) ([]Result, error) {
	var wg sync.WaitGroup
	var failed atomic.Pointer[error]
	next := atomic.Int64{}
	for range min(call.threads, len(call.queries)) {
		wg.Go(func() {
			for int(next.Add(1)) <= len(call.queries) {
				n := c.bytes()
				if _, err := call.slots.acquire(ctx, n); err != nil {
					failed.Store(&err)
					return
				}
				raise(&c.most, c.now.Add(1))
				raise(&c.heavy, c.held.Add(min(n, call.slots.scheduler.bytes)))
				runtime.Gosched()
				c.done.Add(1)
				c.now.Add(-1)
				c.held.Add(-min(n, call.slots.scheduler.bytes))
				call.slots.release(n)
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return nil, *err
	}
	return make([]Result, len(call.queries)), nil
}

func raise(most *atomic.Int64, n int64) {
	for {
		m := most.Load()
		if n <= m || most.CompareAndSwap(m, n) {
			return
		}
	}
}

// A thousand searches at once, of two engines beside batches: all are answered, and
// what runs at a time stays within both limits.
func TestThousandSearches(t *testing.T) {
	const workers, budget, searches, batches, size = 3, 1000, 1000, 4, 500
	m := newMaker(1, 8, 3)
	ix := searchtest.Build(t, 8, m.Docs("d", 20, 3), nil)
	s := NewScheduler(workers, budget)
	fake := &counting{bytes: func() int64 { return rand.Int64N(1500) }}
	engines := make([]*Engine, 2)
	for i := range engines {
		e, err := New(t.Context(), ix, &EngineOptions{Threads: 8, Scheduler: s})
		require.NoError(t, err)
		defer e.Close()
		e.stages = fake
		engines[i] = e
	}
	q := m.query(2)
	var wg sync.WaitGroup
	for i := range batches {
		wg.Go(func() {
			if _, err := engines[i%2].SearchBatch(context.Background(), make([]Query, size), Options{}); err != nil {
				t.Error(err)
			}
		})
	}
	for i := range searches {
		wg.Go(func() {
			if _, err := engines[i%2].Search(context.Background(), q, Options{}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, searches+batches*size, fake.done.Load())
	require.LessOrEqual(t, fake.most.Load(), int64(workers))
	require.LessOrEqual(t, fake.heavy.Load(), int64(budget))
	require.Greater(t, fake.heavy.Load(), int64(budget/2))
	requireIdle(t, s)
}

// Searches of the processor, many at once within a small budget, find what they
// find alone, and give back all they take, also when they fail.
func TestSearchesWithinBudget(t *testing.T) {
	m := newMaker(2, 16, 20)
	ix := searchtest.Build(t, 16, m.Docs("d", 300, 5), &index.BuildOptions{Centroids: 64})
	s := NewScheduler(2, 1)
	require.Zero(t, s.maxKeptBytes())
	e, err := New(t.Context(), ix, &EngineOptions{Threads: 4, Scheduler: s})
	require.NoError(t, err)
	defer e.Close()
	qs := make([]Query, 20)
	want := make([]*Result, len(qs))
	alone := on(t, ix, 1)
	for i := range qs {
		qs[i] = m.query(1 + i)
		want[i] = search(t, alone, qs[i], Options{})
	}
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			switch res, err := e.SearchBatch(context.Background(), append(qs[i%7:i%7+3:i%7+3], Query{})[:3+i%2], Options{}); {
			case i%2 == 1:
				var failed *QueryError
				if !errors.As(err, &failed) || failed.Index != 3 {
					t.Errorf("%v", err)
				}
			case err != nil:
				t.Error(err)
			default:
				for j := range res {
					if !slices.EqualFunc(res[j].Hits, want[i%7+j].Hits, func(a, b Hit) bool { return a.ID == b.ID && a.Score == b.Score }) {
						t.Errorf("%v, want %v", res[j].Hits, want[i%7+j].Hits)
					}
				}
			}
		})
	}
	wg.Wait()
	requireIdle(t, s)
	require.Nil(t, e.stages.(*processor).pool.Get(), "buffers are larger than what is kept")
}

// Searches beside a writer each see one state of the index: a document of every
// generation of additions that was whole, and never one that was not.
func TestSearchBesideWriter(t *testing.T) {
	const (
		dim     = 16
		batch   = 6
		rounds  = 12
		readers = 16
	)
	ctx := context.Background()
	m := newMaker(50, dim, 20)
	ix := searchtest.Build(t, dim, m.Docs("d", 150, 4), nil)
	e := on(t, ix, 2)
	queries := make([]Query, 8)
	for i := range queries {
		queries[i] = m.query(5)
	}
	before := runtime.NumGoroutine()
	var stop atomic.Bool
	var wg sync.WaitGroup
	var searches atomic.Int64
	errs := make(chan error, readers)
	for g := range readers {
		wg.Go(func() {
			for i := g; !stop.Load(); i++ {
				if err := searchOnce(ctx, ix, e, queries[i%len(queries)], i); err != nil {
					errs <- fmt.Errorf("reader %d, search %d: %w", g, i, err)
					return
				}
				searches.Add(1)
			}
		})
	}
	for r := range rounds {
		docs := m.Docs(fmt.Sprintf("r%d-", r), batch, 4)
		docs[5].Tokens = docs[0].Tokens // none is empty
		_, err := ix.Add(ctx, searchtest.Source(t, dim, docs), nil)
		require.NoError(t, err)
		if r >= 2 {
			var gone []string
			for i := range batch {
				gone = append(gone, fmt.Sprintf("r%d-%d", r-2, i))
			}
			n, _, err := ix.Delete(ctx, gone)
			require.NoError(t, err)
			require.Equal(t, index.Affected{Documents: batch}, n)
		}
		if r == rounds/2 {
			require.NoError(t, ix.Compact(ctx, nil))
		}
	}
	for searches.Load() < 2*readers && len(errs) == 0 {
		time.Sleep(time.Millisecond)
	}
	stop.Store(true)
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	requireGoroutines(t, before)
}

// searchOnce searches all documents of a snapshot and compares with what the
// snapshot holds; every few times it asks the engine that follows the index.
func searchOnce(ctx context.Context, ix *index.Index, e *Engine, q Query, i int) error {
	if i%3 == 0 {
		res, err := e.Search(ctx, q, Options{K: 1000, Mode: Exhaustive})
		if err != nil {
			return err
		}
		rounds := map[int]int{}
		for _, h := range res.Hits {
			var r, d int
			if n, _ := fmt.Sscanf(h.ID, "r%d-%d", &r, &d); n == 2 {
				rounds[r]++
			}
		}
		for r, n := range rounds {
			if n != 6 {
				return fmt.Errorf("%d of 6 documents that were added and deleted together in round %d", n, r)
			}
		}
		return nil
	}
	snap, err := ix.Snapshot()
	if err != nil {
		return err
	}
	defer snap.Close()
	o := Options{K: 10, Mode: Mode(i % 2)}
	res, err := e.At(snap).Search(ctx, q, o)
	if err != nil {
		return err
	}
	if len(res.Hits) != 10 {
		return fmt.Errorf("%d hits", len(res.Hits))
	}
	for _, h := range res.Hits {
		if ordinal, ok, err := snap.Ordinal(h.ID); err != nil || !ok || ordinal != h.Ordinal {
			return fmt.Errorf("hit %q is not in the snapshot: %v", h.ID, err)
		}
		chunk, doc, _ := snap.Locate(h.Ordinal)
		ch, err := snap.Chunk(chunk, storage.All)
		if err != nil {
			return err
		}
		if score, _ := kernels.OracleMaxSim(snap.Codec(), q.Vectors, nil, ch, doc); math.Abs(score-float64(h.Score)) > 5e-4 {
			return fmt.Errorf("document %q scores %v, the oracle says %v", h.ID, h.Score, score)
		}
	}
	return nil
}

// requireGoroutines waits for goroutines that are about to end.
func requireGoroutines(t *testing.T, most int) {
	t.Helper()
	for i := 0; runtime.NumGoroutine() > most && i < 6000; i++ {
		time.Sleep(10 * time.Millisecond)
	}
	require.LessOrEqual(t, runtime.NumGoroutine(), most)
}
