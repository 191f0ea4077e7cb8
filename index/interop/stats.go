package interop

import "math"

// normBins is the resolution of the estimated quantile of residual norms.
const normBins = 4096

// residualStats gathers what the headers of other engines want to know about
// residuals, from the decoded ones: counts of each byte value at each place of
// a row, and a histogram of norms.
type residualStats struct {
	header *Header
	row    int
	bytes  [][256]int64
	norms  [normBins]int64
	top    float64      // upper end of the histogram
	square [256]float64 // sum of squared weights of a byte's fields
	rows   int64
}

func newResidualStats(h *Header) *residualStats {
	s := &residualStats{header: h, row: h.Dim * h.Nbits / 8}
	s.bytes = make([][256]int64, s.row)
	var largest float64
	for _, w := range h.Weights {
		largest = max(largest, math.Abs(float64(w)))
	}
	s.top = largest * math.Sqrt(float64(h.Dim))
	for b := range s.square {
		for j := range 8 / h.Nbits {
			w := float64(h.Weights[s.field(b, j)])
			s.square[b] += w * w
		}
	}
	return s
}

// field is field j of a residual byte in plaid's order.
func (s *residualStats) field(b, j int) int {
	return b >> (j * s.header.Nbits) & (1<<s.header.Nbits - 1)
}

// add counts whole rows of residuals in plaid's order.
func (s *residualStats) add(residuals []byte) {
	for ; len(residuals) >= s.row; residuals = residuals[s.row:] {
		var norm float64
		for i, b := range residuals[:s.row] {
			s.bytes[i][b]++
			norm += s.square[b]
		}
		bin := 0
		if s.top > 0 {
			bin = min(int(math.Sqrt(norm)/s.top*normBins), normBins-1)
		}
		s.norms[bin]++
		s.rows++
	}
}

// average is the mean absolute weight of each dimension.
func (s *residualStats) average() []float32 {
	out := make([]float32, s.header.Dim)
	if s.rows == 0 {
		return out
	}
	per := 8 / s.header.Nbits
	for d := range out {
		var sum float64
		for b, n := range s.bytes[d/per] {
			sum += float64(n) * math.Abs(float64(s.header.Weights[s.field(b, d%per)]))
		}
		out[d] = float32(sum / float64(s.rows))
	}
	return out
}

// quantile is the upper end of the bin that holds quantile q of the norms.
func (s *residualStats) quantile(q float64) float32 {
	want := int64(math.Ceil(q * float64(s.rows)))
	var seen int64
	for bin, n := range s.norms {
		if seen += n; n > 0 && seen >= want {
			return float32(float64(bin+1) / normBins * s.top)
		}
	}
	return 0
}
