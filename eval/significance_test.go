package eval_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/eval"
)

const fewSamples = 999

// against0 pairs differences with zeros.
func against0(diffs ...float64) (a, b []float64) { return diffs, make([]float64, len(diffs)) }

func TestPairedTTestByHand(t *testing.T) {
	// d = 1 2 3: mean 2, s = 1, t = 2√3; with 2 degrees of freedom the two-sided
	// P is 1 − t/√(2+t²) = 1 − √(12/14).
	a, b := []float64{5, 7, 9}, []float64{4, 5, 6}
	got, err := eval.PairedTTest(a, b)
	require.NoError(t, err)
	require.InDelta(t, 2*math.Sqrt(3), got.T, 1e-14)
	require.InDelta(t, 1-math.Sqrt(12.0/14), got.P, 1e-14)
	require.Equal(t, 2, got.DF)

	// d = 1 3: mean 2, s = √2, t = 2; with 1 degree P is 1 − (2/π)·atan t.
	got, err = eval.PairedTTest(against0(1, 3))
	require.NoError(t, err)
	require.InDelta(t, 2, got.T, 1e-15)
	require.InDelta(t, 1-2/math.Pi*math.Atan(2), got.P, 1e-14)
}

func TestPairedTTestWithoutSpread(t *testing.T) {
	for d, want := range map[float64]eval.TTest{
		0:      {T: 0, DF: 2, P: 1},
		0.1:    {T: math.Inf(1), DF: 2, P: 0},
		-1e299: {T: math.Inf(-1), DF: 2, P: 0},
	} {
		got, err := eval.PairedTTest(against0(d, d, d))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestPairedTTestScale(t *testing.T) {
	want, err := eval.PairedTTest(against0(1, 2, 4))
	require.NoError(t, err)
	for _, power := range []int{-1000, -300, 300, 990} {
		got, err := eval.PairedTTest(against0(math.Ldexp(1, power), math.Ldexp(2, power), math.Ldexp(4, power)))
		require.NoError(t, err)
		require.Equal(t, want, got, power)
	}
}

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

// SciPy 1.17.1, with a and b as above and d = a − b:
//
//	scipy.stats.ttest_rel(a, b)
//	scipy.stats.permutation_test((a, b), lambda x, y, axis=-1: numpy.mean(x - y, axis=axis),
//	    permutation_type='samples', n_resamples=10**6).pvalue
//	scipy.stats.bootstrap((d,), numpy.mean, n_resamples=10**6, method='percentile', rng=1, batch=10000)
//	m = d[numpy.random.default_rng(1).integers(0, 12, (10**6, 12))].mean(1)
//	(abs(m - d.mean()) >= abs(d.mean()) - 1e-12).mean()
func TestAgainstSciPy(t *testing.T) {
	tt, err := eval.PairedTTest(systemA, systemB)
	require.NoError(t, err)
	require.InDelta(t, 1.7578076232766313, tt.T, 1e-14)
	require.InDelta(t, 0.10653567528708677, tt.P, 1e-14)

	r, err := eval.RandomisationTest(systemA, systemB, 1, 0)
	require.NoError(t, err)
	require.Equal(t, eval.Randomisation{P: 0.1484375, Exact: true, Samples: 256}, r)

	bs, err := eval.PairedBootstrap(systemA, systemB, 100_000, 0.95, 7)
	require.NoError(t, err)
	// Means are multiples of 1/96, so that the limits are those of SciPy to the bit
	// or a step apart.
	require.InDelta(t, -0.010416666666666666, bs.Low, 1.0/96+1e-12)
	require.InDelta(t, 0.21875, bs.High, 1.0/96+1e-12)
	require.InDelta(t, 0.080222, bs.P, 0.004) // over four standard errors of 100,000 samples

	x := []float64{0.31, 0.02, 0.77, 0.5, 0.43, 0.91, 0.66, 0.12, 0.08, 0.39}
	y := []float64{0.29, 0.1, 0.61, 0.5, 0.38, 0.72, 0.69, 0.05, 0.01, 0.33}
	tt, err = eval.PairedTTest(x, y)
	require.NoError(t, err)
	require.InDelta(t, 1.987012987012988, tt.T, 1e-13)
	require.InDelta(t, 0.0781718282016778, tt.P, 1e-14)
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
	bs, err := eval.PairedBootstrap(diffs, make([]float64, 100), 99, 0.9, 1)
	require.NoError(t, err)
	require.Equal(t, eval.Bootstrap{Low: 0.5, High: 0.5, Confidence: 0.9, P: 0.01, Samples: 99}, bs)
}

// Two differences give four equally likely samples: means 0, ½, ½, 1. Shifted by
// −½ they are −½, 0, 0, ½, of which half are at least ½ from 0.
func TestBootstrapByHand(t *testing.T) {
	bs, err := eval.PairedBootstrap([]float64{0, 1}, []float64{0, 0}, 40_000, 0.95, 5)
	require.NoError(t, err)
	require.Equal(t, 0.0, bs.Low)
	require.Equal(t, 1.0, bs.High)
	require.InDelta(t, 0.5, bs.P, 0.01) // four standard errors

	// Between the quartiles lie only means of ½.
	bs, err = eval.PairedBootstrap([]float64{0, 1}, []float64{0, 0}, 40_000, 0.4, 5)
	require.NoError(t, err)
	require.Equal(t, 0.5, bs.Low)
	require.Equal(t, 0.5, bs.High)
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
	bs, err := eval.PairedBootstrap(a, b, fewSamples, 0.95, 42)
	require.NoError(t, err)
	require.Equal(t, eval.Bootstrap{Low: -0.0140625, High: 0.25625, Confidence: 0.95, P: 0.074, Samples: fewSamples}, bs)

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
	type test func(a, b []float64) error
	tests := map[string]test{
		"t-test": func(a, b []float64) error { _, err := eval.PairedTTest(a, b); return err },
		"randomisation": func(a, b []float64) error {
			_, err := eval.RandomisationTest(a, b, fewSamples, 1)
			return err
		},
		"bootstrap": func(a, b []float64) error {
			_, err := eval.PairedBootstrap(a, b, fewSamples, 0.95, 1)
			return err
		},
	}
	for name, run := range tests {
		require.ErrorIs(t, run([]float64{1, 2}, []float64{1}), eval.ErrUnpaired, name)
		require.ErrorIs(t, run(nil, nil), eval.ErrTooFewPairs, name)
		require.ErrorIs(t, run([]float64{1}, []float64{2}), eval.ErrTooFewPairs, name)
		for _, v := range []float64{math.NaN(), math.Inf(1), 1e308} {
			require.ErrorIs(t, run([]float64{1, v}, []float64{2, 2}), eval.ErrParameter, name)
		}
	}
	a, b := against0(1, 2)
	for _, samples := range []int{-1, 0, 10_000_001} {
		_, err := eval.RandomisationTest(a, b, samples, 1)
		require.ErrorIs(t, err, eval.ErrParameter)
		_, err = eval.PairedBootstrap(a, b, samples, 0.95, 1)
		require.ErrorIs(t, err, eval.ErrParameter)
	}
	for _, confidence := range []float64{0, 1, -1, math.NaN()} {
		_, err := eval.PairedBootstrap(a, b, fewSamples, confidence, 1)
		require.ErrorIs(t, err, eval.ErrParameter)
	}
	_, err := eval.PairedBootstrap(a, b, 38, 0.95, 1)
	require.ErrorIs(t, err, eval.ErrParameter)
	_, err = eval.PairedBootstrap(a, b, 39, 0.95, 1)
	require.NoError(t, err)
}

type outcome struct {
	t eval.TTest
	r eval.Randomisation
	b eval.Bootstrap
}

func testAll(t require.TestingT, a, b []float64) (o outcome) {
	var err error
	o.t, err = eval.PairedTTest(a, b)
	require.NoError(t, err)
	o.r, err = eval.RandomisationTest(a, b, fewSamples, 9)
	require.NoError(t, err)
	o.b, err = eval.PairedBootstrap(a, b, fewSamples, 0.9, 9)
	require.NoError(t, err)
	return o
}

func TestSignificanceProperties(t *testing.T) {
	// Multiples of 1/64 keep sums exact, so that equal means equal.
	value := rapid.Custom(func(t *rapid.T) float64 { return float64(rapid.IntRange(0, 64).Draw(t, "v")) / 64 })
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.SampledFrom([]int{2, 3, 8, 30}).Draw(t, "n")
		values := rapid.SliceOfN(value, n, n)
		a, b := values.Draw(t, "a"), values.Draw(t, "b")
		got := testAll(t, a, b)
		for _, p := range []float64{got.t.P, got.r.P, got.b.P} {
			if !(p >= 0 && p <= 1) {
				t.Fatalf("P is %v", p)
			}
		}
		if got.b.Low > got.b.High {
			t.Fatalf("interval %v to %v", got.b.Low, got.b.High)
		}

		swapped := testAll(t, b, a)
		require.Equal(t, got.t.P, swapped.t.P)
		require.Equal(t, got.t.T, -swapped.t.T)
		require.Equal(t, got.r, swapped.r)
		require.Equal(t, got.b.P, swapped.b.P)
		require.Equal(t, got.b.Low, -swapped.b.High)
		require.Equal(t, got.b.High, -swapped.b.Low)

		same := testAll(t, a, a)
		require.Equal(t, outcome{eval.TTest{DF: n - 1, P: 1}, eval.Randomisation{P: 1, Exact: true, Samples: 1},
			eval.Bootstrap{Confidence: 0.9, P: 1, Samples: fewSamples}}, same)

		// Making all queries easier for both systems by one amount changes nothing.
		by := value.Draw(t, "shift")
		shift := func(v []float64) []float64 {
			out := slices.Clone(v)
			for i := range out {
				out[i] += by
			}
			return out
		}
		require.Equal(t, got, testAll(t, shift(a), shift(b)))
	})
}

