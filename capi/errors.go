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

// panicked is the error of a panic.
func panicked(r any) error {
	err, ok := r.(error)
	if ok && (errors.As(err, new(unreadable)) || errors.As(err, new(*parallel.Panic))) {
		return err
	}
	return fmt.Errorf("%v\n%s", r, debug.Stack())
}

// unreadable is an error of the runtime for memory that is not there.
type unreadable interface {
	error
	Addr() uintptr
}

// report writes an error to its place, and returns its code.
func report(e *cError, err error) C.int {
	if err == nil {
		return C.PLAID_OK
	}
	if u := unreadable(nil); errors.As(err, &u) { // who gave its address is at fault
		err = badf("memory at %#x cannot be read or written", u.Addr())
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
	case errors.Is(err, kernels.ErrShape):
		return C.PLAID_ERR_ARGUMENT
	case errors.Is(err, maxsim.ErrUnsupported), errors.Is(err, kernels.ErrUnavailable):
		return C.PLAID_ERR_UNSUPPORTED
	}
	return C.PLAID_ERR_INTERNAL
}
