package interop

import "math"

// normBins is the number of bins of the histogram of residual norms.
const normBins = 4096

// residualStats gathers the statistics of decoded residuals that the headers of other engines have,
// through two histograms: of byte values by position in the row, and of norms.
type residualStats struct {
	header      *Header
	rowBytes    int
	byteCounts  [][256]int64
	normCounts  [normBins]int64
	maxNorm     float64      // upper end of the histogram of norms
	byteSquares [256]float64 // by byte value: sum of the squared weights of its fields
	rows        int64
}

func newResidualStats(h *Header) *residualStats {
	s := &residualStats{header: h, rowBytes: h.Dim * h.Nbits / 8}
	s.byteCounts = make([][256]int64, s.rowBytes)
	var largest float64
	for _, w := range h.Weights {
		largest = max(largest, math.Abs(float64(w)))
	}
	s.maxNorm = largest * math.Sqrt(float64(h.Dim))
	for b := range s.byteSquares {
		for j := range 8 / h.Nbits {
			w := float64(h.Weights[s.bucketOf(b, j)])
			s.byteSquares[b] += w * w
		}
	}
	return s
}

// bucketOf returns field j of a residual byte in plaid's order, which is the number of a bucket.
func (s *residualStats) bucketOf(b, j int) int {
	return b >> (j * s.header.Nbits) & (1<<s.header.Nbits - 1)
}

// add counts complete rows of residuals in plaid's order.
func (s *residualStats) add(residuals []byte) {
	for ; len(residuals) >= s.rowBytes; residuals = residuals[s.rowBytes:] {
		var norm float64
		for i, b := range residuals[:s.rowBytes] {
			s.byteCounts[i][b]++
			norm += s.byteSquares[b]
		}
		bin := 0
		if s.maxNorm > 0 {
			bin = min(int(math.Sqrt(norm)/s.maxNorm*normBins), normBins-1)
		}
		s.normCounts[bin]++
		s.rows++
	}
}

// meanAbsWeights returns the mean absolute weight of each dimension.
func (s *residualStats) meanAbsWeights() []float32 {
	out := make([]float32, s.header.Dim)
	if s.rows == 0 {
		return out
	}
	fieldsPerByte := 8 / s.header.Nbits
	for d := range out {
		var sum float64
		for b, n := range s.byteCounts[d/fieldsPerByte] {
			sum += float64(n) * math.Abs(float64(s.header.Weights[s.bucketOf(b, d%fieldsPerByte)]))
		}
		out[d] = float32(sum / float64(s.rows))
	}
	return out
}

// normQuantile returns the upper end of the bin that contains quantile q of the norms.
func (s *residualStats) normQuantile(q float64) float32 {
	want := int64(math.Ceil(q * float64(s.rows)))
	var seen int64
	for bin, n := range s.normCounts {
		if seen += n; n > 0 && seen >= want {
			return float32(float64(bin+1) / normBins * s.maxNorm)
		}
	}
	return 0
}
