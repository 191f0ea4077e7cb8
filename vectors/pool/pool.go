// Package pool reduces the number of token vectors of documents.
package pool

import (
	"math"
	"slices"
)

// windowTokens is the maximum number of tokens that are clustered together. Memory and time grow with
// its square.
const windowTokens = 1024

// PooledRows returns the number of vectors to which Pool reduces this many rows.
func PooledRows(rows, n int) int {
	if n < 2 {
		return rows
	}
	return (rows + n - 1) / n
}

// Pooler pools the token vectors of documents. The zero value is ready to use,
// by one goroutine at a time.
type Pooler struct {
	dist      []float32 // [L, L] distances of clusters; only entries right of the diagonal are used
	nearest   []int32   // nearest cluster with a higher number, by cluster; −1 means none
	size      []float32 // tokens of each cluster
	clusterOf []int32   // cluster of each token; the number of a cluster is that of its first token
	alive     []int32   // numbers of the remaining clusters, ascending
}

// Pool appends to dst the vectors of a document, len(x)/dim of unit length, reduced to one in n, rounded
// up. It replaces similar tokens by their mean, scaled to unit length (Clavié, Chaffin and Adams,
// "Reducing the Footprint of Multi-Vector Retrieval with Minimal Performance Impact via Token Pooling",
// arXiv 2409.14683, section 2). Similar tokens are found by hierarchical clustering with Ward's
// criterion; pools are in the order of their first tokens. Documents of more than 1,024 tokens are pooled
// in windows of about that size. The time is about O(L²·dim). If n is less than 2, vectors are copied.
func (p *Pooler) Pool(dst, x []float32, dim, n int) []float32 {
	if n < 2 || dim < 1 {
		return append(dst, x...)
	}
	window := max(windowTokens/n, 1) * n * dim // a multiple of n, so that the windows add up to PooledRows
	for len(x) > 0 {
		w := min(window, len(x))
		dst = p.poolWindow(dst, x[:w], dim, PooledRows(w/dim, n))
		x = x[w:]
	}
	return dst
}

// poolWindow pools the tokens of a window to keep vectors.
func (p *Pooler) poolWindow(dst, x []float32, dim, keep int) []float32 {
	rows := len(x) / dim
	// The squared distance of two tokens is twice the increase of the sum of squares if they are merged.
	p.initClusters(x, dim, rows, squaredDistance)
	for len(p.alive) > keep {
		p.mergeClosest(rows)
	}
	p.visitSums(x, dim, rows, func(sum []float64, _ float32) { dst = appendUnit(dst, sum) })
	return dst
}

// visitSums calls visit with the sum of the vectors of each cluster, and their number.
func (p *Pooler) visitSums(x []float32, dim, rows int, visit func(sum []float64, size float32)) {
	sum := make([]float64, dim)
	for _, c := range p.alive {
		clear(sum)
		for t := int(c); t < rows; t++ {
			if p.clusterOf[t] == c {
				addVector(sum, x[t*dim:(t+1)*dim])
			}
		}
		visit(sum, p.size[c])
	}
}

// initClusters makes every token a cluster, and computes the distances of all pairs.
func (p *Pooler) initClusters(x []float32, dim, rows int, distance func(x, y []float32) float32) {
	p.dist, p.nearest = resize(p.dist, rows*rows), resize(p.nearest, rows)
	p.size, p.clusterOf, p.alive = resize(p.size, rows), resize(p.clusterOf, rows), resize(p.alive, rows)
	for i := range rows {
		p.size[i], p.clusterOf[i], p.alive[i] = 1, int32(i), int32(i)
		row := p.dist[i*rows : (i+1)*rows]
		for j := i + 1; j < rows; j++ {
			row[j] = distance(x[i*dim:(i+1)*dim], x[j*dim:(j+1)*dim])
		}
	}
	for i := range p.alive {
		p.findNear(i, rows)
	}
}

// squaredDistance returns the squared Euclidean distance. It sums in four lanes.
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

// findNear sets the nearest cluster after alive[i], the first one on ties.
func (p *Pooler) findNear(i, rows int) {
	c := p.alive[i]
	row := p.dist[int(c)*rows : (int(c)+1)*rows]
	nearest, minimum := int32(-1), float32(math.Inf(1))
	for _, d := range p.alive[i+1:] {
		if row[d] < minimum {
			nearest, minimum = d, row[d]
		}
	}
	p.nearest[c] = nearest
}

// distanceOf returns a pointer to the distance of two clusters.
func (p *Pooler) distanceOf(a, b int32, rows int) *float32 {
	if a > b {
		a, b = b, a
	}
	return &p.dist[int(a)*rows+int(b)]
}

// mergeClosest joins the two closest clusters, the first pair on ties, under the lower of their numbers, and
// updates distances (Lance and Williams, The Computer Journal 9, 1967). It returns their distance.
func (p *Pooler) mergeClosest(rows int) (distance float32) {
	// Find the closest pair.
	a, b := int32(-1), int32(-1)
	distance = float32(math.Inf(1))
	for _, c := range p.alive[:len(p.alive)-1] {
		if near := p.nearest[c]; near >= 0 {
			if d := *p.distanceOf(c, near, rows); d < distance || a < 0 {
				a, b, distance = c, near, d
			}
		}
	}
	if a < 0 { // all distances are NaN: join any pair
		a, b, distance = p.alive[0], p.alive[1], 0
	}
	// Update the distances of the other clusters to it.
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
		da, db := p.distanceOf(a, c, rows), p.distanceOf(b, c, rows)
		*da = (float32((na+nc)**da) + float32((nb+nc)**db) - float32(nc*distance)) / (na + nb + nc)
	}
	// Make it one cluster.
	p.alive = kept
	p.size[a] = na + nb
	for t, c := range p.clusterOf[:rows] {
		if c == b {
			p.clusterOf[t] = a
		}
	}
	// Update nearest clusters. The distance to a merged cluster is never less than the distances to both
	// clusters that were merged (Ward), so that only clusters whose nearest was one of these have to
	// search again.
	for i, c := range p.alive {
		if c == a || p.nearest[c] == a || p.nearest[c] == b {
			p.findNear(i, rows)
		} else if c < a {
			if near := p.nearest[c]; near >= 0 && *p.distanceOf(c, a, rows) < *p.distanceOf(c, near, rows) {
				p.nearest[c] = a
			}
		}
	}
	return distance
}

// resize returns a slice of n elements, in the memory of s if that is large enough.
func resize[T any](s []T, n int) []T { return slices.Grow(s[:0], n)[:n] }
