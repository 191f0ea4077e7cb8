//go:build amd64 && !purego

package avx512

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/plaid-ir/plaid/internal/testing/roofline"
	"github.com/plaid-ir/plaid/kernels/internal/avx2"
)

// screenBlock is the number of rows of a call, as package cpu makes them.
const screenBlock = 192

// eachBlock times calls for blocks of one block, which stays in the first caches, and of
// as many rows as there are centroids, and reports the time of a row at best.
func eachBlock(b *testing.B, name string, bounds map[string]float64, f func(b *testing.B, k int) (call func(lo, hi int))) {
	if !Supported() {
		b.Skip("no VNNI")
	}
	for _, k := range []int{screenBlock, 1 << 16} {
		b.Run(fmt.Sprintf("%srows=%d", name, k), func(b *testing.B) {
			call, best := f(b, k), time.Duration(math.MaxInt64)
			for b.Loop() {
				start := time.Now()
				for c := 0; c < k; c += screenBlock {
					call(c, min(c+screenBlock, k))
				}
				best = min(best, time.Since(start))
			}
			b.ReportMetric(float64(best.Nanoseconds())/float64(k), "ns/row")
			for name, v := range bounds {
				b.ReportMetric(v, name)
			}
		})
	}
}

// BenchmarkScreen has beside it what bounds it: products, and reading from the third cache.
func BenchmarkScreen(b *testing.B) {
	for _, stride := range []int{64, 96, 128, 256} {
		bounds := map[string]float64{
			"ns/row-of-products": 32 * float64(stride) / roofline.Products() * 1e9,
			"ns/row-of-reading":  float64(stride) / roofline.Read(8<<20) * 1e9,
		}
		eachBlock(b, fmt.Sprintf("d=%d/", stride), bounds, func(b *testing.B, k int) func(lo, hi int) {
			levels, panel := make([]byte, k*stride), make([]byte, 32*stride)
			for i := range levels {
				levels[i] = byte(i)
			}
			var start [32]int32
			var most [32]float32
			dst, scales := make([][32]float32, screenBlock), make([]float32, screenBlock)
			return func(lo, hi int) {
				Screen(dst[:hi-lo], &most, levels[lo*stride:hi*stride], stride, panel, &start, scales)
			}
		})
	}
}

// BenchmarkCoarse has beside it the three loops that it replaces, of which Above is that
// of avx2.
func BenchmarkCoarse(b *testing.B) {
	var zero, limits [32]float32
	for i := range limits {
		limits[i] = 1
	}
	eachBlock(b, "", nil, func(b *testing.B, k int) func(lo, hi int) {
		words, bytes := make([][8]uint64, k), make([][4]uint64, k)
		found, products := make([]uint32, screenBlock), make([][32]float32, screenBlock)
		return func(lo, hi int) {
			Coarse(words[lo:hi], bytes[lo:hi], found[:hi-lo], products[:hi-lo], &zero, &zero, &zero, &zero, &limits, 0.5, nil)
		}
	})
	eachBlock(b, "parts/", nil, func(b *testing.B, k int) func(lo, hi int) {
		words, bytes := make([][8]uint64, k), make([][4]uint64, k)
		found, products := make([]uint32, screenBlock), make([]float32, 32*screenBlock)
		return func(lo, hi int) {
			Bytes(bytes[lo:hi], products, 32, 32, &zero, &zero)
			Words(words[lo:hi], products, 32, 32, &zero, &zero, 0.5, nil)
			avx2.Above(found[:hi-lo], products, 32, 32, &limits)
		}
	})
}
