package tier

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/plaid-ir/plaid/internal/testing/roofline"
)

// screenBlock is the number of rows of a call, as package cpu makes them.
const screenBlock = 192

// eachBlock times calls for blocks of one block, which stays in the first caches, and of
// as many rows as there may be centroids. It reports the time of a row at best, and bounds.
func eachBlock(b *testing.B, bounds map[string]float64, f func(k int) (call func(lo, hi int))) {
	for _, k := range []int{screenBlock, 1 << 16} {
		b.Run(fmt.Sprintf("rows=%d", k), func(b *testing.B) {
			call, best := f(k), time.Duration(math.MaxInt64)
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

// BenchmarkScreen has beside it what bounds it: products of bytes, of which AMX makes
// eight times as many as two units for VPDPBUSD, and reading from the third cache.
func BenchmarkScreen(b *testing.B) {
	for _, tier := range Available {
		if tier.Tokens.Screen == nil {
			continue
		}
		for _, dim := range []int{64, 96, 128, 256} {
			bounds := map[string]float64{"ns/row-of-reading": float64(dim) / roofline.Read(8<<20) * 1e9}
			if peak := roofline.Products(); peak > 0 {
				if tier.Name == "amx" {
					peak *= 8
				}
				bounds["ns/row-of-products"] = 32 * float64(dim) / peak * 1e9
			}
			b.Run(fmt.Sprintf("%s/d=%d", tier.Name, dim), func(b *testing.B) {
				eachBlock(b, bounds, func(k int) func(lo, hi int) {
					levels, panel := make([]byte, k*dim), make([]byte, 32*dim)
					for i := range levels {
						levels[i] = byte(i)
					}
					var start [32]int32
					dst := make([][32]float32, screenBlock)
					return func(lo, hi int) { tier.Tokens.Screen(dst[:hi-lo], levels[lo*dim:hi*dim], dim, panel, &start) }
				})
			})
		}
	}
}

// BenchmarkCoarse has beside it the three loops whose work it does.
func BenchmarkCoarse(b *testing.B) {
	for _, tier := range Available {
		l := tier.Tokens
		parts := coarseFromLoops(l.Bytes, l.Words, l.Above)
		for _, loop := range []struct {
			name   string
			coarse func([]Row, []ByteRow, []uint64, [][32]float32, *CoarseUnits, []float32) int
		}{{"one", l.Coarse}, {"parts", parts}} {
			b.Run(tier.Name+"/"+loop.name, func(b *testing.B) {
				eachBlock(b, nil, func(k int) func(lo, hi int) {
					words, bytes := make([]Row, k), make([]ByteRow, k)
					found, products := make([]uint64, screenBlock), make([][32]float32, screenBlock)
					c := &CoarseUnits{Bias: 32768.5}
					for i := range c.Limits {
						c.Limits[i] = 1
					}
					return func(lo, hi int) {
						loop.coarse(words[lo:hi], bytes[lo:hi], found[:hi-lo], products[:hi-lo], c, nil)
					}
				})
			})
		}
	}
}
