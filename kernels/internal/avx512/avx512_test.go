//go:build amd64 && !purego

package avx512

import (
	"testing"
	"unsafe"

	"github.com/plaid-ir/plaid/kernels/internal/looptest"
)

func TestLoops(t *testing.T) {
	if !Supported() {
		t.Skip("this processor lacks AVX-512 F, BW, VL or DQ")
	}
	looptest.Run(t, looptest.Loops{
		Accumulate: Accumulate, Compose: Compose, MaxFast: MaxFast, MaxFine: MaxFine,
		Lanes: 32,
		Dots: func(dst []float32, stride int, rows []float32, m, dim int, queries []float32, n int, lo, hi []float32) {
			Dots(dst, stride, rows, m, dim, queries, n, (*[32]float32)(lo), (*[32]float32)(hi))
		},
		DotsFused: func(dst []float32, stride int, rows []float32, m, dim int, queries []float32, n int, lo, hi []float32) {
			DotsFused(dst, stride, rows, m, dim, queries, n, (*[32]float32)(lo), (*[32]float32)(hi), (*byte)(unsafe.Pointer(&dst[0])), 24)
		},
		WidenBF16: WidenBF16, WidenF16: WidenF16, Bytes: Bytes, Words: Words,
	})
}
