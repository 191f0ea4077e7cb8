package codec

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/kernels"
)

func mustTrain(t testing.TB, x []float32, dim int, o TrainOptions) (*Quantizer, TrainReport) {
	t.Helper()
	if o.Backend == nil {
		o.Backend = backend(t)
	}
	c, r, err := Train(context.Background(), x, dim, o)
	require.NoError(t, err)
	return c, r
}

func encode(t testing.TB, c *Quantizer, x []float32, threads int) *Block {
	t.Helper()
	var b Block
	require.NoError(t, c.Encode(context.Background(), &b, x, threads, backend(t)))
	return &b
}

func TestRules(t *testing.T) {
	require.Equal(t, 1, DefaultK(0))
	require.Equal(t, 16, DefaultK(1))
	require.Equal(t, 4096, DefaultK(235_915))
	require.Equal(t, 16_384, DefaultK(1_221_388))
	require.Equal(t, 1<<18, DefaultK(597_900_000))
	require.Equal(t, 16, DefaultK(3)) // 27.7
	require.Equal(t, 32, DefaultK(4)) // exactly 32
	require.Equal(t, 0, SampleDocs(0))
	require.Equal(t, 1, SampleDocs(1))
	require.Equal(t, 500, SampleDocs(500))
	require.Equal(t, 1+int(16*math.Sqrt(120e6)), SampleDocs(1_000_000))
}

// Vectors that come later are farther from centroids than those that made them: levels that were fitted to
// vectors held out encode them better.
func TestTrainHoldsOut(t *testing.T) {
	const dim, n = 32, 4096
	x := clustered(2*n, dim, 300, 0.9, 3)
	later := x[n*dim:]
	sumSq := map[int]float64{}
	for _, every := range []int{0, 8} {
		c, r := mustTrain(t, x[:n*dim], dim, TrainOptions{K: 512, Nbits: 4, Seed: 1, HeldOut: every})
		sumSq[every] = encode(t, c, later, 0).SumSq
		if every > 0 {
			require.Equal(t, n-n/every, r.Points)
			require.Equal(t, n/every, r.TuneVectors)
		}
	}
	require.Less(t, sumSq[8], sumSq[0])

	rows := shuffled(64, 1)
	moved := holdOut(rows, 8)
	require.ElementsMatch(t, rows, moved)
	require.ElementsMatch(t, []uint32{7, 15, 23, 31, 39, 47, 55, 63}, moved[56:])
	_, r := mustTrain(t, x[:7*dim], dim, TrainOptions{K: 2, HeldOut: 8})
	require.Equal(t, 7, r.Points, "too few to hold any out")
	for _, every := range []int{-1, 1} {
		_, _, err := Train(t.Context(), x, dim, TrainOptions{HeldOut: every})
		require.ErrorIs(t, err, ErrShape)
	}
}

func TestTrainIsTheSameForAnyThreadCount(t *testing.T) {
	x := clustered(3000, 24, 40, 0.7, 1)
	for i := range 24 {
		x[1000*24+i] = 0
	}
	for _, o := range []TrainOptions{
		{K: 64, Seed: 7},
		{K: 100, Seed: 7, Nbits: 4, MaxPointsPerCentroid: 20},
	} {
		o.Threads = 1
		a, ra := mustTrain(t, x, 24, o)
		ea := encode(t, a, x, 1)
		for _, threads := range []int{2, 8} {
			o.Threads = threads
			b, rb := mustTrain(t, x, 24, o)
			require.Equal(t, ra, rb)
			require.Equal(t, a.Kernel(), b.Kernel())
			eb := encode(t, b, x, threads)
			require.Equal(t, ea.Codes, eb.Codes)
			require.Equal(t, ea.Residuals, eb.Residuals)
			require.Equal(t, ea.Factors, eb.Factors)
			require.Equal(t, ea.SumSq, eb.SumSq)
		}
		o.Seed++
		other, _ := mustTrain(t, x, 24, o)
		require.NotEqual(t, a.Kernel().Centroids.Data, other.Kernel().Centroids.Data)
	}
}

