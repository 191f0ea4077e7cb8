package codec

import (
	"context"
	"math"
)

const (
	// minScale and maxScale limit scales, so that an untypical sample with a small spread in a dimension
	// or cluster does not make its levels useless.
	minScale, maxScale = 0.25, 4
	// scalePrior is the number of tokens in a cluster for which its spread has the same weight as the
	// spread of all clusters.
	scalePrior = 8
)

// tuneSet is the tuning vectors, to which levels and scales are fitted.
type tuneSet struct {
	dim   int
	rows  [][]float32
	codes []uint32
}

// dimScales returns the spread of residuals in each dimension relative to the mean over dimensions.
func (s *tuneSet) dimScales(c *Quantizer) []float32 {
	sum := make([]float64, s.dim)
	r := make([]float32, s.dim)
	for i, code := range s.codes {
		c.searchResidual(r, s.rows[i], code)
		for j, v := range r {
			sum[j] += float64(float64(v) * float64(v))
		}
	}
	var mean float64
	for _, v := range sum {
		mean += v
	}
	mean /= float64(s.dim)
	scales := make([]float32, s.dim)
	for j, v := range sum {
		scales[j] = relativeScale(v, mean)
	}
	return scales
}

// clusters has the number of vectors of each centroid, and the sum of their squared residuals.
type clusters struct {
	counts []int
	spread []float64
}

// squaredResidual returns the squared length of the residual u − C of a vector, given its inner product with
// the centroid and its squared length. See Quantizer.searchResidual for u.
func squaredResidual(score float32, n2 float64) float64 {
	cos := max(float64(score)/math.Sqrt(n2), minCosine)
	return max(1/(cos*cos)-1, 0)
}

// sampleClusters returns the clusters of the last assignment.
func (km *kmeans) sampleClusters(ctx context.Context) (clusters, error) {
	s := clusters{make([]int, km.k), make([]float64, km.k)}
	err := forBlocks(ctx, km.k, meansBlock, km.threads, func(_, _, lo, hi int) error {
		for c := lo; c < hi; c++ {
			for _, pos := range km.order[km.starts[c]:km.starts[c+1]] {
				if n2 := km.squaredLength(pos); n2 > 0 {
					s.counts[c]++
					s.spread[c] += squaredResidual(km.scores[pos], n2)
				}
			}
		}
		return nil
	})
	return s, err
}

// scales returns the spread of residuals in each cluster relative to that of all vectors. It is nearer to 1
// for a cluster with few vectors (scalePrior).
func (s *clusters) scales() []float32 {
	var mean, n float64
	for c, v := range s.spread {
		mean += v
		n += float64(s.counts[c])
	}
	mean /= max(n, 1)
	scales := make([]float32, len(s.spread))
	for c, v := range s.spread {
		scales[c] = relativeScale(v+float64(scalePrior*mean), (float64(s.counts[c])+scalePrior)*mean)
	}
	return scales
}

// relativeScale returns the ratio of two root mean squares, given the squares, within the limits of scales.
func relativeScale(square, reference float64) float32 {
	if reference == 0 {
		return 1
	}
	return float32(max(minScale, min(math.Sqrt(square/reference), maxScale)))
}

// roundingStep returns the step of the levels with the least squared error for rounding.
func (s *tuneSet) roundingStep(c *Quantizer) float32 {
	h := newStepHistogram()
	r := make([]float32, s.dim)
	g := c.kernel.DimScale
	for i, code := range s.codes {
		c.searchResidual(r, s.rows[i], code)
		a := c.centroidScale(code)
		for j, v := range r {
			w := a
			if g != nil {
				w *= g[j]
			}
			h.addResidual(v, w)
		}
	}
	return h.bestStep(c.Nbits)
}
