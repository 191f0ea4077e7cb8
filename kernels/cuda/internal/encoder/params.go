package encoder

import "github.com/plaid-ir/plaid/kernels/cuda/internal/driver"

// The structs of src/encoder/encoder.cuh.

type encoderGemmParams struct {
	a, w, bias, out, positions, angles driver.Ptr
	rows, n, k, half, turned, stages   uint32
}

type encoderHeadParams struct {
	a, w, bias, add, addHalf, out, outHalf driver.Ptr
	rows, n, k, activation, stages, _      uint32
}

type encoderEmbedParams struct {
	ids, positions, words, places, gamma, beta, x, stream driver.Ptr
	epsilon                                               float32
	rows, hidden, width                                   uint32
}

type encoderNormParams struct {
	delta, x, stream, gamma, beta driver.Ptr
	epsilon                       float32
	rows, hidden, width           uint32
}

type encoderSpan struct{ first, length, attended, part uint32 }

type encoderAttentionParams struct {
	qkv, out, spans  driver.Ptr
	scale            float32
	width, window, _ uint32
}

type encoderUnitParams struct {
	in, inHalf, kept, out, outHalf, bad driver.Ptr
	count, dim, stride, _               uint32
}
