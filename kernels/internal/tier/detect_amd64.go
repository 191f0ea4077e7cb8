//go:build !purego

package tier

import (
	"golang.org/x/sys/cpu"

	"github.com/plaid-ir/plaid/kernels/internal/amx"
	"github.com/plaid-ir/plaid/kernels/internal/avx2"
	"github.com/plaid-ir/plaid/kernels/internal/avx512"
)

// detect lists the tiers beyond plain Go that this processor can run.
func detect() (tiers []*Tier) {
	if avx2.Supported() {
		tiers = append(tiers, &Tier{"avx2", avx2Tokens(), avx2Vectors()})
	}
	if avx512.Supported() {
		tiers = append(tiers, &Tier{"avx512", avx512Tokens(), avx512Vectors()})
	}
	if amx.Supported() {
		tiers = append(tiers, &Tier{"amx", amxTokens(), amxVectors()})
	}
	return tiers
}

// Features lists the instruction sets found that a tier asks for.
func Features() (names []string) {
	for _, f := range []struct {
		name string
		ok   bool
	}{
		{"avx2", cpu.X86.HasAVX2},
		{"fma", cpu.X86.HasFMA},
		{"avx512f", cpu.X86.HasAVX512F},
		{"avx512bw", cpu.X86.HasAVX512BW},
		{"avx512vl", cpu.X86.HasAVX512VL},
		{"avx512dq", cpu.X86.HasAVX512DQ},
		{"avx512vnni", cpu.X86.HasAVX512VNNI},
		{"amx_tile", cpu.X86.HasAMXTile},
		{"amx_int8", cpu.X86.HasAMXInt8},
	} {
		if f.ok {
			names = append(names, f.name)
		}
	}
	return names
}
