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

// blockBytes is how much of a file is read at once.
const blockBytes = 1 << 20

// maxRank is the highest rank that NumPy itself writes.
const maxRank = 64

// Array is a row-major array in a file, read in blocks; its contents are
// never in memory as a whole. It is for one goroutine at a time.
type Array struct {
	// Dtype is the element type as NumPy spells it, with the byte order: <f2,
	// >f8, |u1; bfloat16, which NumPy lacks, is bf16.
	Dtype string
	// Shape is empty for a scalar, which has one element.
	Shape []int

	path  string
	kind  kind
	big   bool
	n     int
	r     io.ReaderAt
	off   int64 // of the first element
	buf   []byte
	owner // of what r reads, or of nothing
}

// NewRaw returns an array whose elements follow one another in r, from element first on; r
// has size bytes. dtype is spelt as in Array, and name stands for the path in errors.
func NewRaw(r io.ReaderAt, size int64, name, dtype string, first int64, shape []int) (*Array, error) {
	a := &Array{Shape: shape, path: name, kind: kindBF16, r: r}
	if dtype != kindBF16.dtype(false) {
		var err error
		if a.kind, a.big, err = parseDtype(dtype); err != nil {
			return nil, faultf(name, ErrFormat, "%v", err)
		}
	}
	a.Dtype = a.kind.dtype(a.big)
	var ok bool
	if a.n, ok = elements(shape, a.kind.size()); !ok || first < 0 || first > size/int64(a.kind.size())-int64(a.n) {
		return nil, faultf(name, ErrFormat, "%d bytes have no %s %s from element %d on", size, a.Dtype, shapeString(shape), first)
	}
	a.off = first * int64(a.kind.size())
	return a, nil
}

// Len is the number of elements.
func (a *Array) Len() int { return a.n }

// Width is the number of bytes of an element.
func (a *Array) Width() int { return a.kind.size() }

// Float32s fills dst with the elements from from on, converted to float32:
// float64 and wide integers are rounded. Values are not checked. Errors are
// [*FileError] ([ErrShape] for a range that the array does not have).
func (a *Array) Float32s(dst []float32, from int) error {
	if a.kind == kindF32 && !a.big && littleEndian {
		return a.readInto(bytesOf(dst), from, len(dst))
	}
	return a.blocks(from, len(dst), func(at int, raw []byte) error {
		decodeWide(dst[at:at+len(raw)/a.kind.size()], raw, a.kind)
		return nil
	})
}

// Float16s fills dst with the elements from from on, which must be binary16 or bfloat16, as they are.
func (a *Array) Float16s(dst []uint16, from int) error {
	if a.kind != kindF16 && a.kind != kindBF16 {
		return faultf(a.path, ErrShape, "elements are %s, want floats of 16 bits", a.Dtype)
	}
	if !a.big && littleEndian {
		return a.readInto(bytesOf(dst), from, len(dst))
	}
	return a.blocks(from, len(dst), func(at int, raw []byte) error {
		for i := range len(raw) / 2 {
			dst[at+i] = binary.LittleEndian.Uint16(raw[2*i:])
		}
		return nil
	})
}

// littleEndian tells whether values in memory are as those of the files.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// bytesOf is the memory of values.
func bytesOf[T float32 | uint16](values []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), len(values)*int(unsafe.Sizeof(*new(T))))
}

// readInto fills p with the bytes of n elements after from.
func (a *Array) readInto(p []byte, from, n int) error {
	if err := a.checkElements(from, n); err != nil {
		return err
	}
	return a.readAt(p, int64(from)*int64(a.kind.size()))
}

// wideBlock is how many values one goroutine converts or looks at.
const wideBlock = 1 << 15

// decodeWide is decodeFloats by several goroutines.
func decodeWide(dst []float32, raw []byte, k kind) {
	n := parallel.Blocks(len(dst), wideBlock)
	_ = parallel.Do(context.Background(), n, 0, func(i int) error {
		lo, hi := parallel.Block(i, len(dst), wideBlock)
		decodeFloats(dst[lo:hi], raw[lo*k.size():hi*k.size()], k)
		return nil
	})
}

// allFinite tells whether all values are numbers, by several goroutines.
func allFinite(values []float32) bool {
	var not atomic.Bool
	n := parallel.Blocks(len(values), wideBlock)
	_ = parallel.Do(context.Background(), n, 0, func(i int) error {
		lo, hi := parallel.Block(i, len(values), wideBlock)
		if !floats.Finite(values[lo:hi]) {
			not.Store(true)
		}
		return nil
	})
	return !not.Load()
}

// Ints fills dst with the elements from from on, which must be integers or
// booleans; floats are [ErrShape], and unsigned values beyond int64 [ErrFormat].
func (a *Array) Ints(dst []int64, from int) error {
	if a.kind.isFloat() {
		return faultf(a.path, ErrShape, "elements are %s, want integers", a.Dtype)
	}
	return a.blocks(from, len(dst), func(at int, raw []byte) error {
		if bad := decodeInts(dst[at:at+len(raw)/a.kind.size()], raw, a.kind); bad >= 0 {
			return faultf(a.path, ErrFormat, "element %d is %d, beyond the range of int64", from+at+bad, uint64(dst[at+bad]))
		}
		return nil
	})
}

// Bytes fills dst with the elements from from on, which must be of one byte.
func (a *Array) Bytes(dst []byte, from int) error {
	if a.kind.size() != 1 {
		return faultf(a.path, ErrShape, "elements are %s, want bytes", a.Dtype)
	}
	return a.readInto(dst, from, len(dst))
}

func (a *Array) checkElements(from, n int) error {
	if from < 0 || from > a.n || n > a.n-from {
		return faultf(a.path, ErrShape, "elements %d to %d asked of %d", from, from+n, a.n)
	}
	return nil
}

// readAt fills p from the data, off bytes after their start.
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

// blocks calls fn with the bytes, little-endian, of n elements after from,
// block by block; at counts elements from from.
func (a *Array) blocks(from, n int, fn func(at int, raw []byte) error) error {
	if err := a.checkElements(from, n); err != nil {
		return err
	}
	size := a.kind.size()
	per := blockBytes / size
	if want := min(per, n) * size; cap(a.buf) < want {
		a.buf = make([]byte, want)
	}
	for at := 0; at < n; at += per {
		raw := a.buf[:min(per, n-at)*size]
		if err := a.readAt(raw, int64(from+at)*int64(size)); err != nil {
			return err
		}
		if a.big {
			swapBytes(raw, size)
		}
		if err := fn(at, raw); err != nil {
			return err
		}
	}
	return nil
}

// elements is the product of a shape, and whether it and its size in bytes
// stay within the range of int. It refuses products whose zero hides an
// overflow elsewhere, as NumPy does.
func elements(shape []int, size int) (n int, ok bool) {
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

// shapeString spells a shape as Python does: (), (3,), (3, 4).
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
