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
	w := float64(float64(s) * float64(s))
	b.w += w
	b.wx += float64(w * v)
	b.wxx += float64(w * v * v)
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
	const octaves = 20
	best, at := math.Inf(1), top
	for i := range len(octave)*octaves + 1 {
		s := math.Ldexp(top*octave[i%len(octave)], -(i / len(octave)))
		if e := squaredError(used, s, levels); e < best {
			best, at = e, s
		}
	}
	lo, hi := at*octave[1], at/octave[1]
	at = goldenSection(lo, hi, 1e-5, func(s float64) float64 { return squaredError(used, s, levels) })
	return float32(max(at, minStep))
}

// octave has 2^(−i/8): [math.Exp2] has not the same bits on every machine.
var octave = [8]float64{
	1, 0.9170040432046712, 0.8408964152537145, 0.7711054127039704,
	0.7071067811865476, 0.6484197773255048, 0.5946035575013605, 0.5452538663326288,
}

// squaredError is that of levels (i + ½)·step, i = 0 … levels/2 − 1.
func squaredError(bins []stepBin, step float64, levels int) float64 {
	var sum float64
	top := float64(levels/2 - 1)
	for _, b := range bins {
		l := float64((min(math.Floor(b.wx/(b.w*step)), top) + 0.5) * step)
		sum += b.wxx - float64(2*l*b.wx) + float64(l*l*b.w)
	}
	return sum
}

// goldenSection narrows lo..hi to a minimum of f to a relative tolerance.
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