func TestTrainFindsClusters(t *testing.T) {
	const dim, clusters = 32, 10
	x := clustered(1000, dim, clusters, 0.05, 5)
	c, r := mustTrain(t, x, dim, TrainOptions{K: 3 * clusters, Iterations: 10})
	require.Greater(t, r.Similarity, 0.998)
	b := encode(t, c, x, 1)
	for i := clusters; i < 1000; i++ { // no centroid serves two clusters
		for k := range clusters {
			if k != i%clusters {
				ch := b.Chunk(c, nil)
				require.NotEqual(t, ch.Code(k), ch.Code(i))
			}
		}
	}
}

func TestTrainReport(t *testing.T) {
	const dim = 16
	x := clustered(2000, dim, 30, 0.8, 2)
	var last, total, fitted, toFit int64
	c, r := mustTrain(t, x, dim, TrainOptions{
		Tokens: 100, Threads: 3, MaxPointsPerCentroid: 10,
		Progress: func(d, n int64) { last, total = max(last, d), n },
		FitProgress: func(d, n int64) {
			require.LessOrEqual(t, fitted, d)
			require.Equal(t, total, last, "assignments come before")
			fitted, toFit = d, n
		},
	})
	require.Equal(t, toFit, fitted)
	require.Positive(t, fitted)
	require.Equal(t, DefaultK(100), r.WantedK)
	require.Equal(t, r.WantedK, r.K)
	require.Equal(t, 10*r.K, r.Points)
	require.Equal(t, 2000, r.TuneVectors)
	require.Equal(t, total, last)
	require.Equal(t, int64(defaultIterations*r.Points+r.TuneVectors), last)
	require.Equal(t, c.Kernel().Codebook.Step, r.Step)
	require.True(t, r.FactorMax >= 1.5 && r.FactorMax <= 8)
	require.True(t, r.Similarity > 0.5 && r.Similarity < 1, "%g", r.Similarity)
	// Every vector was tuned on, so encoding has the reported error but for the
	// rounding of factors.
	b := encode(t, c, x, 0)
	require.InEpsilon(t, r.RMSE, math.Sqrt(b.SumSq/2000), 1e-3)
	require.Zero(t, b.Clamped)
}

func TestCentroidsAreUnitBF16(t *testing.T) {
	const dim = 48
	x := clustered(500, dim, 20, 0.5, 9)
	c, _ := mustTrain(t, x, dim, TrainOptions{K: 32})
	require.Equal(t, kernels.BF16, c.Kernel().Centroids.Type)
	rows := c.Centroids()
	for k := range 32 {
		row := rows[k*dim : (k+1)*dim]
		require.InDelta(t, 1, math.Sqrt(dot64(row, row)), 0.004)
		for _, v := range row {
			require.Zero(t, math.Float32bits(v)&0xffff)
		}
	}
}

