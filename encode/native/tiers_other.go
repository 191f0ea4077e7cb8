//go:build (!amd64 && !arm64) || purego

package native

func simdTiers() []*loops { return nil }
