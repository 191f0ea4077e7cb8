package search

import (
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/realdata"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/internal/topk"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cpu"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// TestRealLevels holds both levels of every tier against MaxSim of the same
// decoded vectors in float64, on real vectors: Cranfield's, or those in the
// folder that PLAID_DATA names, with all queries instead of some.
func TestRealLevels(t *testing.T) {
	longForm(t)
	dir, some := os.Getenv("PLAID_DATA"), 0
	if dir == "" {
		dir, some = realdata.Path(t, "data", "cranfield", "vectors"), 10
	}
	files := vectors.Files{Vectors: filepath.Join(dir, "docs.npy"), Lengths: filepath.Join(dir, "doclens.npy")}
	queries := searchtest.Load(t, vectors.Files{Vectors: filepath.Join(dir, "queries.npy")})
	if some > 0 {
		queries = queries[:some]
	}
	for _, nbits := range []int{2, 4} {
		path := filepath.Join(t.TempDir(), "index.plaid")
		_, err := buildCranfield(files, path, &index.BuildOptions{Nbits: nbits})
		require.NoError(t, err)
		compareLevels(t, nbits, searchtest.Snapshot(t, searchtest.Open(t, path)), queries)
	}
}

// levelErrors are the errors of a tier's scores.
type levelErrors struct {
	largest, square [2]float64
	n               float64
}

func compareLevels(t *testing.T, nbits int, snap *index.Snapshot, queries []vectors.Document) {
	const depth, margin = 100, 20 // places compared, and documents beyond that might take one
	report, err := cpu.Describe("")
	require.NoError(t, err)
	scorers := map[string]kernels.Scorer{}
	for _, name := range report.Tiers {
		be, err := kernels.Select(name)
		require.NoError(t, err)
		scorers[name], err = be.Scorer(snap.Codec())
		require.NoError(t, err)
	}
	errors := map[string]*levelErrors{}
	for name := range scorers {
		errors[name] = &levelErrors{}
	}
	var places, same [2]int // of the first 10 and the first 100
	var mu sync.Mutex
	var wg sync.WaitGroup
	next := make(chan []float32)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for q := range next {
				fine := levelScores(snap, snap.Scorer(), q, kernels.Fine)
				top := topk.Best(slices.Clone(fine), depth+margin)
				slices.SortFunc(top, topk.Order)
				want := make([]float64, len(top))
				for i, s := range top {
					chunk, doc, _ := snap.Locate(s.Doc)
					ch, err := snap.Chunk(chunk, storage.All)
					if err != nil {
						t.Error(err)
						return
					}
					want[i], _ = kernels.OracleMaxSim(snap.Codec(), q, nil, ch, doc)
				}
				by := make([]int, len(top))
				for i := range by {
					by[i] = i
				}
				slices.SortFunc(by, func(a, b int) int {
					switch {
					case want[a] > want[b] || want[a] == want[b] && top[a].Doc < top[b].Doc:
						return -1
					default:
						return 1
					}
				})
				mu.Lock()
				for i := range depth {
					for j, n := range []int{10, 100} {
						if i < n {
							places[j]++
							if by[i] == i {
								same[j]++
							}
						}
					}
				}
				mu.Unlock()
				for name, s := range scorers {
					for _, level := range []kernels.Level{kernels.Fast, kernels.Fine} {
						got := levelScores(snap, s, q, level)
						mu.Lock()
						e := errors[name]
						for i, d := range top {
							diff := math.Abs(float64(got[d.Doc].Score) - want[i])
							e.largest[level] = max(e.largest[level], diff)
							e.square[level] += diff * diff
						}
						e.n += float64(len(top)) / 2
						mu.Unlock()
					}
				}
			}
		})
	}
	for _, q := range queries {
		v := slices.Clone(q.Tokens)
		codec.Normalize(v, snap.Dim())
		next <- v
	}
	close(next)
	wg.Wait()
	for _, name := range report.Tiers {
		e := errors[name]
		t.Logf("%d bits, %s: fast: largest error %.1e, rms %.1e; fine: %.1e, %.1e", nbits, name,
			e.largest[kernels.Fast], math.Sqrt(e.square[kernels.Fast]/e.n), e.largest[kernels.Fine], math.Sqrt(e.square[kernels.Fine]/e.n))
		require.Less(t, e.largest[kernels.Fast], 2e-2)
		require.Less(t, e.largest[kernels.Fine], 1e-4)
	}
	t.Logf("%d bits: places as in float64: %d of %d of the top 10, %d of %d of the top 100", nbits, same[0], places[0], same[1], places[1])
	require.GreaterOrEqual(t, float64(same[0]), 0.999*float64(places[0]))
	require.GreaterOrEqual(t, float64(same[1]), 0.99*float64(places[1]))
}

// levelScores are the scores of all documents of the index.
func levelScores(snap *index.Snapshot, s kernels.Scorer, vectors []float32, level kernels.Level) (all []topk.Scored) {
	q := s.NewQuery()
	if q.Reset(vectors, nil) != nil {
		return nil
	}
	q.CentroidScores(0, snap.Header().Centroids)
	q.Seal()
	for c := range snap.Chunks() {
		ch, err := snap.Chunk(c, storage.All)
		if err != nil {
			return nil
		}
		dst := make([]float32, ch.Docs())
		q.MaxSim(dst, ch, nil, level)
		for _, v := range dst {
			all = append(all, topk.Scored{Doc: uint32(len(all)), Score: v})
		}
	}
	return all
}