func TestTrainTinyInputs(t *testing.T) {
	same := func(n, dim int) []float32 {
		row := clustered(1, dim, 1, 1, 4)
		return slices.Repeat(row, n)
	}
	cases := []struct {
		name   string
		x      []float32
		dim, k int
		wantK  int
	}{
		{"one vector", clustered(1, 8, 1, 1, 1), 8, 0, 1},
		{"fewer vectors than centroids", clustered(5, 8, 5, 1, 1), 8, 64, 5},
		{"all identical", same(300, 16), 16, 32, 32},
		{"one centroid", clustered(100, 8, 9, 1, 1), 8, 1, 1},
		{"opposite vectors", []float32{1, 0, -1, 0, 1, 0, -1, 0}, 2, 1, 1},
		{"one dimension", []float32{1, -1, 1, 1, -1}, 1, 2, 2},
		{"zeros only", make([]float32, 40), 4, 3, 3},
		{"zeros and one vector", append(make([]float32, 40), 0, 0, 1, 0), 4, 3, 3},
		{"dimension 130", clustered(70, 130, 7, 1, 1), 130, 16, 16},
		{"dimension 4096", clustered(6, 4096, 3, 1, 1), 4096, 4, 4},
	}
	for _, tc := range cases {
		for _, nbits := range []int{1, 2, 4, 8} {
			t.Run(fmt.Sprint(tc.name, nbits), func(t *testing.T) {
				c, r := mustTrain(t, tc.x, tc.dim, TrainOptions{K: tc.k, Nbits: nbits})
				require.Equal(t, tc.wantK, r.K)
				require.NoError(t, c.Kernel().Validate())
				for _, v := range c.Centroids() {
					require.False(t, math.IsNaN(float64(v)) || math.IsInf(float64(v), 0))
				}
				b := encode(t, c, tc.x, 2)
				n := len(tc.x) / tc.dim
				ch := b.Chunk(c, []uint32{0, uint32(n)})
				require.NoError(t, ch.Validate(c.Kernel()))
				y := make([]float32, len(tc.x))
				c.DecodeTokens(y, &ch, 0, n)
				for i := range n {
					x, y := tc.x[i*tc.dim:(i+1)*tc.dim], y[i*tc.dim:(i+1)*tc.dim]
					if dot64(x, x) == 0 {
						require.Zero(t, dot64(y, y))
						continue
					}
					require.InDelta(t, 1, dot64(y, y), 1e-3)
				}
			})
		}
	}
}

func TestTrainRefusesBadInput(t *testing.T) {
	ctx := context.Background()
	o := TrainOptions{Backend: backend(t)}
	good := clustered(20, 4, 2, 1, 1)
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), 1e5} {
		x := slices.Clone(good)
		x[13*4+2] = bad
		_, _, err := Train(ctx, x, 4, o)
		require.ErrorIs(t, err, ErrValue)
		require.ErrorContains(t, err, "vector 13, dimension 2")
	}
	_, _, err := Train(ctx, nil, 4, o)
	require.ErrorIs(t, err, ErrNoVectors)
	_, _, err = Train(ctx, good[:7], 4, o)
	require.ErrorIs(t, err, ErrShape)
	for _, dim := range []int{-1, 0, kernels.MaxDim + 1} {
		_, _, err = Train(ctx, good, dim, o)
		require.ErrorIs(t, err, ErrShape)
	}
	_, _, err = Train(ctx, good, 4, TrainOptions{Backend: o.Backend, Nbits: 3})
	require.ErrorIs(t, err, kernels.ErrShape)
	_, _, err = Train(ctx, good, 4, TrainOptions{Backend: o.Backend, K: -1})
	require.ErrorIs(t, err, ErrShape)
}

// cancelling counts assignments and cancels after a few.
type cancelling struct {
	kernels.Backend
	calls  *int
	cancel context.CancelFunc
}

func (c cancelling) Nearest(ctx context.Context, codes []uint32, scores []float32, centroids, x []float32, dim int) error {
	if *c.calls++; *c.calls == 3 {
		c.cancel()
	}
	return c.Backend.Nearest(ctx, codes, scores, centroids, x, dim)
}

func TestCancellation(t *testing.T) {
	x := clustered(20*blockRows, 2, 9, 1, 1)
	ctx, cancel := context.WithCancel(context.Background())
	calls := 0
	be := cancelling{backend(t), &calls, cancel}
	_, _, err := Train(ctx, x, 2, TrainOptions{K: 8, Backend: be, Threads: 1})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 3, calls)

	c, _ := mustTrain(t, x, 2, TrainOptions{K: 8})
	b := encode(t, c, x[:6], 1)
	before := slices.Clone(b.Codes)
	require.ErrorIs(t, c.Encode(ctx, b, x, 2, be), context.Canceled)
	require.Equal(t, 3, b.Tokens)
	require.Equal(t, before, b.Codes)
	require.Len(t, b.Factors, 6)
	require.ErrorIs(t, c.EncodeFixed(ctx, b, []uint32{1}, make([]byte, 1), 1), context.Canceled)
	_, err = c.MaxFactor(ctx, []uint32{1}, make([]byte, 1), 1)
	require.ErrorIs(t, err, context.Canceled)
}

