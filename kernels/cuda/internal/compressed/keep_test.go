package compressed

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
)

// gainsOf are the least and the most that the documents gain which a query finds, by the definition
// (GainParams), where S errs by up to a step of half precision.
func gainsOf(c *corpus, q *kernels.DeviceQuery) map[uint32][2]float64 {
	dim, k := c.codec.Dim(), c.codec.Centroids.K
	centroids := make([]float32, k*dim)
	c.codec.Centroids.Rows(centroids, 0, k)
	type column struct {
		weight, floor float64
		s             []float64
	}
	var cols []column
	probed := map[int]bool{}
	var gap, most float64
	for t := range len(q.Vectors) / dim {
		w := 1.0
		if q.Weights != nil {
			w = float64(q.Weights[t])
		}
		if w <= 0 {
			continue
		}
		col := column{weight: w, s: make([]float64, k)}
		best := make([]int, k)
		for i := range k {
			best[i] = i
			for j := range dim {
				col.s[i] += float64(centroids[i*dim+j]) * float64(q.Vectors[t*dim+j])
			}
		}
		slices.SortFunc(best, func(a, b int) int { // equal ones are rare
			if col.s[a] > col.s[b] {
				return -1
			}
			return 1
		})
		n := min(q.Probes, k)
		col.floor = col.s[best[min(n+1, k)-1]]
		gap += col.s[best[n/2]] - col.floor
		most += w * (col.s[best[0]] - col.floor)
		for _, i := range best[:n] {
			probed[i] = true
		}
		cols = append(cols, col)
	}
	gap *= unseenGap / float64(max(len(cols), 1))
	for _, col := range cols {
		most += col.weight * gap
	}
	gains := map[uint32][2]float64{}
	for d := range uint32(c.docs()) {
		ch, i := c.at(d)
		gain, found := [2]float64{}, false
		for _, col := range cols {
			best := math.Inf(-1)
			for t := ch.Offsets[i]; t < ch.Offsets[i+1]; t++ {
				if code := int(ch.Code(int(t))); probed[code] {
					best, found = max(best, col.s[code]-col.floor), true
				}
			}
			for i, off := range []float64{-halfStep, halfStep} {
				if best+off > 0 {
					gain[i] += col.weight * (best + off + gap) / most
				}
			}
		}
		if found && c.isLive(d) {
			gains[d] = gain
		}
	}
	return gains
}

// halfStep is a step of half precision of S, with what sums err by.
const halfStep = 1.5e-3

// requireKept holds an answer against the definition of what is kept.
func requireKept(t checker, c *corpus, q *kernels.DeviceQuery, a kernels.DeviceAnswer, tolerance float64) {
	t.Helper()
	if a.Stats.Retried+a.Stats.Widened > 0 { // whose figures are of several searches
		return
	}
	gains := gainsOf(c, q)
	var least, most []float64
	for _, g := range gains {
		least, most = append(least, g[0]), append(most, g[1])
	}
	for _, all := range [][]float64{least, most} {
		slices.Sort(all)
		slices.Reverse(all)
	}
	require.Equal(t, int64(len(gains)), a.Stats.Candidates)
	kept := int(a.Stats.ScanDocs)
	if q.MaxCandidates == 0 || len(gains) <= q.MaxCandidates {
		require.Len(t, gains, kept)
		return
	}
	require.LessOrEqual(t, kept, q.MaxCandidates)
	const level = 1.01 / gainLevels
	reach := 0 // documents that may be of the next level, or above
	for reach < len(most) && most[reach] >= least[kept]-level {
		reach++
	}
	require.Greater(t, reach, q.MaxCandidates, "the next level does not fit")
	if kept == 0 {
		return
	}
	require.Len(t, a.Docs, min(q.K, kept))
	for _, d := range a.Docs {
		gain, ok := gains[d]
		require.True(t, ok, "document %d is no candidate", d)
		require.GreaterOrEqual(t, gain[1], least[kept-1]-level)
	}
	last := float64(a.Scores[len(a.Scores)-1])
	for d, gain := range gains {
		if gain[0] > most[kept-1]+level && len(a.Docs) == q.K && c.exact(q.Vectors, q.Weights, d) > last+tolerance {
			require.Contains(t, a.Docs, d)
		}
	}
}

