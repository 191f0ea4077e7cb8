package search

import (
	"cmp"
	"context"
	"errors"
	"math"
	"math/big"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/vectors"
)

// Keep is the least number that a share has no more of the best than, but for a chance of 10⁻⁴,
// by the definition of the binomial distribution; for very many a little more.
func TestKeep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := rapid.IntRange(2, 300).Draw(t, "k")
		share := rapid.Float64Range(.001, .999).Draw(t, "share")
		n := KForShare(k, share)
		beyond := func(n int) float64 {
			sum := 0.0
			for i := n + 1; i <= k; i++ {
				ways, _ := new(big.Float).SetInt(new(big.Int).Binomial(int64(k), int64(i))).Float64()
				sum += ways * math.Pow(share, float64(i)) * math.Pow(1-share, float64(k-i))
			}
			return sum
		}
		assert.LessOrEqual(t, beyond(n), shareMissChance*1.0001)
		if n > 1 {
			assert.Greater(t, beyond(n-1), shareMissChance*.9999)
		}
	})
	for _, share := range []float64{.01, .25, .9} {
		near := KForShare(normalFromK, share)
		assert.InEpsilon(t, near, KForShare(normalFromK+1, share), .02)
	}
	assert.Equal(t, 42, KForShare(100, .25))
	assert.Equal(t, 7, KForShare(7, 1))
	assert.Equal(t, 1, KForShare(1, .1))
}

// merged asks shares for the k best of all, and those again that may hide some; it returns how
// many these were, and what was scored exactly.
func merged(t *testing.T, shares []*Multi, q Query, o Options, share float64) (hits []Hit, again int, exact int64) {
	t.Helper()
	ctx := context.Background()
	all := make([]*Result, len(shares))
	o.Share = share
	kth := func() float32 {
		hits = nil
		for i, r := range all {
			for _, h := range r.Hits {
				h.Shard = i
				hits = append(hits, h)
			}
		}
		slices.SortStableFunc(hits, func(a, b Hit) int { return cmp.Compare(b.Score, a.Score) })
		if len(hits) < o.K {
			return float32(math.Inf(-1))
		}
		hits = hits[:o.K]
		return hits[o.K-1].Score
	}
	for i, s := range shares {
		var err error
		all[i], err = s.Search(ctx, q, o)
		require.NoError(t, err)
		require.LessOrEqual(t, len(all[i].Hits), KForShare(o.K, share))
		exact += all[i].Stats.ExactDocs
	}
	last := kth()
	o.Share = 0
	for i, s := range shares {
		if floor, more := all[i].Floor(); more && len(all[i].Hits) < o.K && floor >= last {
			again++
			r, err := s.Search(ctx, q, o)
			require.NoError(t, err)
			all[i] = r
			exact += r.Stats.ExactDocs
		}
	}
	kth()
	return hits, again, exact
}

// What four shares have of the best documents is what one index has, to the bit; a pruned
// search scores about as many documents exactly in all shares together as in one index, and not
// as many in each, and finds no less.
func TestShares(t *testing.T) {
	ctx := context.Background()
	m := newMaker(51, 32, 60)
	docs := m.Docs("d", 4000, 8)
	one := searchtest.Build(t, 32, docs, &index.BuildOptions{SampleDocs: 500})
	e := on(t, one, 2)
	set := sharded(t, one, docs, 4, true)
	var shares []*Multi
	for _, ix := range set.Files() {
		own, err := index.NewShards(ix)
		require.NoError(t, err)
		shares = append(shares, multi(t, own, 1))
	}
	for _, k := range []int{1, 10, 100} {
		var found, wanted, again int
		var before, after, whole int64
		for i := range effort.Cases(5, 20) {
			q := m.query(3 + i)
			exact, err := e.Search(ctx, q, Options{K: k, Mode: Exhaustive})
			require.NoError(t, err)
			hits, _, _ := merged(t, shares, q, Options{K: k, Mode: Exhaustive}, .25)
			require.Equal(t, scoresOf(exact.Hits), scoresOf(hits))

			pruned, err := e.Search(ctx, q, Options{K: k})
			require.NoError(t, err)
			whole += pruned.Stats.ExactDocs
			best := map[string]bool{}
			for _, h := range exact.Hits {
				best[h.ID] = true
			}
			for _, h := range pruned.Hits {
				if best[h.ID] {
					wanted++
				}
			}
			hits, n, scored := merged(t, shares, q, Options{K: k}, .25)
			for _, h := range hits {
				if best[h.ID] {
					found++
				}
			}
			again += n
			after += scored
			for _, s := range shares {
				r, err := s.Search(ctx, q, Options{K: k})
				require.NoError(t, err)
				before += r.Stats.ExactDocs
			}
		}
		t.Logf("k %d: %d of the best, %d in one index; exact scores %d, %d in one index, %d without shares; %d asked again", k, found, wanted, after, whole, before, again)
		assert.GreaterOrEqual(t, 100*found, 99*wanted, "k %d", k)
		assert.Less(t, 10*after, 8*before, "k %d", k)
		assert.Less(t, again, 8, "k %d", k)
	}
	_, err := e.Search(ctx, m.query(2), Options{Share: 1.5})
	require.ErrorIs(t, err, ErrOption)
	_, err = e.Search(ctx, m.query(2), Options{Share: math.NaN()})
	require.ErrorIs(t, err, ErrOption)
}

