//go:build amd64 && !purego

package floats

import (
	"golang.org/x/sys/cpu"
)

// Every processor with AVX2 has F16C.
var vector = cpu.X86.HasAVX2

// decode converts a multiple of 8, and says how many.
func decode(dst []float32, src []byte) int {
	n := len(dst) &^ 7
	if !vector || n == 0 {
		return 0
	}
	decodeF16C(&dst[0], &src[0], n)
	return n
}

// encode rounds a multiple of 8, and says how many, and what the largest is without sign.
func encode(dst []byte, src []float32) (n int, most uint16) {
	n = len(src) &^ 7
	if !vector || n == 0 {
		return 0, 0
	}
	var all [8]uint16
	encodeF16C(&dst[0], &src[0], n, &all)
	for _, h := range all {
		most = max(most, h)
	}
	return n, most
}

//go:noescape
func decodeF16C(dst *float32, src *byte, n int)

//go:noescape
func encodeF16C(dst *byte, src *float32, n int, most *[8]uint16)

func squares(sum *[4]float64, x []float32) {
	if cpu.X86.HasAVX {
		squaresAVX(sum, x)
		return
	}
	squaresOf(sum, x)
}

func scale(x []float32, by float64) {
	if cpu.X86.HasAVX {
		scaleAVX(x, by)
		return
	}
	scaleOf(x, by)
}

//go:noescape
func squaresAVX(sum *[4]float64, x []float32)

//go:noescape
func scaleAVX(x []float32, by float64)
