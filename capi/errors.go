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

// codedError is an error with a code of the header.
type codedError struct {
	code C.int
	text string
}

func (f *codedError) Error() string { return f.text }

// argumentErrorf returns an error of an argument of the caller.
func argumentErrorf(format string, args ...any) error {
	return &codedError{C.PLAID_ERR_ARGUMENT, fmt.Sprintf(format, args...)}
}

// run executes work for a caller in C, and converts its error or panic to a code and a message.
func run(e *cError, work func() error) (code C.int) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			code = writeError(e, panicError(r))
		}
	}()
	return writeError(e, work())
}

// panicError converts a panic to an error. Those of unreadable memory and of other goroutines are
// errors already; others are bugs, and get the stack.
func panicError(r any) error {
	err, ok := r.(error)
	if ok && (errors.As(err, new(unreadable)) || errors.As(err, new(*parallel.Panic))) {
		return err
	}
	return fmt.Errorf("%v\n%s", r, debug.Stack())
}

// unreadable is the runtime's error for a fault at an address.
type unreadable interface {
	error
	Addr() uintptr
}

// writeError writes an error to the caller's struct, which may be NULL, and returns its code.
func writeError(e *cError, err error) C.int {
	if err == nil {
		return C.PLAID_OK
	}
	if u := unreadable(nil); errors.As(err, &u) { // the caller gave this address
		err = argumentErrorf("memory at %#x cannot be read or written", u.Addr())
	}
	code := errorCode(err)
	if e != nil {
		e.code = C.int64_t(code)
		message := unsafe.Slice((*byte)(unsafe.Pointer(&e.message)), len(e.message))
		n := copy(message[:len(message)-1], err.Error())
		message[n] = 0
	}
	return code
}

// errorCode returns the code of the header for an error.
func errorCode(err error) C.int {
	if f := (*codedError)(nil); errors.As(err, &f) {
		return f.code
	}
	switch {
	case errors.Is(err, kernels.ErrShape):
		return C.PLAID_ERR_ARGUMENT
	case errors.Is(err, maxsim.ErrUnsupported), errors.Is(err, kernels.ErrUnavailable):
		return C.PLAID_ERR_UNSUPPORTED
	}
	return C.PLAID_ERR_INTERNAL
}
