package cpu_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
	"github.com/plaid-ir/plaid/internal/testing/roofline"
	"github.com/plaid-ir/plaid/kernels"
)

// benchCase is the usual shape: documents of 40 to 160 tokens, 100 on average,
// 100,000 in all, with codes and residuals drawn at random, the worst case for
// the caches.
func benchCase(b *testing.B, be kernels.Backend, nbits, k int) (*kerneltest.Case, kernels.Query) {
	c := kerneltest.New(kerneltest.Config{Nbits: nbits, K: k, Lengths: []int{100}})
	vectors := c.Query(32)
	rng := rand.New(rand.NewPCG(3, 3))
	ch := &kernels.Chunk{Offsets: []uint32{0}, CodeBytes: c.CodeBytes}
	n := 0
	for range 1000 {
		n += 40 + rng.IntN(121)
		ch.Offsets = append(ch.Offsets, uint32(n))
	}
	ch.Codes, ch.Factors = make([]byte, n*ch.CodeBytes), make([]byte, 2*n)
	ch.Residuals = make([]byte, n*c.Codec.RowBytes())
	for i := range ch.Residuals {
		ch.Residuals[i] = byte(rng.Uint32())
	}
	for t := range n {
		c.SetCode(ch, t, rng.IntN(k))
		kerneltest.SetFactor(ch, t, int16(20000+rng.IntN(10000)))
	}
	c.Chunk = ch
	s, err := be.Scorer(c.Codec)
	if err != nil {
		b.Fatal(err)
	}
	return c, kerneltest.Prepare(b, s.NewQuery(), k, vectors, nil)
}

// eachTier runs a benchmark with every backend of the processor.
func eachTier(b *testing.B, run func(*testing.B, kernels.Backend)) {
	for _, name := range kernels.Backends() {
		be, err := kernels.Select(name)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) { run(b, be) })
	}
}

// roofs are measured once, before the first benchmark that needs them.
var roofs = sync.OnceValue(func() (r struct{ read, products float64 }) {
	r.read, r.products = roofline.Read(512<<10), roofline.Products()
	return r
})

// perToken reports the time of a token, the bytes read for it, and the fraction
// of what bounds the loop: reading from L2, or where products is not 0 adding so
// many products of bytes a token.
func perToken(b *testing.B, c *kerneltest.Case, bytes, products int) {
	b.StopTimer()
	seconds := b.Elapsed().Seconds() / float64(b.N) / float64(c.Chunk.Tokens())
	b.ReportMetric(seconds*1e9, "ns/token")
	b.ReportMetric(float64(bytes)/seconds/1e9, "GB/s")
	fraction := float64(bytes) / seconds / roofs().read
	if products > 0 {
		fraction = float64(products) / seconds / roofs().products
	}
	b.ReportMetric(fraction, "of-roof")
}

// maxSimCost is what MaxSim reads and multiplies for a token and 32 query tokens:
// code, factor and residual, and either the row of S and, where that is done by
// products of bytes, these; or from tables one row of 64 bytes a residual byte
// and the row of S, at level Fine twice.
func maxSimCost(be kernels.Backend, c *kerneltest.Case, level kernels.Level, nbits int) (bytes, products int) {
	bytes = c.CodeBytes + 2 + c.Codec.RowBytes()
	vnni := be.Name() == "avx512" || be.Name() == "amx" && level == kernels.Fine
	if vnni && roofs().products > 0 && (level == kernels.Fine || nbits > 1) {
		return bytes + 4*32, c.Dim * 32 * (1 + int(level))
	}
	return bytes + (1+int(level))*64*(c.Codec.RowBytes()+1), 0
}

func BenchmarkMaxSim(b *testing.B) { eachTier(b, benchMaxSim) }

