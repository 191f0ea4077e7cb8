package vectors

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/plaid-ir/plaid/internal/files"
)

// inflatedMemory is the maximum number of bytes of a stream that are kept in memory.
const inflatedMemory = 1 << 20

// inflated gives random access to a stream of a known size. It keeps the bytes that it has read, in
// memory while they are few, otherwise in a temporary file. It reads the stream no further than needed,
// so that faults after that are found only when they are reached.
type inflated struct {
	open func() (io.ReadCloser, error)
	size int64

	src       io.ReadCloser
	bytesRead int64 // bytes that were read
	mem       []byte
	tmp       *files.Temporary // in place of mem, if they are many
	err       error            // of the stream after these bytes
	block     []byte
}

// ReadAt reads bytes that were kept, after reading the stream up to their end.
func (s *inflated) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off > s.size {
		return 0, io.EOF
	}
	end := min(off+int64(len(p)), s.size)
	for s.bytesRead < end {
		if s.err == nil {
			s.err = s.readBlock()
		}
		if s.err != nil {
			return 0, s.err
		}
	}
	// A fault at the very end (a wrong checksum, too many bytes) is an error of reading the last byte.
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
	} else if off < s.bytesRead {
		n = copy(p, s.mem[off:])
	}
	if off+int64(n) == s.size {
		return n, io.EOF
	}
	return n, nil
}

// readBlock reads one block of the stream.
func (s *inflated) readBlock() error {
	if s.block == nil {
		src, err := s.open()
		if err != nil {
			return zipError(err)
		}
		s.src, s.block = src, make([]byte, 64<<10)
	}
	n, err := io.ReadFull(s.src, s.block[:min(int64(len(s.block)), s.size-s.bytesRead)])
	if err != nil {
		return s.inflateFault(err)
	}
	if err := s.appendBlock(s.block[:n]); err != nil {
		return err
	}
	if s.bytesRead < s.size {
		return nil
	}
	// The stream must end here. Reading on also verifies its checksum.
	if n, err := io.ReadFull(s.src, s.block[:1]); n > 0 {
		return s.inflateFault(zip.ErrFormat)
	} else if !errors.Is(err, io.EOF) {
		return s.inflateFault(err)
	}
	return nil
}

// appendBlock appends a block to the bytes that were read. It moves them to a file when memory would exceed
// inflatedMemory.
func (s *inflated) appendBlock(b []byte) error {
	if s.tmp == nil && s.bytesRead+int64(len(b)) <= inflatedMemory {
		s.mem = append(s.mem, b...)
		s.bytesRead += int64(len(b))
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
	if _, err := s.tmp.WriteAt(b, s.bytesRead); err != nil {
		return err
	}
	s.bytesRead += int64(len(b))
	return nil
}

// inflateFault marks an error of inflating as [ErrFormat], unless the file could not be read.
func (s *inflated) inflateFault(err error) error {
	var pe *os.PathError
	switch {
	case errors.As(err, &pe):
		return pe
	case errors.Is(err, zip.ErrFormat): // archive/zip counts bytes, too
		return fmt.Errorf("%w: inflates to more than the %d bytes that it declares", ErrFormat, s.size)
	case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF):
		return fmt.Errorf("%w: is cut short: inflates to fewer than the %d bytes that it declares", ErrFormat, s.size)
	}
	return fmt.Errorf("%w: %v", ErrFormat, err)
}

// Close removes the bytes that were kept. It may be called twice.
func (s *inflated) Close() error {
	if s.src != nil {
		s.src.Close()
		s.src = nil
	}
	s.err = os.ErrClosed
	s.bytesRead, s.mem = 0, nil
	if s.tmp == nil {
		return nil
	}
	err := s.tmp.Close()
	s.tmp = nil
	return err
}
