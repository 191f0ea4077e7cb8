package eval

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Limits of resampling.
const (
	// maxExactDifferences is the number of differences up to which a randomisation test enumerates all
	// signs.
	maxExactDifferences = 16
	maxSamples          = 10_000_000
)

// pcgStream is the second seed of the PCG of math/rand/v2; the first is the caller's.
const pcgStream = 1

// Randomisation is the result of [RandomisationTest].
type Randomisation struct {
	P       float64 `json:"p"` // two-sided
	Exact   bool    `json:"-"` // all assignments of signs were enumerated
	Samples int     `json:"-"` // assignments evaluated; 2^m for m differences if Exact
}

// RandomisationTest is Fisher's randomisation test of paired values. If two systems do not differ,
// swapping their values of a query changes nothing, so the sign of each difference is random. P is
// the share of assignments of signs whose mean difference is at least as far from 0 as the observed
// one. The test assumes no distribution (Smucker, Allan and Carterette, CIKM 2007).
//
// With up to 16 differences other than 0 all assignments are enumerated. Otherwise P =
// (count+1)/(samples+1) over random ones (Davison and Hinkley 1997, chapter 4), which is never 0.
// The generator is PCG of math/rand/v2: the same values in the same order with the same seed give
// the same P, and swapping a and b does not change it. Means within 10⁻¹² of each other, relative
// to the mean absolute difference, count as equal.
//
// samples must be from 1 to 10⁷ and values must be numbers, otherwise the error wraps
// [ErrParameter]. Different lengths wrap [ErrUnpaired], fewer than 2 pairs [ErrTooFewPairs].
func RandomisationTest(a, b []float64, samples int, seed uint64) (Randomisation, error) {
	diffs, err := differences(a, b)
	if err != nil {
		return Randomisation{}, err
	}
	if samples < 1 || samples > maxSamples {
		return Randomisation{}, badParameter("%d samples: want 1 to %d", samples, maxSamples)
	}
	return randomSigns(diffs, samples, seed), nil
}

// randomSigns computes P, exactly for few differences and by samples for more.
func randomSigns(diffs []float64, samples int, seed uint64) Randomisation {
	sum, abs := 0.0, 0.0
	sizes := make([]uint64, 0, len(diffs)) // bits of |d|; the sign of a 0 does not matter
	for _, d := range diffs {
		sum += d
		abs += math.Abs(d)
		if d != 0 {
			sizes = append(sizes, math.Float64bits(math.Abs(d)))
		}
	}
	threshold := math.Abs(sum) - roundingShare*abs
	if len(sizes) <= maxExactDifferences {
		return Randomisation{P: exactShare(sizes, threshold), Exact: true, Samples: 1 << len(sizes)}
	}
	source := rand.NewPCG(seed, pcgStream)
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
		if math.Abs(sum) >= threshold {
			count++
		}
	}
	return Randomisation{P: sampledP(count, samples), Samples: samples}
}

// roundingShare is how far sums that are equal in exact arithmetic may differ, as a share of the
// sum of absolute differences.
const roundingShare = 1e-12

// exactShare returns the share of assignments of signs whose sum is at least threshold from 0. Flipping
// all signs does not change the distance, so the last sign stays +.
func exactShare(sizes []uint64, threshold float64) float64 {
	total := 1 << max(len(sizes)-1, 0)
	count := 0
	for signs := range total {
		sum := 0.0
		for i, size := range sizes {
			sum += math.Float64frombits(size | uint64(signs>>i)<<63)
		}
		if math.Abs(sum) >= threshold {
			count++
		}
	}
	return float64(count) / float64(total)
}

// sampledP counts the observation itself as one more sample.
func sampledP(count, samples int) float64 { return float64(count+1) / float64(samples+1) }

// maxDifference is small enough that the sum of many does not overflow.
const maxDifference = 1e300

// differences returns a[i] − b[i] of at least two pairs.
func differences(a, b []float64) ([]float64, error) {
	if len(a) != len(b) {
		return nil, fmt.Errorf("%w: %d values against %d", ErrUnpaired, len(a), len(b))
	}
	if len(a) < 2 {
		return nil, fmt.Errorf("%w: %d, want 2 or more", ErrTooFewPairs, len(a))
	}
	diffs := make([]float64, len(a))
	for i := range a {
		diffs[i] = a[i] - b[i]
		if !(math.Abs(diffs[i]) <= maxDifference) {
			return nil, badParameter("pair %d, %v and %v: the difference is not within ±%v",
				i, a[i], b[i], maxDifference)
		}
	}
	return diffs, nil
}

// Holm corrects the p-values of several tests, so that the chance of one false positive or more
// among them stays below the significance level ("A simple sequentially rejective multiple test
// procedure", Scandinavian Journal of Statistics 6, 1979). The i-th smallest of m, from 1, becomes
// the greatest of (m−j+1)·p_j over j ≤ i, at most 1. The results are in the order of ps, which is
// not changed. A p that is not from 0 to 1 wraps [ErrParameter].
func Holm(ps []float64) ([]float64, error) {
	order := make([]int, len(ps))
	for i, p := range ps {
		if !(p >= 0 && p <= 1) {
			return nil, badParameter("p-value %d is %v: want 0 to 1", i, p)
		}
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(ps[i], ps[j]) })
	adjusted := make([]float64, len(ps))
	greatest := 0.0
	for rank, i := range order {
		greatest = max(greatest, min(1, float64(len(ps)-rank)*ps[i]))
		adjusted[i] = greatest
	}
	return adjusted, nil
}
