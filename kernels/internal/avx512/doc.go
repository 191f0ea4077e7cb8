// Package avx512 holds the inner loops of package tier for processors with
// AVX-512 F, BW, VL and DQ.
//
// A table is 256 rows of 64 bytes, a row for each value of a byte of a packed
// residual, and a row is one register. Lengths are not checked: package
// cpu does that. Call nothing here unless Supported.
package avx512
