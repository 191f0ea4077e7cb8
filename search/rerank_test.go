package search

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
	"github.com/plaid-ir/plaid/internal/testing/realdata"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/internal/topk"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cpu"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

func TestConfidence(t *testing.T) {
	require.InDelta(t, 3.5, neededDeviations(1, 100, 1), 1e-9)
	require.InDelta(t, 3.5, neededDeviations(10, 5000, 1), 1e-9)
	require.InDelta(t, 2.25, neededDeviations(100, 5000, 1), 1e-9)
	require.InDelta(t, 2.25, neededDeviations(5000, 0, 1), 1e-9)
	require.InDelta(t, 3.5+6*.11, neededDeviations(10, 320_000, 1), 1e-9)
	require.InDelta(t, 2.25+6*.18, neededDeviations(100, 320_000, 1), 1e-9)
	for k := 11; k < 100; k++ {
		require.Less(t, neededDeviations(k, 5000, 1), neededDeviations(k-1, 5000, 1))
	}
}

func TestAbove(t *testing.T) {
	s := []topk.Scored{{Doc: 0, Score: 3}, {Doc: 1, Score: 1}, {Doc: 2, Score: 5}, {Doc: 3, Score: 2}, {Doc: 4, Score: 4}}
	require.Equal(t, 3, partitionAbove(s, 2))
	require.ElementsMatch(t, []topk.Scored{{Doc: 0, Score: 3}, {Doc: 2, Score: 5}, {Doc: 4, Score: 4}}, s[:3])
	require.ElementsMatch(t, []topk.Scored{{Doc: 1, Score: 1}, {Doc: 3, Score: 2}}, s[3:])
	require.Equal(t, 5, partitionAbove(s, math.Inf(-1)))
	require.Zero(t, partitionAbove(s, 5))
	require.Zero(t, partitionAbove(nil, 0))
}

// What a query decides to score is the best documents by approximate score,
// leaders included, and never more than the bound.
func TestQueryDecidesHowManyAreScored(t *testing.T) {
	m := newMaker(31, 32, 200)
	ix := searchtest.Build(t, 32, m.Docs("d", effort.Cases(2000, 4000), 12), nil)
	snap := searchtest.Snapshot(t, ix)
	e := at(t, snap, 1)
	rng := rand.New(rand.NewPCG(5, 5))
	differ := map[int64]bool{}
	for range effort.Cases(7, 20) {
		q := m.query(4 + rng.IntN(20))
		for _, k := range []int{1, 10, 40} {
			res, err := e.Search(t.Context(), q, Options{K: k})
			require.NoError(t, err)
			require.Len(t, res.Hits, k)
			s := res.Stats
			require.GreaterOrEqual(t, s.ExactDocs, int64(min(leaderCount(k, 1), int(s.Candidates))))
			require.LessOrEqual(t, s.ExactDocs, int64(maxExactDocs(k, 1)))
			require.GreaterOrEqual(t, s.RefinedDocs, int64(k))
			if k == 10 {
				differ[s.ExactDocs] = true
			}
			// Asking for as many as the query took finds the same documents.
			again, err := e.Search(t.Context(), q, Options{K: k, Exact: int(s.ExactDocs)})
			require.NoError(t, err)
			require.Equal(t, res.Hits, again.Hits)
		}
	}
	require.Greater(t, len(differ), 1, "each query decides for itself")
}

// TestEffort: more effort is more of everything, and that of 1 is what is derived.
func TestEffort(t *testing.T) {
	require.InDelta(t, 4, neededDeviations(10, 5000, 2), 1e-9)
	require.InDelta(t, 0.5, neededDeviations(100, 5000, MinEffort/8), 1e-9)
	for _, k := range []int{10, 100, 1000} {
		probes, tokens := 0, 0.0
		for _, effort := range []float64{MinEffort, 0.5, 1, 2, MaxEffort} {
			p, n := derivedBudgets(k, effort)
			require.GreaterOrEqual(t, p, max(probes, 1))
			require.LessOrEqual(t, p, maxInsertProbes)
			require.Greater(t, n, tokens)
			probes, tokens = p, n
		}
	}
	for _, effort := range []float64{-1, MinEffort / 2, 2 * MaxEffort, math.NaN()} {
		require.ErrorIs(t, (&Options{Effort: effort}).Check(), ErrOption)
	}
}

