//go:build amd64 && !purego

package avx512

import (
	"testing"

	"github.com/plaid-ir/plaid/encode/native/internal/looptest"
)

func TestLoops(t *testing.T) {
	if !Supported() {
		t.Skip("this processor cannot run them")
	}
	l := looptest.Loops{
		Columns: Columns, MaxVectors: MaxVectors, Products: Products,
		Softmax: Softmax, GELU: GELU, GeGLU: GeGLU, Rotate: Rotate, Norm: Norm, AddNorm: AddNorm, Quantize: Quantize,
	}
	if SupportedBytes() {
		l.ByteProducts, l.MaxByteVectors, l.Offset = ByteProducts, MaxByteVectors, 128
	}
	looptest.Run(t, l)
}
