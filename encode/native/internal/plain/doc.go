// Package plain holds the inner loops of package native in plain Go. They
// define, operation by operation, what the loops of every tier compute: sums
// over k are one chain of fused multiply-adds in order of k, sums over a row are
// kept in 16 lanes that are added up in one order, and exponential and GELU are
// one polynomial each. A conversion to float32 keeps the compiler from fusing a
// product with a sum by itself, as it may across statements.
//
// Rows of m or of n values are multiples of what the function says; strides
// count values. Nothing is checked here: package native does that.
package plain
