package native

import "github.com/plaid-ir/plaid/kernels/transformer"

// Errors that New and Encode wrap.
var (
	// ErrConfig: sizes that contradict each other or that cannot be computed here.
	ErrConfig = transformer.ErrConfig
	// ErrWeights: a tensor of another size than the config says, or not finite.
	ErrWeights = transformer.ErrWeights
)

// What a model is: the contract of package transformer.
type (
	// Config has the sizes of a model.
	Config = transformer.Config
	// Weights are its tensors.
	Weights = transformer.Weights
	// Family is an architecture.
	Family = transformer.Family
	// Linear is a linear map.
	Linear = transformer.Linear
	// Norm is a layer norm.
	Norm = transformer.Norm
	// Layer has the weights of one layer.
	Layer = transformer.Layer
	// Dense is a head.
	Dense = transformer.Dense
	// Activation is that of a head.
	Activation = transformer.Activation
	// Precision is how products with weights are computed.
	Precision = transformer.Precision
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
