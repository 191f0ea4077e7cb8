//go:build !purego

package tier

import (
	"golang.org/x/sys/cpu"

	"github.com/plaid-ir/plaid/kernels/internal/neon"
	"github.com/plaid-ir/plaid/kernels/internal/portable"
)

// detect returns the tiers other than plain Go that this processor can run.
func detect() (tiers []*Tier) {
	if neon.Supported() {
		tiers = append(tiers, &Tier{"neon", neonTokens(), neonVectors()})
	}
	return tiers
}

// Features lists the instruction sets of this processor that a tier uses.
func Features() []string {
	names := []string{"asimd"} // every arm64 processor has it
	if cpu.ARM64.HasASIMDDP {
		names = append(names, "asimddp")
	}
	return names
}

func neonTokens() Tokens {
	t := portableTokens
	t.Uses = inAllStages("neon")
	t.Accumulate = neon.Accumulate
	t.Compose = neon.Compose
	t.MaxFast = neon.MaxFast
	t.MaxFine = neon.MaxFine
	t.MaxBytes = func(best []ByteRow, ranges [][2]uint32, rows []ByteRow, codes []byte, codeBytes int) {
		if codeBytes == 2 {
			neon.MaxBytes2(best, ranges, rows, codes)
		} else {
			neon.MaxBytes4(best, ranges, rows, codes)
		}
	}
	t.CentroidScores, t.Rounded = withoutPrefetch(groupsOf32(neon.DotsFused)), groupsOf32(neon.Dots)
	t.WidenBF16 = neon.WidenBF16
	t.WidenF16 = neon.WidenF16
	t.Bytes = neon.Bytes
	t.Above = neon.Above
	t.Words = neon.Words
	t.Coarse = coarseFromLoops(t.Bytes, t.Words, t.Above)
	if neon.SupportedBytes() {
		t.Uses[StageNearest] = "neon (dot product)"
		t.Filter = &Filter{MaxLevel: 255, Range: neon.Range, Levels: neon.Levels, Pack: neon.Pack, Filter: neon.Filter}
		t.Screen = neon.Screen
	}
	return t
}

func neonVectors() Vectors {
	return Vectors{
		Uses:      "neon",
		Rows:      neon.MaxDotRows,
		MaxDot:    neon.MaxDot,
		Squares:   neon.Squares,
		Products:  portable.SumProducts,
		AddScaled: neon.AddScaled,
		AddRows:   addRows(neon.AddScaled),
		Zero:      clearFloats,
	}
}