// What probing knows of a document is compared with what its codes say.
func TestReached(t *testing.T) {
	t.Run("segments", func(t *testing.T) { testReached(t, 200, 6, 20) })
	if effort.Long() { // one goroutine, and many documents
		t.Run("blocks", func(t *testing.T) { testReached(t, docBlock+500, 1, 3000) })
	}
}

func testReached(t *testing.T, docs, tokens, added int) {
	const dim, lists, lq = 16, 96, 6
	m := newMaker(5, dim, 40)
	ix := searchtest.Build(t, dim, m.Docs("a", docs, tokens), &index.BuildOptions{Centroids: lists})
	_, err := ix.Add(context.Background(), searchtest.Source(t, dim, m.Docs("b", added, tokens)), nil)
	require.NoError(t, err)
	_, _, err = ix.Delete(context.Background(), []string{"a1", "b2"})
	require.NoError(t, err)
	snap := searchtest.Snapshot(t, ix)
	require.Greater(t, snap.Segments(), 1)
	live, n := snap.LiveSet()
	all := (&allowedDocs{shards: []*selection{{set: live, count: n}}}).withCount()

	q := m.query(lq)
	weights := []float32{1, 0.5, 0, 2, -1, 0.25}
	r := testRun(snap, 1)
	for _, probes := range []int{1, 4, 30, lists, 2} {
		r.plan = plan{kind: PlanProbe, k: 5, probes: probes, approxBudget: math.MaxInt, firstApprox: math.MaxInt}
		require.NoError(t, r.prepare(q.Vectors, weights, table{complete: true}))
		docs, err := r.probeCentroids(weights, all)
		require.NoError(t, err)
		n, reached := len(docs), map[uint32]bool{}
		for _, d := range docs {
			reached[d] = true
		}
		require.True(t, slices.IsSorted(docs))
		gains := map[uint32]float64{}
		for _, s := range r.prober.gainScores(r.reached) {
			gains[s.Doc] = float64(s.Score)
		}
		require.Len(t, gains, n)

		p, positive := &r.prober, []int{0, 1, 3, 5} // weights
		require.Len(t, p.weights, len(positive))
		var height float64
		for i := range positive {
			height += float64(p.best[i*p.probes+p.probes/2].Score-p.floors[i]) / float64(len(positive))
		}
		require.LessOrEqual(t, p.gainUnit*gainSum, float64(unseenGap+2)*6) // of six query tokens: units are small
		seen, cut := 0, 0
		for d := range snap.State().Docs {
			chunk, doc, _ := snap.Locate(d)
			ch, err := snap.Chunk(chunk, storage.Codes)
			require.NoError(t, err)
			var gain float64
			found := false
			for i, token := range positive {
				best := math.Inf(-1)
				for _, c := range p.best[i*p.probes : (i+1)*p.probes] {
					for at := ch.Offsets[doc]; at < ch.Offsets[doc+1]; at++ {
						if ch.Code(int(at)) == c.Centroid {
							best = max(best, float64(c.Score))
						}
					}
				}
				if !math.IsInf(best, -1) {
					found = true
					gain += float64(weights[token]) * (best - float64(p.floors[i]) + unseenGap*height)
				}
			}
			require.Equal(t, found && hasBit(live, d), reached[d], "document %d, %d probes", d, probes)
			if reached[d] {
				seen++
				// Each of its parts is rounded down to a unit.
				require.InDelta(t, gain, gains[d], float64(len(positive))*p.gainUnit+1e-6*gain, "document %d, %d probes", d, probes)
			}
		}
		require.Equal(t, n, seen)

		cutTo := max(n/3, 1)
		r.prober.kept, r.prober.lastKept = 0, math.MaxUint64
		kept := map[uint32]bool{}
		docs = r.selectReached(cutTo)
		require.Len(t, docs, cutTo)
		require.True(t, slices.IsSorted(docs))
		worst := math.Inf(1)
		for _, d := range docs {
			kept[d] = true
			worst = min(worst, gains[d])
		}
		for _, s := range r.prober.gainScores(r.reached) {
			if !kept[s.Doc] {
				cut++
				require.LessOrEqual(t, float64(s.Score), worst, "document %d was cut", s.Doc)
			}
		}
		require.Equal(t, n-cutTo, cut)
	}
}

