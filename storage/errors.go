package storage

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/plaid-ir/plaid/internal/errkind"
	"github.com/plaid-ir/plaid/storage/internal/boltfile"
)

// Errors of this package; test with errors.Is. Every one that concerns a file
// arrives wrapped with its path.
var (
	// ErrNotIndex means that the file is not a plaid index.
	ErrNotIndex = errors.New("not a plaid index")
	// ErrUnfinished means that a build of this file was interrupted before its first commit.
	ErrUnfinished = errors.New("no finished index in this file (its build was interrupted)")
	// ErrVersion means that the file has a newer format than this program knows.
	ErrVersion = errors.New("index format is newer than this program")
	// ErrCorrupt means that the file is cut short or its bytes have changed.
	ErrCorrupt = boltfile.ErrCorrupt
	// ErrLocked means that another process, or this one, has the file open in a way that excludes
	// this use.
	ErrLocked = boltfile.ErrLocked
	// ErrClosed means that the file or snapshot was closed.
	ErrClosed = errkind.New(errkind.Closed, "index is closed")
	// ErrReadOnly means a change to a file that was opened for reading.
	ErrReadOnly = errkind.New(errkind.NotSupported, "index was opened read-only")
	// ErrExists means that an index exists already.
	ErrExists = errors.New("index exists")
	// ErrOutcomeUnknown means that the last step of a change failed when its pages were written, so
	// that the disk may have the change or not. The open file shows the state before it and refuses
	// further changes. After it is opened again, it shows one of the two states.
	ErrOutcomeUnknown = errkind.New(errkind.OutcomeUnknown, "outcome unknown, open again")
	// ErrTooLarge means that the file would outgrow the address space that is mapped for it.
	// Opening it again maps more, if the system has more.
	ErrTooLarge = errkind.New(errkind.NoAddressSpace, "index is larger than the address space mapped for it")
	// ErrInternal means a fault of this program, not of the file.
	ErrInternal = errors.New("internal error")
)

// CorruptError names a value that failed its checksum or cannot be decoded. It wraps [ErrCorrupt].
type CorruptError struct {
	Path string // of the file
	What string // the value, in words
	Err  error  // the cause, or nil
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

// corruptError returns a [CorruptError]. err may be nil.
func corruptError(path string, err error, format string, args ...any) error {
	return &CorruptError{Path: path, What: fmt.Sprintf(format, args...), Err: err}
}

// treeError converts an error of a check of the B+tree into a [CorruptError], unless ctx ended the
// check.
func treeError(ctx context.Context, path string, err error) error {
	if ctxErr := ctx.Err(); ctxErr != nil && errors.Is(err, ctxErr) {
		return err
	}
	return corruptError(path, err, "B+tree")
}

// PanicError is a panic that a damaged file does not explain: a fault of this
// program, which its users should report. It wraps [ErrInternal].
type PanicError struct {
	Path  string
	Value any    // the argument of panic
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

// Guard converts a fault in mapped memory, or a panic of bbolt, into a [CorruptError]. A damaged page
// makes bbolt panic or follow a pointer out of the mapping, and a file that another program has cut
// short faults when it is read; neither may crash the program. Any other panic becomes a
// [PanicError]. Use it as
//
//	defer storage.Guard(path, &err)()
//
// in every goroutine that reads mapped values.
func Guard(path string, err *error) func() {
	previous := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(previous)
		r := recover()
		if r == nil {
			return
		}
		// The runtime's error of a fault in memory has the address.
		if _, fault := r.(interface{ Addr() uintptr }); fault || boltPanicked() {
			*err = corruptError(path, nil, "damaged page: %v", r)
		} else {
			*err = &PanicError{Path: path, Value: r, Stack: debug.Stack()}
		}
	}
}

// boltPanicked reports whether the recovered panic began in bbolt, or in a function of the standard
// library that bbolt called. Only the deferred function may call it: the stack of the panic is then
// still below it.
func boltPanicked() bool {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs[:])])
	panicked := false
	for hasNext := true; hasNext; {
		var f runtime.Frame
		f, hasNext = frames.Next()
		host, _, hasSlash := strings.Cut(f.Function, "/")
		switch {
		case !panicked:
			panicked = f.Function == "runtime.gopanic"
		case hasSlash && strings.Contains(host, "."), strings.HasPrefix(f.Function, "main."):
			// This is the innermost function outside of the standard library, whose packages have no
			// host in their paths.
			return strings.HasPrefix(f.Function, "go.etcd.io/bbolt")
		}
	}
	return false
}

// writeError is an error of writing a file. Its text names the file only once, although the cause may
// name it as well.
type writeError struct {
	path string
	err  error
}

func (e *writeError) Error() string {
	withoutPath := strings.NewReplacer("write "+e.path+": ", "", "truncate "+e.path+": ", "", e.path+": ", "")
	return "writing " + e.path + ": " + withoutPath.Replace(e.err.Error())
}

// Unwrap returns the cause.
func (e *writeError) Unwrap() error { return e.err }