// A cluster that loses all its vectors must come back to life.
func TestReseed(t *testing.T) {
	const dim = 8
	x := clustered(400, dim, 8, 0.02, 3)
	km := &kmeans{
		points: matrixPoints{x, dim}, dim: dim, rows: sorted(shuffled(400, 1), 400), k: 8, threads: 2,
		backend: backend(t), progress: func(int) {},
	}
	// All first centroids come from one cluster.
	var first []uint32
	for i := range 8 {
		first = append(first, uint32(8*i))
	}
	require.NoError(t, km.selectInitial(context.Background(), first))
	require.NoError(t, km.run(context.Background(), 30))
	require.Positive(t, km.reseeded)
	used := map[uint32]bool{}
	for _, c := range km.codes {
		used[c] = true
	}
	require.Len(t, used, 8)
}

// quantileTable is the codebook of ColBERT's family: cutoffs at the quantiles
// i/2ⁿ of the residuals, weights at those half-way between.
func quantileTable(residuals []float32, nbits int) (cutoffs, weights []float32) {
	s := slices.Clone(residuals)
	slices.Sort(s)
	at := func(q float64) float32 {
		p := q * float64(len(s)-1)
		i := int(p)
		if i == len(s)-1 {
			return s[i]
		}
		return s[i] + float32(p-float64(i))*(s[i+1]-s[i])
	}
	n := 1 << nbits
	for i := range n {
		if i > 0 {
			cutoffs = append(cutoffs, at(float64(i)/float64(n)))
		}
		weights = append(weights, at((float64(i)+0.5)/float64(n)))
	}
	return cutoffs, weights
}

func residuals(c *Quantizer, x []float32, b *Block) []float32 {
	ch := b.Chunk(c, nil)
	out := make([]float32, len(x))
	for i := range b.Tokens {
		c.residual(out[i*c.Dim:(i+1)*c.Dim], x[i*c.Dim:(i+1)*c.Dim], ch.Code(i))
	}
	return out
}

func TestBeatsQuantilesOnRealVectors(t *testing.T) {
	if effort.Brief() {
		t.Skip("long, and of one goroutine")
	}
	x, dim := readNPY(t, 0, 6000, "cranfield", "vectors", "docs.npy")
	for _, tc := range []struct {
		nbits int
		ratio float64 // of the errors of vectors, at most
	}{{2, 0.75}, {1, 0.88}, {4, 0.5}} {
		if tc.nbits != 2 && !effort.Long() {
			continue
		}
		c, r := mustTrain(t, x, dim, TrainOptions{K: 128, Nbits: tc.nbits})
		ours := encode(t, c, x, 0)
		plain, _ := mustTrain(t, x, dim, TrainOptions{K: 128, Nbits: tc.nbits, NoDimScales: true, NoCentroidScales: true})
		unscaled := encode(t, plain, x, 0)

		cutoffs, weights := quantileTable(residuals(plain, x, unscaled), tc.nbits)
		table, report, err := FromTable(c.Centroids(), kernels.BF16, dim, tc.nbits, cutoffs, weights)
		require.NoError(t, err)
		require.LessOrEqual(t, report.Worst, report.Scale/2*1.0001)
		quantile := encode(t, table, x, 0)
		require.Equal(t, ours.Codes, quantile.Codes)

		rmse := func(b *Block) float64 { return math.Sqrt(b.SumSq / float64(b.Tokens)) }
		t.Logf("%d bits: %.4f, without scales %.4f, quantiles %.4f, similarity %.4f",
			tc.nbits, rmse(ours), rmse(unscaled), rmse(quantile), r.Similarity)
		require.Less(t, rmse(ours), rmse(unscaled))
		require.Less(t, rmse(ours), tc.ratio*rmse(quantile))
	}
}

