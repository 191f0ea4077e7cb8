package main

// #include "plaid_maxsim.h"
import "C"

import (
	"unsafe"

	"github.com/plaid-ir/plaid/kernels/maxsim"
	_ "github.com/plaid-ir/plaid/kernels/maxsim/cpu"
)

// The structs of the header.
type (
	cError           = C.plaid_error
	cBatch           = C.plaid_batch
	cPairs           = C.plaid_pairs
	cPlace           = C.plaid_place
	cScore           = C.plaid_score_call
	cGradient        = C.plaid_gradient_call
	cChamfer         = C.plaid_chamfer_call
	cChamferGradient = C.plaid_chamfer_gradient_call
	cHead            = C.plaid_head_call
	cInt             = C.int64_t
	cCode            = C.int
)

// goBackend writes the name of the backend to an array of bytes.
//
//export goBackend
func goBackend(name *C.char, bytes C.int64_t, e *cError) C.int {
	return run(e, func() error {
		b, err := maxsim.Select("")
		if err != nil {
			return err
		}
		text := b.Name()
		if name == nil || int(bytes) <= len(text) {
			return argumentErrorf("bytes is %d; the name and its end need %d", bytes, len(text)+1)
		}
		dst := unsafe.Slice((*byte)(unsafe.Pointer(name)), len(text)+1)
		dst[copy(dst, text)] = 0
		return nil
	})
}

// The functions below execute a call. If bytes is not nil, they only set the size of its workspace.

//export goScore
func goScore(call *cScore, bytes *C.int64_t, e *cError) C.int {
	return run(e, func() error { return scoreCall(*call, (*int64)(bytes)) })
}

//export goGradients
func goGradients(call *cGradient, bytes *C.int64_t, e *cError) C.int {
	return run(e, func() error { return gradientsCall(*call, (*int64)(bytes)) })
}

//export goChamfer
func goChamfer(call *cChamfer, bytes *C.int64_t, e *cError) C.int {
	return run(e, func() error { return chamferCall(*call, (*int64)(bytes)) })
}

//export goChamferGradients
func goChamferGradients(call *cChamferGradient, bytes *C.int64_t, e *cError) C.int {
	return run(e, func() error { return chamferGradientsCall(*call, (*int64)(bytes)) })
}

//export goHead
func goHead(call *cHead, bytes *C.int64_t, e *cError) C.int {
	return run(e, func() error { return headCall(*call, (*int64)(bytes)) })
}
