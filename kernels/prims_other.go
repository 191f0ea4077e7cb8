//go:build !amd64 || purego

package kernels

func simdTiers() []*prims { return nil }

func cpuFeatures() []string { return nil }
