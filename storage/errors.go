package storage

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/plaid-ir/plaid/storage/internal/boltfile"
)

// Errors of this package; test with errors.Is. Every one that concerns a file
// arrives wrapped with its path.
var (
	// ErrNotIndex: the file is not a plaid index.
	ErrNotIndex = errors.New("not a plaid index")
	// ErrUnfinished: a build of this file was interrupted before its first commit.
	ErrUnfinished = errors.New("no finished index in this file (its build was interrupted)")
	// ErrVersion: the file has a newer format than this program knows.
	ErrVersion = errors.New("index format is newer than this program")
	// ErrCorrupt: the file is cut short or its bytes have changed.
	ErrCorrupt = boltfile.ErrCorrupt
	// ErrLocked: another process, or another part of this one, has the file open in a
	// way that excludes this one.
	ErrLocked = boltfile.ErrLocked
	// ErrClosed: the file or view was closed.
	ErrClosed = errors.New("index is closed")
	// ErrReadOnly: a write to a file that was opened for reading.
	ErrReadOnly = errors.New("index was opened read-only")
	// ErrExists: an index is there already.
	ErrExists = errors.New("index exists")
	// ErrOutcomeUnknown: the last step of a change failed after it could be seen, so
	// that nobody knows whether it is kept. The open file goes on showing what it
	// held before and takes no further changes; opening it again finds it with the
	// change or without.
	ErrOutcomeUnknown = errors.New("outcome unknown, open again")
	// ErrTooLarge: the file would outgrow the address space that is mapped for it.
	// Opening it again maps more, where the system has it.
	ErrTooLarge = errors.New("index is larger than the address space mapped for it")
	// ErrInternal: a fault of this program, not of the file.
	ErrInternal = errors.New("internal error")
)

// CorruptError says which value of which file failed its checksum or does not
// decode. It wraps [ErrCorrupt].
type CorruptError struct {
	Path string
	What string
	Err  error
}

func (e *CorruptError) Error() string {
	msg := fmt.Sprintf("%s: %v: %s", e.Path, ErrCorrupt, e.What)
	if e.Err != nil {
		msg += ": " + e.Err.Error()
	}
	return msg
}

// Unwrap makes errors.Is find ErrCorrupt and the cause.
func (e *CorruptError) Unwrap() []error {
	if e.Err == nil {
		return []error{ErrCorrupt}
	}
	return []error{ErrCorrupt, e.Err}
}

func corrupt(path string, err error, format string, args ...any) error {
	return &CorruptError{Path: path, What: fmt.Sprintf(format, args...), Err: err}
}

// treeFault says of the error of a check that the tree is damaged, unless the check was
// broken off.
func treeFault(ctx context.Context, path string, err error) error {
	if done := ctx.Err(); done != nil && errors.Is(err, done) {
		return err
	}
	return corrupt(path, err, "B+tree")
}

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

// writeError is an error of writing a file, which names it once.
type writeError struct {
	path string
	err  error
}

func (e *writeError) Error() string {
	named := strings.NewReplacer("write "+e.path+": ", "", "truncate "+e.path+": ", "", e.path+": ", "")
	return "writing " + e.path + ": " + named.Replace(e.err.Error())
}

// Unwrap gives the cause.
func (e *writeError) Unwrap() error { return e.err }
