package main

// #include "plaid_maxsim.h"
import "C"

import (
	"errors"
	"fmt"
	"runtime/debug"
	"unsafe"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// fault is an error with a code of the header.
type fault struct {
	code C.int
	text string
}

func (f *fault) Error() string { return f.text }

// badf is a fault of an argument.
func badf(format string, args ...any) error {
	return &fault{C.PLAID_ERR_ARGUMENT, fmt.Sprintf(format, args...)}
}

// run does work for a caller in C: its error, or its panic, becomes a code and a message.
func run(e *cError, work func() error) (code C.int) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			code = report(e, panicked(r))
		}
	}()
	return report(e, work())
}

// panicked is the error of a panic. Memory that cannot be read or written is a fault of
// who gave its address.
func panicked(r any) error {
	if err, ok := r.(error); ok {
		var memory interface {
			error
			Addr() uintptr
		}
		if errors.As(err, &memory) {
			return badf("memory at %#x cannot be read or written", memory.Addr())
		}
		if p := (*parallel.Panic)(nil); errors.As(err, &p) {
			return &fault{C.PLAID_ERR_INTERNAL, p.Error()}
		}
	}
	return &fault{C.PLAID_ERR_INTERNAL, fmt.Sprintf("%v\n%s", r, debug.Stack())}
}

// report writes an error to its place, and returns its code.
func report(e *cError, err error) C.int {
	if err == nil {
		return C.PLAID_OK
	}
	code := codeOf(err)
	if e != nil {
		e.code = C.int64_t(code)
		room := unsafe.Slice((*byte)(unsafe.Pointer(&e.message)), len(e.message))
		n := copy(room[:len(room)-1], err.Error())
		room[n] = 0
	}
	return code
}

func codeOf(err error) C.int {
	if f := (*fault)(nil); errors.As(err, &f) {
		return f.code
	}
	switch {
	case errors.Is(err, kernels.ErrShape), errors.Is(err, maxsim.ErrFault):
		return C.PLAID_ERR_ARGUMENT
	case errors.Is(err, maxsim.ErrUnsupported), errors.Is(err, kernels.ErrUnavailable):
		return C.PLAID_ERR_UNSUPPORTED
	}
	return C.PLAID_ERR_INTERNAL
}
