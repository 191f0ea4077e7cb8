package vectors

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/plaid-ir/plaid/internal/floats"
	"github.com/plaid-ir/plaid/internal/parallel"
)

// blockBytes is the number of bytes of a file that are read at once.
const blockBytes = 1 << 20

// maxRank is the maximum rank that NumPy writes.
const maxRank = 64

// Array is a row-major array in a file. It is read in blocks, and never completely in memory. It is for
// one goroutine at a time.
type Array struct {
	// Dtype is the element type as NumPy spells it, with the byte order, such as <f2, >f8 or |u1.
	// bfloat16, which NumPy lacks, is bf16.
	Dtype string
	// Shape is empty for a scalar, which has one element.
	Shape []int

	path      string
	kind      kind
	bigEndian bool
	n         int // number of elements
	r         io.ReaderAt
	off       int64 // of the first element
	buf       []byte
	owner     // closes r, if the array owns it
}

// NewRawArray returns an array whose elements are contiguous in r, from element first on. r has size bytes.
// dtype is spelt as in Array. Errors show name in place of a path.
func NewRawArray(r io.ReaderAt, size int64, name, dtype string, first int64, shape []int) (*Array, error) {
	a := &Array{Shape: shape, path: name, kind: kindBF16, r: r}
	if dtype != kindBF16.dtypeName(false) {
		var err error
		if a.kind, a.bigEndian, err = parseDtype(dtype); err != nil {
			return nil, faultf(name, ErrFormat, "%v", err)
		}
	}
	a.Dtype = a.kind.dtypeName(a.bigEndian)
	var ok bool
	if a.n, ok = elementCount(shape, a.kind.size()); !ok || first < 0 || first > size/int64(a.kind.size())-int64(a.n) {
		return nil, faultf(name, ErrFormat, "%d bytes have no %s %s from element %d on",
			size, a.Dtype, shapeString(shape), first)
	}
	a.off = first * int64(a.kind.size())
	return a, nil
}

// Len returns the number of elements.
func (a *Array) Len() int { return a.n }

// Width returns the number of bytes of an element.
func (a *Array) Width() int { return a.kind.size() }

// Float32s fills dst with the elements from index from on, converted to float32: float64 and wide
// integers are rounded. Values are not checked. Errors are [*FileError], and [ErrShape] for a range
// outside of the array.
func (a *Array) Float32s(dst []float32, from int) error {
	if a.kind == kindF32 && !a.bigEndian && littleEndian {
		return a.readInto(memoryOf(dst), from, len(dst))
	}
	return a.visitBlocks(from, len(dst), func(i int, raw []byte) error {
		decodeParallel(dst[i:i+len(raw)/a.kind.size()], raw, a.kind)
		return nil
	})
}

// Float16s fills dst with the bits of the elements from index from on, which must be binary16 or bfloat16.
func (a *Array) Float16s(dst []uint16, from int) error {
	if a.kind != kindF16 && a.kind != kindBF16 {
		return faultf(a.path, ErrShape, "elements are %s, want floats of 16 bits", a.Dtype)
	}
	if !a.bigEndian && littleEndian {
		return a.readInto(memoryOf(dst), from, len(dst))
	}
	return a.visitBlocks(from, len(dst), func(first int, raw []byte) error {
		for i := range len(raw) / 2 {
			dst[first+i] = binary.LittleEndian.Uint16(raw[2*i:])
		}
		return nil
	})
}

// littleEndian is true if this processor has the byte order of most files.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// memoryOf returns the memory of values.
func memoryOf[T float32 | uint16](values []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), len(values)*int(unsafe.Sizeof(*new(T))))
}

// readInto fills p with the bytes of n elements from index from on.
func (a *Array) readInto(p []byte, from, n int) error {
	if err := a.checkElements(from, n); err != nil {
		return err
	}
	return a.readAt(p, int64(from)*int64(a.kind.size()))
}

// wideBlock is the number of values that a goroutine converts or checks at a time.
const wideBlock = 1 << 15

// decodeParallel is decodeFloats in several goroutines.
func decodeParallel(dst []float32, raw []byte, k kind) {
	n := parallel.Blocks(len(dst), wideBlock)
	_ = parallel.Do(context.Background(), n, 0, func(i int) error {
		lo, hi := parallel.Block(i, len(dst), wideBlock)
		decodeFloats(dst[lo:hi], raw[lo*k.size():hi*k.size()], k)
		return nil
	})
}

