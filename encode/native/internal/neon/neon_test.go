//go:build arm64 && !purego

package neon

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
		l.ByteProducts, l.MaxByteVectors = ByteProducts, MaxByteVectors
	}
	looptest.Run(t, l)
}
