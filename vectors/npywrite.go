package vectors

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/kernels"
)

// npyHeader returns all bytes before the data of a .npy file of version 1.0, padded with blanks to a
// multiple of 64 bytes, as NumPy does. dtype is spelt as in [Array.Dtype], bf16 excepted. Lengths of
// the shape must not be negative.
func npyHeader(dtype string, shape []int) ([]byte, error) {
	k, big, err := parseDtype(dtype)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrFormat, err)
	}
	if _, ok := elementCount(shape, k.size()); !ok || len(shape) > maxRank {
		return nil, fmt.Errorf("%w: shape %s cannot be written", ErrShape, shapeString(shape))
	}
	text := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': %s, }", k.dtypeName(big), shapeString(shape))
	// The text fits the 64 KiB of version 1.0: it has at most maxRank lengths of 19 digits. The total is
	// 10 bytes of magic, version and length, the text, and a line end, rounded up to 64.
	total := (10 + len(text) + 1 + 63) / 64 * 64
	head := make([]byte, 0, total)
	head = append(head, npyMagic+"\x01\x00"...)
	head = binary.LittleEndian.AppendUint16(head, uint16(total-10))
	head = append(head, text...)
	for len(head) < total-1 {
		head = append(head, ' ')
	}
	return append(head, '\n'), nil
}

// NPYWriter writes the elements of a .npy file in several calls. Its shape must be known before.
type NPYWriter struct {
	w         *bufio.Writer
	kind      kind
	bigEndian bool
	remaining int // elements not written yet
	n         int // elements of the array
	buf       []byte
	file      *files.AtomicFile // nil if the caller owns the writer
	path      string            // of file
	err       error             // the first error; nothing is written after it
	closed    bool              // Close was called
}

// NewNPYWriter writes the header. The methods of the result write the elements, in row-major order.
// Close flushes them, and returns an error unless the number of elements is that of the shape; it
// does not close w.
func NewNPYWriter(w io.Writer, dtype string, shape ...int) (*NPYWriter, error) {
	head, err := npyHeader(dtype, shape)
	if err != nil {
		return nil, err
	}
	k, big, _ := parseDtype(dtype)
	n, _ := elementCount(shape, k.size())
	nw := &NPYWriter{w: bufio.NewWriterSize(w, 1<<16), kind: k, bigEndian: big, remaining: n, n: n}
	if _, err := nw.w.Write(head); err != nil {
		return nil, err
	}
	return nw, nil
}

// CreateNPY is [NewNPYWriter] for a file, which Close renames to path. After an error nothing changes
// at path.
func CreateNPY(path, dtype string, shape ...int) (*NPYWriter, error) {
	if _, err := npyHeader(dtype, shape); err != nil {
		return nil, NewFileError(path, err)
	}
	f, err := files.CreateAtomic(context.Background(), path)
	if err != nil {
		return nil, NewFileError(path, withoutPath(err))
	}
	w, err := NewNPYWriter(f, dtype, shape...)
	if err != nil {
		return nil, NewFileError(path, errors.Join(err, f.Close()))
	}
	w.file, w.path = f, path
	return w, nil
}

// Float32s appends floats, rounded to the type of the array, which must be a float type. The error is
// [ErrValue] for a finite value beyond the range of the type.
func (w *NPYWriter) Float32s(values []float32) error {
	if !w.kind.isFloat() {
		return w.setError(fmt.Errorf("%w: floats for an array of %s", ErrShape, w.kind.dtypeName(w.bigEndian)))
	}
	return w.writeBlocks(len(values), func(b []byte, i int) ([]byte, error) {
		v := values[i]
		switch w.kind {
		case kindF16:
			h := kernels.F16FromF32(v)
			if h&0x7fff == 0x7c00 && !math.IsInf(float64(v), 0) { // rounded to ±infinity
				return b, fmt.Errorf("%w: element %d, %v, as float16", ErrValue, w.n-w.remaining+i, v)
			}
			return binary.LittleEndian.AppendUint16(b, h), nil
		case kindF64:
			return binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(v))), nil
		}
		return binary.LittleEndian.AppendUint32(b, math.Float32bits(v)), nil
	})
}

