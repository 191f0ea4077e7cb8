// Package pool reduces the token vectors of documents to fewer.
package pool

import (
	"math"
	"slices"
)

// windowTokens bounds the tokens that are clustered together: memory and time grow
// with its square.
const windowTokens = 1024

// Rows is the number of vectors that Pool makes of so many.
func Rows(rows, n int) int {
	if n < 2 {
		return rows
	}
	return (rows + n - 1) / n
}

// Pooler pools the token vectors of documents. The zero value is ready to use,
// by one goroutine at a time.
type Pooler struct {
	dist  []float32 // [L, L], of which the part right of the diagonal is used
	near  []int32   // nearest cluster to the right
	size  []float32
	owner []int32 // cluster of a token; a cluster has the number of its first token
	alive []int32 // numbers of the clusters that are left, ascending
}

// Pool appends to dst the vectors of a document, len(x)/dim of unit length, reduced
// to one in n, rounded up: similar tokens give way to their mean, scaled to
// unit length (Clavié, Chaffin and Adams, "Reducing the Footprint of
// Multi-Vector Retrieval with Minimal Performance Impact via Token Pooling",
// arXiv 2409.14683, section 2). Which tokens are similar is decided by
// hierarchical clustering with Ward's criterion; pools come in the order of
// their first tokens. Documents beyond 1,024 tokens are pooled in parts of about
// that size. The time is about O(L²·dim). With n below 2 vectors are copied.
func (p *Pooler) Pool(dst, x []float32, dim, n int) []float32 {
	if n < 2 || dim < 1 {
		return append(dst, x...)
	}
	window := max(windowTokens/n, 1) * n * dim // whole pools, so that sizes add up
	for len(x) > 0 {
		w := min(window, len(x))
		dst = p.window(dst, x[:w], dim, Rows(w/dim, n))
		x = x[w:]
	}
	return dst
}

func (p *Pooler) window(dst, x []float32, dim, keep int) []float32 {
	rows := len(x) / dim
	// The distance of two is what merging them adds to the sum of squares, twice over.
	p.start(x, dim, rows, squaredDistance)
	for len(p.alive) > keep {
		p.merge(rows)
	}
	p.sums(x, dim, rows, func(sum []float64, _ float32) { dst = unit(dst, sum) })
	return dst
}

// sums calls use with the sum of the vectors of each cluster, and their number.
func (p *Pooler) sums(x []float32, dim, rows int, use func(sum []float64, size float32)) {
	sum := make([]float64, dim)
	for _, c := range p.alive {
		clear(sum)
		for t := int(c); t < rows; t++ {
			if p.owner[t] == c {
				add(sum, x[t*dim:(t+1)*dim])
			}
		}
		use(sum, p.size[c])
	}
}

// start makes every token a cluster, with the distances of two as they are at first.
func (p *Pooler) start(x []float32, dim, rows int, distance func(x, y []float32) float32) {
	p.dist, p.near = resize(p.dist, rows*rows), resize(p.near, rows)
	p.size, p.owner, p.alive = resize(p.size, rows), resize(p.owner, rows), resize(p.alive, rows)
	for i := range rows {
		p.size[i], p.owner[i], p.alive[i] = 1, int32(i), int32(i)
		row := p.dist[i*rows : (i+1)*rows]
		for j := i + 1; j < rows; j++ {
			row[j] = distance(x[i*dim:(i+1)*dim], x[j*dim:(j+1)*dim])
		}
	}
	for at := range p.alive {
		p.findNear(at, rows)
	}
}

// squaredDistance sums in four lanes.
func squaredDistance(x, y []float32) float32 {
	var s0, s1, s2, s3 float32
	y = y[:len(x)]
	j := 0
	for ; j+4 <= len(x); j += 4 {
		a, b := x[j:j+4:j+4], y[j:j+4:j+4]
		d0, d1, d2, d3 := a[0]-b[0], a[1]-b[1], a[2]-b[2], a[3]-b[3]
		s0 += float32(d0 * d0)
		s1 += float32(d1 * d1)
		s2 += float32(d2 * d2)
		s3 += float32(d3 * d3)
	}
	for ; j < len(x); j++ {
		d := x[j] - y[j]
		s0 += float32(d * d)
	}
	return s0 + s1 + (s2 + s3)
}

// findNear looks for the nearest cluster to the right of alive[at], the first one
// on ties.
func (p *Pooler) findNear(at, rows int) {
	c := p.alive[at]
	row := p.dist[int(c)*rows : (int(c)+1)*rows]
	best, least := int32(-1), float32(math.Inf(1))
	for _, d := range p.alive[at+1:] {
		if row[d] < least {
			best, least = d, row[d]
		}
	}
	p.near[c] = best
}

// between is where the distance of two clusters is.
func (p *Pooler) between(a, b int32, rows int) *float32 {
	if a > b {
		a, b = b, a
	}
	return &p.dist[int(a)*rows+int(b)]
}

// merge joins the two closest clusters, the first pair on ties, under the lower
// of their numbers, and updates distances (Lance and Williams, The Computer
// Journal 9, 1967). It returns how far apart they were.
func (p *Pooler) merge(rows int) (least float32) {
	a, b := int32(-1), int32(-1)
	least = float32(math.Inf(1))
	for _, c := range p.alive[:len(p.alive)-1] {
		if near := p.near[c]; near >= 0 {
			if d := *p.between(c, near, rows); d < least || a < 0 {
				a, b, least = c, near, d
			}
		}
	}
	if a < 0 { // distances that are no numbers: any pair will do
		a, b, least = p.alive[0], p.alive[1], 0
	}
	na, nb := p.size[a], p.size[b]
	kept := p.alive[:0]
	for _, c := range p.alive {
		if c == b {
			continue
		}
		kept = append(kept, c)
		if c == a {
			continue
		}
		nc := p.size[c]
		da, db := p.between(a, c, rows), p.between(b, c, rows)
		*da = (float32((na+nc)**da) + float32((nb+nc)**db) - float32(nc*least)) / (na + nb + nc)
	}
	p.alive = kept
	p.size[a] = na + nb
	for t, c := range p.owner[:rows] {
		if c == b {
			p.owner[t] = a
		}
	}
	// Ward distances to a merged cluster never fall below both of those to its
	// parts, so only what pointed to a part has to look again.
	for at, c := range p.alive {
		if c == a || p.near[c] == a || p.near[c] == b {
			p.findNear(at, rows)
		} else if c < a {
			if near := p.near[c]; near >= 0 && *p.between(c, a, rows) < *p.between(c, near, rows) {
				p.near[c] = a
			}
		}
	}
	return least
}

// resize is a slice of n elements, in the memory of s if there is enough.
func resize[T any](s []T, n int) []T { return slices.Grow(s[:0], n)[:n] }
