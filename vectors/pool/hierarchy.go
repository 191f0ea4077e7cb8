package pool

import "math"

// Hierarchy is the pooling with which models of sentence-transformers and PyLate are published: the first
// Protected vectors stay, and the n others are reduced to ⌊n/Factor⌋ pools, but at least one.
type Hierarchy struct {
	Factor    float64 `json:"factor"`
	Protected int     `json:"protected"`
	// Unit scales all vectors to unit length. Otherwise pools are means.
	Unit bool `json:"unit"`
}

// Hierarchy appends to dst the vectors of a document, of unit length, pooled by h. It differs from
// [Pooler.Pool] in the distance of two vectors, which is 1 minus their cosine (squared by Ward's
// criterion), and in ties: it also joins all pairs with the same distance as the last pair. Pools are in
// the order of their first tokens. Documents of more than 1,024 tokens are pooled in windows.
func (p *Pooler) Hierarchy(dst, x []float32, dim int, h *Hierarchy) []float32 {
	start := len(dst)
	n := min(h.Protected*dim, len(x))
	dst, x = append(dst, x[:n]...), x[n:]
	for len(x) > 0 {
		w := min(windowTokens*dim, len(x))
		dst = p.poolHierarchy(dst, x[:w], dim, max(int(float64(w/dim)/h.Factor), 1))
		x = x[w:]
	}
	if h.Unit {
		sum := make([]float64, dim)
		for i := start; i < len(dst); i += dim {
			clear(sum)
			addVector(sum, dst[i:i+dim])
			appendUnit(dst[:i], sum) // overwrites the vector at i
		}
	}
	return dst
}

// poolHierarchy pools the tokens of a window to at most keep means.
func (p *Pooler) poolHierarchy(dst, x []float32, dim, keep int) []float32 {
	rows := len(x) / dim
	if keep >= rows {
		return append(dst, x...)
	}
	p.initClusters(x, dim, rows, func(x, y []float32) float32 {
		var cosine float32
		for j, v := range x {
			cosine += float32(v * y[j])
		}
		d := min(max(1-cosine, 0), 2)
		return float32(d * d)
	})
	lastDistance := float32(-1)
	for len(p.alive) > keep || len(p.alive) > 1 && p.closestDistance(rows) == lastDistance {
		lastDistance = p.mergeClosest(rows)
	}
	p.visitSums(x, dim, rows, func(sum []float64, size float32) {
		for _, v := range sum {
			dst = append(dst, float32(v/float64(size)))
		}
	})
	return dst
}

// closestDistance returns the distance of the two closest clusters.
func (p *Pooler) closestDistance(rows int) float32 {
	minimum := float32(math.Inf(1))
	for _, c := range p.alive[:len(p.alive)-1] {
		if near := p.nearest[c]; near >= 0 {
			minimum = min(minimum, *p.distanceOf(c, near, rows))
		}
	}
	return minimum
}
