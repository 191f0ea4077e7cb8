package codec

import "math"

// The factor scales a decoded vector to unit length, so that only the direction of y = C + a·(g ⊙ w[b])
// matters. The levels nearest to v − C do not have the best direction: t·v − C can be rounded for any t > 0.
//
//   - For a token near its centroid a large t is better, which spreads the residual over more levels.
//   - For a token far from it a small t is better, which brings the residual into the range of the levels.
//
// searchLevels tries several t, selects the best direction, and then improves it dimension by dimension.
// Extended RaBitQ (Gao et al., "Practical and Asymptotically Optimal Quantization of High-Dimensional
// Vectors", arXiv 2409.09913, section 3.2) searches over t in the same way, for codes without centroids.

// targets are the values of t, as multiples of 1/⟨v, C⟩, that are tried first. Then the neighbours of the
// best one are tried, at half the distance.
var targets = [...]float32{1, 0.6, 0.7, 0.8, 0.9, 1.1, 1.2, 1.3, 1.4}

const (
	targetStep = 0.1 // distance of neighbouring targets
	// minCosine is a lower bound of the cosine in 1/⟨v, C⟩, for vectors that are far from every centroid.
	minCosine = 0.2
)

// levelSearch is the scratch memory for one row. All slices have a value per dimension.
type levelSearch struct {
	unit  []float32 // u = v/⟨v, C⟩
	slope []float32 // u in units of the distance of levels
	shift []float32 // C in units of the distance of levels, minus half the number of levels
	base  []float32 // C + lowest level
	width []float32 // the distance of levels, a·g·step
}

// resize sets the number of dimensions.
func (s *levelSearch) resize(dim int) {
	s.unit, s.slope, s.shift = resize(s.unit, dim), resize(s.slope, dim), resize(s.shift, dim)
	s.base, s.width = resize(s.base, dim), resize(s.width, dim)
}

// searchLevels sets dst to the buckets of x, for uniform levels around a centroid.
func (c *Quantizer) searchLevels(dst []uint8, s *levelSearch, x []float32, code uint32) {
	s.resize(c.Dim)
	centroid := c.Centroids()[int(code)*c.Dim : (int(code)+1)*c.Dim]
	c.prepareSearch(s, x, centroid, code)
	top := int32(1)<<c.Nbits - 1 // the highest bucket
	best, bestTarget := float32(math.Inf(-1)), float32(1)
	try := func(t float32) {
		if q := c.quality(s.roundLevels(t, top)); q > best {
			best, bestTarget = q, t
		}
	}
	for _, t := range targets {
		try(t)
	}
	mid := bestTarget // which try changes
	try(mid - targetStep/2)
	try(mid + targetStep/2)
	c.descend(dst, s, bestTarget, top)
}

// prepareSearch computes the slices of a search.
func (c *Quantizer) prepareSearch(s *levelSearch, x, centroid []float32, code uint32) {
	inv := c.searchScale(x, centroid)
	half := float32(float32(int(1)<<c.Nbits) / 2)
	a, g := c.centroidScale(code)*c.kernel.Codebook.Step, c.kernel.DimScale
	unit, slope, shift := s.unit[:len(x)], s.slope[:len(x)], s.shift[:len(x)]
	base, width := s.base[:len(x)], s.width[:len(x)]
	w, iw := a, 1/a
	for j, v := range x {
		if g != nil {
			w = float32(a * g[j])
			iw = 1 / w
		}
		u := float32(v * inv)
		unit[j] = u
		slope[j] = float32(u * iw)
		shift[j] = float32(centroid[j]*iw) - half
		base[j] = centroid[j] - float32(w*(half-0.5))
		width[j] = w
	}
}

// roundLevels returns ⟨u, y⟩ and ‖y‖², where y is the vector of the levels nearest to t·u − C.
func (s *levelSearch) roundLevels(t float32, top int32) (dot, norm float32) {
	n := len(s.unit)
	unit, slope, shift, base, width := s.unit, s.slope[:n], s.shift[:n], s.base[:n], s.width[:n]
	var d0, d1, n0, n1 float32
	for j := 0; j+1 < n; j += 2 {
		y := base[j] + float32(width[j]*clampLevel(float32(t*slope[j])-shift[j], top))
		z := base[j+1] + float32(width[j+1]*clampLevel(float32(t*slope[j+1])-shift[j+1], top))
		d0 += float32(unit[j] * y)
		n0 += float32(y * y)
		d1 += float32(unit[j+1] * z)
		n1 += float32(z * z)
	}
	if n&1 != 0 {
		j := n - 1
		y := base[j] + float32(width[j]*clampLevel(float32(t*slope[j])-shift[j], top))
		d0 += float32(unit[j] * y)
		n0 += float32(y * y)
	}
	return d0 + d1, n0 + n1
}

// clampLevel rounds z down, and limits it to 0 … top.
func clampLevel(z float32, top int32) float32 {
	return float32(max(min(int32(z), top), 0))
}

// quality returns a number by which directions are compared: the square of ⟨u, v̂⟩ with its sign, where v̂ is
// y times its factor, which is at most FactorMax.
func (c *Quantizer) quality(dot, norm float32) float32 {
	f := c.kernel.FactorMax
	q := dot * dot / max(norm, 1/(f*f))
	if dot < 0 {
		return -q
	}
	return q
}

// descend rounds t·u − C, and then improves each dimension j while the others are fixed: ⟨u, y⟩²/‖y‖² is
// largest for y_j = u_j·N/D, where N and D are the sums of ‖y‖² and ⟨u, y⟩ over the other dimensions. It uses
// the level nearest to that value if it is better.
func (c *Quantizer) descend(dst []uint8, s *levelSearch, t float32, top int32) {
	dot, norm := s.roundLevels(t, top)
	n := len(s.unit)
	unit, slope, shift, base, width := s.unit, s.slope[:n], s.shift[:n], s.base[:n], s.width[:n]
	dst = dst[:n]
	for j, u := range unit {
		b := clampLevel(float32(t*slope[j])-shift[j], top)
		y := base[j] + float32(width[j]*b)
		d, m := dot-float32(u*y), norm-float32(y*y)
		if d > 0 {
			// If d is tiny, the value is beyond int32, and its conversion would depend on the
			// processor: hence the limit.
			nb := clampLevel(min(float32(slope[j]*(m/d))-shift[j], 1<<30), top)
			if nb != b {
				z := base[j] + float32(width[j]*nb)
				nd, nn := d+float32(u*z), m+float32(z*z)
				if c.quality(nd, nn) > c.quality(dot, norm) {
					b, dot, norm = nb, nd, nn
				}
			}
		}
		dst[j] = uint8(b)
	}
}
