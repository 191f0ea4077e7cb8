package search

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
)

func newTurn(s *Scheduler) *turn { return &turn{s: s, end: context.Background()} }

// untilWaiting returns when so many queries of a call wait.
func untilWaiting(t *turn, n int) {
	for {
		t.s.mu.Lock()
		waiting := len(t.waiting)
		t.s.mu.Unlock()
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
	query := func(name string, of *turn) {
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
	require.Equal(t, s.workers, s.idle)
	require.Equal(t, s.bytes, s.free)
	require.Empty(t, s.turns)
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
		of    *turn
		bytes int64
	}{{large, 1000}, {small, 10}} {
		wg.Go(func() {
			if _, err := c.of.acquire(context.Background(), c.bytes); err != nil {
				t.Error(err)
			}
			mu.Lock()
			order = append(order, c.bytes)
			s.mu.Lock()
			if c.bytes == 1000 && (s.free != 0 || s.idle != 3) {
				t.Errorf("%d bytes and %d workers are free beside the large one", s.free, s.idle)
			}
			s.mu.Unlock()
			mu.Unlock()
			c.of.release(c.bytes)
		})
		untilWaiting(c.of, 1)
	}
	require.Zero(t, newTurn(s).borrow(2), "a query waits")
	running.release(20) // enough for the small one, which is behind
	running.release(60)
	wg.Wait()
	require.Equal(t, []int64{1000, 10}, order)
	requireIdle(t, s)

	got := newTurn(s).borrow(9)
	require.Equal(t, 4, got)
	require.Zero(t, newTurn(s).borrow(1))
	newTurn(s).giveBack(got)
	requireIdle(t, s)
}

func TestSchedulerCancelled(t *testing.T) {
	s := NewScheduler(1, 100)
	running := newTurn(s)
	_, err := running.acquire(t.Context(), 60)
	require.NoError(t, err)
	running.s.idle++ // a worker is free, bytes are not
	ctx, cancel := context.WithCancel(context.Background())
	end, close := context.WithCancel(context.Background())
	errs := make(chan error, 3)
	large, ended, small := newTurn(s), newTurn(s), newTurn(s)
	ended.end = end
	for _, c := range []struct {
		of    *turn
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
	s.idle--
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
		s.idle, s.free = 1, 100
		s.admit()
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
				if _, err := call.turn.acquire(ctx, n); err != nil {
					failed.Store(&err)
					return
				}
				raise(&c.most, c.now.Add(1))
				raise(&c.heavy, c.held.Add(min(n, call.turn.s.bytes)))
				runtime.Gosched()
				c.done.Add(1)
				c.now.Add(-1)
				c.held.Add(-min(n, call.turn.s.bytes))
				call.turn.release(n)
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
	require.Zero(t, s.keep())
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
					if !equalHits(res[j].Hits, want[i%7+j].Hits) {
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

func equalHits(a, b []Hit) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].ID != b[i].ID || a[i].Score != b[i].Score {
			return false
		}
	}
	return true
}
