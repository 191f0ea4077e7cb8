package eval

import (
	"fmt"
	"math"
	"slices"
)

// TTest is the outcome of [PairedTTest].
type TTest struct {
	T  float64 // mean difference over its standard error; positive where a is greater; ±Inf if all differences are equal
	DF int     // degrees of freedom: pairs − 1
	P  float64 // two-sided
}

// PairedTTest tests whether the mean of a[i] − b[i] differs from 0 by Student's
// t-test: t = d̄ / (s/√n), where s is the standard deviation with n−1 below. It
// supposes that means of n differences are near normal. Where all differences are 0
// P is 1; where all are the same other value T is infinite and P is 0.
//
// Slices of different lengths wrap [ErrUnpaired], fewer than 2 pairs
// [ErrTooFewPairs], and a difference that is not a number or beyond ±10³⁰⁰
// [ErrParameter].
func PairedTTest(a, b []float64) (TTest, error) {
	diffs, err := differences(a, b)
	if err != nil {
		return TTest{}, err
	}
	return tTest(diffs), nil
}

func tTest(diffs []float64) TTest {
	res := TTest{DF: len(diffs) - 1, P: 1}
	if low, high := slices.Min(diffs), slices.Max(diffs); low == high {
		// The rounded mean of equal values may differ from them, and would give a
		// spread where there is none.
		if low != 0 {
			res.T, res.P = math.Inf(int(math.Copysign(1, low))), 0
		}
		return res
	}
	// t has no unit: a common power of two keeps squares from under- and overflow.
	greatest := 0.0
	for _, d := range diffs {
		greatest = max(greatest, math.Abs(d))
	}
	_, exponent := math.Frexp(greatest)
	scaled := make([]float64, len(diffs))
	for i, d := range diffs {
		scaled[i] = math.Ldexp(d, -exponent)
	}
	n := float64(len(scaled))
	mean := meanOf(scaled)
	squares := 0.0
	for _, d := range scaled {
		squares += (d - mean) * (d - mean)
	}
	res.T = mean / math.Sqrt(squares/(n-1)/n)
	res.P = studentTwoSided(res.T, n-1)
	return res
}

// greatestDifference leaves room for the sum of many.
const greatestDifference = 1e300

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
		if !(math.Abs(diffs[i]) <= greatestDifference) {
			return nil, badParameter("pair %d, %v and %v: the difference is not within ±%v", i, a[i], b[i], greatestDifference)
		}
	}
	return diffs, nil
}

func meanOf(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// studentTwoSided returns the chance that Student's t with v degrees of freedom is
// at least |t| from 0: I_x(v/2, 1/2) at x = v/(v+t²).
func studentTwoSided(t, v float64) float64 {
	// Neither x nor y = 1−x comes from a subtraction, so that both ends are exact.
	r := t * t / v
	return regularisedBeta(v/2, 0.5, 1/(1+r), r/(1+r))
}

// regularisedBeta returns the regularised incomplete beta function I_x(a, b) for
// positive a and b, where y = 1−x: the continued fraction DLMF 8.17.22 where it
// converges fast, and its reflection 8.17.4 elsewhere.
func regularisedBeta(a, b, x, y float64) float64 {
	switch {
	case x <= 0:
		return 0
	case y <= 0:
		return 1
	case x > (a+1)/(a+b+2):
		return 1 - betaFraction(b, a, y, x)
	}
	return betaFraction(a, b, x, y)
}

// betaFraction evaluates x^a y^b / (a B(a,b)) · 1/(1 + d₁/(1 + d₂/(1 + …))) with
// Lentz's method (Thompson and Barnett, J. Comput. Phys. 64, 1986).
func betaFraction(a, b, x, y float64) float64 {
	logX, logY := math.Log(x), math.Log(y)
	if x > 0.5 {
		logX = math.Log1p(-y)
	} else {
		logY = math.Log1p(-x)
	}
	gammaA, _ := math.Lgamma(a)
	gammaB, _ := math.Lgamma(b)
	gammaAB, _ := math.Lgamma(a + b)
	front := math.Exp(a*logX+b*logY+(gammaAB-gammaA)-gammaB) / a

	const (
		tiny = 1e-300 // stands in for a denominator of 0
		most = 100_000
	)
	nonZero := func(v float64) float64 {
		if math.Abs(v) < tiny {
			return tiny
		}
		return v
	}
	fraction, c, d := 1.0, 1.0, 0.0
	for j := 1; j <= most; j++ {
		m := float64(j / 2)
		coefficient := m * (b - m) * x / ((a + 2*m - 1) * (a + 2*m))
		if j%2 == 1 {
			coefficient = -(a + m) * (a + b + m) * x / ((a + 2*m) * (a + 2*m + 1))
		}
		d = 1 / nonZero(1+coefficient*d)
		c = nonZero(1 + coefficient/c)
		fraction *= c * d
		if math.Abs(c*d-1) < 1e-16 {
			break
		}
	}
	return front / fraction
}
