// Package tier says which inner loops each tier of the processor has: its sets of
// instructions, each with a table of loops for every family of kernels that has
// loops of its own.
//
// A family has a struct of functions in a file of its name (tokens.go), its loops
// in plain Go as the first value, and a file for each architecture that says which
// tier replaces which of them (tokens_amd64.go). It is a field of Tier.
package tier

// Tier is a set of instructions that loops are written for.
type Tier struct {
	Name    string  // "generic" is plain Go
	Tokens  Tokens  // compressed tokens
	Vectors Vectors // plain vectors
}

// All are the tiers that this processor can run, slowest first.
var All = append([]*Tier{{Name: "generic", Tokens: portableTokens, Vectors: portableVectors}}, detect()...)
