package files

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime/debug"
)

// Mapping is a file, or part of one, as memory. Where systems have no mappings it is a
// copy. A file that is cut short later makes reading fault: readers call [RecoverFault].
type Mapping struct {
	Data  []byte // from the beginning of the file on
	unmap func() error
}

// Map maps the first size bytes of an open file, which may be closed afterwards.
func Map(f *os.File, size int64) (*Mapping, error) {
	if size < 0 || size > math.MaxInt {
		return nil, &os.PathError{Op: "map", Path: f.Name(), Err: fmt.Errorf("%d bytes: %w", size, errors.ErrUnsupported)}
	}
	if size == 0 {
		return &Mapping{}, nil
	}
	data, unmap, err := mapFile(f, int(size))
	if err != nil {
		return nil, &os.PathError{Op: "map", Path: f.Name(), Err: err}
	}
	return &Mapping{data, unmap}, nil
}

// Close ends the mapping: Data must not be read any more. It may be called twice.
func (m *Mapping) Close() error {
	unmap := m.unmap
	m.Data, m.unmap = nil, nil
	if unmap == nil {
		return nil
	}
	return unmap()
}

// faulted is the error of the runtime for memory that is not there.
type faulted interface {
	error
	Addr() uintptr
}

// RecoverFault makes a fault in mapped memory the error that become returns for it, and sets back
// what faults do:
//
//	defer files.RecoverFault(&err, debug.SetPanicOnFault(true), become)
//
// It is for every function that reads mapped memory, of this goroutine; a panic of
// another one that wraps a fault counts, too. Other panics go on.
func RecoverFault(err *error, old bool, become func(error) error) {
	debug.SetPanicOnFault(old)
	r := recover()
	if r == nil {
		return
	}
	if e, ok := r.(error); ok {
		if _, ok := errors.AsType[faulted](e); ok {
			*err = become(e)
			return
		}
	}
	panic(r)
}
