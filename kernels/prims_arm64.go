//go:build !purego

package kernels

import (
	sys "golang.org/x/sys/cpu"

	"github.com/plaid-ir/plaid/kernels/neon"
)

// simdTiers lists the tiers that this processor can run.
func simdTiers() (tiers []*prims) {
	if neon.Supported() {
		tiers = append(tiers, neonTier())
	}
	return tiers
}

// cpuFeatures lists the instruction sets that a tier asks for.
func cpuFeatures() []string {
	names := []string{"asimd"} // of every arm64 processor
	if sys.ARM64.HasASIMDDP {
		names = append(names, "asimddp")
	}
	return names
}

func neonTier() *prims {
	p := portable
	p.name = "neon"
	for i := range p.uses {
		p.uses[i] = p.name
	}
	p.accumulate = neon.Accumulate
	p.compose = neon.Compose
	p.maxFast = neon.MaxFast
	p.maxFine = neon.MaxFine
	p.maxBytes = func(best []row4, ranges [][2]uint32, rows []row4, codes []byte, codeBytes int) {
		if codeBytes == 2 {
			neon.MaxBytes2(best, ranges, rows, codes)
		} else {
			neon.MaxBytes4(best, ranges, rows, codes)
		}
	}
	p.lanes = true
	p.centroidScores = func(dst []float32, centroids []float32, m int, q *queryVectors, lo, hi []float32) {
		for g := 0; g < q.n; g += 32 {
			neon.Dots(dst[g:], q.stride, centroids, m, q.dim, q.lanes[g*q.dim:], min(32, q.stride-g),
				(*[32]float32)(lo[g:]), (*[32]float32)(hi[g:]))
		}
	}
	p.widenBF16 = neon.WidenBF16
	p.widenF16 = neon.WidenF16
	p.bytes = neon.Bytes
	p.words = neon.Words
	if neon.SupportedBytes() {
		p.uses[stageNearest] = "neon (dot product)"
		p.filter = &filterPrims{
			top: 255, columnRange: neon.Range, levels: neon.Levels, pack: neon.Pack, filter: neon.Filter,
		}
	}
	return &p
}
