// Package avx512 holds the inner loops of package native in AVX-512. The assembler
// is written by package gen. Lengths are not checked: package native does that.
// Call nothing here unless Supported.
package avx512
