package search

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
)

var _ Searcher = (*Engine)(nil)

func TestDescribe(t *testing.T) {
	m := newMaker(1, 16, 4)
	docs := m.Docs("d", 40, 5)
	ix := searchtest.Build(t, 16, docs, nil)
	snap := searchtest.Snapshot(t, ix)
	e := on(t, ix, 3)
	d, err := e.Describe(t.Context())
	require.NoError(t, err)
	require.Equal(t, Description{
		Docs: 40, Tokens: snap.State().LiveTokens, Dim: 16, Centroids: snap.Header().Centroids, Nbits: 2,
		Generation: snap.Generation(), Lineage: snap.Lineage(), Backend: ix.Backend(), Threads: 3,
	}, d)
	_, _, err = ix.Delete(t.Context(), []string{"d1"})
	require.NoError(t, err)
	for want, e := range map[int64]*Engine{39: e, 40: e.At(snap)} {
		d, err = e.Describe(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, d.Docs)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = e.Describe(canceled)
	require.ErrorIs(t, err, context.Canceled)
	_, err = New(t.Context(), ix, &EngineOptions{Threads: -1})
	require.ErrorIs(t, err, ErrOption)
}

// What an engine does at a snapshot it does where it searches.
func TestAtKeepsTheDevice(t *testing.T) {
	m := newMaker(1, 16, 4)
	ix := searchtest.Build(t, 16, m.Docs("d", 40, 5), nil)
	snap := searchtest.Snapshot(t, ix)
	var d kerneltest.Device
	e := onDeviceOf(t, ix, &d)
	_, _, err := ix.Delete(t.Context(), []string{"d1", "d2"})
	require.NoError(t, err)
	require.Equal(t, search(t, e, m.query(3), Options{K: 100}).Stats.Allowed+2, search(t, e.At(snap), m.query(3), Options{K: 100}).Stats.Allowed)
	require.EqualValues(t, 2, d.Searched.Load())
	require.NoError(t, e.At(snap).Close())
	_, err = e.Search(t.Context(), m.query(3), Options{})
	require.ErrorIs(t, err, ErrClosed, "they end together")
}

// Close ends what runs and what waits, and returns when that has happened.
func TestClose(t *testing.T) {
	m := newMaker(38, 64, 40)
	ix := searchtest.Build(t, 64, m.Docs("d", 400, 20), nil)
	q := m.query(32)
	many := make([]Query, 1<<16)
	for i := range many {
		many[i] = q
	}
	s := NewScheduler(2, 0)
	e, err := New(t.Context(), ix, &EngineOptions{Threads: 2, Scheduler: s})
	require.NoError(t, err)
	before := runtime.NumGoroutine()
	errs := make(chan error, 4)
	for range cap(errs) {
		go func() {
			_, err := e.SearchBatch(context.Background(), many, Options{Mode: Exhaustive})
			errs <- err
		}()
	}
	for waiting := 0; waiting < 2; runtime.Gosched() { // the two of others run
		s.mu.Lock()
		waiting = len(s.turns)
		s.mu.Unlock()
	}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.idle != 2 || len(s.turns) > 0 {
				t.Error("Close has returned before the searches ended")
			}
		})
	}
	wg.Wait()
	for range cap(errs) {
		err := <-errs
		require.ErrorIs(t, err, ErrClosed)
		require.NotErrorIs(t, err, context.Canceled)
	}
	requireGoroutines(t, before)
	_, err = e.Search(t.Context(), q, Options{})
	require.ErrorIs(t, err, ErrClosed)
	_, err = e.Explain(t.Context(), q, "d0", Options{})
	require.ErrorIs(t, err, ErrClosed)
	_, err = e.Describe(t.Context())
	require.ErrorIs(t, err, ErrClosed)
	require.NotEmpty(t, search(t, on(t, ix, 1), q, Options{}).Hits, "the index is open")
}

// stuck is a device that answers when its context ends.
type stuck struct {
	scripted
	asked chan struct{}
}

func (s *stuck) Attach(context.Context, kernels.Corpus, kernels.AttachOptions) (kernels.Attachment, error) {
	return &stuckIndex{scriptedIndex{&s.scripted}, s}, nil
}

type stuckIndex struct {
	scriptedIndex
	s *stuck
}

func (s *stuckIndex) Search(ctx context.Context, _ kernels.Corpus, qs []kernels.DeviceQuery) ([]kernels.DeviceAnswer, error) {
	s.s.asked <- struct{}{}
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestCloseOnDevice(t *testing.T) {
	m := newMaker(1, 16, 4)
	ix := searchtest.Build(t, 16, m.Docs("d", 40, 5), nil)
	d := &stuck{asked: make(chan struct{})}
	e := onDeviceOf(t, ix, d)
	errs := make(chan error)
	go func() {
		_, err := e.Search(context.Background(), m.query(2), Options{})
		errs <- err
	}()
	<-d.asked
	go func() { _ = e.Close() }()
	require.ErrorIs(t, <-errs, ErrClosed)
}

// A panic fails its search, with a stack for the log, and no other.
func TestPanicsFailTheQuery(t *testing.T) {
	m := newMaker(1, 16, 4)
	ix := searchtest.Build(t, 16, m.Docs("d", 40, 5), nil)
	var log bytes.Buffer
	e, err := New(t.Context(), ix, &EngineOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	defer e.Close()
	stages := e.stages
	e.stages = &faulty{stages: stages}
	_, err = e.Search(t.Context(), m.query(2), Options{})
	require.ErrorIs(t, err, storage.ErrInternal)
	var fault *storage.PanicError
	require.ErrorAs(t, err, &fault)
	require.Contains(t, string(fault.Stack), "faulty")
	require.Contains(t, log.String(), "a search panicked")
	require.Contains(t, log.String(), "faulty")
	e.stages = stages
	require.NotEmpty(t, search(t, e, m.query(2), Options{}).Hits)
}

type faulty struct{ stages }

func (f *faulty) answer(context.Context, *call) ([]Result, error) {
	var none []int
	return nil, fmt.Errorf("%d", none[len(none)])
}

// Pieces of a query fail alike on all goroutines: the first error is the query's,
// and a panic is an error.
func TestPiecesOfAQuery(t *testing.T) {
	m := newMaker(1, 16, 4)
	ix := searchtest.Build(t, 16, m.Docs("d", 40, 5), nil)
	snap := searchtest.Snapshot(t, ix)
	before := runtime.NumGoroutine()
	for _, threads := range []int{1, 2, 8} {
		r := testRun(snap, threads)
		for range 50 {
			err := r.forEach(20, func(i int) error {
				if i >= 7 {
					return fmt.Errorf("error %d", i)
				}
				return nil
			})
			require.EqualError(t, err, "error 7")
		}
		require.NoError(t, r.forEach(0, nil))
		requireIdle(t, r.call.turn.s)
	}
	r := testRun(snap, 2)
	err := func() (err error) {
		defer storage.Guard("x", &err)()
		return r.forEach(4, func(i int) error { panic("fault") })
	}()
	require.ErrorIs(t, err, storage.ErrInternal)
	require.ErrorContains(t, err, "fault")
	requireGoroutines(t, before)
}
