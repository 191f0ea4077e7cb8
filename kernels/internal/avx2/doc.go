// Package avx2 holds the inner loops of package tier for processors with
// AVX2.
//
// A table is 256 rows of 64 bytes, a row for each value of a byte of a packed
// residual, and a row is two registers. Lengths are not checked: package
// cpu does that. Call nothing here unless Supported.
package avx2
