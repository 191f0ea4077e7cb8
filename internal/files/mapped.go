package files

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime/debug"
)

// Mapping is a file, or its beginning, as memory. On systems without mappings it is a copy. Reading
// faults if the file was truncated meanwhile: readers call [RecoverFault].
type Mapping struct {
	Data  []byte // the first bytes of the file
	unmap func() error
}

// Map maps the first size bytes of an open file. The file may be closed afterwards.
func Map(f *os.File, size int64) (*Mapping, error) {
	if size < 0 || size > math.MaxInt {
		err := fmt.Errorf("%d bytes: %w", size, errors.ErrUnsupported)
		return nil, &os.PathError{Op: "map", Path: f.Name(), Err: err}
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

// Close ends the mapping: Data must not be read afterwards. It may be called twice.
func (m *Mapping) Close() error {
	unmap := m.unmap
	m.Data, m.unmap = nil, nil
	if unmap == nil {
		return nil
	}
	return unmap()
}

// faulted is the runtime's error for an invalid address.
type faulted interface {
	error
	Addr() uintptr
}

// RecoverFault converts a fault in mapped memory to the error that convert returns for it, and
// restores SetPanicOnFault:
//
//	defer files.RecoverFault(&err, debug.SetPanicOnFault(true), convert)
//
// Every function that reads mapped memory needs it. It covers this goroutine, and panics of others
// that wrap a fault. It passes on other panics.
func RecoverFault(err *error, previous bool, convert func(error) error) {
	debug.SetPanicOnFault(previous)
	r := recover()
	if r == nil {
		return
	}
	if e, ok := r.(error); ok {
		if _, ok := errors.AsType[faulted](e); ok {
			*err = convert(e)
			return
		}
	}
	panic(r)
}
