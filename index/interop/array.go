package interop

import (
	"fmt"
	"slices"
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
