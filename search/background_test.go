package search

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
)

func asideTurn(s *Scheduler) *callSlots {
	return &callSlots{scheduler: s, lifetime: context.Background(), background: true}
}

// untilBehind returns when so many queries in the background wait.
func untilBehind(s *Scheduler, n int) {
	for {
		s.mu.Lock()
		behind := len(s.waitingBackground)
		s.mu.Unlock()
		if behind == n {
			return
		}
		runtime.Gosched()
	}
}

// A query in the background has a worker that none wants, one such query at a time, gives it away at
// the end of a piece of its work, and goes on before others of its kind.
func TestBackgroundGivesWay(t *testing.T) {
	s := NewScheduler(1, 100)
	slow, next, search := asideTurn(s), asideTurn(s), newTurn(s)
	_, err := slow.acquire(t.Context(), 1000)
	require.NoError(t, err)
	require.EqualValues(t, 100, s.freeBytes, "its memory is not of the budget")
	require.Zero(t, slow.borrowWorkers(1))
	require.NoError(t, slow.yieldWorker(t.Context()), "none waits")

	order := make(chan string, 3)
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := next.acquire(context.Background(), 10)
		order <- "next"
		if err != nil {
			t.Error(err)
		}
		next.release(10)
	})
	untilBehind(s, 1)
	searched := make(chan struct{})
	wg.Go(func() {
		_, err := search.acquire(context.Background(), 100)
		order <- "search"
		if err != nil {
			t.Error(err)
		}
		<-searched
		search.release(100)
	})
	untilWaiting(search, 1)
	wg.Go(func() {
		err := slow.yieldWorker(context.Background())
		order <- "slow"
		if err != nil {
			t.Error(err)
		}
		slow.release(1000)
	})
	require.Equal(t, "search", <-order)
	untilBehind(s, 2)
	close(searched)
	wg.Wait()
	require.Equal(t, []string{"slow", "next"}, []string{<-order, <-order})
	requireIdle(t, s)
	require.Zero(t, s.runningBackground)
}

// One that is ended while it has given its worker away, or waits for its first, leaves all as it was.
func TestBackgroundEnds(t *testing.T) {
	s := NewScheduler(1, 100)
	slow, next, search := asideTurn(s), asideTurn(s), newTurn(s)
	_, err := slow.acquire(t.Context(), 0)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	errs := make(chan error, 2)
	go func() {
		_, err := next.acquire(ctx, 0)
		errs <- err
	}()
	untilBehind(s, 1)
	got := make(chan error)
	go func() {
		_, err := search.acquire(context.Background(), 10)
		got <- err
	}()
	untilWaiting(search, 1)
	go func() {
		err := slow.yieldWorker(ctx)
		slow.release(0)
		errs <- err
	}()
	require.NoError(t, <-got)
	untilBehind(s, 2)
	cancel()
	require.ErrorIs(t, <-errs, context.Canceled)
	require.ErrorIs(t, <-errs, context.Canceled)
	require.Zero(t, newTurn(s).borrowWorkers(1), "the search has the worker")
	search.release(10)
	requireIdle(t, s)
	require.Zero(t, s.runningBackground)
	require.Empty(t, s.waitingBackground)
}

// A search waits for one piece of an exhaustive search in the background at most: it is answered in
// the middle of that, on the only worker.
func TestSearchInTheMiddleOfBackground(t *testing.T) {
	m := newMaker(3, 16, 20)
	ix := searchtest.Build(t, 16, m.Docs("d", 300, 5), &index.BuildOptions{Centroids: 64})
	s := NewScheduler(1, 0)
	e, err := New(t.Context(), ix, &EngineOptions{Scheduler: s})
	require.NoError(t, err)
	defer e.Close()
	q := m.query(4)
	want := search(t, e, q, Options{K: 20})
	c, done, err := e.acquireCollection()
	require.NoError(t, err)
	defer done()
	slow := &call{coll: c, slots: e.newSlots(InBackground(t.Context()))}
	_, err = slow.slots.acquire(t.Context(), 0)
	require.NoError(t, err)
	answered := make(chan *Result, 1)
	var pieces, before atomic.Int64
	var w workers
	err = w.forEach(t.Context(), slow, 8, 100, func(i int) error {
		if pieces.Add(1); i == 10 {
			go func() {
				r, err := e.Search(context.Background(), q, Options{K: 20})
				if err != nil {
					t.Error(err)
				}
				before.Store(pieces.Load())
				answered <- r
			}()
			for { // the piece takes until the search waits
				s.mu.Lock()
				waits := len(s.waitingCalls) > 0
				s.mu.Unlock()
				if waits {
					return nil
				}
				runtime.Gosched()
			}
		}
		if i == 11 {
			require.Equal(t, want.Hits, (<-answered).Hits)
		}
		return nil
	})
	require.NoError(t, err)
	require.EqualValues(t, 11, before.Load(), "pieces before the answer")
	slow.slots.release(0)
	requireIdle(t, s)
}

// On a device they are answered there.
func TestBackgroundOnDevice(t *testing.T) {
	m := newMaker(5, 16, 20)
	ix := searchtest.Build(t, 16, m.Docs("d", 200, 5), &index.BuildOptions{Centroids: 64})
	e := onDeviceOf(t, ix, &kerneltest.Device{})
	q := m.query(5)
	for _, o := range []Options{{K: 10}, {K: 100, Mode: Exhaustive}} {
		want := search(t, e, q, o)
		got, err := e.Search(InBackground(t.Context()), q, o)
		require.NoError(t, err)
		require.Equal(t, want.Hits, got.Hits)
		require.Equal(t, want.Stats.Plans, got.Stats.Plans)
	}
}

// Searches in the background, beside many others, find what they find alone.
func TestBackgroundFindsTheSame(t *testing.T) {
	m := newMaker(4, 16, 20)
	ix := searchtest.Build(t, 16, m.Docs("d", 400, 5), &index.BuildOptions{Centroids: 64})
	s := NewScheduler(2, 0)
	e, err := New(t.Context(), ix, &EngineOptions{Threads: 4, Scheduler: s})
	require.NoError(t, err)
	defer e.Close()
	qs := make([]Query, 8)
	for i := range qs {
		qs[i] = m.query(1 + i)
	}
	for _, o := range []Options{{K: 10}, {K: 300, Mode: Exhaustive}} {
		want, err := e.SearchBatch(t.Context(), qs, o)
		require.NoError(t, err)
		var wg sync.WaitGroup
		for i := range 40 {
			ctx := context.Background()
			if i%4 == 0 {
				ctx = InBackground(ctx)
			}
			wg.Go(func() {
				got, err := e.SearchBatch(ctx, qs, o)
				if err != nil {
					t.Error(err)
					return
				}
				same := func(a, b Hit) bool { return a.ID == b.ID && a.Score == b.Score }
				for j := range got {
					if !slices.EqualFunc(got[j].Hits, want[j].Hits, same) {
						t.Errorf("query %d: %v, want %v", j, got[j].Hits, want[j].Hits)
					}
				}
			})
		}
		wg.Wait()
		requireIdle(t, s)
		require.Zero(t, s.runningBackground)
	}
}