// manyCentroids is a codec with so many that S is screened: tokens of documents with
// noise.
func manyCentroids(t *testing.T, docs []vectors.Document, dim int) *codec.Quantizer {
	t.Helper()
	const k = 1<<16 + 77
	rng := rand.New(rand.NewPCG(9, 9))
	rows := kerneltest.UnitVectors(rng, k, dim)
	for c := range k {
		tokens := docs[c%len(docs)].Tokens
		if len(tokens) == 0 {
			continue
		}
		from := rng.IntN(len(tokens)/dim) * dim
		for j := range dim {
			rows[c*dim+j] = 0.3*rows[c*dim+j] + tokens[from+j]
		}
	}
	codec.Normalize(rows, dim)
	c, err := codec.New(kernels.Codec{
		Centroids: kernels.Centroids{K: k, Dim: dim, Type: kernels.BF16, Data: kerneltest.EncodeCentroids(rows, kernels.BF16)},
		Codebook:  kernels.Codebook{Nbits: 2, Step: 0.1}, FactorMax: 2,
	})
	require.NoError(t, err)
	return c
}

// With many centroids a search computes of S what it needs: it finds what one
// does that has all of S, and scores as a search of all documents does, to the bit, on every tier, with any number of
// threads and over several indexes.
func TestManyCentroids(t *testing.T) {
	const dim = 16
	m := newMaker(31, dim, 60)
	docs := m.Docs("d", effort.Cases(400, 1200), effort.Cases(5, 9))
	path := filepath.Join(t.TempDir(), "whole.plaid")
	_, err := index.Build(t.Context(), path, searchtest.Source(t, dim, docs), &index.BuildOptions{Codec: manyCentroids(t, docs, dim)})
	require.NoError(t, err)
	report, err := cpu.Describe("")
	require.NoError(t, err)
	var engines []*Engine
	var one *index.Index
	for i, tier := range report.Tiers {
		ix, err := index.Open(t.Context(), path, &index.Options{Backend: tier})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, ix.Close()) })
		engines, one = append(engines, on(t, ix, 1+2*(i%2))), ix
	}
	several := multi(t, sharded(t, one, docs, 2, false), 2)
	few := Only(docs[3].ID, docs[4].ID, docs[300].ID)
	found, wanted := 0, 0
	for range effort.Cases(2, 6) {
		q := m.query(8)
		all := search(t, engines[0], q, Options{K: 1200, Mode: Exhaustive})
		scores := map[string]float32{}
		for _, h := range all.Hits {
			scores[h.ID] = h.Score
		}
		probing, plain := Options{K: 10, Probes: maxInsertProbes, Approx: 200}, Options{K: 10, Probes: maxInsertProbes + 1, Approx: 200}
		first := search(t, engines[0], q, probing)
		require.Equal(t, map[string]int{"probe": 1}, first.Stats.Plans)
		for _, e := range engines {
			require.Equal(t, first.Hits, search(t, e, q, probing).Hits)
			res := search(t, e, q, Options{K: 10, Filter: few})
			require.Equal(t, map[string]int{"exact": 1}, res.Stats.Plans)
			require.Len(t, res.Hits, 3)
			for _, h := range res.Hits {
				require.Equal(t, scores[h.ID], h.Score)
			}
		}
		for _, h := range first.Hits {
			require.Equal(t, scores[h.ID], h.Score)
		}
		res, err := several.Search(t.Context(), q, probing)
		require.NoError(t, err)
		require.Equal(t, ids(first.Hits), ids(res.Hits))
		found, wanted = found+overlap(search(t, engines[0], q, plain).Hits, first.Hits), wanted+10
		stage, err := engines[0].Trace(context.Background(), q, first.Hits[0].ID, probing)
		require.NoError(t, err)
		require.Equal(t, StageReturned, stage)
	}
	require.GreaterOrEqual(t, float64(found), 0.9*float64(wanted), "of what is found with all of S")
}

