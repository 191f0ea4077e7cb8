//go:build amd64 && !purego

package amx

import (
	"testing"

	"github.com/plaid-ir/plaid/encode/native/internal/avx512"
	"github.com/plaid-ir/plaid/encode/native/internal/looptest"
)

func TestLoops(t *testing.T) {
	if !Supported() {
		t.Skip("this processor or operating system lacks AMX")
	}
	looptest.Run(t, looptest.Loops{
		Columns: avx512.Columns, MaxVectors: avx512.MaxVectors, Products: avx512.Products,
		Softmax: avx512.Softmax, GELU: avx512.GELU, GeGLU: avx512.GeGLU, Rotate: avx512.Rotate,
		Norm: avx512.Norm, AddNorm: avx512.AddNorm, Quantize: avx512.Quantize,
		MaxByteVectors: MaxByteVectors, ByteProducts: ByteProducts, Offset: 128,
	})
}
