package interop

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/plaid-ir/plaid/vectors"
	"github.com/plaid-ir/plaid/vectors/torch"
)

// array is a stored array with its open file.
type array struct {
	*vectors.Array
	file io.Closer
}

func (a array) readFloats(dst []float32, from int) error { return arrayError(a.Float32s(dst, from)) }
func (a array) readInts(dst []int64, from int) error     { return arrayError(a.Ints(dst, from)) }
func (a array) readBytes(dst []byte, from int) error     { return arrayError(a.Bytes(dst, from)) }

// close ignores the error, since the file is only read.
func (a array) close() { _ = a.file.Close() }

// isFloat and isInteger test the kind in Dtype, which is as in NumPy: byte order, kind, size, as <f4.
func (a array) isFloat() bool   { return strings.Contains(a.Dtype, "f") }
func (a array) isInteger() bool { return a.Dtype[1] == 'i' || a.Dtype[1] == 'u' }

// arrayRef names an array: a tensor of a .pt file, or a .npy file. The zero value names no array.
type arrayRef struct {
	file    string
	tensor  int // index among the tensors of a .pt file
	tensors int // number of tensors that the file must have. 0 means one
}

func (r arrayRef) String() string { return r.file }

// openArray opens an array of the folder.
func (f *folder) openArray(r arrayRef) (array, error) {
	file, size, err := f.openFile(r.file)
	if err != nil {
		return array{}, err
	}
	read := readNPY
	if strings.HasSuffix(r.file, ".pt") {
		read = readTensor
	}
	a, err := read(file, size, r)
	if err != nil {
		file.Close()
		return array{}, fmt.Errorf("%s: %w", r, arrayError(err))
	}
	return array{a, file}, nil
}

// readNPY reads the header of a .npy file. The data may begin at any offset: the writers of these
// engines align it to 16 or 64 bytes, or not at all.
func readNPY(file io.ReaderAt, size int64, r arrayRef) (*vectors.Array, error) {
	return vectors.NewNPY(file, size, r.file)
}

// readTensor reads the description of a tensor of a .pt file.
func readTensor(file io.ReaderAt, size int64, r arrayRef) (*vectors.Array, error) {
	tensors, err := torch.New(file, size, r.file)
	if err != nil {
		return nil, err
	}
	names := tensors.Names()
	if want := max(r.tensors, 1); len(names) != want {
		return nil, fmt.Errorf("%w: it holds %d tensors, want %d", ErrBroken, len(names), want)
	}
	return tensors.Array(names[r.tensor])
}

// readIntArray reads a complete row of integers.
func (f *folder) readIntArray(r arrayRef) ([]int64, error) {
	a, err := f.openArray(r)
	if err != nil {
		return nil, err
	}
	defer a.close()
	if err := checkInts(r, a); err != nil {
		return nil, err
	}
	values := make([]int64, a.Len())
	if err := a.readInts(values, 0); err != nil {
		return nil, fmt.Errorf("%s: %w", r, err)
	}
	return values, nil
}

// checkInts refuses an array that is not one-dimensional and of an integer type.
func checkInts(r arrayRef, a array) error {
	if len(a.Shape) != 1 || !a.isInteger() {
		return fmt.Errorf("%w: %s is %s %v, want a row of integers", ErrBroken, r, a.Dtype, a.Shape)
	}
	return nil
}

// readFloatArray reads a complete small array of floats with dims dimensions.
func (f *folder) readFloatArray(r arrayRef, dims int) (values []float32, a array, err error) {
	if a, err = f.openArray(r); err != nil {
		return nil, a, err
	}
	defer a.close()
	if len(a.Shape) != dims || !a.isFloat() {
		return nil, a, fmt.Errorf("%w: %s is %s %v, want floats in %d dimensions", ErrBroken, r, a.Dtype, a.Shape, dims)
	}
	values = make([]float32, a.Len())
	if err := a.readFloats(values, 0); err != nil {
		return nil, a, fmt.Errorf("%s: %w", r, err)
	}
	return values, a, nil
}

// arrayError returns ErrBroken for a malformed file, and ErrUnsupported for a tensor that cannot be
// read. It drops the path, because callers name the file.
func arrayError(err error) error {
	if f, ok := errors.AsType[*vectors.FileError](err); ok {
		err = f.Err
	}
	if errors.Is(err, vectors.ErrFormat) || errors.Is(err, vectors.ErrShape) {
		return fmt.Errorf("%w: %w", ErrBroken, err)
	}
	if errors.Is(err, torch.ErrUnsupported) {
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	return err
}
