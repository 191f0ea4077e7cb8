//go:build amd64 && !purego

package avx2

import (
	"testing"

	"github.com/plaid-ir/plaid/kernels/internal/looptest"
)

func TestLoops(t *testing.T) {
	if !Supported() {
		t.Skip("this processor lacks AVX2")
	}
	looptest.Run(t, looptest.Loops{
		Accumulate: Accumulate, Compose: Compose, MaxFast: MaxFast, MaxFine: MaxFine,
		MaxBytes2: MaxBytes2, MaxBytes4: MaxBytes4,
		Lanes: 16,
		Dots: func(dst []float32, stride int, rows []float32, m, dim int, queries []float32, n int, lo, hi []float32) {
			Dots(dst, stride, rows, m, dim, queries, n, (*[16]float32)(lo), (*[16]float32)(hi))
		},
		DotsFused: func(dst []float32, stride int, rows []float32, m, dim int, queries []float32, n int, lo, hi []float32) {
			DotsFused(dst, stride, rows, m, dim, queries, n, (*[16]float32)(lo), (*[16]float32)(hi))
		},
		WidenBF16: WidenBF16, Bytes: Bytes, Words: Words, Above: Above,
	})
}
