//go:build (!amd64 && !arm64) || purego

package tier

// detect returns no tiers: this architecture has only plain Go.
func detect() []*Tier { return nil }

// Features lists the instruction sets of this processor that a tier uses.
func Features() []string { return nil }
