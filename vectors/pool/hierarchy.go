package pool

import "math"

// Hierarchy is the pooling that models of sentence-transformers and PyLate are published with:
// the first Protected vectors stay, and of the others there are as many pools as Factor goes into
// their number, rounded down, but one at least.
type Hierarchy struct {
	Factor    float64 `json:"factor"`
	Protected int     `json:"protected"`
	// Unit scales all vectors to unit length; else pools are plain means.
	Unit bool `json:"unit"`
}

// Hierarchy appends to dst the vectors of a document, of unit length, pooled by h. Where [Pooler.Pool]
// takes the distance of two vectors, it takes 1 less their cosine, which Ward's criterion then squares;
// pools whose unions are as far apart as those of the last one are joined, too. Pools come in the order
// of their first tokens. Documents beyond 1,024 tokens are pooled in parts.
func (p *Pooler) Hierarchy(dst, x []float32, dim int, h *Hierarchy) []float32 {
	first := len(dst)
	n := min(h.Protected*dim, len(x))
	dst, x = append(dst, x[:n]...), x[n:]
	for len(x) > 0 {
		w := min(windowTokens*dim, len(x))
		dst = p.hierarchy(dst, x[:w], dim, max(int(float64(w/dim)/h.Factor), 1))
		x = x[w:]
	}
	if h.Unit {
		sum := make([]float64, dim)
		for at := first; at < len(dst); at += dim {
			clear(sum)
			add(sum, dst[at:at+dim])
			unit(dst[:at], sum)
		}
	}
	return dst
}

func (p *Pooler) hierarchy(dst, x []float32, dim, keep int) []float32 {
	rows := len(x) / dim
	if keep >= rows {
		return append(dst, x...)
	}
	p.start(x, dim, rows, func(x, y []float32) float32 {
		var cosine float32
		for j, v := range x {
			cosine += float32(v * y[j])
		}
		d := min(max(1-cosine, 0), 2)
		return float32(d * d)
	})
	height := float32(-1)
	for len(p.alive) > keep || len(p.alive) > 1 && p.least(rows) == height {
		height = p.merge(rows)
	}
	p.sums(x, dim, rows, func(sum []float64, size float32) {
		for _, v := range sum {
			dst = append(dst, float32(v/float64(size)))
		}
	})
	return dst
}

// least is the distance of the two closest clusters.
func (p *Pooler) least(rows int) float32 {
	least := float32(math.Inf(1))
	for _, c := range p.alive[:len(p.alive)-1] {
		if near := p.near[c]; near >= 0 {
			least = min(least, *p.between(c, near, rows))
		}
	}
	return least
}
