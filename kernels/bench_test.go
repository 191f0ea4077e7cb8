package kernels_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/kerneltest"
)

// benchDocs are documents of 40 to 160 tokens, 100 on average.
func benchDocs(n int) []int {
	rng := rand.New(rand.NewPCG(3, 3))
	l := make([]int, n)
	for i := range l {
		l[i] = 40 + rng.IntN(121)
	}
	return l
}

// benchCase is the usual shape with codes drawn at random, the worst case for
// the caches.
func benchCase(b *testing.B, be kernels.Backend, nbits, k int) (*kerneltest.Case, kernels.Scorer, kernels.Query) {
	c := kerneltest.New(kerneltest.Config{Nbits: nbits, K: k, Lengths: benchDocs(300)})
	s, err := be.Scorer(c.Codec)
	if err != nil {
		b.Fatal(err)
	}
	return c, s, kerneltest.Prepare(b, s.NewQuery(), k, c.Query(32), nil)
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

func perToken(b *testing.B, c *kerneltest.Case) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(c.Chunk.Tokens()), "ns/token")
}

func BenchmarkMaxSim(b *testing.B) { eachTier(b, benchMaxSim) }

func benchMaxSim(b *testing.B, be kernels.Backend) {
	for _, k := range []int{4096, 65536} {
		for _, nbits := range []int{1, 2, 4, 8} {
			c, s, q := benchCase(b, be, nbits, k)
			dst, qs := make([]float32, c.Chunk.Docs()), []kernels.Query{q}
			for i, name := range []string{"fast", "fine"} {
				b.Run(fmt.Sprintf("%s/K=%d/n=%d", name, k, nbits), func(b *testing.B) {
					s.MaxSim(dst, qs, c.Chunk, nil, kernels.Level(i))
					b.ResetTimer()
					for range b.N {
						s.MaxSim(dst, qs, c.Chunk, nil, kernels.Level(i))
					}
					perToken(b, c)
				})
			}
		}
	}
}

func BenchmarkApprox(b *testing.B) { eachTier(b, benchApprox) }

func benchApprox(b *testing.B, be kernels.Backend) {
	for _, k := range []int{4096, 65536} {
		c, s, q := benchCase(b, be, 1, k)
		dst := make([]float32, c.Chunk.Docs())
		b.Run(fmt.Sprintf("K=%d", k), func(b *testing.B) {
			s.Approx(dst, q, c.Chunk, nil)
			b.ResetTimer()
			for range b.N {
				s.Approx(dst, q, c.Chunk, nil)
			}
			perToken(b, c)
		})
	}
}

// BenchmarkPrepare times what a query costs before its first document: S, and
// what the first call of each function builds.
func BenchmarkPrepare(b *testing.B) { eachTier(b, benchPrepare) }

func benchPrepare(b *testing.B, be kernels.Backend) {
	for _, k := range []int{4096, 65536} {
		c, s, q := benchCase(b, be, 2, k)
		vectors := c.Query(32)
		one := []uint32{0}
		dst := make([]float32, 1)
		for _, stage := range []struct {
			name string
			run  func()
		}{
			{"scores", func() {}},
			{"approx", func() { s.Approx(dst, q, c.Chunk, one) }},
			{"fast", func() { s.MaxSim(dst, []kernels.Query{q}, c.Chunk, one, kernels.Fast) }},
			{"fine", func() { s.MaxSim(dst, []kernels.Query{q}, c.Chunk, one, kernels.Fine) }},
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
					be.Nearest(codes, scores, centroids, x[:rows*128], 128)
				}
				gflops(b, rows*k*128)
			})
		}
	}
}
