//go:build (!amd64 && !arm64) || purego

package kernels

func simdTiers() []*prims { return nil }

func cpuFeatures() []string { return nil }
