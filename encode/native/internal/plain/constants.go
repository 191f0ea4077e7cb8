package plain

import (
	"math"

	"github.com/plaid-ir/plaid/internal/floats"
)

// Lanes is the number of partial sums of a row, for registers of any size.
const Lanes = 16

// Exponentials: e^x = 2^n·e^r with n = round(x·log₂e) and r = x − n·ln 2. ln 2
// is split in two parts such that n times the first is exact. Adding Magic = 1.5·2²³ to x·log₂e
// rounds it: n is in the last bits of the sum.
const (
	Log2E  float32 = 1.44269504
	Magic  float32 = 12582912
	Ln2Hi  float32 = 0.693359375
	Ln2Lo  float32 = -2.12194440e-4
	ExpMin float32 = -88 // where n is −127, and 2^n as computed 0
)

// ExpCoefficients are the coefficients of a polynomial for e^r, constant term first. For
// |r| ≤ ln(2)/2 its relative error is 7.3e-8, including roundings.
var ExpCoefficients = [7]float32{1, 1, 0.49999994, 0.166665211, 0.0416683480, 0.00836871006, 0.00138167269}

// GELU: x·Φ(x) with Φ(x) = ½ + x·Q(t), x clamped to ±GELULimit, t = x²·GELUScale − 1
// and Q a polynomial whose terms hardly cancel. The error is below 6e-7 for
// |x| < 6, about one unit in the last place at 6.
const (
	GELULimit float32 = 5.56776428 // √31
	GELUScale float32 = 0.0645161271
)

// GELUCoefficients are the coefficients of Q, constant term first. They minimize
// the largest error of x·Q (Lawson's algorithm).
var GELUCoefficients = [16]float32{
	0.126989648, -0.0634089187, 0.0472240932, -0.0384924673,
	0.032006897, -0.0262355823, 0.0207759719, -0.0155180683,
	0.0107085295, -0.00730246259, 0.00514832791, -0.00272441236,
	0.000738372444, -0.000588224095, 0.000780595059, -0.000299650244,
}

// Quantization: a row is divided by its scale, its largest magnitude (at least QuantMin) over 127. The byte
// of a value is the lowest byte of x·127/max + magic, since adding magic rounds to an integer.
const (
	QuantTop   float32 = 127
	QuantMin   float32 = 1e-30
	QuantScale float32 = 1.0 / 127
)

// Exp returns e^x for x ≤ −ExpMin. Below about −87.7 it is 0.
func Exp(x float32) float32 {
	x = max(x, ExpMin)
	t := floats.FMA(x, Log2E, Magic)
	n := t - Magic
	r := floats.FMA(-n, Ln2Hi, x)
	r = floats.FMA(-n, Ln2Lo, r)
	c := &ExpCoefficients
	p := c[6]
	for i := 5; i >= 0; i-- {
		p = floats.FMA(p, r, c[i])
	}
	return float32(p * math.Float32frombits(math.Float32bits(t)<<23+math.Float32bits(1)))
}

// GELUOf returns x·Φ(x).
func GELUOf(x float32) float32 {
	y := max(min(x, GELULimit), -GELULimit)
	t := floats.FMA(float32(y*y), GELUScale, -1)
	c := &GELUCoefficients
	q := c[15]
	for i := 14; i >= 0; i-- {
		q = floats.FMA(q, t, c[i])
	}
	return float32(x * floats.FMA(y, q, 0.5))
}

// Sum returns the sum of the lanes: it adds those eight apart, then four, two and one.
func Sum(s *[Lanes]float32) float32 {
	for d := Lanes / 2; d > 0; d /= 2 {
		for i := range d {
			s[i] += s[i+d]
		}
	}
	return s[0]
}