// Devices have a share of the parts each, and find together what the processor finds.
func TestMultiOnDevices(t *testing.T) {
	ctx := context.Background()
	m := newMaker(47, 16, 20)
	docs := m.Docs("d", 300, 5)
	one := searchtest.Build(t, 16, docs, nil)
	set := sharded(t, one, docs, 5, false)
	var a, b kerneltest.Device
	dev, err := NewMulti(ctx, set, &MultiOptions{Threads: 2, Devices: []kernels.Device{&a, &b}})
	require.NoError(t, err)
	e := onDeviceOf(t, one, &a)
	var qs []Query
	for i := range 6 {
		q := m.query(2 + i)
		if i%2 == 1 {
			q.Filter = Where(bind(t, "n >= ?", 50*i))
		}
		qs = append(qs, q)
	}
	for _, o := range []Options{{K: 10, Payload: true}, {K: 500, Mode: Exhaustive}, {K: 5, Filter: &Filter{IDs: []string{"d1", "d299", "nobody"}, AllowMissing: true}}} {
		want, err := e.SearchBatch(ctx, qs, o)
		require.NoError(t, err)
		got, err := dev.SearchBatch(ctx, qs, o)
		require.NoError(t, err)
		for i := range qs {
			require.Equal(t, named(want[i].Hits), named(got[i].Hits))
			require.Equal(t, want[i].Stats.Allowed, got[i].Stats.Allowed)
			require.Equal(t, want[i].Stats.FilterMissing, got[i].Stats.FilterMissing)
			require.Equal(t, want[i].Stats.Plans, got[i].Stats.Plans)
			require.Equal(t, want[i].K, got[i].K)
			require.True(t, got[i].Coverage.Complete())
			inOrder(t, got[i].Hits)
		}
		for _, id := range []string{"d1", "d5", "d150", "d299"} {
			x, err := e.Explain(ctx, qs[1], id, o)
			require.NoError(t, err)
			y, err := dev.Explain(ctx, qs[1], id, o)
			require.NoError(t, err)
			require.Equal(t, []any{x.Stage, x.Rank, x.Score}, []any{y.Stage, y.Rank, y.Score})
		}
	}
	_, err = dev.SearchBatch(ctx, []Query{qs[0], {Vectors: []float32{1}}}, Options{})
	var failed *QueryError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, 1, failed.Index)
	_, err = dev.Search(ctx, qs[0], Options{Filter: Only("nobody")})
	require.ErrorIs(t, err, ErrUnknownID)

	d, err := dev.Describe(ctx)
	require.NoError(t, err)
	require.Len(t, d.Shards, 5)
	for _, p := range d.Shards {
		require.Equal(t, a.Info().Name, p.Device)
		require.NotNil(t, p.Memory)
	}
	_, err = set.Add(ctx, searchtest.Source(t, 16, []vectors.Document{{ID: "new", Tokens: qs[0].Vectors}}), nil)
	require.NoError(t, err)
	r, err := dev.Search(ctx, qs[0], Options{K: 1})
	require.NoError(t, err)
	require.Equal(t, []string{"new"}, ids(r.Hits), "documents that are added follow")

	broken := errors.New("broken")
	b.FailWith = func() error { return broken }
	_, err = dev.Search(ctx, qs[0], Options{})
	require.ErrorIs(t, err, broken, "no result without all parts")
	require.NoError(t, dev.Close())
	require.NoError(t, dev.Close())
	_, err = dev.Search(ctx, qs[0], Options{})
	require.ErrorIs(t, err, ErrClosed)
}
