package codec

import (
	"context"
	"math"
)

const (
	// Scales stay within these bounds, so that no dimension or cluster can lose
	// its levels to a sample that happened to be still.
	minScale, maxScale = 0.25, 4
	// scalePrior is the number of tokens that a cluster's own spread needs to
	// weigh as much as the spread of all.
	scalePrior = 8
)

// tuneSet is the vectors to which levels and scales are fitted.
type tuneSet struct {
	dim   int
	rows  [][]float32
	codes []uint32
}

// dimScales is the spread of residuals in each dimension relative to that of all.
func (s *tuneSet) dimScales(c *Quantizer) []float32 {
	sum := make([]float64, s.dim)
	r := make([]float32, s.dim)
	for i, code := range s.codes {
		c.offset(r, s.rows[i], code)
		for j, v := range r {
			sum[j] += float64(float64(v) * float64(v))
		}
	}
	var all float64
	for _, v := range sum {
		all += v
	}
	all /= float64(s.dim)
	scales := make([]float32, s.dim)
	for j, v := range sum {
		scales[j] = relativeScale(v, all)
	}
	return scales
}

// clusters holds, for each centroid, its vectors and the sum of their squared
// residuals.
type clusters struct {
	counts []int
	spread []float64
}

// squaredResidual is the squared length of the residual u − C of a vector with
// that product with its centroid and that squared length.
func squaredResidual(score float32, n2 float64) float64 {
	cos := max(float64(score)/math.Sqrt(n2), minCosine)
	return max(1/(cos*cos)-1, 0)
}

// sampleClusters is how the rows of k-means were last assigned.
func (km *kmeans) sampleClusters(ctx context.Context) (clusters, error) {
	s := clusters{make([]int, km.k), make([]float64, km.k)}
	err := forBlocks(ctx, km.k, meansBlock, km.threads, func(_, _, lo, hi int) error {
		for c := lo; c < hi; c++ {
			for _, pos := range km.order[km.starts[c]:km.starts[c+1]] {
				if n2 := km.square(pos); n2 > 0 {
					s.counts[c]++
					s.spread[c] += squaredResidual(km.scores[pos], n2)
				}
			}
		}
		return nil
	})
	return s, err
}

// scales is the spread of residuals in each cluster relative to that of all, drawn
// towards 1 where a cluster has few vectors.
func (s *clusters) scales() []float32 {
	var all, n float64
	for c, v := range s.spread {
		all += v
		n += float64(s.counts[c])
	}
	all /= max(n, 1)
	scales := make([]float32, len(s.spread))
	for c, v := range s.spread {
		scales[c] = relativeScale(v+float64(scalePrior*all), (float64(s.counts[c])+scalePrior)*all)
	}
	return scales
}

// relativeScale is the ratio of two root mean squares.
func relativeScale(square, all float64) float32 {
	if all == 0 {
		return 1
	}
	return float32(max(minScale, min(math.Sqrt(square/all), maxScale)))
}

// step fits the step of the levels.
func (s *tuneSet) step(c *Quantizer) float32 {
	h := newStepHistogram()
	r := make([]float32, s.dim)
	g := c.kernel.DimScale
	for i, code := range s.codes {
		c.offset(r, s.rows[i], code)
		a := c.scale(code)
		for j, v := range r {
			w := a
			if g != nil {
				w *= g[j]
			}
			h.count(v, w)
		}
	}
	return h.step(c.Nbits)
}
