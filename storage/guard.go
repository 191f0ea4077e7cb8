package storage

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// PanicError is a panic that a damaged file does not explain: a fault of this
// program, which its users should report. It wraps [ErrInternal].
type PanicError struct {
	Path  string
	Value any    // what was given to panic
	Stack []byte // of the goroutine that panicked
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("%s: %v: %v", e.Path, ErrInternal, e.Value)
}

// Unwrap makes errors.Is find ErrInternal, and the panic's value if that is an error.
func (e *PanicError) Unwrap() []error {
	if err, ok := e.Value.(error); ok {
		return []error{ErrInternal, err}
	}
	return []error{ErrInternal}
}

// Guard turns a fault in mapped memory, and a panic of bbolt, into a
// [CorruptError]. A damaged B+tree page makes bbolt panic or follow a pointer out
// of the mapping, and a file that another program cuts short faults when it is
// read; neither may reach a user as a crash. Any other panic becomes a
// [PanicError]. Use it as
//
//	defer storage.Guard(path, &err)()
//
// in every goroutine that reads mapped values.
func Guard(path string, err *error) func() {
	old := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(old)
		r := recover()
		if r == nil {
			return
		}
		if _, fault := r.(interface{ Addr() uintptr }); fault || boltPanicked() {
			*err = corrupt(path, nil, "damaged page: %v", r)
		} else {
			*err = &PanicError{Path: path, Value: r, Stack: debug.Stack()}
		}
	}
}

// boltPanicked tells whether the panic that is being recovered from began in
// bbolt, or in what bbolt calls of the standard library. It is to be called by the
// deferred function: the stack of the panic is still below it.
func boltPanicked() bool {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs[:])])
	panicked := false
	for {
		f, more := frames.Next()
		host, _, module := strings.Cut(f.Function, "/")
		switch {
		case !panicked:
			panicked = f.Function == "runtime.gopanic"
		case module && strings.Contains(host, "."), strings.HasPrefix(f.Function, "main."):
			return strings.HasPrefix(f.Function, "go.etcd.io/bbolt") // the innermost one outside of the standard library
		}
		if !more {
			return false
		}
	}
}
