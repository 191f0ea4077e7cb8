// Package neon holds the inner loops of package tier for arm64, in Advanced
// SIMD (NEON), which every arm64 processor has.
//
// A table is 256 rows of 64 bytes, a row for each value of a byte of a packed
// residual, and a row is four registers. Lengths are not checked: package
// cpu does that. Call nothing here unless Supported.
package neon
