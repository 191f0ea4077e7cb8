package native

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/plaid-ir/plaid/encode/engine"
	"github.com/plaid-ir/plaid/internal/testing/roofline"
)

// roofs are measured once, before the first benchmark that needs them.
var roofs = sync.OnceValue(func() map[string]float64 {
	return map[string]float64{"avx2": roofline.FMAs(8), "avx512": roofline.FMAs(16), "bytes": 2 * roofline.Products()}
})

// BenchmarkProducts: 240 rows by matrices of usual models.
func BenchmarkProducts(b *testing.B) {
	for _, p := range []Precision{F32, Int8} {
		for _, l := range tiers {
			for _, size := range [][2]int{{384, 384}, {384, 1536}, {1536, 384}, {768, 768}} {
				k, n, rows := size[0], size[1], 240
				if l == &portable {
					rows = 8
				}
				b.Run(fmt.Sprintf("%v/%s/%dx%d", p, l.name, k, n), func(b *testing.B) {
					w := pack(l, p, k, Linear{Weight: tensor("w", 1, 0, n, k)})
					x, y, sc := tensor("x", 1, 0, rows*stride(k)), make([]float32, rows*stride(n)), new(scratch)
					best := time.Duration(math.MaxInt64) // as the roof is
					for b.Loop() {
						start := time.Now()
						w.mul(l, sc, y, stride(n), x, stride(k), rows)
						best = min(best, time.Since(start))
					}
					flops := 2 * float64(rows*k*n) / best.Seconds()
					b.ReportMetric(flops/1e9, "GFLOP/s")
					roof := roofs()[l.name]
					if p == Int8 && l.name == "avx512" {
						roof = roofs()["bytes"]
					}
					if roof > 0 {
						b.ReportMetric(flops/roof, "of-roof")
					}
				})
			}
		}
	}
}

// miniConfig is of the size of colbert-mini: 22.5 million operations a token.
func miniConfig() (Config, *Weights) {
	c := bert(384, 12, 1536, 512, 1e-12, 6, 0)
	return c, random(&c, 1000, Dense{In: 384, Out: 128, Linear: Linear{Weight: tensor("head", 0.1, 0, 128, 384)}})
}

// BenchmarkEncode: documents of 180 tokens, and one query of 32.
func BenchmarkEncode(b *testing.B) {
	c, w := miniConfig()
	rng := rand.New(rand.NewPCG(1, 1))
	documents, _ := mixed(rng, 1000, 180, 170, 190, 160, 200, 180, 150, 210)
	query, _ := mixed(rng, 1000, 32)
	for _, p := range []Precision{F32, Int8} {
		for _, l := range tiers[1:] {
			m := newModel(b, c, w, Options{Precision: p, Tier: l.name})
			for _, what := range []struct {
				name string
				b    engine.Batch
			}{{"documents", batchOf(documents...)}, {"query", batchOf(query...)}} {
				b.Run(fmt.Sprintf("%v/%s/%s", p, l.name, what.name), func(b *testing.B) {
					dst := make([]float32, len(what.b.IDs)*m.Dim())
					start := cpuTime()
					for b.Loop() {
						if err := m.Encode(b.Context(), dst, what.b); err != nil {
							b.Fatal(err)
						}
					}
					seconds := (cpuTime() - start).Seconds() / float64(b.N)
					b.ReportMetric(seconds*1e3, "cpu-ms")
					b.ReportMetric(float64(len(what.b.IDs))/seconds, "tokens/cpu-s")
				})
			}
		}
	}
}
