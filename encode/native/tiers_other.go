//go:build (!amd64 && !arm64) || purego

package native

// simdTiers returns nil: only the portable tier is built.
func simdTiers() []*loops { return nil }
