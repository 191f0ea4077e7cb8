package vectors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/plaid-ir/plaid/internal/files"
)

const (
	apartMagic      = "plaidsp\x02"
	keyedApartMagic = "plaidsp\x04"
	// matrixHead is what is kept free for the header of the .npy file: as long as
	// that of any matrix is.
	matrixHead = 128
)

// matrix is the file of a spool's vectors where they are apart: room for a header, and
// the vectors of all documents, one after the other, as a .npy file has them.
type matrix struct {
	file   *os.File // nil: it was completed
	size   int64    // with what is buffered
	buf    []byte   // taken, and not written
	next   []byte   // of the document that is being added
	firsts []int64  // of each document, the number of vectors before it
}

// openMatrix opens the file of the vectors, of documents that are there or of none.
func (s *Spool) openMatrix(documents bool) error {
	if s.apart == nil {
		return nil
	}
	if _, err := os.Lstat(s.o.Vectors); documents && s.o.Matrix != "" && errors.Is(err, fs.ErrNotExist) {
		if err := files.Rename(s.o.Matrix, s.o.Vectors); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return NewFileError(s.o.Matrix, cause(err))
		}
	}
	f, err := files.OpenFile(s.o.Vectors, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return NewFileError(s.o.Vectors, cause(err))
	}
	s.apart.file = f
	return nil
}

func (s *Spool) inMatrix(err error) error {
	if err == nil {
		return nil
	}
	return NewFileError(s.o.Vectors, cause(err))
}

// matrixBytes is the size of so many vectors with the header.
func (s *Spool) matrixBytes(tokens int64) int64 {
	return matrixHead + tokens*int64(s.dim)*int64(s.width())
}

// cutMatrix cuts off what no record has.
func (s *Spool) cutMatrix() error {
	if s.apart == nil {
		return nil
	}
	s.apart.size = s.matrixBytes(s.tokens)
	return s.inMatrix(s.apart.file.Truncate(s.apart.size))
}

// append makes the vectors of a document ready, and appends their checksum to its record.
func (m *matrix) append(b []byte, s *Spool, tokens []float32) (_ []byte, err error) {
	if m.next, err = s.appendVectors(m.next[:0], tokens); err != nil {
		return b, err
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(m.next, castagnoli)), nil
}

// take takes what append has made ready.
func (m *matrix) take() {
	m.buf = append(m.buf, m.next...)
	m.size += int64(len(m.next))
}

func (s *Spool) flushMatrix() error {
	m := s.apart
	if m == nil || len(m.buf) == 0 {
		return nil
	}
	_, err := m.file.WriteAt(m.buf, m.size-int64(len(m.buf)))
	m.buf = m.buf[:0]
	return s.inMatrix(err)
}

// readVectors fills in the vectors of a record with so many before it, and checks them.
func (s *Spool) readVectors(r *spoolRecord, first int64) error {
	if s.apart.file == nil {
		return os.ErrClosed
	}
	r.vectors = make([]byte, s.matrixBytes(r.rows)-matrixHead)
	_, err := s.apart.file.ReadAt(r.vectors, s.matrixBytes(first))
	if errors.Is(err, io.EOF) {
		return &brokenRecord{"its vectors are cut short"}
	}
	if err == nil && crc32.Checksum(r.vectors, castagnoli) != r.sum {
		return &brokenRecord{"the checksum of its vectors differs"}
	}
	return err
}

// wholeVectorsBehind finds, behind the record at off, of which the vectors are damaged, one
// that is whole, with its vectors, in a file of n bytes; 0: there is none.
func (s *Spool) wholeVectorsBehind(off, n int64) (int64, error) {
	for first := s.tokens; off < n; {
		r, err := s.read(off, n)
		if broken := (*brokenRecord)(nil); errors.As(err, &broken) {
			return s.wholeBehind(off, n)
		}
		if err != nil {
			return 0, err
		}
		err = s.readVectors(&r, first)
		if err == nil && r.rows > 0 {
			return off, nil
		}
		if broken := (*brokenRecord)(nil); err != nil && !errors.As(err, &broken) {
			return 0, err
		}
		off, first = off+r.size, first+r.rows
	}
	return 0, nil
}

// Matrix makes a .npy file [tokens, dim] at path of the file that has the vectors of all
// documents ([SpoolOptions].Vectors), which is gone then: nothing can be added any more,
// and no vectors be read. What is at path is replaced when it is complete.
func (s *Spool) Matrix(path string) error {
	if s.apart == nil || s.apart.file == nil {
		return NewFileError(s.o.Path, fmt.Errorf("its vectors are not in a file of their own: %w", os.ErrClosed))
	}
	if err := s.Flush(); err != nil {
		return err
	}
	dtype := "<f4"
	if s.o.Float16 {
		dtype = "<f2"
	}
	head, err := npyHeader(dtype, []int{int(s.tokens), s.dim})
	if err == nil && len(head) != matrixHead {
		err = fmt.Errorf("%w: a header of %d bytes", ErrShape, len(head))
	}
	if err == nil {
		_, err = s.apart.file.WriteAt(head, 0)
	}
	if err == nil {
		err = s.apart.file.Sync()
	}
	if err != nil {
		return s.inMatrix(err)
	}
	if err := s.closeMatrix(); err != nil {
		return err
	}
	s.fault = NewFileError(s.o.Vectors, os.ErrClosed)
	if err := files.Rename(s.o.Vectors, path); err != nil {
		return NewFileError(path, cause(err))
	}
	return files.SyncFolder(filepath.Dir(path))
}

func (s *Spool) closeMatrix() error {
	if s.apart == nil || s.apart.file == nil {
		return nil
	}
	f := s.apart.file
	s.apart.file = nil
	return s.inMatrix(f.Close())
}
