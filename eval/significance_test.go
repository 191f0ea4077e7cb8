package eval_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/eval"
)

const fewSamples = 999

// against0 pairs differences with zeros.
func against0(diffs ...float64) (a, b []float64) { return diffs, make([]float64, len(diffs)) }

// The systems of the comparisons with SciPy; all values are exact in binary.
var (
	systemA = eighths(4, 2, 8, 6, 0, 5, 7, 1, 4, 8, 3, 2)
	systemB = eighths(3, 2, 5, 6, 1, 2, 7, 0, 2, 8, 0, 4)
)

func eighths(n ...float64) []float64 {
	for i := range n {
		n[i] /= 8
	}
	return n
}

// SciPy 1.17.1, with a and b as above:
//
//	scipy.stats.permutation_test((a, b), lambda x, y, axis=-1: numpy.mean(x - y, axis=axis),
//	    permutation_type='samples', n_resamples=10**6).pvalue
func TestAgainstSciPy(t *testing.T) {
	r, err := eval.RandomisationTest(systemA, systemB, 1, 0)
	require.NoError(t, err)
	require.Equal(t, eval.Randomisation{P: 0.1484375, Exact: true, Samples: 256}, r)

	x := []float64{0.31, 0.02, 0.77, 0.5, 0.43, 0.91, 0.66, 0.12, 0.08, 0.39}
	y := []float64{0.29, 0.1, 0.61, 0.5, 0.38, 0.72, 0.69, 0.05, 0.01, 0.33}
	r, err = eval.RandomisationTest(x, y, 1, 0)
	require.NoError(t, err)
	require.Equal(t, 0.0859375, r.P)
}

func TestRandomisationByHand(t *testing.T) {
	for _, tt := range []struct {
		diffs   []float64
		p       float64
		samples int
	}{
		// |±1±2±3| is 6 twice, 4 twice, 2 twice and 0 twice.
		{[]float64{1, 2, 3}, 2.0 / 8, 8},
		{[]float64{-1, 2, 3}, 4.0 / 8, 8},
		{[]float64{1, -2, 3}, 6.0 / 8, 8},
		{[]float64{1, 2, -3}, 1, 8},
		// Zeros change nothing, nor does rounding: 0.1 + 0.2 is not 0.3.
		{[]float64{0, 1, 0, 2, 3, 0}, 2.0 / 8, 8},
		{[]float64{0.1, 0.2, -0.3}, 1, 8},
		{[]float64{0, 0}, 1, 1},
		{[]float64{0, -4}, 1, 2},
		{[]float64{1, 1}, 2.0 / 4, 4},
	} {
		a, b := against0(tt.diffs...)
		got, err := eval.RandomisationTest(a, b, 1, 1)
		require.NoError(t, err)
		require.Equal(t, eval.Randomisation{P: tt.p, Exact: true, Samples: tt.samples}, got, "%v", tt.diffs)
	}
}

// With differences of ±1 the test is the sign test: a binomial distribution.
func TestRandomisationIsTheSignTest(t *testing.T) {
	for _, tt := range []struct {
		n, wins int
		exact   bool
	}{
		{16, 12, true}, {17, 13, false}, {20, 15, false}, {70, 45, false}, {130, 65, false},
	} {
		diffs := make([]float64, tt.n)
		for i := range diffs {
			diffs[i] = -1
			if i < tt.wins {
				diffs[i] = 1
			}
		}
		want := 0.0
		for k := range tt.n + 1 {
			if math.Abs(float64(2*k-tt.n)) >= math.Abs(float64(2*tt.wins-tt.n)) {
				all, _ := math.Lgamma(float64(tt.n + 1))
				in, _ := math.Lgamma(float64(k + 1))
				out, _ := math.Lgamma(float64(tt.n - k + 1))
				want += math.Exp(all - in - out - float64(tt.n)*math.Ln2)
			}
		}
		a, b := against0(diffs...)
		got, err := eval.RandomisationTest(a, b, 40_000, 3)
		require.NoError(t, err)
		require.Equal(t, tt.exact, got.Exact)
		tolerance := 1e-12
		if !tt.exact {
			require.Equal(t, 40_000, got.Samples)
			tolerance = 4*math.Sqrt(want*(1-want)/40_000) + 1.0/40_001
		}
		require.InDelta(t, want, got.P, tolerance, "%v", tt)
	}
}

func TestSampledPIsNever0(t *testing.T) {
	diffs := slices.Repeat([]float64{0.5}, 100)
	r, err := eval.RandomisationTest(diffs, make([]float64, 100), 99, 1)
	require.NoError(t, err)
	require.Equal(t, 0.01, r.P)
}

// Pins the generator and its use: the same seed must give the same values in every
// version and on every machine.
func TestResamplingRepeats(t *testing.T) {
	a, b := make([]float64, 40), make([]float64, 40)
	for i := range a {
		a[i], b[i] = float64(i*i%17)/16, float64(i*i*i%13)/16
	}
	r, err := eval.RandomisationTest(a, b, fewSamples, 42)
	require.NoError(t, err)
	require.Equal(t, eval.Randomisation{P: 0.101, Samples: fewSamples}, r)
	other, err := eval.RandomisationTest(a, b, fewSamples, 43)
	require.NoError(t, err)
	require.NotEqual(t, r.P, other.P)
}

