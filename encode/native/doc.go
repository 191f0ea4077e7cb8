// Package native runs text encoders of the BERT and ModernBERT families: token
// ids in, unit vectors out, in pure Go and assembler.
//
// Texts are packed one after the other, without padding, and each attends only
// within itself. One call of [Model.Encode] is the work of one goroutine; a
// program that wants more cores calls it from as many goroutines, over texts of
// its own. The vectors of a text have the same bits whatever its company in a
// batch, the number of goroutines, and the instruction set: every element of a
// product is one chain of fused multiply-adds (or, in precision [Int8], one exact
// integer sum), and sums over a row are kept in 16 lanes everywhere.
//
// The package knows nothing of files and tokenizers.
package native

//go:generate go run ./internal/gen
