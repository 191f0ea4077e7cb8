package vectors

import (
	"errors"
	"fmt"
	"io"
)

// forward reads a stream at ascending offsets.
type forward struct {
	r    io.Reader
	next int64 // offset of the next byte of the stream
}

// ReadAt implements [io.ReaderAt], except that it cannot go back.
func (f *forward) ReadAt(p []byte, off int64) (int, error) {
	if off < f.next {
		return 0, fmt.Errorf("byte %d of a stream was read already", off)
	}
	if skip := off - f.next; skip > 0 {
		n, err := io.CopyN(io.Discard, f.r, skip)
		f.next += n
		if err != nil {
			return 0, readerAtEnd(err)
		}
	}
	n, err := io.ReadFull(f.r, p)
	f.next += int64(n)
	return n, readerAtEnd(err)
}

// readerAtEnd converts an unexpected end to io.EOF, as [io.ReaderAt] requires.
func readerAtEnd(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return io.EOF
	}
	return err
}

// Finish skips the remaining tensors of a stream, and checks that it ends with the last one. For a file
// that is not a stream it does nothing.
func (s *Safetensors) Finish() error {
	f, ok := s.r.(*forward)
	if !ok {
		return nil
	}
	if _, err := f.ReadAt(nil, s.end); err != nil {
		return NewFileError(s.path, malformed(err))
	}
	var extra [1]byte
	switch _, err := io.ReadFull(f.r, extra[:]); {
	case err == nil:
		return faultf(s.path, ErrFormat, "goes on behind its last tensor")
	case errors.Is(err, io.EOF):
		return nil
	default:
		return NewFileError(s.path, malformed(err))
	}
}
