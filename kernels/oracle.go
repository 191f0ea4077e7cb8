package kernels

import (
	"math"

	"github.com/plaid-ir/plaid/internal/floats"
)

// The oracle computes every stage in float64 from its definition, with no
// regard for speed. Every backend is tested against it.

// OracleDecode returns the decoded vector v̂ of a token of a chunk.
func OracleDecode(c *Codec, ch *Chunk, token int) []float64 {
	dim, nbits := c.Dim(), c.Codebook.Nbits
	code := int(ch.Code(token))
	centroid := oracleCentroid(c, code)
	w := c.Codebook.Weights()
	row := ch.Residuals[token*c.RowBytes():]
	a := 1.0
	if c.CentroidScale != nil {
		a = float64(c.CentroidScale[code])
	}
	f := float64(ch.Factor(token)) * float64(c.FactorMax) / 32767
	v := make([]float64, dim)
	for j := range v {
		bucket := int(row[j*nbits/8]) >> (j * nbits % 8) & (1<<nbits - 1)
		g := 1.0
		if c.DimScale != nil {
			g = float64(c.DimScale[j])
		}
		v[j] = f * (centroid[j] + a*g*float64(w[bucket]))
	}
	return v
}

// OracleMaxSim returns the score of a document of a chunk for the query q
// [Lq, dim] with a weight for each of its vectors. nil weights mean that all are 1.
// argmax has for each query vector the token with the largest product, counted from
// the start of the document; the first one on ties. An empty document scores 0, with
// every argmax −1.
func OracleMaxSim(c *Codec, q, weights []float32, ch *Chunk, doc int) (score float64, argmax []int) {
	dim := c.Dim()
	lo, hi := int(ch.Offsets[doc]), int(ch.Offsets[doc+1])
	decoded := make([][]float64, 0, hi-lo)
	for t := lo; t < hi; t++ {
		decoded = append(decoded, OracleDecode(c, ch, t))
	}
	return oracleScore(q, weights, decoded, dim)
}

// OracleNearest returns, for each row of x [n, dim], the number of the
// centroid (of centroids [K, dim]) with the largest inner product, the lowest
// number on ties, and that product.
func OracleNearest(centroids, x []float32, dim int) (codes []uint32, scores []float64) {
	for i := 0; i+dim <= len(x); i += dim {
		best, code := math.Inf(-1), 0
		for c := 0; (c+1)*dim <= len(centroids); c++ {
			var p float64
			for j, v := range centroids[c*dim : (c+1)*dim] {
				p += float64(v) * float64(x[i+j])
			}
			if p > best {
				best, code = p, c
			}
		}
		codes = append(codes, uint32(code))
		scores = append(scores, best)
	}
	return codes, scores
}

// MaxSimFloat returns the score of the document d [L, dim] for the query q
// [Lq, dim] with a weight for each of its vectors. nil weights mean that all are 1.
// An empty document scores 0.
func MaxSimFloat(q, weights, d []float32, dim int) float64 {
	rows := make([][]float64, len(d)/dim)
	for t := range rows {
		rows[t] = make([]float64, dim)
		for j := range rows[t] {
			rows[t][j] = float64(d[t*dim+j])
		}
	}
	score, _ := oracleScore(q, weights, rows, dim)
	return score
}

// oracleScore returns the weighted sum of the largest products of each vector of q with a
// row, and the numbers of these rows.
func oracleScore(q, weights []float32, rows [][]float64, dim int) (sum float64, argmax []int) {
	argmax = make([]int, len(q)/dim)
	for s := range argmax {
		w := 1.0
		if weights != nil {
			w = float64(weights[s])
		}
		var best float64
		best, argmax[s] = oracleMax(q[s*dim:(s+1)*dim], rows)
		sum += w * best
	}
	return sum, argmax
}

// oracleMax returns the largest product of q with a row and the first row
// that has it; without rows, 0 and −1.
func oracleMax(q []float32, rows [][]float64) (best float64, arg int) {
	best, arg = math.Inf(-1), -1
	for t, row := range rows {
		var p float64
		for j, v := range row {
			p += float64(q[j]) * v
		}
		if p > best {
			best, arg = p, t
		}
	}
	if len(rows) == 0 {
		best = 0
	}
	return best, arg
}

// oracleCentroid returns a centroid as float64.
func oracleCentroid(c *Codec, code int) []float64 {
	row := make([]float32, c.Dim())
	c.Centroids.Rows(row, code, code+1)
	v := make([]float64, len(row))
	for j, x := range row {
		v[j] = float64(x)
	}
	return v
}

// BF16FromF32 rounds to the nearest bfloat16, ties to even. NaN stays NaN.
func BF16FromF32(f float32) uint16 {
	b := math.Float32bits(f)
	if f != f {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + (b>>16)&1) >> 16)
}

// F16ToF32 converts an IEEE 754 binary16 value exactly.
func F16ToF32(h uint16) float32 { return floats.Float32(h) }

// F16FromF32 rounds to the nearest binary16, ties to even; values beyond its
// range become infinite.
func F16FromF32(f float32) uint16 { return floats.Float16(f) }
