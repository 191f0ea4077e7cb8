package cpu

import (
	"context"
	"math"
	"sync"

	"github.com/plaid-ir/plaid/kernels/internal/portable"
	"github.com/plaid-ir/plaid/kernels/internal/tier"
)

const (
	// Below these sizes the preparation of the pruned search costs more than
	// it saves. The result is the same either way.
	pruneMinRows      = 32
	pruneMinCentroids = 512
	pruneMaxDim       = 1024 // its tables take 8 KiB a dimension

	// minLength is the smallest length of rows and centroids whose products filter and
	// pruner bound. Their squares, and the products, are float32: for shorter vectors they
	// lose digits below 1e-45, which the bounds do not include. For shorter rows, and
	// where no centroid is as long, every product is computed.
	minLength = 1e-10

	nearestRows      = 128     // rows of x that are compared with a block of centroids in turn
	nearestBlockSize = 4 << 10 // values of a block of centroids: half of L1
)

// Nearest implements [kernels.Backend].
func (b backend) Nearest(_ context.Context, codes []uint32, scores []float32, centroids, x []float32, dim int) error {
	b.nearest(codes, scores, centroids, x, dim)
	return nil
}

// nearest finds nearest centroids by the filter, if the tier has one, or by the pruner. Where
// these do not pay or do not work, it computes every product.
func (b backend) nearest(codes []uint32, scores []float32, centroids, x []float32, dim int) {
	loops, rows, k := &b.tier.Tokens, len(x)/dim, len(centroids)/dim
	if loops.Filter != nil && rows >= filterMinRows && k >= filterMinCentroids {
		f := filterPool.Get().(*filter)
		f.loops = loops.Filter
		ok := f.roundCentroids(centroids, dim)
		if ok {
			f.nearest(codes, scores, x)
		}
		f.dropReferences()
		filterPool.Put(f)
		if ok {
			return
		}
	}
	if loops.Filter == nil && rows >= pruneMinRows && k >= pruneMinCentroids && dim <= pruneMaxDim {
		p := prunePool.Get().(*pruner)
		p.loops = loops
		ok := p.roundCentroids(centroids, dim)
		if ok {
			p.nearest(codes, scores, x)
		}
		p.dropReferences()
		prunePool.Put(p)
		if ok {
			return
		}
	}
	if loops.Rounded != nil {
		nearestLanes(loops, codes, scores, centroids, x, dim)
		return
	}
	nearestAll(codes, scores, centroids, x, dim)
}

// nearestLanes compares every row with every centroid, by a loop like that for S in which
// the rows are the query tokens.
func nearestLanes(loops *tier.Tokens, codes []uint32, scores []float32, centroids, x []float32, dim int) {
	const block = 36 // centroids
	sc := lanesPool.Get().(*lanesScratch)
	rows, k := len(x)/dim, len(centroids)/dim
	for r0 := 0; r0 < rows; r0 += len(sc.best) {
		n := min(len(sc.best), rows-r0)
		sc.q.Reset(x[r0*dim:(r0+n)*dim], dim)
		best, out := sc.best[:n], codes[r0:r0+n]
		for i := range best {
			best[i], out[i] = float32(math.Inf(-1)), 0
		}
		sc.products = resize(sc.products, block*sc.q.Stride)
		for c0 := 0; c0 < k; c0 += block {
			m := min(block, k-c0)
			products := sc.products[:m*sc.q.Stride]
			loops.Rounded(products, centroids[c0*dim:(c0+m)*dim], m, &sc.q, sc.lo[:], sc.hi[:])
			for c := range m {
				for i, v := range products[c*sc.q.Stride:][:n] {
					if v > best[i] {
						best[i], out[i] = v, uint32(c0+c)
					}
				}
			}
		}
		if scores != nil {
			copy(scores[r0:r0+n], best)
		}
	}
	lanesPool.Put(sc)
}

// lanesScratch is the work space of nearestLanes.
type lanesScratch struct {
	q        tier.QueryVectors
	products []float32
	best     [32]float32
	lo, hi   [32]float32
}

var lanesPool = sync.Pool{New: func() any { return new(lanesScratch) }}

// nearestAll compares every row with every centroid, in plain Go.
func nearestAll(codes []uint32, scores []float32, centroids, x []float32, dim int) {
	rows, k := len(x)/dim, len(centroids)/dim
	block := max(nearestBlockSize/dim, 2) &^ 1
	var best [nearestRows]float32
	for r0 := 0; r0 < rows; r0 += nearestRows {
		n := min(nearestRows, rows-r0)
		for i := range n {
			best[i], codes[r0+i] = float32(math.Inf(-1)), 0
		}
		for c0 := 0; c0 < k; c0 += block {
			c1 := min(c0+block, k)
			nearestBlock(codes[r0:r0+n], best[:n], centroids[c0*dim:c1*dim], x[r0*dim:(r0+n)*dim], dim, c0)
		}
		if scores != nil {
			copy(scores[r0:r0+n], best[:n])
		}
	}
}

// nearestBlock updates the best centroid of each row with the centroids of
// one block, which begins with number c0.
func nearestBlock(codes []uint32, best []float32, centroids, x []float32, dim, c0 int) {
	k := len(centroids) / dim
	i := 0
	for ; i+2 <= len(codes); i += 2 {
		x0, x1 := x[i*dim:(i+1)*dim], x[(i+1)*dim:(i+2)*dim]
		best0, best1, code0, code1 := best[i], best[i+1], codes[i], codes[i+1]
		for c := 0; c < k; c += 2 {
			y0 := centroids[c*dim : (c+1)*dim]
			y1 := y0 // the last of an odd number is compared twice: it cannot beat itself
			if c+1 < k {
				y1 = centroids[(c+1)*dim : (c+2)*dim]
			}
			s00, s01, s10, s11 := portable.Dot2x2(x0, x1, y0, y1)
			if s00 > best0 {
				best0, code0 = s00, uint32(c0+c)
			}
			if s01 > best0 {
				best0, code0 = s01, uint32(c0+c+1)
			}
			if s10 > best1 {
				best1, code1 = s10, uint32(c0+c)
			}
			if s11 > best1 {
				best1, code1 = s11, uint32(c0+c+1)
			}
		}
		best[i], best[i+1], codes[i], codes[i+1] = best0, best1, code0, code1
	}
	if i < len(codes) {
		xi := x[i*dim : (i+1)*dim]
		var s [4]float32
		for c := 0; c < k; c += 4 {
			n := min(4, k-c)
			portable.DotsOne(s[:n], xi, centroids[c*dim:(c+n)*dim])
			for j, v := range s[:n] {
				if v > best[i] {
					best[i], codes[i] = v, uint32(c0+c+j)
				}
			}
		}
	}
}

// prunePool has the work space of finished calls, as filterPool has.
var prunePool = sync.Pool{New: func() any { return new(pruner) }}
