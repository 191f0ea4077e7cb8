package codec

import "math"

// minStep keeps the levels apart when every residual is zero.
const minStep = 1e-6

// bucketer finds the bucket of a value: the number of cuts strictly below it.
type bucketer struct {
	cuts []float32 // 2ⁿ−1, not decreasing
	inv  float32   // 1/step where levels are uniform, else 0
	half float32
}

func newBucketer(cuts []float32, step float32) *bucketer {
	b := &bucketer{cuts: cuts, half: float32(len(cuts)) / 2}
	if step > 0 {
		b.inv = 1 / step
	}
	return b
}

// midpoints returns cuts for which the bucket of a float32 value is the nearest
// weight, the lower one on ties, and whether the weights increase at all.
// A midpoint that is no float32 is rounded down, which no float32 value can tell.
func midpoints(weights []float32) (cuts []float32, increasing bool) {
	cuts = make([]float32, len(weights)-1)
	increasing = true
	for b := range cuts {
		lo, hi := weights[b], weights[b+1]
		increasing = increasing && lo <= hi
		mid := (float64(lo) + float64(hi)) / 2
		c := float32(mid)
		if float64(c) > mid {
			c = math.Nextafter32(c, float32(math.Inf(-1)))
		}
		cuts[b] = c
	}
	return cuts, increasing
}

// row writes the bucket of each value of x.
func (b *bucketer) row(dst []uint8, x []float32) {
	dst = dst[:len(x)]
	switch {
	case len(b.cuts) == 1:
		c := b.cuts[0]
		for j, v := range x {
			dst[j] = above(v, c)
		}
	case len(b.cuts) == 3:
		c0, c1, c2 := b.cuts[0], b.cuts[1], b.cuts[2]
		for j, v := range x {
			dst[j] = above(v, c0) + above(v, c1) + above(v, c2)
		}
	case b.inv > 0:
		for j, v := range x {
			dst[j] = b.uniform(v)
		}
	default:
		for j, v := range x {
			dst[j] = b.search(v)
		}
	}
}

// above compiles to a comparison without a branch.
func above(v, cut float32) uint8 {
	if v > cut {
		return 1
	}
	return 0
}

// uniform guesses by multiplication, then compares with the exact cuts.
func (b *bucketer) uniform(v float32) uint8 {
	n := len(b.cuts)
	i := 0
	if t := v*b.inv + b.half + 0.5; t >= float32(n) {
		i = n
	} else if t > 0 {
		i = int(t)
	}
	for i < n && v > b.cuts[i] {
		i++
	}
	for i > 0 && v <= b.cuts[i-1] {
		i--
	}
	return uint8(i)
}

func (b *bucketer) search(v float32) uint8 {
	lo, hi := 0, len(b.cuts)
	for lo < hi {
		if m := (lo + hi) / 2; v > b.cuts[m] {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return uint8(lo)
}

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

func (h *stepHistogram) add(x, s float32) {
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
	at = goldenSection(lo, hi, func(s float64) float64 { return squaredError(used, s, levels) })
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

// goldenSection narrows lo..hi to a minimum of f to a relative 1e-5.
func goldenSection(lo, hi float64, f func(float64) float64) float64 {
	r := (math.Sqrt(5) - 1) / 2
	a, b := hi-r*(hi-lo), lo+r*(hi-lo)
	fa, fb := f(a), f(b)
	for hi-lo > 1e-5*hi {
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
