// Package plain holds the inner loops of package native in plain Go. They
// define, operation by operation, what the loops of every tier compute: sums
// over k are one chain of fused multiply-adds in order of k, sums over a row are
// kept in 16 lanes that are added up in one order, and exponential and GELU are
// one polynomial each. A conversion to float32 keeps the compiler from fusing a
// product with a sum by itself, as it may across statements.
//
// Rows of m or of n values are multiples of what the function says; strides
// count values. Nothing is checked here: package native does that.
package plain

import (
	"github.com/plaid-ir/plaid/internal/floats"
)

// Columns is how many columns a vector of a panel has here, MaxVectors how
// many vectors a panel has at most.
const (
	Columns    = 4
	MaxVectors = 3
)

// Products writes the products of m rows, a multiple of 8, of k values, a
// multiple of 16, with the vectors·Columns columns of a panel, to which bias is
// added first; the panel holds one row of columns after the other.
func Products(c []float32, ldc int, a []float32, lda, m, k int, b, bias []float32, vectors int) {
	floats.Products(c, ldc, a, lda, m, k, b, bias, vectors*Columns)
}

// ByteProducts is Products of bytes: rows of k bytes with a scale each, and a
// panel that holds, for each four values of k, four bytes of each column. Sums
// are exact; the result is ((sum + start)·row scale)·column scale + bias, the
// last two fused. columns has the scales of the columns, then their biases.
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
