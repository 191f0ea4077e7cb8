//go:build !purego

package native

import (
	"github.com/plaid-ir/plaid/encode/native/internal/amx"
	"github.com/plaid-ir/plaid/encode/native/internal/avx2"
	"github.com/plaid-ir/plaid/encode/native/internal/avx512"
)

// simdTiers returns the tiers with assembler that this processor supports, slowest first.
func simdTiers() (tiers []*loops) {
	if avx2.Supported() {
		tiers = append(tiers, &loops{
			name: "avx2", columns: avx2.Columns, vectors: avx2.MaxVectors,
			products: avx2.Products, softmax: avx2.Softmax, rotate: avx2.Rotate, quantize: avx2.Quantize,
			gelu: avx2.GELU, swish: avx2.Swish, tanh: avx2.Tanh, relu: avx2.ReLU, gate: avx2.Gate,
			norm: avx2.Norm, rms: avx2.RMS, addNorm: avx2.AddNorm, addRMS: avx2.AddRMS,
			bytes: byteLoops{avx2.Columns, avx2.MaxByteVectors, 0, avx2.ByteProducts},
		})
	}
	if avx512.Supported() {
		tiers = append(tiers, &loops{
			name: "avx512", columns: avx512.Columns, vectors: avx512.MaxVectors,
			products: avx512.Products, softmax: avx512.Softmax, rotate: avx512.Rotate, quantize: avx512.Quantize,
			gelu: avx512.GELU, swish: avx512.Swish, tanh: avx512.Tanh, relu: avx512.ReLU, gate: avx512.Gate,
			norm: avx512.Norm, rms: avx512.RMS, addNorm: avx512.AddNorm, addRMS: avx512.AddRMS,
			bytes: byteLoops{avx512.Columns, avx512.MaxByteVectors, 128, avx512.ByteProducts},
		})
	}
	if amx.Supported() {
		l := *tiers[len(tiers)-1]
		l.name, l.bytes = "amx", byteLoops{avx512.Columns, amx.MaxByteVectors, 128, amx.ByteProducts}
		tiers = append(tiers, &l)
	}
	return tiers
}
