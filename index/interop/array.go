package interop

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/plaid-ir/plaid/vectors"
)

// dtype is the element type of a stored array. 0 is none.
type dtype uint8

const (
	dtF16 dtype = iota + 1
	dtBF16
	dtF32
	dtF64
	dtU8
	dtU16
	dtU32
	dtU64
	dtI8
	dtI16
	dtI32
	dtI64
)

func (d dtype) String() string {
	names := [...]string{"none", "float16", "bfloat16", "float32", "float64", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"}
	if int(d) >= len(names) {
		return "unknown"
	}
	return names[d]
}

// size is the number of bytes of an element.
func (d dtype) size() int {
	switch d {
	case dtU8, dtI8:
		return 1
	case dtF16, dtBF16, dtU16, dtI16:
		return 2
	case dtF32, dtU32, dtI32:
		return 4
	}
	return 8
}

func (d dtype) isFloat() bool { return d >= dtF16 && d <= dtF64 }
func (d dtype) isInt() bool   { return d >= dtU8 && d <= dtI64 }

// array is a stored array, row-major, read in pieces. from counts elements.
type array interface {
	dtype() dtype
	shape() []int
	floats(dst []float32, from int) error
	ints(dst []int64, from int) error
	bytes(dst []byte, from int) error
	close() error
}

// arrayRef names an array: item of the tensors of a .pt file, or a .npy file.
// The zero value is no array.
type arrayRef struct {
	file  string
	item  int // which tensor of a .pt file
	items int // how many tensors the file must hold; 0 means one
}

func (r arrayRef) String() string { return r.file }

// elements is the product of a shape.
func elements(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// checkInts refuses an array that is not one-dimensional and of an integer type.
func checkInts(r arrayRef, a array) error {
	if len(a.shape()) != 1 || !a.dtype().isInt() {
		return fmt.Errorf("%w: %s is %v %v, want a row of integers", ErrBroken, r, a.dtype(), a.shape())
	}
	return nil
}

// floatsOf reads a small float array whole. dims is the number of dimensions
// that it must have.
func (f *folder) floatsOf(r arrayRef, dims int) (values []float32, shape []int, kind dtype, err error) {
	a, err := f.openArray(r)
	if err != nil {
		return nil, nil, 0, err
	}
	defer a.close()
	shape = slices.Clone(a.shape())
	if len(shape) != dims || !a.dtype().isFloat() {
		return nil, nil, 0, fmt.Errorf("%w: %s is %v %v, want floats in %d dimensions", ErrBroken, r, a.dtype(), shape, dims)
	}
	values = make([]float32, elements(shape))
	if err := a.floats(values, 0); err != nil {
		return nil, nil, 0, fmt.Errorf("%s: %w", r, err)
	}
	return values, shape, a.dtype(), nil
}

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