func benchMaxSim(b *testing.B, be kernels.Backend) {
	for _, k := range []int{4096, 65536} {
		for _, nbits := range []int{1, 2, 4, 8} {
			c, q := benchCase(b, be, nbits, k)
			dst := make([]float32, c.Chunk.Docs())
			for i, name := range []string{"fast", "fine"} {
				bytes, products := maxSimCost(be, c, kernels.Level(i), nbits)
				b.Run(fmt.Sprintf("%s/K=%d/n=%d", name, k, nbits), func(b *testing.B) {
					q.MaxSim(dst, c.Chunk, nil, kernels.Level(i))
					b.ResetTimer()
					for range b.N {
						q.MaxSim(dst, c.Chunk, nil, kernels.Level(i))
					}
					perToken(b, c, bytes, products)
				})
			}
		}
	}
}

func BenchmarkApprox(b *testing.B) { eachTier(b, benchApprox) }

func benchApprox(b *testing.B, be kernels.Backend) {
	for _, k := range []int{4096, 65536} {
		c, q := benchCase(b, be, 1, k)
		dst := make([]float32, c.Chunk.Docs())
		b.Run(fmt.Sprintf("K=%d", k), func(b *testing.B) {
			q.Approx(dst, c.Chunk, nil)
			b.ResetTimer()
			for range b.N {
				q.Approx(dst, c.Chunk, nil)
			}
			perToken(b, c, c.CodeBytes+32, 0)
		})
	}
}

// BenchmarkPrepare times what a query costs before its first document: S, and
// what the first call of each function builds.
func BenchmarkPrepare(b *testing.B) { eachTier(b, benchPrepare) }

func benchPrepare(b *testing.B, be kernels.Backend) {
	for _, k := range []int{4096, 65536} {
		c, q := benchCase(b, be, 2, k)
		vectors := c.Query(32)
		one := []uint32{0}
		dst := make([]float32, 1)
		for _, stage := range []struct {
			name string
			run  func()
		}{
			{"scores", func() {}},
			{"approx", func() { q.Approx(dst, c.Chunk, one) }},
			{"fast", func() { q.MaxSim(dst, c.Chunk, one, kernels.Fast) }},
			{"fine", func() { q.MaxSim(dst, c.Chunk, one, kernels.Fine) }},
		} {
			b.Run(fmt.Sprintf("%s/K=%d", stage.name, k), func(b *testing.B) {
				for range b.N {
					if stage.name != "scores" {
						b.StopTimer()
					}
					kerneltest.Prepare(b, q, k, vectors, nil)
					b.StartTimer()
					stage.run()
				}
				if stage.name == "scores" {
					gflops(b, 32*k*128)
				}
			})
		}
	}
}

// gflops reports the rate of a full comparison, products left out included.
func gflops(b *testing.B, products int) {
	b.ReportMetric(2*float64(products)*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GFLOP/s")
}

func BenchmarkNearest(b *testing.B) { eachTier(b, benchNearest) }

func benchNearest(b *testing.B, be kernels.Backend) {
	rng := rand.New(rand.NewPCG(5, 5))
	for _, k := range []int{256, 4096, 65536} {
		centroids := kerneltest.UnitVectors(rng, k, 128)
		x := kerneltest.UnitVectors(rng, 1024, 128)
		for i := range x {
			x[i] += centroids[i%len(centroids)] // at about 45 degrees
		}
		for _, rows := range []int{8, 64, 1024} {
			codes, scores := make([]uint32, rows), make([]float32, rows)
			b.Run(fmt.Sprintf("K=%d/rows=%d", k, rows), func(b *testing.B) {
				for range b.N {
					_ = be.Nearest(context.Background(), codes, scores, centroids, x[:rows*128], 128)
				}
				gflops(b, rows*k*128)
			})
		}
	}
}

// BenchmarkRoofline measures what bounds the loops above: sequential reading by
// one core from buffers that fit each cache, and one that fits none, and products
// of bytes.
func BenchmarkRoofline(b *testing.B) {
	for _, size := range []struct {
		name  string
		bytes int
	}{{"L1", 24 << 10}, {"L2", 512 << 10}, {"L3", 8 << 20}, {"DRAM", 256 << 20}} {
		b.Run(size.name, func(b *testing.B) {
			b.ReportMetric(roofline.Read(size.bytes)/1e9, "GB/s")
		})
	}
	b.Run("VPDPBUSD", func(b *testing.B) {
		b.ReportMetric(roofline.Products()/1e9, "Gproducts/s")
	})
}
