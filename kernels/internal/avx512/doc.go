// Package avx512 holds the inner loops of package tier for processors with
// AVX-512 F, BW, VL, DQ and VNNI. Lengths are not checked: package cpu does that.
// Call nothing here unless Supported.
package avx512
