package eval

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
)

// Limits of resampling.
const (
	// exactDifferences is the number of differences up to which a randomisation
	// test goes through all signs.
	exactDifferences = 16
	maxSamples       = 10_000_000
)

// Resampling draws from PCG of math/rand/v2 with the caller's seed and a stream of
// its own for each test, so that one does not disturb the other.
const (
	streamRandomisation = 1
	streamBootstrap     = 2
)

// Randomisation is the outcome of [RandomisationTest].
type Randomisation struct {
	P       float64 // two-sided
	Exact   bool    // all assignments of signs were looked at
	Samples int     // assignments looked at; 2^m of m differences where Exact
}

// RandomisationTest is Fisher's randomisation test of paired values: if two systems
// do not differ, swapping their values of a query changes nothing, so the sign of
// each difference is a coin toss. P is the share of assignments of signs whose mean
// difference is at least as far from 0 as the one observed. It supposes nothing of
// the distribution (Smucker, Allan and Carterette, CIKM 2007).
//
// With up to 16 differences other than 0 all assignments are enumerated. Otherwise
// P = (count+1)/(samples+1) of random ones (Davison and Hinkley 1997, chapter
// 4), which is never 0. The generator is PCG of math/rand/v2; the same values in
// the same order and the same seed give the same P, and swapping a and b does not
// change it. Means within 10⁻¹² of each other, relative to the mean absolute
// difference, count as equal.
//
// samples is from 1 to 10⁷, else the error wraps [ErrParameter]; other errors are
// those of [PairedTTest].
func RandomisationTest(a, b []float64, samples int, seed uint64) (Randomisation, error) {
	diffs, err := differences(a, b)
	if err != nil {
		return Randomisation{}, err
	}
	if err := checkSamples(samples); err != nil {
		return Randomisation{}, err
	}
	return randomise(diffs, samples, seed), nil
}

func checkSamples(samples int) error {
	if samples < 1 || samples > maxSamples {
		return badParameter("%d samples: want 1 to %d", samples, maxSamples)
	}
	return nil
}

func randomise(diffs []float64, samples int, seed uint64) Randomisation {
	sum, abs := 0.0, 0.0
	sizes := make([]uint64, 0, len(diffs)) // bits of |d|; the sign of a 0 does not matter
	for _, d := range diffs {
		sum += d
		abs += math.Abs(d)
		if d != 0 {
			sizes = append(sizes, math.Float64bits(math.Abs(d)))
		}
	}
	reach := math.Abs(sum) - roundingShare*abs
	if len(sizes) <= exactDifferences {
		return Randomisation{P: exactShare(sizes, reach), Exact: true, Samples: 1 << len(sizes)}
	}
	source := rand.NewPCG(seed, streamRandomisation)
	count := 0
	for range samples {
		sum := 0.0
		var signs uint64
		for i, size := range sizes {
			if i%64 == 0 {
				signs = source.Uint64()
			}
			sum += math.Float64frombits(size | signs<<63)
			signs >>= 1
		}
		if math.Abs(sum) >= reach {
			count++
		}
	}
	return Randomisation{P: share(count, samples), Samples: samples}
}

// roundingShare of the sum of absolute differences is what sums that are equal in
// exact arithmetic may differ by.
const roundingShare = 1e-12

// exactShare returns the share of assignments of signs whose sum is at least reach
// from 0. Turning all signs round changes no distance, so that the last stays +.
func exactShare(sizes []uint64, reach float64) float64 {
	total := 1 << max(len(sizes)-1, 0)
	count := 0
	for signs := range total {
		sum := 0.0
		for i, size := range sizes {
			sum += math.Float64frombits(size | uint64(signs>>i)<<63)
		}
		if math.Abs(sum) >= reach {
			count++
		}
	}
	return float64(count) / float64(total)
}

// share counts the observation itself as one more sample.
func share(count, samples int) float64 { return float64(count+1) / float64(samples+1) }

// Bootstrap is the outcome of [PairedBootstrap].
type Bootstrap struct {
	Low, High  float64 // interval of the mean difference
	Confidence float64 // share that the interval covers
	P          float64 // two-sided
	Samples    int
}

// PairedBootstrap draws samples of n of the n differences a[i] − b[i], with
// replacement, and takes their means.
//
// Low and High are the percentile interval (Efron and Tibshirani, An Introduction
// to the Bootstrap, 1993, chapter 13): of the means in order, those numbered k
// from either end, where k = ⌊(samples+1)·(1−confidence)/2⌋. P is that of the shift
// method (Noreen 1989; Smucker, Allan and Carterette, CIKM 2007): the means less
// the one observed are what chance would give, P = (count+1)/(samples+1) of those at
// least as far from 0 as the one observed. Interval and P may disagree near the
// limit. Seed, ties by rounding and errors are as in [RandomisationTest]; swapping a
// and b turns the interval round.
//
// confidence is above 0 and below 1, and samples enough for k to be 1 or more, at
// least 39 for 0.95; else the error wraps [ErrParameter].
func PairedBootstrap(a, b []float64, samples int, confidence float64, seed uint64) (Bootstrap, error) {
	diffs, err := differences(a, b)
	if err != nil {
		return Bootstrap{}, err
	}
	if err := checkBootstrap(samples, confidence); err != nil {
		return Bootstrap{}, err
	}
	return bootstrap(diffs, samples, confidence, seed), nil
}

func checkBootstrap(samples int, confidence float64) error {
	if err := checkSamples(samples); err != nil {
		return err
	}
	if !(confidence > 0 && confidence < 1) {
		return badParameter("confidence is %v: want above 0 and below 1", confidence)
	}
	if tailRank(samples, confidence) < 1 {
		return badParameter("%d samples are too few for a confidence of %v", samples, confidence)
	}
	return nil
}

// tailRank returns the number, from 1, of the ordered sample that bounds the
// interval.
func tailRank(samples int, confidence float64) int {
	// The decimal 0.95 is not exact in binary: 39 samples must give 1 and not 0.
	const slack = 1e-9
	return int((float64(samples+1)*(1-confidence))/2 + slack)
}

func bootstrap(diffs []float64, samples int, confidence float64, seed uint64) Bootstrap {
	mean := meanOf(diffs)
	abs := 0.0
	for _, d := range diffs {
		abs += math.Abs(d)
	}
	n := float64(len(diffs))
	reach := math.Abs(mean) - roundingShare*abs/n
	source := rand.NewPCG(seed, streamBootstrap)
	means := make([]float64, samples)
	count := 0
	for s := range means {
		sum := 0.0
		for range diffs {
			// The high word of the product is uniform to within n/2⁶⁴.
			i, _ := bits.Mul64(source.Uint64(), uint64(len(diffs)))
			sum += diffs[i]
		}
		means[s] = sum / n
		if math.Abs(means[s]-mean) >= reach {
			count++
		}
	}
	slices.Sort(means)
	k := tailRank(samples, confidence)
	return Bootstrap{
		Low: means[k-1], High: means[samples-k], Confidence: confidence,
		P: share(count, samples), Samples: samples,
	}
}
