// Package native runs text encoders of any form that package transformer describes:
// token ids in, unit vectors out, in pure Go and assembler.
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
//
//	tiers        the loops of instruction sets
//	matrix       weights in panels, and products with them
//	model        weights of a model, the loop over a batch
//	forward      a chunk of texts through layers and heads
//	attention    attention of the texts of a chunk
//	convolution  that some layers have in its place
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
	// Linear is a linear map.
	Linear = transformer.Linear
	// Norm has the parameters of a norm.
	Norm = transformer.Norm
	// Layer has the weights of one layer.
	Layer = transformer.Layer
	// Dense is a head.
	Dense = transformer.Dense
	// Activation is that of a head, or of the feed-forward part.
	Activation = transformer.Activation
	// Precision is how products with weights are computed.
	Precision = transformer.Precision
)

// The activations, and the precisions that the processor has.
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

// Options say how a model is run.
type Options struct {
	Precision Precision
	// Tier names the instruction set: generic, avx2, avx512 or neon. "" stands for
	// what PLAID_CPU names, or else for the best one. See [Tiers].
	Tier string
}

// loops are the inner loops of a tier; package plain says what they compute.
// Everything else is the same Go code on every processor.
type loops struct {
	name string
	// columns of a vector, and how many vectors a panel has at most.
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
	offset           int32 // what is added to the bytes of activations
	products         func(c []float32, ldc int, a []byte, lda int, scales []float32, m, k int,
		b []int8, starts []int32, columns []float32, vectors int)
}

var portable = loops{
	name: "generic", columns: plain.Columns, vectors: plain.MaxVectors,
	products: plain.Products, softmax: plain.Softmax, rotate: plain.Rotate, quantize: plain.Quantize,
	gelu: plain.GELU, swish: plain.Swish, tanh: plain.Tanh, relu: plain.ReLU, gate: plain.Gate,
	norm: plain.Norm, rms: plain.RMS, addNorm: plain.AddNorm, addRMS: plain.AddRMS,
	bytes: byteLoops{plain.Columns, plain.MaxVectors, 0, plain.ByteProducts},
}

// tiers are those that this processor can run, slowest first.
var tiers = append([]*loops{&portable}, simdTiers()...)

// Tiers lists the instruction sets that [Options.Tier] may name here, slowest first.
func Tiers() (names []string) {
	for _, t := range tiers {
		names = append(names, t.name)
	}
	return names
}

// tier returns the loops of that name. A name that is not there is an error
// that wraps [kernels.ErrUnavailable]; there is no fallback.
func tier(name string) (*loops, error) {
	var from string
	if name == "" {
		if name = os.Getenv(kernels.EnvCPU); name == "" {
			return tiers[len(tiers)-1], nil
		}
		from = " from " + kernels.EnvCPU
	}
	for _, t := range tiers {
		if t.name == name {
			return t, nil
		}
	}
	there := strings.Join(Tiers(), ", ")
	return nil, fmt.Errorf("encoder: %w: %q%s (there is: %s)", kernels.ErrUnavailable, name, from, there)
}
