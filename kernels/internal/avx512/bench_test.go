//go:build amd64 && !purego

package avx512

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// BenchmarkAccumulate looks rows up in sets of tables that fit L1, L2 and L3
// caches: the bound of the look-ups.
func BenchmarkAccumulate(b *testing.B) {
	if !Supported() {
		b.Skip("this processor lacks AVX-512")
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for _, p := range []int{2, 8, 16, 32, 64, 128} {
		tables := make([][256][8]uint64, p)
		for i := range tables {
			for r := range tables[i] {
				tables[i][r][0] = uint64(r)
			}
		}
		vectors, acc := make([]byte, 4096*p), make([][8]uint64, 4096)
		for i := range vectors {
			vectors[i] = byte(rng.Uint32())
		}
		b.Run(fmt.Sprintf("%dKiB", 16*p), func(b *testing.B) {
			b.SetBytes(int64(64 * len(vectors)))
			for range b.N {
				Accumulate(acc, tables, vectors, p)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(vectors)), "ns/row")
		})
	}
}