func TestQueryOrderDoesNotMatterToExactTests(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		diffs := rapid.SliceOfN(rapid.Float64Range(-1, 1), 2, 10).Draw(t, "diffs")
		zeros := make([]float64, len(diffs))
		shuffled := rapid.Permutation(diffs).Draw(t, "order")
		one, other := testAll(t, diffs, zeros), testAll(t, shuffled, zeros)
		require.Equal(t, one.r, other.r)
		require.InDelta(t, one.t.P, other.t.P, 1e-9)
	})
}

// Where there is no difference a test at level 0.1 must be positive about once in
// ten times. The seeds are fixed, and so is the outcome.
func TestTestsKeepTheirLevel(t *testing.T) {
	const rounds, n, level = 1000, 25, 0.1
	r := rand.New(rand.NewPCG(1, 1))
	var positive [3]int
	for range rounds {
		a, b := make([]float64, n), make([]float64, n)
		for i := range a {
			// Of one distribution, skewed, and correlated by query.
			query := r.Float64()
			a[i], b[i] = query*r.Float64(), query*r.Float64()
		}
		o := testAll(t, a, b)
		for i, p := range []float64{o.t.P, o.r.P, o.b.P} {
			if p <= level {
				positive[i]++
			}
		}
	}
	for i, name := range []string{"t-test", "randomisation", "bootstrap"} {
		// Four standard errors are 0.038. The bootstrap of 25 is known to be a
		// little too ready: its variance is (n−1)/n of the unbiased one.
		require.InDelta(t, level, float64(positive[i])/rounds, 0.038, fmt.Sprint(name, positive))
	}
}
