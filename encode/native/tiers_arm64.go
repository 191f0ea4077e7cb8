//go:build !purego

package native

import "github.com/plaid-ir/plaid/encode/native/internal/neon"

// simdTiers returns the tier neon, with the portable products of bytes if the processor has none.
func simdTiers() []*loops {
	bytes := portable.bytes
	if neon.SupportedBytes() {
		bytes = byteLoops{neon.Columns, neon.MaxByteVectors, 0, neon.ByteProducts}
	}
	return []*loops{{
		name: "neon", columns: neon.Columns, vectors: neon.MaxVectors,
		products: neon.Products, softmax: neon.Softmax, rotate: neon.Rotate, quantize: neon.Quantize,
		gelu: neon.GELU, swish: neon.Swish, tanh: neon.Tanh, relu: neon.ReLU, gate: neon.Gate,
		norm: neon.Norm, rms: neon.RMS, addNorm: neon.AddNorm, addRMS: neon.AddRMS,
		bytes: bytes,
	}}
}
