//go:build !purego

// Package amx has the products of bytes of package native for AMX; everything
// else is done by avx512.
package amx

import (
	"github.com/plaid-ir/plaid/encode/native/internal/avx512"
	"github.com/plaid-ir/plaid/internal/floats"
)

// MaxByteVectors is how many vectors a panel has at most.
const MaxByteVectors = 2

// Supported reports whether the processor and the operating system have what
// [ByteProducts] needs.
func Supported() bool { return avx512.Supported() && floats.AMXAllowed() }

//go:noescape
func byteTiles(c []float32, ldc int, a []byte, lda int, scales []float32, m, k int,
	b []int8, starts []int32, columns []float32, vectors int)

// ByteProducts does what [avx512.ByteProducts] does, to the bit, for panels of
// up to two vectors.
func ByteProducts(c []float32, ldc int, a []byte, lda int, scales []float32, m, k int,
	b []int8, starts []int32, columns []float32, vectors int) {
	whole := m / 16 * 16
	if k%64 != 0 {
		whole = 0
	}
	if whole > 0 {
		byteTiles(c, ldc, a, lda, scales, whole, k, b, starts, columns, vectors)
	}
	if whole < m {
		avx512.ByteProducts(c[whole*ldc:], ldc, a[whole*lda:], lda, scales[whole:], m-whole, k, b, starts, columns, vectors)
	}
}
