//go:build (!amd64 && !arm64) || purego

package tier

func detect() []*Tier { return nil }

// Features lists the instruction sets found that a tier asks for.
func Features() []string { return nil }
