//go:build !purego

package native

import (
	"github.com/plaid-ir/plaid/encode/native/internal/neon"
	"github.com/plaid-ir/plaid/encode/native/internal/plain"
)

func simdTiers() []*loops {
	bytes := portable.bytes
	if neon.SupportedBytes() {
		bytes = byteLoops{neon.Columns, neon.MaxByteVectors, 0, neon.ByteProducts}
	}
	return []*loops{{
		name: "neon", columns: neon.Columns, vectors: neon.MaxVectors,
		products: neon.Products, softmax: neon.Softmax, rotate: neon.Rotate, quantize: neon.Quantize,
		gelu: neon.GELU, swish: plain.Swish, tanh: plain.Tanh, gate: plain.Gate,
		norm: neon.Norm, rms: plain.RMS, addNorm: neon.AddNorm, addRMS: plain.AddRMS,
		bytes: bytes,
	}}
}
