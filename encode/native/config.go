package native

import "github.com/plaid-ir/plaid/kernels/transformer"

// Errors that New and Encode wrap.
var (
	ErrConfig  = transformer.ErrConfig
	ErrWeights = transformer.ErrWeights
)

// What a model is: the contract of package transformer.
type (
	Config     = transformer.Config
	Weights    = transformer.Weights
	Family     = transformer.Family
	Linear     = transformer.Linear
	Norm       = transformer.Norm
	Layer      = transformer.Layer
	Dense      = transformer.Dense
	Activation = transformer.Activation
	Precision  = transformer.Precision
)

// The families, activations, and the precisions that the processor has.
const (
	BERT       = transformer.BERT
	ModernBERT = transformer.ModernBERT

	Identity = transformer.Identity
	ReLU     = transformer.ReLU
	GELU     = transformer.GELU
	SiLU     = transformer.SiLU
	Tanh     = transformer.Tanh

	F32  = transformer.F32
	Int8 = transformer.Int8
)

// Options say how a model is run.
type Options struct {
	Precision Precision
	// Tier names the instruction set: generic, avx2, avx512 or neon. "" stands for
	// what PLAID_CPU names, or else for the best one. See [Tiers].
	Tier string
}
