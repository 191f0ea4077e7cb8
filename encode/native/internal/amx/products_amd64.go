//go:build !purego

// Package amx has the products of bytes of package native for AMX. The tier uses avx512 for
// everything else.
package amx

import (
	"github.com/plaid-ir/plaid/encode/native/internal/avx512"
	"github.com/plaid-ir/plaid/internal/floats"
)

// MaxByteVectors is the maximum of vectors in a panel.
const MaxByteVectors = 2

// Supported reports whether the processor and the operating system support
// [ByteProducts].
func Supported() bool { return avx512.Supported() && floats.AMXAllowed() }

// byteTiles is ByteProducts for m a multiple of 16 and k a multiple of 64.
//
//go:noescape
func byteTiles(c []float32, ldc int, a []byte, lda int, scales []float32, m, k int,
	b []int8, starts []int32, columns []float32, vectors int)

// ByteProducts returns the same bits as [avx512.ByteProducts], for panels of
// up to two vectors. avx512 computes the rows that do not fill a tile.
func ByteProducts(c []float32, ldc int, a []byte, lda int, scales []float32, m, k int,
	b []int8, starts []int32, columns []float32, vectors int) {
	tiled := m / 16 * 16 // rows
	if k%64 != 0 {
		tiled = 0
	}
	if tiled > 0 {
		byteTiles(c, ldc, a, lda, scales, tiled, k, b, starts, columns, vectors)
	}
	if tiled < m {
		avx512.ByteProducts(c[tiled*ldc:], ldc, a[tiled*lda:], lda, scales[tiled:], m-tiled, k,
			b, starts, columns, vectors)
	}
}
