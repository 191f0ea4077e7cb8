package codec

import "math"

// minStep is the smallest distance of levels, for a sample whose residuals are all zero.
const minStep = 1e-6

// stepHistogram is a histogram of scaled residuals x with weights s², where s is the scale by which the
// decoder multiplies them. Levels are symmetric, so that |x| suffices. The bin of a value is its exponent and
// the first ten bits of its mantissa; a bin has the sums over its values, without rounding these to the bin.
type stepHistogram struct {
	bins []stepBin
}

// stepBin is the sums of w, w·|x| and w·x² over its values, for weights w.
type stepBin struct {
	w, wx, wxx float64
}

// newStepHistogram returns an empty histogram, with a bin for each 8 bits of exponent and 10 of mantissa.
func newStepHistogram() *stepHistogram {
	return &stepHistogram{bins: make([]stepBin, 1<<18)}
}

// addResidual adds a residual x with scale s.
func (h *stepHistogram) addResidual(x, s float32) {
	v := math.Abs(float64(x))
	b := &h.bins[math.Float32bits(float32(v))>>13]
	w := float64(float64(s) * float64(s))
	b.w += w
	b.wx += float64(w * v)
	b.wxx += float64(w * v * v)
}

// bestStep returns the step of 2ⁿ levels with the least squared error.
func (h *stepHistogram) bestStep(nbits int) float32 {
	var used []stepBin
	for _, b := range h.bins {
		if b.wx > 0 {
			used = append(used, b)
		}
	}
	if len(used) == 0 {
		return minStep
	}
	last := used[len(used)-1]
	levels := 1 << nbits
	// With the largest useful step, the outermost level, (levels−1)/2 steps, is the largest value.
	maxStep := 2 * last.wx / last.w / float64(levels-1)

	// The error is smooth but not convex: try steps on a geometric grid, then search between the
	// neighbours of the best one.
	const octaves = 20
	best, bestStep := math.Inf(1), maxStep
	for i := range len(octave)*octaves + 1 {
		s := math.Ldexp(maxStep*octave[i%len(octave)], -(i / len(octave)))
		if e := roundingError(used, s, levels); e < best {
			best, bestStep = e, s
		}
	}
	lo, hi := bestStep*octave[1], bestStep/octave[1]
	bestStep = goldenSection(lo, hi, 1e-5, func(s float64) float64 { return roundingError(used, s, levels) })
	return float32(max(bestStep, minStep))
}

// octave has 2^(−i/8). They are constants, since the bits of [math.Exp2] depend on the machine.
var octave = [8]float64{
	1, 0.9170040432046712, 0.8408964152537145, 0.7711054127039704,
	0.7071067811865476, 0.6484197773255048, 0.5946035575013605, 0.5452538663326288,
}

// roundingError returns the squared error of rounding to the levels (i + ½)·step, i = 0 … levels/2 − 1.
func roundingError(bins []stepBin, step float64, levels int) float64 {
	var sum float64
	top := float64(levels/2 - 1)
	for _, b := range bins {
		l := float64((min(math.Floor(b.wx/(b.w*step)), top) + 0.5) * step)
		sum += b.wxx - float64(2*l*b.wx) + float64(l*l*b.w)
	}
	return sum
}

// goldenSection returns a minimum of f in lo..hi, with a relative tolerance. It calls f for two points, and
// then for one in each step, which multiplies the interval by 0.618.
func goldenSection(lo, hi, tolerance float64, f func(float64) float64) float64 {
	r := (math.Sqrt(5) - 1) / 2
	a, b := hi-float64(r*(hi-lo)), lo+float64(r*(hi-lo))
	fa, fb := f(a), f(b)
	for hi-lo > tolerance*hi {
		if fa <= fb {
			hi, b, fb = b, a, fa
			a = hi - float64(r*(hi-lo))
			fa = f(a)
		} else {
			lo, a, fa = a, b, fb
			b = lo + float64(r*(hi-lo))
			fb = f(b)
		}
	}
	return (lo + hi) / 2
}
