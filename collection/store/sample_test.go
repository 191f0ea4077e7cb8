package store

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/quality"
	"github.com/plaid-ir/plaid/storage"
)

// every measures each question at once.
var every = collection.Sampling{Rate: 1, Busy: 1}

func randomQuestions(n int) []search.Query {
	rng := rand.New(rand.NewPCG(7, uint64(n)))
	qs := make([]search.Query, n)
	for i := range qs {
		qs[i] = search.Query{Dim: testDim, Vectors: make([]float32, 4*testDim)}
		for j := range qs[i].Vectors {
			qs[i].Vectors[j] = float32(rng.NormFloat64())
		}
	}
	return qs
}

// sampledCollection is one of 600 documents, trained once.
func sampledCollection(t *testing.T, s *Store, name string) *Collection {
	t.Helper()
	c := declare(t, s, name, collection.Config{Nbits: 2})
	docs := make([]collection.DocumentInput, 600)
	for i := range docs {
		docs[i] = randomDoc("d"+strconv.Itoa(i), 1)
	}
	require.NoError(t, update(c, collection.UpdateOptions{}, docs...)().err)
	settled(t, c)
	return c
}

func ask(t *testing.T, c *Collection, qs []search.Query, o search.Options) []search.Result {
	t.Helper()
	rs, err := view(t, c).Search(t.Context(), qs, o)
	require.NoError(t, err)
	return rs
}

// measured waits until all questions are, and returns what they found.
func measured(t *testing.T, c *Collection) *collection.Sampled {
	t.Helper()
	if s := c.sampler; s != nil {
		require.NoError(t, s.Wait(t.Context()))
	}
	st, err := c.Stats(t.Context())
	require.NoError(t, err)
	return st.Sampled
}

// A collection whose searches miss much, since what is stored with its index has them look at little,
// reports what they miss, beside what was promised.
func TestSampledRecall(t *testing.T) {
	s := openStore(t, testenv.RAMDir(t), &Options{
		Growth: collection.Growth{Flat: -1, Until: -1}, Threads: 1, Sampling: every,
	})
	c := sampledCollection(t, s, "docs")
	ix, err := c.Index(t.Context())
	require.NoError(t, err)
	classes := []storage.DefaultClass{
		{K: 10, Probes: 1, Approx: 20, Exact: 10, Target: .99, Recall: .99, HeldOut: .98, Queries: 9},
		{K: 100, Probes: 1, Approx: 150, Exact: 100, Target: .99, Recall: .99, HeldOut: .97, Queries: 9},
	}
	require.NoError(t, ix.SetDefaults(&storage.Defaults{Docs: 600, Tokens: 2000, Time: time.Now(), Classes: classes}))
	qs := randomQuestions(40)
	require.Nil(t, measured(t, c), "nothing was asked")
	ask(t, c, qs[:20], search.Options{K: 3})
	for i := range qs[20:] { // whatever page, group and effort are asked for
		ask(t, c, qs[20+i:21+i], search.Options{K: 5, Offset: i, Effort: float64(1 + i%2)})
	}
	got := measured(t, c)
	require.Equal(t, []int64{40, 40, 0, 0}, []int64{got.Offered, got.Measured, got.Dropped, got.Failed})
	require.Positive(t, got.Time)
	for i, promised := range []float64{.98, .97} {
		f := got.Classes[i]
		want, err := quality.MeasureRecall(t.Context(), view(t, c).Tracer(), qs, search.Options{K: f.K}, nil, nil)
		require.NoError(t, err)
		require.InDelta(t, want.Mean(), f.Recall, 1e-9)
		require.Less(t, f.Recall, .9, "it misses much")
		require.Less(t, f.Worst, f.Recall)
		require.Positive(t, f.Error)
		require.Equal(t, 40, f.Questions)
		require.Equal(t, promised, *f.Promised)
	}

	// Another codec begins again.
	_, err = c.Retrain(t.Context())
	require.NoError(t, err)
	ask(t, c, qs[:7], search.Options{})
	require.Equal(t, 7, measured(t, c).Classes[0].Questions)
}

