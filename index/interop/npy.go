package interop

import (
	"errors"
	"fmt"
	"os"

	"github.com/plaid-ir/plaid/vectors"
)

// npyTypes are the element types of .npy files that index folders may have, as
// package vectors names them.
var npyTypes = map[string]dtype{
	"<f2": dtF16, "<f4": dtF32, "<f8": dtF64,
	"|u1": dtU8, "<u2": dtU16, "<u4": dtU32, "<u8": dtU64,
	"|i1": dtI8, "<i2": dtI16, "<i4": dtI32, "<i8": dtI64,
}

// npyArray is a .npy file; it implements array.
type npyArray struct {
	npy  *vectors.Array
	file *os.File
	kind dtype
}

// newNPYArray reads the header of a .npy file, and owns the file if that succeeds.
// The data may begin at any offset: the writers of these engines align it to 16 or
// 64 bytes, or not at all.
func newNPYArray(file *os.File, size int64) (*npyArray, error) {
	f, err := vectors.NewNPY(file, size, file.Name())
	if err != nil {
		return nil, npyError(err)
	}
	kind := npyTypes[f.Dtype]
	if kind == 0 {
		return nil, fmt.Errorf("%w: elements of type %s", ErrUnsupported, f.Dtype)
	}
	return &npyArray{npy: f, file: file, kind: kind}, nil
}

func (a *npyArray) dtype() dtype { return a.kind }
func (a *npyArray) shape() []int { return a.npy.Shape }
func (a *npyArray) close() error { return a.file.Close() }

func (a *npyArray) floats(dst []float32, from int) error { return npyError(a.npy.Float32s(dst, from)) }
func (a *npyArray) ints(dst []int64, from int) error     { return npyError(a.npy.Ints(dst, from)) }
func (a *npyArray) bytes(dst []byte, from int) error     { return npyError(a.npy.Bytes(dst, from)) }

// npyError makes a malformed file ErrBroken. The path is dropped, as callers
// name the file.
func npyError(err error) error {
	if err == nil {
		return nil
	}
	if f, ok := errors.AsType[*vectors.FileError](err); ok {
		err = f.Err
	}
	if errors.Is(err, vectors.ErrFormat) || errors.Is(err, vectors.ErrShape) {
		return fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return err
}
