// Package avx2 holds the inner loops of package native in AVX2 and FMA. The assembler
// is written by package gen. Lengths are not checked: package native does that.
// Call nothing here unless Supported.
package avx2
