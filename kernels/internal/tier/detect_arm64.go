//go:build !purego

package tier

import (
	"golang.org/x/sys/cpu"

	"github.com/plaid-ir/plaid/kernels/internal/neon"
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
