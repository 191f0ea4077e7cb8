//go:build !purego

package kernels

import (
	sys "golang.org/x/sys/cpu"

	"github.com/plaid-ir/plaid/kernels/amx"
	"github.com/plaid-ir/plaid/kernels/avx2"
	"github.com/plaid-ir/plaid/kernels/avx512"
)

// simdTiers lists the tiers that this processor can run.
func simdTiers() (tiers []*prims) {
	if avx2.Supported() {
		tiers = append(tiers, avx2Tier())
	}
	if avx512.Supported() {
		tiers = append(tiers, avx512Tier())
	}
	if amx.Supported() {
		tiers = append(tiers, amxTier())
	}
	return tiers
}

// cpuFeatures lists the instruction sets that a tier asks for.
func cpuFeatures() (names []string) {
	for _, f := range []struct {
		name string
		ok   bool
	}{
		{"avx2", sys.X86.HasAVX2},
		{"fma", sys.X86.HasFMA},
		{"avx512f", sys.X86.HasAVX512F},
		{"avx512bw", sys.X86.HasAVX512BW},
		{"avx512vl", sys.X86.HasAVX512VL},
		{"avx512dq", sys.X86.HasAVX512DQ},
		{"avx512vnni", sys.X86.HasAVX512VNNI},
		{"amx_tile", sys.X86.HasAMXTile},
		{"amx_int8", sys.X86.HasAMXInt8},
	} {
		if f.ok {
			names = append(names, f.name)
		}
	}
	return names
}

func avx2MaxBytes(best []row4, ranges [][2]uint32, rows []row4, codes []byte, codeBytes int) {
	if codeBytes == 2 {
		avx2.MaxBytes2(best, ranges, rows, codes)
	} else {
		avx2.MaxBytes4(best, ranges, rows, codes)
	}
}

func avx2Tier() *prims {
	p := portable
	p.name = "avx2"
	for i := range p.uses {
		p.uses[i] = p.name
	}
	p.accumulate = avx2.Accumulate
	p.compose = avx2.Compose
	p.maxFast = avx2.MaxFast
	p.maxFine = avx2.MaxFine
	p.maxBytes = avx2MaxBytes
	p.lanes = true
	p.centroidScores = func(dst []float32, centroids []float32, m int, q *queryVectors, lo, hi []float32) {
		for g := 0; g < q.n; g += 16 {
			avx2.Dots(dst[g:], q.stride, centroids, m, q.dim, q.lanes[g/32*32*q.dim+g%32:], min(16, q.stride-g),
				(*[16]float32)(lo[g:]), (*[16]float32)(hi[g:]))
		}
	}
	p.widenBF16 = avx2.WidenBF16
	p.bytes = avx2.Bytes
	p.words = avx2.Words
	p.above = avx2.Above
	p.filter = &filterPrims{
		top: 127, columnRange: avx2.Range, levels: avx2.Levels, pack: avx2.Pack, filter: avx2.Filter,
	}
	return &p
}

func avx512Tier() *prims {
	p := portable
	p.name = "avx512"
	for i := range p.uses {
		p.uses[i] = p.name
	}
	p.accumulate = avx512.Accumulate
	p.compose = avx512.Compose
	p.maxFast = avx512.MaxFast
	p.maxFine = avx512.MaxFine
	p.maxBytes = avx2MaxBytes // a row is 32 bytes, so wider registers bring nothing
	p.uses[stageApprox] = "avx2"
	p.centroidScores = func(dst []float32, centroids []float32, m int, q *queryVectors, lo, hi []float32) {
		for g := 0; g < q.n; g += 32 {
			avx512.Dots(dst[g:], q.stride, centroids, m, q.dim, q.lanes[g*q.dim:], min(32, q.stride-g),
				(*[32]float32)(lo[g:]), (*[32]float32)(hi[g:]))
		}
	}
	p.lanes = true
	p.widenBF16 = avx512.WidenBF16
	p.widenF16 = avx512.WidenF16
	p.bytes = avx512.Bytes
	p.words = avx512.Words
	p.above = avx2.Above // as fast as memory
	if avx512.SupportedBytes() {
		p.uses[stageNearest] = "avx512 (VNNI)"
		p.uses[stageFast], p.uses[stageFine] = "avx512 (VNNI)", "avx512 (VNNI)"
		p.maxLevels = avx512.MaxLevels
		p.filter = &filterPrims{
			top: 255, columnRange: avx512.Range, levels: avx512.Levels, pack: avx512.Pack, filter: avx512.Filter,
		}
	}
	return &p
}

// amxTier has the matrix products of AMX where they fit: residuals of uniform
// levels, and the bytes of nearest centroid; elsewhere it is avx512.
func amxTier() *prims {
	p := avx512Tier()
	p.name = "amx"
	p.uses[stageFast] = "amx (int8)"
	p.tiles = (*amx.Rerank).Run
	p.uses[stageNearest] = "amx (int8)"
	f := *p.filter
	f.filter = amx.Filter
	p.filter = &f
	return p
}