// allFinite reports whether all values are finite. It uses several goroutines.
func allFinite(values []float32) bool {
	var foundInfinite atomic.Bool
	n := parallel.Blocks(len(values), wideBlock)
	_ = parallel.Do(context.Background(), n, 0, func(i int) error {
		lo, hi := parallel.Block(i, len(values), wideBlock)
		if !floats.Finite(values[lo:hi]) {
			foundInfinite.Store(true)
		}
		return nil
	})
	return !foundInfinite.Load()
}

// Ints fills dst with the elements from index from on, which must be integers or booleans. The error is
// [ErrShape] for floats, and [ErrFormat] for unsigned values beyond int64.
func (a *Array) Ints(dst []int64, from int) error {
	if a.kind.isFloat() {
		return faultf(a.path, ErrShape, "elements are %s, want integers", a.Dtype)
	}
	return a.visitBlocks(from, len(dst), func(first int, raw []byte) error {
		block := dst[first : first+len(raw)/a.kind.size()]
		if bad := decodeInts(block, raw, a.kind); bad >= 0 {
			return faultf(a.path, ErrFormat, "element %d is %d, beyond the range of int64",
				from+first+bad, uint64(block[bad]))
		}
		return nil
	})
}

// Bytes fills dst with the elements from index from on, which must have one byte.
func (a *Array) Bytes(dst []byte, from int) error {
	if a.kind.size() != 1 {
		return faultf(a.path, ErrShape, "elements are %s, want bytes", a.Dtype)
	}
	return a.readInto(dst, from, len(dst))
}

// checkElements checks that the array has n elements from index from on.
func (a *Array) checkElements(from, n int) error {
	if from < 0 || from > a.n || n > a.n-from {
		return faultf(a.path, ErrShape, "elements %d to %d asked of %d", from, from+n, a.n)
	}
	return nil
}

// readAt fills p with the bytes of the array from offset off on.
func (a *Array) readAt(p []byte, off int64) error {
	n, err := a.r.ReadAt(p, a.off+off)
	switch {
	case n == len(p):
		return nil
	case err == nil || errors.Is(err, io.EOF):
		return faultf(a.path, ErrFormat, "is cut short: no bytes after %d", a.off+off+int64(n))
	}
	return inFile(err, a.path, -1, -1, "")
}

// visitBlocks calls visit with blocks of the little-endian bytes of n elements from index from on. first is
// the index of the first element of the block, counted from from.
func (a *Array) visitBlocks(from, n int, visit func(first int, raw []byte) error) error {
	if err := a.checkElements(from, n); err != nil {
		return err
	}
	size := a.kind.size()
	blockElements := blockBytes / size
	if want := min(blockElements, n) * size; cap(a.buf) < want {
		a.buf = make([]byte, want)
	}
	for first := 0; first < n; first += blockElements {
		raw := a.buf[:min(blockElements, n-first)*size]
		if err := a.readAt(raw, int64(from+first)*int64(size)); err != nil {
			return err
		}
		if a.bigEndian {
			swapBytes(raw, size)
		}
		if err := visit(first, raw); err != nil {
			return err
		}
	}
	return nil
}

// elementCount returns the number of elements of a shape. ok is false if the number, or the size in bytes,
// is beyond the range of int, also if a length of 0 makes the product 0, as in NumPy.
func elementCount(shape []int, size int) (n int, ok bool) {
	n, zero := 1, false
	for _, d := range shape {
		if d == 0 {
			zero = true
			continue
		}
		hi, lo := bits.Mul64(uint64(n), uint64(d))
		if d < 0 || hi != 0 || lo > uint64(math.MaxInt/size) {
			return 0, false
		}
		n = int(lo)
	}
	if zero {
		n = 0
	}
	return n, true
}

// shapeString formats a shape as Python does: (), (3,), (3, 4).
func shapeString(shape []int) string {
	var b strings.Builder
	b.WriteByte('(')
	for i, d := range shape {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%d,", d)
	}
	s := b.String()
	if len(shape) > 1 {
		s = s[:len(s)-1]
	}
	return s + ")"
}
