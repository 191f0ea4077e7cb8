//go:build !purego

package native

import "github.com/plaid-ir/plaid/encode/native/internal/neon"

func simdTiers() []*loops {
	bytes := portable.bytes
	if neon.SupportedBytes() {
		bytes = byteLoops{neon.Columns, neon.MaxByteVectors, 0, neon.ByteProducts}
	}
	return []*loops{{
		name: "neon", columns: neon.Columns, vectors: neon.MaxVectors,
		products: neon.Products, softmax: neon.Softmax, gelu: neon.GELU, geglu: neon.GeGLU, rotate: neon.Rotate,
		norm: neon.Norm, addNorm: neon.AddNorm, quantize: neon.Quantize, bytes: bytes,
	}}
}