// checkKept searches random collections for documents that gain most.
func checkKept(t checker, d *runtime.Device, cfg kerneltest.Config, rng *rand.Rand) (cut bool) {
	cs := kerneltest.New(cfg)
	c := newCorpus(cs.Codec, split(cs, rng, 1+rng.IntN(3))...)
	for range rng.IntN(10) {
		c.drop(uint32(rng.IntN(c.docs())))
	}
	a, err := Attach(ctx, d, c, kernels.AttachOptions{})
	require.NoError(t, err)
	defer func() { require.NoError(t, a.Close()) }()
	var qs []kernels.DeviceQuery
	probes, keep := 1+rng.IntN(8), 1+rng.IntN(c.docs())
	for range 1 + rng.IntN(4) {
		lq := []int{1, 5, 32, 33, 70}[rng.IntN(5)]
		q := kernels.DeviceQuery{Vectors: cs.Query(lq), K: 1 + rng.IntN(10), Probes: probes, MaxCandidates: keep}
		if rng.IntN(2) == 0 {
			q.Weights = cs.Weights(lq, -0.5, 1)
		}
		qs = append(qs, q)
	}
	answers, err := a.Search(ctx, c, qs)
	require.NoError(t, err)
	for i := range qs {
		tolerance := fineError * float64(len(qs[i].Vectors)/c.codec.Dim())
		requireKept(t, c, &qs[i], answers[i], max(tolerance, 2e-4))
		for range 3 { // as a graph in the end
			one, err := a.Search(ctx, c, qs[i:i+1])
			require.NoError(t, err)
			require.Equal(t, answers[i].Docs, one[0].Docs, "alone and in a batch")
			require.Equal(t, answers[i].Scores, one[0].Scores)
		}
		cut = cut || answers[i].Stats.ScanDocs < answers[i].Stats.Candidates
	}
	return cut
}

func keepConfig(rng *rand.Rand) kerneltest.Config {
	pick := func(of ...int) int { return of[rng.IntN(len(of))] }
	return kerneltest.Config{
		Dim: pick(32, 64, 96, 128, 200), Nbits: pick(1, 2, 4, 8), K: pick(7, 40, 300), CodeBytes: 2, Table: rng.IntN(3) == 0,
		DimScale: rng.IntN(2) == 0, CentroidScale: rng.IntN(2) == 0, Seed: rng.Uint64(), Lengths: lengths(rng, 1+rng.IntN(80), pick(1, 20, 50)),
	}
}

// Of the documents that probing finds, those that gain most are kept.
func TestKeepsWhatGainsMost(t *testing.T) {
	cuts := 0
	rapid.Check(t, func(rt *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 3))
		f, _ := newFake()
		d, err := runtimetest.Open(f.API(), runtimetest.Modules())
		require.NoError(rt, err)
		defer d.Close()
		if checkKept(rt, d, keepConfig(rng), rng) {
			cuts++
		}
		require.Empty(rt, f.Faults())
	})
	require.Positive(t, cuts)
}

// The GPU keeps what the definition says, over PLAID_GPU_SHAPES random shapes.
func TestGPUKeepsWhatGainsMost(t *testing.T) {
	d := runtimetest.OpenGPU(t)
	rng := rand.New(rand.NewPCG(uint64(runtimetest.Env("PLAID_GPU_SEED", 1)), 2))
	cuts := 0
	for range runtimetest.Env("PLAID_GPU_SHAPES", 100) {
		if checkKept(t, d, keepConfig(rng), rng) {
			cuts++
		}
	}
	require.Positive(t, cuts)
	t.Logf("%d searches cut", cuts)
}
