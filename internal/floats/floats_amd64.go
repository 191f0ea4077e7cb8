//go:build amd64 && !purego

package floats

import (
	"golang.org/x/sys/cpu"
)

// hasVectorHalf reports whether the processor has F16C. Every processor with AVX2 has it.
var hasVectorHalf = cpu.X86.HasAVX2

// decodeBlocks converts a multiple of 8 values, and returns how many.
func decodeBlocks(dst []float32, src []byte) int {
	n := len(dst) &^ 7
	if !hasVectorHalf || n == 0 {
		return 0
	}
	decodeF16C(&dst[0], &src[0], n)
	return n
}

// encodeBlocks rounds a multiple of 8 values. It returns how many, and the largest of them without
// its sign.
func encodeBlocks(dst []byte, src []float32) (n int, largest uint16) {
	n = len(src) &^ 7
	if !hasVectorHalf || n == 0 {
		return 0, 0
	}
	var lanes [8]uint16
	encodeF16C(&dst[0], &src[0], n, &lanes)
	for _, h := range lanes {
		largest = max(largest, h)
	}
	return n, largest
}

//go:noescape
func decodeF16C(dst *float32, src *byte, n int)

//go:noescape
func encodeF16C(dst *byte, src *float32, n int, largest *[8]uint16)

// sumSquares sets sum to four partial sums of the squares of a multiple of four values.
func sumSquares(sum *[4]float64, x []float32) {
	if cpu.X86.HasAVX {
		squaresAVX(sum, x)
		return
	}
	sumSquaresPortable(sum, x)
}

// scaleBlocks scales a multiple of four values.
func scaleBlocks(x []float32, by float64) {
	if cpu.X86.HasAVX {
		scaleAVX(x, by)
		return
	}
	scalePortable(x, by)
}

//go:noescape
func squaresAVX(sum *[4]float64, x []float32)

//go:noescape
func scaleAVX(x []float32, by float64)