// A document of many passages is scored by all of them, also by those that the search has
// not scored, whose rows of S are not there yet.
func TestManyCentroidsOfPassages(t *testing.T) {
	const dim = 16
	m := newMaker(33, dim, 60)
	docs := m.Docs("d", effort.Cases(400, 1200), effort.Cases(5, 9))
	for i := range docs {
		p := vectors.Passage{ParentID: fmt.Sprint("w", i/40), Number: i % 40, Start: i, End: i + 1}
		payload, err := p.Payload(nil)
		require.NoError(t, err)
		docs[i].ID, docs[i].Payload = p.ID(), payload
	}
	path := filepath.Join(t.TempDir(), "passages.plaid")
	_, err := index.Build(t.Context(), path, searchtest.Source(t, dim, docs), &index.BuildOptions{Codec: manyCentroids(t, docs, dim)})
	require.NoError(t, err)
	ix, err := index.Open(t.Context(), path, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ix.Close()) })
	q := m.query(8)
	for _, group := range []Grouping{GroupBest, GroupSum, GroupMaxSim} {
		// Engines of their own, whose buffers have nothing of another search.
		all := search(t, on(t, ix, 1), q, Options{K: 30, Mode: Exhaustive, Group: group, Passages: 5, Matches: true})
		want := map[string]Hit{}
		for _, h := range all.Hits {
			want[h.ID] = h
		}
		res := search(t, on(t, ix, 2), q, Options{K: 3, Probes: 2, Approx: 200, Group: group, Passages: 5, Matches: true})
		require.Contains(t, res.Stats.Plans, "probe")
		require.Len(t, res.Hits, 3)
		for _, h := range res.Hits {
			require.Equal(t, want[h.ID].Score, h.Score, group)
			require.Equal(t, want[h.ID].Passages, h.Passages, group)
		}
	}
}

// On every collection there is, the errors of level Fast of every tier stay below
// half of the probable bound, and a search finds with it what it finds with the
// worst one. The bundled sample is always there.
func TestRealBoundShare(t *testing.T) {
	if effort.Brief() {
		t.Skip("long, and of one goroutine")
	}
	dirs := map[string]string{"scifact-sample": filepath.Join("..", "docs", "examples", "quickstart", "scifact-sample", "vectors")}
	if effort.Long() {
		dirs["lotte-500"], dirs["cranfield"] = "", "" // beside the checkout
		if dir := os.Getenv("PLAID_DATA"); dir != "" {
			dirs[dir] = dir
		}
	}
	for name, dir := range dirs {
		t.Run(name, func(t *testing.T) {
			if dir == "" {
				dir = realdata.Path(t, "data", name, "vectors")
			}
			queries := searchtest.Load(t, vectors.Files{Vectors: filepath.Join(dir, "queries.npy")})
			files := vectors.Files{Vectors: filepath.Join(dir, "docs.npy"), Lengths: filepath.Join(dir, "doclens.npy")}
			bits := []int{1, 2, 4, 8}
			if len(queries) > 30 || !effort.Long() {
				bits = bits[1:effort.Cases(2, 3)]
			}
			switch {
			case !effort.Long():
				queries = queries[:min(len(queries), 5)]
			case os.Getenv("PLAID_DATA") != dir:
				queries = queries[:min(len(queries), 30)]
			}
			for _, nbits := range bits {
				path := filepath.Join(t.TempDir(), "index.plaid")
				_, err := buildCranfield(files, path, &index.BuildOptions{Nbits: nbits})
				require.NoError(t, err)
				boundShares(t, nbits, path, queries)
			}
		})
	}
}

