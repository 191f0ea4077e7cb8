// Package plain holds the inner loops of package native in plain Go. They
// define, operation by operation, the results of the loops of every tier: sums
// over k are one chain of fused multiply-adds in order of k, sums over a row are
// computed in 16 lanes that are added in a fixed order, and exponential and GELU are
// one polynomial each. A conversion to float32 prevents the compiler from fusing a
// product with a sum by itself, which it may do across statements.
//
// m and n are multiples of the number that each function names. Strides
// count values. Package native checks lengths.
package plain

import (
	"github.com/plaid-ir/plaid/internal/floats"
)

// Columns is the number of columns of a vector in a panel, and MaxVectors the maximum of vectors in a
// panel.
const (
	Columns    = 4
	MaxVectors = 3
)

// Products writes to c the products of m rows of a, a multiple of 8, of k values, a
// multiple of 16, with the vectors·Columns columns of the panel b. Sums begin with bias. The panel holds
// its k rows one after the other.
func Products(c []float32, ldc int, a []float32, lda, m, k int, b, bias []float32, vectors int) {
	floats.Products(c, ldc, a, lda, m, k, b, bias, vectors*Columns)
}

// ByteProducts is Products for bytes: rows of k bytes with one scale each, and a
// panel that holds, for each four values of k, four bytes of each column. Sums
// are exact; the result is ((sum + start)·row scale)·column scale + bias, where the last product and sum
// are fused. columns has the scales of the columns, then their biases.
func ByteProducts(c []float32, ldc int, a []byte, lda int, scales []float32, m, k int,
	b []int8, starts []int32, columns []float32, vectors int) {
	n := vectors * Columns
	for i := range m {
		x := a[i*lda:][:k]
		for j := range n {
			sum := starts[j]
			for t := 0; t < k; t += 4 {
				w, v := b[t*n+4*j:][:4], x[t:][:4]
				sum += int32(int8(v[0]))*int32(w[0]) + int32(int8(v[1]))*int32(w[1]) +
					int32(int8(v[2]))*int32(w[2]) + int32(int8(v[3]))*int32(w[3])
			}
			c[i*ldc+j] = floats.FMA(float32(sum)*scales[i], columns[j], columns[n+j])
		}
	}
}
