package codec

import "math"

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
	x     []float32
	dim   int
	rows  []uint32
	codes []uint32
}

func (s *tuneSet) row(i int) []float32 {
	r := int(s.rows[i])
	return s.x[r*s.dim : (r+1)*s.dim]
}

// dimScales is the spread of residuals in each dimension relative to that of all.
func (s *tuneSet) dimScales(c *Codec) []float32 {
	sum := make([]float64, s.dim)
	r := make([]float32, s.dim)
	for i, code := range s.codes {
		c.residual(r, s.row(i), code)
		for j, v := range r {
			sum[j] += float64(v) * float64(v)
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

// centroidScales is the spread of residuals in each cluster relative to that of
// all, drawn towards 1 where a cluster has few vectors.
func (s *tuneSet) centroidScales(c *Codec) []float32 {
	sum := make([]float64, c.K)
	count := make([]float64, c.K)
	r := make([]float32, s.dim)
	var all float64
	for i, code := range s.codes {
		c.residual(r, s.row(i), code)
		n2 := dot64(r, r)
		sum[code] += n2
		count[code]++
		all += n2
	}
	all /= float64(max(len(s.codes), 1))
	scales := make([]float32, c.K)
	for k := range scales {
		scales[k] = relativeScale(sum[k]+scalePrior*all, (count[k]+scalePrior)*all)
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

// step fits the step of the levels, and gives the mean absolute residual before
// scaling.
func (s *tuneSet) step(c *Codec) (step float32, mean float64) {
	h := newStepHistogram()
	r := make([]float32, s.dim)
	g := c.kernel.DimScale
	for i, code := range s.codes {
		c.residual(r, s.row(i), code)
		a := c.scale(code)
		for j, v := range r {
			w := a
			if g != nil {
				w *= g[j]
			}
			h.add(v, w)
			mean += math.Abs(float64(v)) * float64(w)
		}
	}
	return h.step(c.Nbits), mean / float64(max(len(s.codes)*s.dim, 1))
}
