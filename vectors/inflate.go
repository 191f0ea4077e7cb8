package vectors

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/plaid-ir/plaid/internal/files"
)

// inflatedMemory is how much of a stream is kept in memory.
const inflatedMemory = 1 << 20

// inflated gives random access to a stream of a known size: what has been read of
// it is kept, in memory while it is short, else in a temporary file. The
// stream is read no further than it is asked for, so faults beyond are found
// when they are reached.
type inflated struct {
	open func() (io.ReadCloser, error)
	size int64

	src    io.ReadCloser
	filled int64
	mem    []byte
	tmp    *files.Temporary
	err    error // the stream is broken behind filled
	block  []byte
}

// ReadAt reads the stream on if need be.
func (s *inflated) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off > s.size {
		return 0, io.EOF
	}
	end := min(off+int64(len(p)), s.size)
	for s.filled < end {
		if s.err == nil {
			s.err = s.fill()
		}
		if s.err != nil {
			return 0, s.err
		}
	}
	// A fault at the very end (checksum, bytes too many) is the reader's too.
	if s.err != nil && end == s.size {
		return 0, s.err
	}
	p = p[:min(int64(len(p)), s.size-off)]
	var n int
	if s.tmp != nil {
		var err error
		if n, err = s.tmp.ReadAt(p, off); err != nil && !errors.Is(err, io.EOF) {
			return n, err
		}
	} else if off < s.filled {
		n = copy(p, s.mem[off:])
	}
	if off+int64(n) == s.size {
		return n, io.EOF
	}
	return n, nil
}

// fill takes one block from the stream.
func (s *inflated) fill() error {
	if s.block == nil {
		src, err := s.open()
		if err != nil {
			return zipFault(err)
		}
		s.src, s.block = src, make([]byte, 64<<10)
	}
	n, err := io.ReadFull(s.src, s.block[:min(int64(len(s.block)), s.size-s.filled)])
	if err != nil {
		return s.inflateFault(err)
	}
	if err := s.keep(s.block[:n]); err != nil {
		return err
	}
	if s.filled < s.size {
		return nil
	}
	// The stream must end here; reading on also checks its checksum.
	if n, err := io.ReadFull(s.src, s.block[:1]); n > 0 {
		return s.inflateFault(zip.ErrFormat)
	} else if !errors.Is(err, io.EOF) {
		return s.inflateFault(err)
	}
	return nil
}

// keep appends a block, in a file once the memory is used up.
func (s *inflated) keep(b []byte) error {
	if s.tmp == nil && s.filled+int64(len(b)) <= inflatedMemory {
		s.mem = append(s.mem, b...)
		s.filled += int64(len(b))
		return nil
	}
	if s.tmp == nil {
		tmp, err := files.NewTemporary("", "plaid-npz-*")
		if err != nil {
			return err
		}
		s.tmp = tmp
		if _, err := tmp.WriteAt(s.mem, 0); err != nil {
			return err
		}
		s.mem = nil
	}
	if _, err := s.tmp.WriteAt(b, s.filled); err != nil {
		return err
	}
	s.filled += int64(len(b))
	return nil
}

// inflateFault: whatever inflating says, other than that the file could not be
// read, is a fault of the content.
func (s *inflated) inflateFault(err error) error {
	var pe *os.PathError
	switch {
	case errors.As(err, &pe):
		return pe
	case errors.Is(err, zip.ErrFormat): // archive/zip counts as well
		return fmt.Errorf("%w: inflates to more than the %d bytes that it declares", ErrFormat, s.size)
	case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF):
		return fmt.Errorf("%w: is cut short: inflates to fewer than the %d bytes that it declares", ErrFormat, s.size)
	}
	return fmt.Errorf("%w: %v", ErrFormat, err)
}

// Close drops what was kept. It may be called twice.
func (s *inflated) Close() error {
	if s.src != nil {
		s.src.Close()
		s.src = nil
	}
	s.err = os.ErrClosed
	s.filled, s.mem = 0, nil
	if s.tmp == nil {
		return nil
	}
	err := s.tmp.Close()
	s.tmp = nil
	return err
}
