//go:build !purego

package tier

import (
	"golang.org/x/sys/cpu"

	"github.com/plaid-ir/plaid/kernels/internal/neon"
	"github.com/plaid-ir/plaid/kernels/internal/portable"
)

// detect lists the tiers beyond plain Go that this processor can run.
func detect() (tiers []*Tier) {
	if neon.Supported() {
		tiers = append(tiers, &Tier{"neon", neonTokens(), neonVectors()})
	}
	return tiers
}

// Features lists the instruction sets found that a tier asks for.
func Features() []string {
	names := []string{"asimd"} // of every arm64 processor
	if cpu.ARM64.HasASIMDDP {
		names = append(names, "asimddp")
	}
	return names
}

func neonTokens() Tokens {
	t := portableTokens
	t.Uses = everywhere("neon")
	t.Accumulate = neon.Accumulate
	t.Compose = neon.Compose
	t.MaxFast = neon.MaxFast
	t.MaxFine = neon.MaxFine
	t.MaxBytes = func(best []Row4, ranges [][2]uint32, rows []Row4, codes []byte, codeBytes int) {
		if codeBytes == 2 {
			neon.MaxBytes2(best, ranges, rows, codes)
		} else {
			neon.MaxBytes4(best, ranges, rows, codes)
		}
	}
	t.CentroidScores, t.Rounded = inTurn(lanes32(neon.DotsFused)), lanes32(neon.Dots)
	t.WidenBF16 = neon.WidenBF16
	t.WidenF16 = neon.WidenF16
	t.Bytes = neon.Bytes
	t.Above = neon.Above
	t.Words = neon.Words
	if neon.SupportedBytes() {
		t.Uses[StageNearest] = "neon (dot product)"
		t.Filter = &Filter{Top: 255, Range: neon.Range, Levels: neon.Levels, Pack: neon.Pack, Filter: neon.Filter}
		t.Screen = neon.Screen
	}
	return t
}

// lanes32 calls a loop that computes on 32 lanes of query tokens.
func lanes32(dots func(dst []float32, stride int, rows []float32, m, dim int, queries []float32, n int, lo, hi *[32]float32)) func([]float32, []float32, int, *QueryVectors, []float32, []float32) {
	return func(dst, rows []float32, m int, q *QueryVectors, lo, hi []float32) {
		for g := 0; g < q.N; g += 32 {
			dots(dst[g:], q.Stride, rows, m, q.Dim, q.Lanes[g*q.Dim:], min(32, q.Stride-g),
				(*[32]float32)(lo[g:]), (*[32]float32)(hi[g:]))
		}
	}
}

func neonVectors() Vectors {
	return Vectors{Uses: "neon", Rows: neon.MaxDotRows, MaxDot: neon.MaxDot, Squares: neon.Squares,
		Products: portable.SumProducts, AddScaled: neon.AddScaled, AddRows: addRows(neon.AddScaled), Zero: zero}
}