// Searches with a filter, and those that score everything, are left out.
func TestWhatIsNotSampled(t *testing.T) {
	s := openStore(t, testenv.RAMDir(t), &Options{Threads: 1, Sampling: every})
	c := sampledCollection(t, s, "docs")
	v := view(t, c)
	f, err := v.Filter(t.Context(), collection.Selection{IDs: []string{"d1", "d2"}})
	require.NoError(t, err)
	qs := randomQuestions(2)
	ask(t, c, qs, search.Options{Filter: f})
	ask(t, c, qs, search.Options{Mode: search.Exhaustive})
	_, err = v.Search(t.Context(), []search.Query{{Vectors: make([]float32, 3), Dim: 3}}, search.Options{})
	require.Error(t, err)
	require.Nil(t, c.sampler)
	own := qs[0]
	own.Filter = f
	ask(t, c, []search.Query{own, qs[1]}, search.Options{})
	require.EqualValues(t, 1, measured(t, c).Offered)
}

// Without a rate nothing is made, kept or allocated.
func TestSamplingOff(t *testing.T) {
	s := openStore(t, testenv.RAMDir(t), &Options{Threads: 1})
	c := sampledCollection(t, s, "docs")
	qs := randomQuestions(3)
	ask(t, c, qs, search.Options{})
	require.Nil(t, c.sampler)
	v := view(t, c)
	require.Zero(t, testing.AllocsPerRun(100, func() { v.sampleQuestions(qs, &search.Options{}) }))
	st, err := c.Stats(t.Context())
	require.NoError(t, err)
	require.Nil(t, st.Sampled)
	for _, bad := range []collection.Sampling{{Rate: -1}, {Rate: 2}, {Rate: .1, Busy: 2}, {Busy: -1}} {
		_, err := Open(t.Context(), t.TempDir(), &Options{Sampling: bad})
		require.ErrorIs(t, err, collection.ErrConfig)
	}
}

// The collections of a store measure in turn, and share one bound of what waits.
func TestSampledInCompany(t *testing.T) {
	s := openStore(t, testenv.RAMDir(t), &Options{Threads: 1, Sampling: every})
	a, b := sampledCollection(t, s, "a"), sampledCollection(t, s, "b")
	s.measuring <- struct{}{} // a measurement that takes long
	big := search.Query{Dim: testDim, Vectors: make([]float32, testDim*(3<<20)/testDim)}
	for i := range big.Vectors {
		big.Vectors[i] = 1
	}
	for range 2 {
		a.questionSampler().Offer(big) // 12 MiB
		b.questionSampler().Offer(big)
	}
	require.LessOrEqual(t, s.sampledBytes.Load(), int64(sampledMemory))
	dropped := a.questionSampler().Sampled().Dropped + b.questionSampler().Sampled().Dropped
	require.Positive(t, dropped)
	require.NoError(t, s.Close(t.Context()))
	require.Zero(t, s.sampledBytes.Load(), "nothing of a question is left")
	require.False(t, a.questionSampler().Offer(big))
	require.Equal(t, int64(4), a.questionSampler().Sampled().Dropped+b.questionSampler().Sampled().Dropped)
}

// Questions are asked, documents change, trainings run, files are opened again, collections are
// dropped and the store is closed, all while questions are measured.
func TestSamplingBesideEverything(t *testing.T) {
	s := openStore(t, testenv.RAMDir(t), &Options{Growth: smallGrowth, Threads: 1, Sampling: every})
	a, b := sampledCollection(t, s, "a"), sampledCollection(t, s, "b")
	qs := randomQuestions(10)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for _, c := range []*Collection{a, b} {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				v, err := c.Snapshot(context.Background())
				if err != nil {
					return // it was dropped
				}
				_, _ = v.Search(context.Background(), qs, search.Options{})
				if err := v.Close(); err != nil {
					t.Error(err)
				}
				_, _ = c.Stats(context.Background())
			}
		})
	}
	for i := range 5 {
		require.NoError(t, update(a, collection.UpdateOptions{}, randomDoc("n"+strconv.Itoa(i), 1))().err)
		reopen := func(ctx context.Context) error { return a.worker.reopen(ctx) }
		require.NoError(t, a.submit(t.Context(), &request{kind: acting, action: reopen}))
		_, err := a.Retrain(t.Context())
		require.NoError(t, err)
	}
	_, err := s.Remove(t.Context(), "b")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		st, err := a.Stats(t.Context())
		return err == nil && st.Sampled.Measured > 0
	}, time.Minute, time.Millisecond)
	require.NoError(t, s.Close(t.Context()))
	close(stop)
	wg.Wait()
	require.Zero(t, s.sampledBytes.Load())
	require.Nil(t, b.opened)
}