func TestHolm(t *testing.T) {
	for _, tt := range []struct{ in, want []float64 }{
		{nil, []float64{}},
		{[]float64{0.03}, []float64{0.03}},
		// R: p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm")
		{[]float64{0.01, 0.04, 0.03, 0.005}, []float64{0.03, 0.06, 0.06, 0.02}},
		{[]float64{0.5, 0.4, 0.3}, []float64{0.9, 0.9, 0.9}},
		{[]float64{0.8, 0.8, 0.8}, []float64{1, 1, 1}},
		{[]float64{0, 1}, []float64{0, 1}},
	} {
		in := slices.Clone(tt.in)
		got, err := eval.Holm(in)
		require.NoError(t, err)
		require.InDeltaSlice(t, tt.want, got, 1e-15)
		require.Equal(t, tt.in, in)
	}
	for _, p := range []float64{-0.1, 1.1, math.NaN()} {
		_, err := eval.Holm([]float64{0.5, p})
		require.ErrorIs(t, err, eval.ErrParameter)
	}
}

// Holm's own procedure: go through the p-values from the smallest, reject while
// p ≤ level/(m−i), stop at the first that is not.
func TestHolmIsStepDown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ps := rapid.SliceOfN(rapid.Float64Range(0, 0.2), 1, 8).Draw(t, "ps")
		level := rapid.Float64Range(0.001, 0.5).Draw(t, "level")
		adjusted, err := eval.Holm(ps)
		require.NoError(t, err)
		sorted := slices.Clone(ps)
		slices.Sort(sorted)
		rejected := 0
		for rejected < len(sorted) && float64(len(sorted)-rejected)*sorted[rejected] <= level {
			rejected++
		}
		for i, p := range ps {
			if p > adjusted[i] || adjusted[i] > 1 {
				t.Fatalf("%v became %v", p, adjusted[i])
			}
			want := rejected > 0 && p <= sorted[rejected-1]
			require.Equal(t, want, adjusted[i] <= level, "p %v", p)
		}
	})
}

func TestSignificanceErrors(t *testing.T) {
	for _, c := range []struct {
		a, b    []float64
		samples int
		want    error
	}{
		{[]float64{1, 2}, []float64{1}, fewSamples, eval.ErrUnpaired},
		{nil, nil, fewSamples, eval.ErrTooFewPairs},
		{[]float64{1}, []float64{2}, fewSamples, eval.ErrTooFewPairs},
		{[]float64{1, math.NaN()}, []float64{2, 2}, fewSamples, eval.ErrParameter},
		{[]float64{1, math.Inf(1)}, []float64{2, 2}, fewSamples, eval.ErrParameter},
		{[]float64{1, 1e308}, []float64{2, 2}, fewSamples, eval.ErrParameter},
		{[]float64{1, 2}, []float64{0, 0}, -1, eval.ErrParameter},
		{[]float64{1, 2}, []float64{0, 0}, 0, eval.ErrParameter},
		{[]float64{1, 2}, []float64{0, 0}, 10_000_001, eval.ErrParameter},
	} {
		_, err := eval.RandomisationTest(c.a, c.b, c.samples, 1)
		require.ErrorIs(t, err, c.want, "%+v", c)
	}
}

func randomised(t require.TestingT, a, b []float64) eval.Randomisation {
	r, err := eval.RandomisationTest(a, b, fewSamples, 9)
	require.NoError(t, err)
	return r
}

func TestSignificanceProperties(t *testing.T) {
	// Multiples of 1/64 keep sums exact, so that equal means equal.
	value := rapid.Custom(func(t *rapid.T) float64 { return float64(rapid.IntRange(0, 64).Draw(t, "v")) / 64 })
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.SampledFrom([]int{2, 3, 8, 30}).Draw(t, "n")
		values := rapid.SliceOfN(value, n, n)
		a, b := values.Draw(t, "a"), values.Draw(t, "b")
		got := randomised(t, a, b)
		if !(got.P >= 0 && got.P <= 1) {
			t.Fatalf("P is %v", got.P)
		}
		require.Equal(t, got, randomised(t, b, a))
		require.Equal(t, eval.Randomisation{P: 1, Exact: true, Samples: 1}, randomised(t, a, a))

		// Making all queries easier for both systems by one amount changes nothing.
		by := value.Draw(t, "shift")
		shift := func(v []float64) []float64 {
			out := slices.Clone(v)
			for i := range out {
				out[i] += by
			}
			return out
		}
		require.Equal(t, got, randomised(t, shift(a), shift(b)))
	})
}

func TestQueryOrderDoesNotMatterToExactTests(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		diffs := rapid.SliceOfN(rapid.Float64Range(-1, 1), 2, 10).Draw(t, "diffs")
		zeros := make([]float64, len(diffs))
		shuffled := rapid.Permutation(diffs).Draw(t, "order")
		require.Equal(t, randomised(t, diffs, zeros), randomised(t, shuffled, zeros))
	})
}