func boundShares(t *testing.T, nbits int, path string, queries []vectors.Document) {
	report, err := cpu.Describe("")
	require.NoError(t, err)
	for i, tier := range report.Tiers {
		if i < len(report.Tiers)-1 && (tier == "avx2" || !effort.Long()) {
			continue // level Fast of avx2 has the bits of generic
		}
		ix, err := index.Open(t.Context(), path, &index.Options{Backend: tier})
		require.NoError(t, err)
		engine := func(b kernels.Bound) *Engine {
			e, err := New(t.Context(), ix, &EngineOptions{Threads: 1, Bound: b})
			require.NoError(t, err)
			return e
		}
		probable, worst := engine(kernels.Probable), engine(kernels.Worst)
		var with, without Stats
		for _, q := range queries {
			for _, o := range []Options{{K: 100}, {K: 10, Mode: Exhaustive}} {
				got := search(t, probable, Query{Vectors: q.Tokens}, o)
				want := search(t, worst, Query{Vectors: q.Tokens}, o)
				require.Equal(t, want.Hits, got.Hits)
				with.Add(got.Stats)
				without.Add(want.Stats)
			}
		}
		t.Logf("%d bits, %s: largest share %.3f, of the worst bound %.4f; %d documents refined, %d with the worst bound",
			nbits, tier, with.BoundShare, without.BoundShare, with.RefinedDocs, without.RefinedDocs)
		require.Less(t, with.BoundShare, kernels.NearBound)
		require.Positive(t, with.BoundShare)
		require.Zero(t, with.WorstBound)
		require.LessOrEqual(t, with.RefinedDocs, without.RefinedDocs)
		require.NoError(t, probable.Close())
		require.NoError(t, worst.Close())
		require.NoError(t, ix.Close())
	}
}

func TestUnknownBound(t *testing.T) {
	m := newMaker(3, 16, 4)
	ix := searchtest.Build(t, 16, m.Docs("d", 20, 4), nil)
	_, err := New(t.Context(), ix, &EngineOptions{Bound: 7})
	require.ErrorIs(t, err, ErrOption)
	require.ErrorContains(t, err, "Bound(7)")
}

// lower is a query whose scores of level Fast are below those of level Fine by so
// much of the bound, for one document in n.
type lower struct {
	kernels.Query
	share float64
	one   uint32
	snap  *index.Snapshot
}

func (l *lower) MaxSim(dst []float32, ch *kernels.Chunk, docs []uint32, level kernels.Level) {
	l.Query.MaxSim(dst, ch, docs, kernels.Fine)
	if level == kernels.Fine {
		return
	}
	for i, doc := range docs {
		if doc%l.one == 0 {
			dst[i] -= float32(l.share * l.Shortfall(kernels.Probable).ForFactor(l.snap.Codec().LargestFactor(ch, doc)))
		}
	}
}

// Errors as large as the bound are allowed for. Larger ones are noticed, and
// answered with the worst bound, which they are still within.
func TestRefineHoldsUpAgainstErrors(t *testing.T) {
	m := newMaker(77, 64, 30)
	ix := searchtest.Build(t, 64, m.Docs("d", 600, 10), &index.BuildOptions{Nbits: 2})
	snap := searchtest.Snapshot(t, ix)
	for _, share := range []float64{0, 0.4, 0.6, 0.99, 2} {
		for _, one := range []uint32{1, 2, 3} {
			for range 5 {
				r := testRun(snap, 1)
				r.plan = plan{kind: PlanExact, k: 12}
				require.NoError(t, r.prepare(m.Tokens(16), nil, table{complete: true}))
				plain := r.query
				p, w := plain.Shortfall(kernels.Probable), plain.Shortfall(kernels.Worst)
				if share*p.Factor > w.Factor { // with few roundings, as on AMX
					continue
				}
				var docs []uint32
				for d := range uint32(600) {
					docs = append(docs, d)
				}
				want, _, err := r.scoreWith(nil, append([]uint32(nil), docs...), exactJob, storage.All, r.maxSim(kernels.Fine))
				require.NoError(t, err)
				want = topk.Best(want, 12)
				r.query = &lower{plain, share, one, snap}
				coarse, _, err := r.scoreWith(nil, docs, exactJob, storage.All, r.maxSim(kernels.Fast))
				require.NoError(t, err)
				got, err := r.refine(coarse, nil)
				require.NoError(t, err)
				require.ElementsMatch(t, want, topk.Best(got, 12))
				require.InDelta(t, share, r.stats.BoundShare, 0.02+math.Abs(share)/50)
				if share > kernels.NearBound {
					require.EqualValues(t, 1, r.stats.WorstBound)
				} else {
					require.Zero(t, r.stats.WorstBound)
				}
			}
		}
	}
}
