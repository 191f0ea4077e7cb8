package plain

import (
	"math"

	"github.com/plaid-ir/plaid/internal/floats"
)

// Lanes is how many partial sums a row has, whatever the registers.
const Lanes = 16

// Exponentials: e^x = 2^n·e^r with n = round(x·log₂e) and r = x − n·ln 2, ln 2
// in two parts, of which n times the first is exact. n comes out of the last
// bits of x·log₂e + 1.5·2²³.
const (
	Log2E  float32 = 1.44269504
	Magic  float32 = 12582912
	Ln2Hi  float32 = 0.693359375
	Ln2Lo  float32 = -2.12194440e-4
	ExpMin float32 = -88 // where n is −127, and 2^n as computed 0
)

// ExpCoefficients approximate e^r for |r| ≤ ln(2)/2, to 7.3e-8 of the value
// with the roundings; the constant term first.
var ExpCoefficients = [7]float32{1, 1, 0.49999994, 0.166665211, 0.0416683480, 0.00836871006, 0.00138167269}

// GELU: x·Φ(x) with Φ(x) = ½ + x·Q(t), x between ±GELULimit, t = x²·GELUScale − 1
// and Q a polynomial whose terms hardly cancel. The error is below 6e-7 for
// |x| < 6, about one unit of the last place of the largest of them.
const (
	GELULimit float32 = 5.56776428 // √31
	GELUScale float32 = 0.0645161271
)

// GELUCoefficients are those of Q, the constant term first. They minimise
// the largest error of x·Q (Lawson's algorithm).
var GELUCoefficients = [16]float32{
	0.126989648, -0.0634089187, 0.0472240932, -0.0384924673,
	0.032006897, -0.0262355823, 0.0207759719, -0.0155180683,
	0.0107085295, -0.00730246259, 0.00514832791, -0.00272441236,
	0.000738372444, -0.000588224095, 0.000780595059, -0.000299650244,
}

// Quantization: a row is divided by its largest magnitude over 127, which is at
// least QuantMin. The byte of a value is the last one of x·127/max + magic.
const (
	QuantTop   float32 = 127
	QuantMin   float32 = 1e-30
	QuantScale float32 = 1.0 / 127
)

// Exp is e^x for x ≤ −ExpMin; below about −87.7 it is 0.
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

// GELUOf is x·Φ(x).
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

// Sum adds up the lanes: those eight apart, then four, two and one.
func Sum(s *[Lanes]float32) float32 {
	for d := Lanes / 2; d > 0; d /= 2 {
		for i := range d {
			s[i] += s[i+d]
		}
	}
	return s[0]
}
