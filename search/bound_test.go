package search

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/realdata"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/internal/topk"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cpu"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

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
				queries = queries[:min(len(queries), 8)]
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
		require.Zero(t, with.Worst)
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
			dst[i] -= float32(l.share * l.Shortfall(kernels.Probable).Of(l.snap.Codec().LargestFactor(ch, doc)))
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
				r.plan = plan{how: PlanExact, k: 12}
				require.NoError(t, r.prepare(m.Tokens(16), nil, table{all: true}))
				plain := r.query
				p, w := plain.Shortfall(kernels.Probable), plain.Shortfall(kernels.Worst)
				if share*p.Factor > w.Factor { // with few roundings, as on AMX
					continue
				}
				var docs []uint32
				for d := range uint32(600) {
					docs = append(docs, d)
				}
				want, _, err := r.score(nil, append([]uint32(nil), docs...), exactJob, storage.All, r.maxSim(kernels.Fine))
				require.NoError(t, err)
				want = topk.Best(want, 12)
				r.query = &lower{plain, share, one, snap}
				coarse, _, err := r.score(nil, docs, exactJob, storage.All, r.maxSim(kernels.Fast))
				require.NoError(t, err)
				got, err := r.refine(coarse, nil)
				require.NoError(t, err)
				require.ElementsMatch(t, want, topk.Best(got, 12))
				require.InDelta(t, share, r.stats.BoundShare, 0.02+math.Abs(share)/50)
				if share > kernels.NearBound {
					require.EqualValues(t, 1, r.stats.Worst)
				} else {
					require.Zero(t, r.stats.Worst)
				}
			}
		}
	}
}
