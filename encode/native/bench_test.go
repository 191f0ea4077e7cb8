package native

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/plaid-ir/plaid/encode/engine"
	"github.com/plaid-ir/plaid/internal/testing/modeltest"
	"github.com/plaid-ir/plaid/internal/testing/roofline"
	"github.com/plaid-ir/plaid/kernels/transformer"
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
						w.multiply(l, sc, y, stride(n), x, stride(k), rows)
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

// forms are layers of published models, each kind of a model's layers as often as in it.
func forms() map[string]*sample {
	full, conv := transformer.EqualLayers(1, 1e6)[0], transformer.LayerForm{Convolution: true, Before: 2}
	local := transformer.LayerForm{Before: 256, After: 256, Theta: 10000}
	rms := func(c Config, keyHeads, headSize int, a Activation) Config {
		c.KeyHeads, c.HeadSize, c.Norm, c.Activation = keyHeads, headSize, transformer.RMSNorm, a
		return c
	}
	mpnet := bert(768, 12, 3072, 512, 1e-5, 3, 0)
	mpnet.RelativePositions = true
	eurobert := rms(modernBERT(768, 12, 3072, 512, transformer.EqualLayers(3, 250000)), 12, 64, SiLU)
	sixth := []transformer.LayerForm{local, local, local, local, local, full}
	gemma := rms(modernBERT(768, 3, 1152, 512, sixth), 1, 256, GELUTanh)
	gemma.NormPlace = transformer.SandwichNorm
	half := []transformer.LayerForm{conv, conv, full, conv, full, conv, full, conv}
	lfm2 := rms(modernBERT(1024, 16, 4608, 512, half), 8, 64, SiLU)
	return map[string]*sample{
		"BERT base": {config: bert(768, 12, 3072, 512, 1e-12, 3, 0)}, "MPNet base": {config: mpnet},
		"EuroBERT-210m": {eurobert, noNorm}, "EmbeddingGemma": {gemma, modeltest.NormHeads}, "LFM2-350M": {lfm2, modeltest.NormHeads},
	}
}

// multiplications of a token in a layer, with n tokens in a text that all see each other.
func multiplications(c *Config, f *transformer.LayerForm, n int) int {
	h, q := c.Hidden, c.Heads*c.HeadSize
	feedForward := 2 * h * c.Intermediate
	if c.Gated {
		feedForward = 3 * h * c.Intermediate
	}
	if f.Convolution {
		return feedForward + h*(4*h+f.Taps())
	}
	return feedForward + h*(2*q+2*c.KeyHeads*c.HeadSize) + 2*q*n
}

// BenchmarkForms: documents of 180 tokens through layers of published models.
func BenchmarkForms(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	documents, _ := mixed(rng, 90, 180, 170, 190, 160, 200, 180, 150, 210)
	batch := batchOf(documents...)
	for name, s := range forms() {
		c, w := &s.config, s.weights()
		for _, p := range []Precision{F32, Int8} {
			for _, l := range tiers[1:] {
				b.Run(fmt.Sprintf("%s/%v/%s", name, p, l.name), func(b *testing.B) {
					m := newModel(b, *c, w, Options{Precision: p, Tier: l.name})
					dst := make([]float32, len(batch.IDs)*m.Dim())
					best := time.Duration(math.MaxInt64)
					for b.Loop() {
						start := cpuTime()
						if err := m.Encode(b.Context(), dst, batch); err != nil {
							b.Fatal(err)
						}
						best = min(best, cpuTime()-start)
					}
					each := best.Seconds() / float64(len(batch.IDs))
					flops := 0
					for i := range c.Layers {
						flops += 2 * multiplications(c, &c.Layers[i], 180)
					}
					b.ReportMetric(each*1e9/float64(len(c.Layers)), "ns/token/layer")
					if roof := roofs()[l.name]; roof > 0 {
						b.ReportMetric(float64(flops)/each/roof, "of-roof")
					}
				})
			}
		}
	}
}
