package codec

import "math"

// minStep keeps the levels apart when every residual is zero.
const minStep = 1e-6

// stepHistogram gathers scaled residuals x of weight s², s being the scale that
// the decoder multiplies them by. Levels are symmetric, so |x| is enough. A bin
// is the exponent and the first ten bits of the mantissa, and keeps exact sums.
type stepHistogram struct {
	bins []stepBin
}

type stepBin struct {
	w, wx, wxx float64
}

func newStepHistogram() *stepHistogram {
	return &stepHistogram{bins: make([]stepBin, 1<<18)}
}

func (h *stepHistogram) count(x, s float32) {
	v := math.Abs(float64(x))
	b := &h.bins[math.Float32bits(float32(v))>>13]
	w := float64(s) * float64(s)
	b.w += w
	b.wx += w * v
	b.wxx += w * v * v
}

// step returns the step of 2ⁿ levels with the least squared error.
func (h *stepHistogram) step(nbits int) float32 {
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
	// With this step the outermost level is the largest value: more only hurts.
	top := 2 * last.wx / last.w / float64(levels-1)

	// The error is smooth but not convex: look at a geometric grid, then search
	// between the neighbours of its best point.
	const perOctave, octaves = 8, 20
	best, at := math.Inf(1), top
	for i := range perOctave*octaves + 1 {
		s := top * math.Exp2(-float64(i)/perOctave)
		if e := squaredError(used, s, levels); e < best {
			best, at = e, s
		}
	}
	lo, hi := at*math.Exp2(-1.0/perOctave), at*math.Exp2(1.0/perOctave)
	at = goldenSection(lo, hi, 1e-5, func(s float64) float64 { return squaredError(used, s, levels) })
	return float32(max(at, minStep))
}

// squaredError is that of levels (i + ½)·step, i = 0 … levels/2 − 1.
func squaredError(bins []stepBin, step float64, levels int) float64 {
	var sum float64
	top := float64(levels/2 - 1)
	for _, b := range bins {
		l := (min(math.Floor(b.wx/(b.w*step)), top) + 0.5) * step
		sum += b.wxx - 2*l*b.wx + l*l*b.w
	}
	return sum
}

// goldenSection narrows lo..hi to a minimum of f to a relative tolerance.
func goldenSection(lo, hi, tolerance float64, f func(float64) float64) float64 {
	r := (math.Sqrt(5) - 1) / 2
	a, b := hi-r*(hi-lo), lo+r*(hi-lo)
	fa, fb := f(a), f(b)
	for hi-lo > tolerance*hi {
		if fa <= fb {
			hi, b, fb = b, a, fa
			a = hi - r*(hi-lo)
			fa = f(a)
		} else {
			lo, a, fa = a, b, fb
			b = lo + r*(hi-lo)
			fb = f(b)
		}
	}
	return (lo + hi) / 2
}
