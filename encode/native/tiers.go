// Package native runs text encoders of any form that package transformer describes, in pure Go
// and assembler: it computes unit vectors from token ids.
//
// Texts are packed one after the other, without padding, and each attends only to
// itself. One call of [Model.Encode] uses one goroutine; to use more cores, a
// program calls it from several goroutines with different texts. The bits of a text's vectors do
// not depend on the other texts of a batch, the number of goroutines, or the instruction set:
// every element of a product is one chain of fused multiply-adds (or, in precision [Int8], one
// exact integer sum), and sums over a row are computed in 16 lanes everywhere.
//
// The package does not use files or tokenizers.
//
//	tiers        the loops of instruction sets
//	matrix       weights in panels, and products with them
//	model        weights of a model, the loop over a batch
//	forward      a chunk of texts through layers and heads
//	attention    attention of the texts of a chunk
//	convolution  the convolution that some layers have instead
package native

import (
	"fmt"
	"os"
	"strings"

	"github.com/plaid-ir/plaid/encode/native/internal/plain"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/transformer"
)

//go:generate go run ./internal/gen

// Errors that New and Encode wrap.
var (
	// ErrConfig reports sizes that contradict each other or that are not supported.
	ErrConfig = transformer.ErrConfig
	// ErrWeights reports a tensor that is not finite, or has another size than in the config.
	ErrWeights = transformer.ErrWeights
)

// The types of package transformer that describe a model.
type (
	// Config has the sizes of a model.
	Config = transformer.Config
	// Weights are its tensors.
	Weights = transformer.Weights
	// Linear is a linear map.
	Linear = transformer.Linear
	// Norm has the parameters of a norm.
	Norm = transformer.Norm
	// Layer has the weights of one layer.
	Layer = transformer.Layer
	// Dense is a head.
	Dense = transformer.Dense
	// Activation is the activation of a head, or of the feed-forward part.
	Activation = transformer.Activation
	// Precision is how products with weights are computed.
	Precision = transformer.Precision
)

// The activations, and the precisions that this package supports.
const (
	Identity = transformer.Identity
	ReLU     = transformer.ReLU
	GELU     = transformer.GELU
	SiLU     = transformer.SiLU
	Tanh     = transformer.Tanh
	GELUTanh = transformer.GELUTanh

	F32  = transformer.F32
	Int8 = transformer.Int8
)

// Options of a model.
type Options struct {
	Precision Precision
	// Tier names the instruction set: generic, avx2, avx512 or neon. "" means
	// the one that PLAID_CPU names, or else the best one. See [Tiers].
	Tier string
}

// loops are the inner loops of a tier; package plain defines their results.
// All other code is the same on every processor.
type loops struct {
	name string
	// columns is the width of a vector, and vectors the maximum of vectors in a panel.
	columns, vectors int
	products         func(c []float32, ldc int, a []float32, lda, m, k int, b, bias []float32, vectors int)
	softmax          func(x []float32, stride, m, n int, scale float32)
	gelu, tanh, relu func(x []float32, stride, m, n int)
	gate             func(x []float32, stride, m, n int)
	swish            func(x []float32, stride, m, n int, linear, cubic float32)
	rotate           func(x []float32, stride, m, heads, half int, cos, sin []float32)
	norm, rms        func(dst, x []float32, stride, m, n int, gamma, beta []float32, epsilon, inverse float32)
	addNorm, addRMS  func(dst, x, r []float32, stride, m, n int, gamma, beta []float32, epsilon, inverse float32)
	quantize         func(dst []byte, dstStride int, scales, x []float32, stride, m, n int, magic float32)
	bytes            byteLoops
}

// byteLoops are the products of bytes, whose panels may have another shape.
type byteLoops struct {
	columns, vectors int
	offset           int32 // is added to the bytes of activations
	products         func(c []float32, ldc int, a []byte, lda int, scales []float32, m, k int,
		b []int8, starts []int32, columns []float32, vectors int)
}

// portable is the tier "generic".
var portable = loops{
	name: "generic", columns: plain.Columns, vectors: plain.MaxVectors,
	products: plain.Products, softmax: plain.Softmax, rotate: plain.Rotate, quantize: plain.Quantize,
	gelu: plain.GELU, swish: plain.Swish, tanh: plain.Tanh, relu: plain.ReLU, gate: plain.Gate,
	norm: plain.Norm, rms: plain.RMS, addNorm: plain.AddNorm, addRMS: plain.AddRMS,
	bytes: byteLoops{plain.Columns, plain.MaxVectors, 0, plain.ByteProducts},
}

// tiers are the tiers that this processor supports, slowest first.
var tiers = append([]*loops{&portable}, simdTiers()...)

// Tiers lists the instruction sets that [Options.Tier] may name here, slowest first.
func Tiers() (names []string) {
	for _, t := range tiers {
		names = append(names, t.name)
	}
	return names
}

// findTier returns the loops of a name, see [Options.Tier]. An unknown name is an error
// that wraps [kernels.ErrUnavailable]; it never falls back to another tier.
func findTier(name string) (*loops, error) {
	var origin string
	if name == "" {
		if name = os.Getenv(kernels.EnvCPU); name == "" {
			return tiers[len(tiers)-1], nil
		}
		origin = " from " + kernels.EnvCPU
	}
	for _, t := range tiers {
		if t.name == name {
			return t, nil
		}
	}
	available := strings.Join(Tiers(), ", ")
	return nil, fmt.Errorf("encoder: %w: %q%s (there is: %s)", kernels.ErrUnavailable, name, origin, available)
}