// A last round over the whole collection serves what the sample has missed.
func TestTrainOnAll(t *testing.T) {
	const dim, n = 16, 4000
	x := clustered(n, dim, 200, 0.4, 8)
	x[5*dim] = 0
	similarity := func(threads, block int) (*Quantizer, float64) {
		o := TrainOptions{K: 150, Threads: threads}
		if block > 0 {
			o.All = func(yield func([]float32, error) bool) {
				for lo := 0; lo < n; lo += block {
					if !yield(x[lo*dim:min(lo+block, n)*dim], nil) {
						return
					}
				}
			}
		}
		c, _ := mustTrain(t, x[:600*dim], dim, o)
		var sum float64
		codes, scores := make([]uint32, n), make([]float32, n)
		require.NoError(t, backend(t).Nearest(context.Background(), codes, scores, c.Centroids(), x, dim))
		for _, s := range scores {
			sum += float64(s)
		}
		return c, sum / n
	}
	_, sampled := similarity(1, 0)
	c, all := similarity(1, n)
	require.Greater(t, all, sampled+0.01)
	for _, threads := range []int{1, 3} {
		other, _ := similarity(threads, 2100)
		require.Equal(t, c.Kernel(), other.Kernel())
	}

	o := TrainOptions{K: 4, Backend: backend(t)}
	for _, bad := range []struct {
		x   []float32
		err error
		is  error
	}{
		{nil, fs.ErrPermission, fs.ErrPermission}, {x[:dim+1], nil, ErrShape},
		{append(slices.Clone(x[:dim-1]), float32(math.NaN())), nil, ErrValue},
	} {
		o.All = func(yield func([]float32, error) bool) { yield(bad.x, bad.err) }
		_, _, err := Train(context.Background(), x, dim, o)
		require.ErrorIs(t, err, bad.is)
	}
}

func BenchmarkTrain(b *testing.B) {
	x := clustered(8192, 128, 500, 0.6, 1)
	be := backend(b)
	for b.Loop() {
		_, _, err := Train(context.Background(), x, 128, TrainOptions{K: 256, Backend: be})
		require.NoError(b, err)
	}
	b.ReportMetric(float64(b.N)*8192/b.Elapsed().Seconds(), "tokens/s")
}

func TestNormalize(t *testing.T) {
	x := []float32{3, 4, 0, 0, 1e-30, 0, 1e30, -1e30}
	Normalize(x, 2)
	h := float32(math.Sqrt(0.5))
	require.Equal(t, []float32{0.6, 0.8, 0, 0, 1, 0, h, -h}, x)
	Normalize(nil, 2)
	Normalize(x, 0)
}

func TestCodesAreLittleEndian(t *testing.T) {
	x := clustered(700, 4, 700, 1, 2)
	c, _ := mustTrain(t, x, 4, TrainOptions{K: 600})
	b := encode(t, c, x, 1)
	want := make([]uint32, 700)
	require.NoError(t, backend(t).Nearest(context.Background(), want, nil, c.Centroids(), x, 4))
	for i, w := range want {
		require.EqualValues(t, w, binary.LittleEndian.Uint16(b.Codes[2*i:]))
	}
}

// A report reads as a sentence does, however it is printed.
func TestReportAsText(t *testing.T) {
	require.Equal(t, "9 vectors, 4 centroids, 3 iterations, RMSE 0.0712", fmt.Sprint(TrainReport{Vectors: 9, K: 4, Iterations: 3, RMSE: .0712}))
}

// The worst rows are those that sorting all of them puts first.
func TestWorstRows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		scores := rapid.SliceOfN(rapid.SampledFrom([]float32{-1, -.5, 0, .25, .5, .75, 1, float32(math.NaN()), float32(math.Inf(1))}), 1, 200).Draw(t, "scores")
		n := rapid.IntRange(1, 250).Draw(t, "n")
		km := &kmeans{scores: scores, rows: make([]uint32, len(scores))}
		all := make([]uint32, len(scores))
		for i := range all {
			all[i] = uint32(i)
		}
		slices.SortStableFunc(all, func(a, b uint32) int { return cmp.Compare(scores[a], scores[b]) })
		require.Equal(t, all[:min(n, len(all))], km.lowestScores(n))
	})
}