// Ints appends integers to an array of integers or booleans. The error is [ErrShape] for a value beyond
// the range of the type.
func (w *NPYWriter) Ints(values []int64) error {
	if w.kind.isFloat() {
		return w.setError(fmt.Errorf("%w: integers for an array of %s", ErrShape, w.kind.dtypeName(w.bigEndian)))
	}
	size := w.kind.size()
	return w.writeBlocks(len(values), func(b []byte, i int) ([]byte, error) {
		start := len(b)
		// The first bytes of a little-endian number are the number in fewer bytes, if it fits.
		b = binary.LittleEndian.AppendUint64(b, uint64(values[i]))[:start+size]
		truncated := intElement(b[start:], 0, w.kind) != values[i]
		if truncated || w.kind == kindU64 && values[i] < 0 || w.kind == kindBool && values[i]&^1 != 0 {
			return b, fmt.Errorf("%w: element %d, %d, does not fit %s",
				ErrShape, w.n-w.remaining+i, values[i], w.kind.dtypeName(w.bigEndian))
		}
		return b, nil
	})
}

// Bytes appends elements to an array whose elements have one byte.
func (w *NPYWriter) Bytes(values []byte) error {
	if w.kind.size() != 1 {
		return w.setError(fmt.Errorf("%w: bytes for an array of %s", ErrShape, w.kind.dtypeName(w.bigEndian)))
	}
	if err := w.checkRemaining(len(values)); err != nil {
		return err
	}
	if _, err := w.w.Write(values); err != nil {
		return w.setError(err)
	}
	w.remaining -= len(values)
	return nil
}

// setError records the first error, and returns err.
func (w *NPYWriter) setError(err error) error {
	if w.err == nil {
		w.err = err
	}
	return err
}

// checkRemaining checks that n more elements can be written.
func (w *NPYWriter) checkRemaining(n int) error {
	switch {
	case w.err != nil:
		return w.err
	case w.closed:
		return fmt.Errorf("write to a closed array: %w", os.ErrClosed)
	case n > w.remaining:
		return w.setError(fmt.Errorf("%w: %d elements for the last %d of an array of %d",
			ErrShape, n, w.remaining, w.n))
	}
	return nil
}

// writeBlocks writes n elements in blocks. encode appends element i, little-endian.
func (w *NPYWriter) writeBlocks(n int, encode func(b []byte, i int) ([]byte, error)) error {
	if err := w.checkRemaining(n); err != nil {
		return err
	}
	size := w.kind.size()
	w.buf = slices.Grow(w.buf[:0], min(n*size+8, blockBytes+8))
	flush := func() error {
		if w.bigEndian {
			swapBytes(w.buf, size)
		}
		_, err := w.w.Write(w.buf)
		w.buf = w.buf[:0]
		return err
	}
	var err error
	for i := range n {
		if w.buf, err = encode(w.buf, i); err != nil {
			return w.setError(err)
		}
		if len(w.buf) >= blockBytes {
			if err = flush(); err != nil {
				return w.setError(err)
			}
		}
	}
	w.remaining -= n
	if err = flush(); err != nil {
		return w.setError(err)
	}
	return nil
}

// Close flushes, and returns the first error, or one for missing elements. It may be called twice.
func (w *NPYWriter) Close() error {
	if w.closed {
		return w.err
	}
	w.closed = true
	if w.err == nil && w.remaining > 0 {
		w.err = fmt.Errorf("%w: %d elements of an array of %d were never written", ErrShape, w.remaining, w.n)
	}
	if err := w.w.Flush(); w.err == nil {
		w.err = err
	}
	if w.file != nil {
		if w.err == nil {
			w.err = w.file.Commit()
		}
		w.file.Close() // removes the file unless it was committed
		if w.err != nil {
			w.err = NewFileError(w.path, withoutPath(w.err))
		}
	}
	return w.err
}

// WriteNPY writes an array of floats (f2, f4, f8).
func WriteNPY(w io.Writer, dtype string, shape []int, values []float32) error {
	nw, err := NewNPYWriter(w, dtype, shape...)
	if err != nil {
		return err
	}
	nw.Float32s(values) // Close returns its error
	return nw.Close()
}

// WriteNPYInts writes an array of integers or booleans.
func WriteNPYInts(w io.Writer, dtype string, shape []int, values []int64) error {
	nw, err := NewNPYWriter(w, dtype, shape...)
	if err != nil {
		return err
	}
	nw.Ints(values)
	return nw.Close()
}
