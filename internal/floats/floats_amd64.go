//go:build amd64 && !purego

package floats

import (
	"golang.org/x/sys/cpu"
)

// Every processor with AVX2 has F16C.
var hasVectorHalf = cpu.X86.HasAVX2

// decodeBlocks converts a multiple of 8, and says how many.
func decodeBlocks(dst []float32, src []byte) int {
	n := len(dst) &^ 7
	if !hasVectorHalf || n == 0 {
		return 0
	}
	decodeF16C(&dst[0], &src[0], n)
	return n
}

// encodeBlocks rounds a multiple of 8, and says how many, and what the largest is without sign.
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
func encodeF16C(dst *byte, src *float32, n int, most *[8]uint16)

func sumSquares(sum *[4]float64, x []float32) {
	if cpu.X86.HasAVX {
		squaresAVX(sum, x)
		return
	}
	sumSquaresPortable(sum, x)
}

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
