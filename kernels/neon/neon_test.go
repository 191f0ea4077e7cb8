//go:build arm64 && !purego

package neon

import (
	"testing"

	"github.com/plaid-ir/plaid/kernels/internal/looptest"
)

func TestLoops(t *testing.T) {
	looptest.Run(t, looptest.Loops{
		Accumulate: Accumulate, Compose: Compose, MaxFast: MaxFast, MaxFine: MaxFine,
		MaxBytes2: MaxBytes2, MaxBytes4: MaxBytes4,
		Lanes: 32,
		Dots: func(dst []float32, stride int, rows []float32, m, dim int, queries []float32, n int, lo, hi []float32) {
			Dots(dst, stride, rows, m, dim, queries, n, (*[32]float32)(lo), (*[32]float32)(hi))
		},
		WidenBF16: WidenBF16, WidenF16: WidenF16, Bytes: Bytes, Words: Words,
	})
}
