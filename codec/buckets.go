package codec

import "math"

// bucketer finds the bucket of a value: the number of cuts strictly below it.
type bucketer struct {
	cuts []float32 // 2ⁿ−1, not decreasing
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
