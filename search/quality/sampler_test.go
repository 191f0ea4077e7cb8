package quality

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/search"
)

// planted is a searcher whose pruned searches miss each document with a chance that is known.
type planted struct {
	search.Searcher // of what is not called
	miss            float64
	generation      atomic.Uint64
	fail            error
	helps           bool          // effort divides what is missed by its square
	block           chan struct{} // where set, searches wait until their context ends
}

func (p *planted) Describe(context.Context) (search.Description, error) {
	return search.Description{Generation: p.generation.Load(), Threads: 1}, nil
}

func (p *planted) Search(ctx context.Context, q search.Query, o search.Options) (*search.Result, error) {
	if p.block != nil {
		p.block <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if p.fail != nil {
		return nil, p.fail
	}
	h := fnv.New64a()
	fmt.Fprint(h, q.Vectors)
	rng := rand.New(rand.NewPCG(h.Sum64(), uint64(o.K)))
	r := &search.Result{}
	miss := p.miss
	if p.helps {
		miss /= max(o.Effort*o.Effort, 1)
	}
	for i := range o.K {
		if o.Mode == search.Exhaustive || o.Exact > 0 || rng.Float64() >= miss {
			r.Hits = append(r.Hits, search.Hit{ID: fmt.Sprint(i)})
		}
	}
	return r, nil
}

func (p *planted) SearchBatch(ctx context.Context, qs []search.Query, o search.Options) (all []search.Result, err error) {
	for _, q := range qs {
		r, err := p.Search(ctx, q, o)
		if err != nil {
			return nil, err
		}
		all = append(all, *r)
	}
	return all, nil
}

func (p *planted) pin(context.Context) (*PinnedSearcher, error) {
	return &PinnedSearcher{Searcher: p}, nil
}

func sampler(t *testing.T, p *planted, o SamplerOptions) *Sampler {
	t.Helper()
	s, err := NewSampler(p.pin, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func offer(s *Sampler, n int) (taken int) {
	for i := range n {
		if s.Offer(search.Query{Vectors: []float32{float32(i), 1}}) {
			taken++
		}
	}
	return taken
}

// What is missing is told within the error that is told beside it.
func TestSamplerFindsWhatIsMissing(t *testing.T) {
	for _, miss := range []float64{0, 0.01, 0.3} {
		p := &planted{miss: miss}
		s := sampler(t, p, SamplerOptions{Rate: 1, MaxBusy: 1, Memory: 1 << 30})
		require.Equal(t, 400, offer(s, 400))
		require.NoError(t, s.Wait(t.Context()))
		got := s.Sampled()
		require.Equal(t, []int64{400, 400, 0, 0}, []int64{got.Offered, got.Measured, got.Dropped, got.Failed})
		require.Zero(t, got.Waiting)
		require.Len(t, got.Classes, 2)
		for i, k := range []int{10, 100} {
			c := got.Classes[i]
			require.Equal(t, k, c.K)
			require.Equal(t, 400, c.Questions)
			require.InDelta(t, 1-miss, c.Recall, 4*c.Error, "%+v", c)
			one := math.Sqrt(miss*(1-miss)/float64(k)) / 20
			require.InDelta(t, max(one, 1/float64(400*k)), c.Error, one/4+1e-12)
			require.LessOrEqual(t, c.Worst, c.Recall)
			require.Equal(t, miss == 0, c.Worst == 1)
		}
		again := sampler(t, p, SamplerOptions{Rate: 1, MaxBusy: 1, Memory: 1 << 30})
		offer(again, 400)
		require.NoError(t, again.Wait(t.Context()))
		require.Equal(t, got.Classes, again.Sampled().Classes)
	}
}

// The rate chooses the same questions for the same seed.
func TestSamplerRate(t *testing.T) {
	classes := func(seed uint64) (Sampled, int) {
		s := sampler(t, &planted{miss: 0.2}, SamplerOptions{Rate: 0.1, MaxBusy: 1, Seed: seed, Memory: 1 << 30})
		n := offer(s, 2000)
		require.NoError(t, s.Wait(t.Context()))
		return s.Sampled(), n
	}
	a, n := classes(1)
	require.InDelta(t, 200, n, 60)
	require.Equal(t, int64(2000), a.Offered)
	require.Equal(t, n, a.Classes[0].Questions)
	b, _ := classes(1)
	require.Equal(t, a.Classes, b.Classes)
	c, _ := classes(2)
	require.NotEqual(t, a.Classes, c.Classes)
}

// Figures are of the last questions, and of one codec.
func TestSamplerForgets(t *testing.T) {
	p := &planted{miss: 1}
	s := sampler(t, p, SamplerOptions{K: []int{5}, Rate: 1, MaxBusy: 1, KeptQuestions: 50, Memory: 1 << 30})
	offer(s, 60)
	require.NoError(t, s.Wait(t.Context()))
	require.Equal(t, []MeasuredRecall{{K: 5, Questions: 50, Recall: 0, Worst: 0, Error: 0.004}}, s.Sampled().Classes)
	p.miss = 0 // nothing searches now
	offer(s, 30)
	require.NoError(t, s.Wait(t.Context()))
	c := s.Sampled().Classes[0]
	require.InDelta(t, 0.6, c.Recall, 1e-12, "30 of the last 50")
	require.Equal(t, 50, c.Questions)
	p.generation.Add(1)
	offer(s, 20)
	require.NoError(t, s.Wait(t.Context()))
	require.Equal(t, []MeasuredRecall{{K: 5, Questions: 20, Recall: 1, Worst: 1, Error: 0.01}}, s.Sampled().Classes)
	require.Equal(t, int64(110), s.Sampled().Measured)
}

// What waits is bounded by its bytes, and gone when the sampler ends.
func TestSamplerIsBoundedAndEnds(t *testing.T) {
	p := &planted{block: make(chan struct{})}
	s, err := NewSampler(p.pin, SamplerOptions{Rate: 1, Memory: 10 * (256 + 8)})
	require.NoError(t, err)
	require.True(t, s.Offer(search.Query{Vectors: []float32{1, 2}}))
	<-p.block // it is searched for
	require.Equal(t, 10, offer(s, 25))
	got := s.Sampled()
	require.Equal(t, []int64{26, 0, 15}, []int64{got.Offered, got.Measured, got.Dropped})
	require.Equal(t, 11, got.Waiting)
	require.False(t, s.Offer(search.Query{Vectors: make([]float32, 1<<20)}), "more than there is room for at all")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.Wait(ctx), context.Canceled)
	ended := make(chan error)
	go func() { ended <- s.Wait(context.Background()) }()
	require.NoError(t, s.Close())
	require.ErrorIs(t, <-ended, search.ErrClosed)
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.Wait(t.Context()), search.ErrClosed)
	require.False(t, s.Offer(search.Query{Vectors: []float32{1}}))
	got = s.Sampled()
	require.Zero(t, got.Waiting)
	require.Equal(t, []int64{0, 0, 27}, []int64{got.Measured, got.Failed, got.Dropped})
}

func TestSamplerFailures(t *testing.T) {
	boom := errors.New("boom")
	p := &planted{fail: boom}
	s := sampler(t, p, SamplerOptions{Rate: 1, MaxBusy: 1})
	offer(s, 3)
	require.NoError(t, s.Wait(t.Context()))
	require.Equal(t, []int64{0, 3}, []int64{s.Sampled().Measured, s.Sampled().Failed})
	require.Equal(t, MeasuredRecall{K: 10, Recall: 1, Worst: 1}, s.Sampled().Classes[0])
	require.False(t, s.Offer(search.Query{Vectors: []float32{1}, Filter: &search.Filter{}}))

	unpinnable := func(context.Context) (*PinnedSearcher, error) { return nil, boom }
	unpinned, err := NewSampler(unpinnable, SamplerOptions{Rate: 1, MaxBusy: 1})
	require.NoError(t, err)
	offer(unpinned, 1)
	require.NoError(t, unpinned.Wait(t.Context()))
	require.Equal(t, int64(1), unpinned.Sampled().Failed)
	require.NoError(t, unpinned.Close())

	for _, o := range []SamplerOptions{
		{K: []int{0}}, {Rate: 1.5}, {Rate: math.NaN()}, {MaxBusy: -1}, {Memory: -1}, {KeptQuestions: -1}, {KeptQuestions: maxKept + 1},
	} {
		_, err := NewSampler(p.pin, o)
		require.ErrorIs(t, err, search.ErrOption, "%+v", o)
	}
}

// A sampler of a real index finds what MeasureRecall finds.
func TestSamplerOfAnIndex(t *testing.T) {
	e, snap, qs, _ := recallIndex(t)
	released := 0
	s, err := NewSampler(func(context.Context) (*PinnedSearcher, error) {
		return &PinnedSearcher{Searcher: e.At(snap), Exhaustive: e.At(snap), Release: func() error { released++; return nil }}, nil
	}, SamplerOptions{K: []int{20, 3}, Rate: 1, MaxBusy: 1})
	require.NoError(t, err)
	for _, q := range qs {
		given := search.Query{Vectors: append([]float32(nil), q.Vectors...)}
		require.True(t, s.Offer(given))
		clear(given.Vectors) // the sampler has a copy
	}
	require.NoError(t, s.Wait(t.Context()))
	got := s.Sampled()
	require.NoError(t, s.Close())
	require.Equal(t, len(qs), released)
	for _, c := range got.Classes {
		r, err := MeasureRecall(t.Context(), e.At(snap), qs, search.Options{K: c.K}, nil, nil)
		require.NoError(t, err)
		require.InDelta(t, r.Mean(), c.Recall, 1e-12)
		require.Equal(t, len(qs), c.Questions)
	}
}
