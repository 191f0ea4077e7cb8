//go:build linux && amd64 && !purego

package amx

import (
	"math"
	"testing"
)

// BenchmarkFilter measures the rate of the products, when nothing is a hit.
func BenchmarkFilter(b *testing.B) {
	if !Supported() {
		b.Skip("this processor or operating system lacks AMX")
	}
	const stride, k = 128, 252
	levels, packed := make([]byte, k*stride), make([]byte, 64*stride)
	var best, margin [64]int32
	for r := range best {
		best[r] = math.MaxInt32
	}
	hits := make([][18]int32, 4*(k+16))
	for range b.N {
		Filter(hits, levels, stride, &packed[0], 0, &best, &margin, k)
	}
	b.ReportMetric(2*64*stride*k*float64(b.N)/float64(b.Elapsed().Nanoseconds())/1000, "TOP/s")
}
