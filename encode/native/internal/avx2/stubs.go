//go:build amd64 && !purego

// Package avx2 holds the inner loops of package native in AVX2 and FMA. The assembler
// is written by package gen. Package native checks lengths. Call these functions only if
// Supported returns true.
package avx2

import (
	"golang.org/x/sys/cpu"
)

// Supported reports whether the processor and the operating system support
// the functions of this package.
func Supported() bool {
	return cpu.X86.HasAVX2 && cpu.X86.HasFMA
}

// The functions return the same bits as those of package plain.

// Columns is the number of columns of a vector in a panel. MaxVectors and
// MaxByteVectors are the maximum of vectors in a panel.
const (
	Columns        = 8
	MaxVectors     = 3
	MaxByteVectors = 2
)

// Products computes tiles of 4 rows.
//
//go:noescape
func Products(c []float32, ldc int, a []float32, lda, m, k int, b, bias []float32, vectors int)

// ByteProducts computes tiles of 4 rows.
//
//go:noescape
func ByteProducts(c []float32, ldc int, a []byte, lda int, scales []float32, m, k int,
	b []int8, starts []int32, columns []float32, vectors int)

//go:noescape
func Softmax(x []float32, stride, m, n int, scale float32)

//go:noescape
func GELU(x []float32, stride, m, n int)

//go:noescape
func Swish(x []float32, stride, m, n int, linear, cubic float32)

//go:noescape
func Tanh(x []float32, stride, m, n int)

//go:noescape
func ReLU(x []float32, stride, m, n int)

//go:noescape
func Gate(x []float32, stride, m, n int)

//go:noescape
func Rotate(x []float32, stride, m, heads, half int, cos, sin []float32)

//go:noescape
func Norm(dst, x []float32, stride, m, n int, gamma, beta []float32, epsilon, inverse float32)

//go:noescape
func AddNorm(dst, x, r []float32, stride, m, n int, gamma, beta []float32, epsilon, inverse float32)

//go:noescape
func RMS(dst, x []float32, stride, m, n int, gamma, beta []float32, epsilon, inverse float32)

//go:noescape
func AddRMS(dst, x, r []float32, stride, m, n int, gamma, beta []float32, epsilon, inverse float32)

//go:noescape
func Quantize(dst []byte, dstStride int, scales, x []float32, stride, m, n int, magic float32)
