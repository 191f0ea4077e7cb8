// Package neon holds the inner loops of package native in Advanced SIMD (NEON). The assembler
// is written by package gen. Lengths are not checked: package native does that.
// Call nothing here unless Supported.
package neon
