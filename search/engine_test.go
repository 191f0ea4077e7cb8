package search

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/internal/topk"
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
	many := make([]Query, 1<<14)
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
		waiting = len(s.waitingCalls)
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
			if s.idleWorkers != 2 || len(s.waitingCalls) > 0 {
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

// A search that waits for its device ends with the engine.
func TestCloseOnDevice(t *testing.T) {
	m := newMaker(1, 16, 4)
	ix := searchtest.Build(t, 16, m.Docs("d", 40, 5), nil)
	asked, errs := make(chan struct{}), make(chan error)
	e := onDeviceOf(t, ix, &scripted{hear: func(ctx context.Context, _ kernels.Corpus, qs []kernels.DeviceQuery) error {
		if qs == nil {
			return nil
		}
		asked <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}})
	go func() {
		_, err := e.Search(context.Background(), m.query(2), Options{})
		errs <- err
	}()
	<-asked
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
		requireIdle(t, r.call.slots.scheduler)
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

// The candidates that are kept are those of the order of results, of equal gains the first.
func TestCutAgainstSort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gains := rapid.SliceOfN(rapid.OneOf(
			rapid.Uint32Range(0, gainSum),
			rapid.Uint32Range(5000, 5003),
			rapid.SampledFrom([]uint32{0, 1, gainSum - 1, gainSum, (gainSum + 1) / gainBuckets, (gainSum+1)/gainBuckets - 1}),
		), 2, 400).Draw(t, "gains")
		r, n := &run{}, rapid.IntRange(1, len(gains)-1).Draw(t, "n")
		r.prober.lastKept, r.prober.total, r.plan.approxBudget = math.MaxUint64, len(gains), len(gains)
		r.prober.gainUnit = rapid.SampledFrom([]float64{1, 1.0 / gainSum, 3.7e-8, 1e-30 / gainSum}).Draw(t, "unit")
		for i, g := range gains {
			r.reached = append(r.reached, newCandidate(uint32(3*i), g))
			r.prober.counts[gainBucket(g)]++
			r.prober.countFromMin++
		}
		scored := r.prober.gainScores(r.reached)
		slices.SortFunc(scored, topk.Order)
		var want []uint32
		for _, s := range scored[:n] {
			want = append(want, s.Doc)
		}
		slices.Sort(want)
		require.Equal(t, want, r.selectReached(n))
	})
}

// Different gains are different scores, also the largest.
func TestGainsAreScores(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := prober{gainUnit: rapid.Float64Range(1e-30/gainSum, 1e6).Draw(t, "unit")}
		g := rapid.Uint32Range(0, gainSum-1).Draw(t, "gain")
		s := p.gainScores([]candidate{newCandidate(math.MaxUint32, g+1), newCandidate(0, g)})
		require.Greater(t, s[0].Score, s[1].Score)
		require.EqualValues(t, uint32(math.MaxUint32), s[0].Doc)
	})
}

// A query that says what made it is held against the model of the index.
func TestModelOfAQuery(t *testing.T) {
	m := newMaker(1, 16, 4)
	made := &storage.Model{Name: "nano", Fingerprint: "abc"}
	for _, ix := range []*index.Index{
		searchtest.Build(t, 16, m.Docs("d", 30, 5), &index.BuildOptions{Model: made}),
		searchtest.Build(t, 16, m.Docs("d", 30, 5), nil),
	} {
		e, err := New(t.Context(), ix, nil)
		require.NoError(t, err)
		defer e.Close()
		q := m.query(3)
		for _, c := range []struct {
			model *storage.Model
			ok    bool
		}{{nil, true}, {made, true}, {&storage.Model{Name: "other", Fingerprint: "xyz"}, false}} {
			q.Model = c.model
			_, err := e.Search(t.Context(), q, Options{})
			d, derr := e.Describe(t.Context())
			require.NoError(t, derr)
			if c.ok || d.Model == nil {
				require.NoError(t, err)
				continue
			}
			require.ErrorIs(t, err, storage.ErrModel)
			require.ErrorIs(t, err, ErrQuery)
		}
	}
	q := Query{Vectors: []float32{1}, Dim: 1, Model: made}
	text, err := json.Marshal(q)
	require.NoError(t, err)
	var back Query
	require.NoError(t, json.Unmarshal(text, &back))
	require.Equal(t, q, back)
}

// Documents longer than a job are scored in parts by several threads, with the
// same scores.
func TestLongDocumentsInParts(t *testing.T) {
	m := newMaker(7, 16, 60)
	docs := m.Docs("d", 200, 12)
	for at, tokens := range map[int]int{20: 2*exactJob - 1, 40: 2 * exactJob, 60: 2*exactJob + 1, 199: 5*exactJob + 17} {
		docs[at].Tokens = m.Tokens(tokens)
	}
	ix := searchtest.Build(t, 16, docs, &index.BuildOptions{Centroids: 128})
	one := on(t, ix, 1)
	for _, tokens := range []int{1, 5, 40} {
		q := m.query(tokens)
		q.Weights = make([]float32, tokens)
		for i := range q.Weights {
			q.Weights[i] = float32(i%3) + 0.5
		}
		for _, o := range []Options{{K: 20, Mode: Exhaustive}, {K: 20}, {K: 200, Mode: Exhaustive}} {
			want := search(t, one, q, o)
			require.Subset(t, ids(want.Hits), []string{"d20", "d40", "d60", "d199"}, "long documents have good matches")
			for _, threads := range []int{2, 3, 8} {
				got := search(t, on(t, ix, threads), q, o)
				require.Equal(t, want.Hits, got.Hits)
				require.Equal(t, want.Stats.ExactTokens, got.Stats.ExactTokens)
			}
		}
	}

	snap := searchtest.Snapshot(t, ix)
	r := testRun(snap, 2)
	all := func() (parts int) {
		live, _ := snap.LiveSet()
		tokens, parts := r.splitJobs(appendBits(nil, live), exactJob, true)
		require.EqualValues(t, snap.State().LiveTokens, tokens)
		var sum, longest int
		for _, j := range r.jobs {
			sum += j.tokens
			longest = max(longest, j.tokens)
		}
		require.EqualValues(t, tokens, sum, "each token is in one job")
		if parts > 0 {
			require.Less(t, longest, 3*exactJob)
		}
		return parts
	}
	require.Equal(t, 2+3+6, all())
	r.threads = 1
	require.Zero(t, all(), "one thread cuts nothing")
}

// The more tokens a query has, the fewer of documents are in a job, so that a search
// hears soon that it is to end.
func TestJobsOfLongQueries(t *testing.T) {
	const dim, longest = 16, 30
	m := newMaker(8, dim, 60)
	snap := searchtest.Snapshot(t, searchtest.Build(t, dim, m.Docs("d", 3000, longest), &index.BuildOptions{Centroids: 64, Iterations: 1, SampleDocs: 200}))
	live, _ := snap.LiveSet()
	for _, queryTokens := range []int{1, 128, 40_000} {
		r := testRun(snap, 2)
		require.NoError(t, r.query.Reset(m.Tokens(queryTokens), nil))
		_, parts := r.splitJobs(appendBits(nil, live), approxJob, false)
		require.Zero(t, parts)
		for _, j := range r.jobs {
			require.Less(t, (j.tokens-2*longest)*queryTokens, jobPairs)
		}
		require.Equal(t, queryTokens > 128, len(r.jobs) > 2*snap.Chunks(), "%d jobs of %d chunks", len(r.jobs), snap.Chunks())
	}
}
