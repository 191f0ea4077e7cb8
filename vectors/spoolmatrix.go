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
	matrixMagic      = "plaidsp\x02"
	keyedMatrixMagic = "plaidsp\x04"
	// matrixHeaderBytes is the number of bytes reserved for the header of the .npy file, which has this
	// length for every matrix.
	matrixHeaderBytes = 128
)

// matrix is the separate file of a spool's vectors ([SpoolOptions].Vectors): reserved bytes for a
// header, and then the vectors of all documents, as in a .npy file.
type matrix struct {
	file      *os.File // nil after CompleteMatrix
	size      int64    // bytes of the file, with buf
	buf       []byte   // vectors of added documents, not written yet
	next      []byte   // vectors of the document that is being added
	firstRows []int64  // the number of vectors before each document
}

// openMatrix opens the separate file of vectors, if the spool has one. hasDocuments means that the
// spool has documents already. Then the file may have been completed, under its name as a .npy file
// (SpoolOptions.Matrix), and is renamed back.
func (s *Spool) openMatrix(hasDocuments bool) error {
	if s.matrix == nil {
		return nil
	}
	if _, err := os.Lstat(s.o.Vectors); hasDocuments && s.o.Matrix != "" && errors.Is(err, fs.ErrNotExist) {
		if err := files.Rename(s.o.Matrix, s.o.Vectors); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return NewFileError(s.o.Matrix, withoutPath(err))
		}
	}
	f, err := files.OpenFile(s.o.Vectors, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return NewFileError(s.o.Vectors, withoutPath(err))
	}
	s.matrix.file = f
	return nil
}

// matrixError adds the path of the file of vectors to an error. nil stays nil.
func (s *Spool) matrixError(err error) error {
	if err == nil {
		return nil
	}
	return NewFileError(s.o.Vectors, withoutPath(err))
}

// matrixBytes returns the size in bytes of a file of this number of vectors, with its header.
func (s *Spool) matrixBytes(tokens int64) int64 {
	return matrixHeaderBytes + tokens*int64(s.dim)*int64(s.numberBytes())
}

// truncateMatrix truncates the file of vectors to those that the records of the spool have.
func (s *Spool) truncateMatrix() error {
	if s.matrix == nil {
		return nil
	}
	s.matrix.size = s.matrixBytes(s.tokens)
	return s.matrixError(s.matrix.file.Truncate(s.matrix.size))
}

// encodeVectors encodes the vectors of a document into m.next, and appends their checksum to its record b.
func (m *matrix) encodeVectors(b []byte, s *Spool, tokens []float32) (_ []byte, err error) {
	if m.next, err = s.appendVectors(m.next[:0], tokens); err != nil {
		return b, err
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(m.next, castagnoli)), nil
}

// commitVectors moves the vectors that encodeVectors has encoded to the buffer, once the document is added.
func (m *matrix) commitVectors() {
	m.buf = append(m.buf, m.next...)
	m.size += int64(len(m.next))
}

// flushMatrix writes buffered vectors to their file.
func (s *Spool) flushMatrix() error {
	m := s.matrix
	if m == nil || len(m.buf) == 0 {
		return nil
	}
	_, err := m.file.WriteAt(m.buf, m.size-int64(len(m.buf)))
	m.buf = m.buf[:0]
	return s.matrixError(err)
}

// readVectors reads the vectors of a record from the separate file, and verifies them. first is the
// number of vectors before them.
func (s *Spool) readVectors(r *spoolRecord, first int64) error {
	if s.matrix.file == nil {
		return os.ErrClosed
	}
	r.vectors = make([]byte, s.matrixBytes(r.rows)-matrixHeaderBytes)
	_, err := s.matrix.file.ReadAt(r.vectors, s.matrixBytes(first))
	if errors.Is(err, io.EOF) {
		return &brokenRecord{"its vectors are cut short"}
	}
	if err == nil && crc32.Checksum(r.vectors, castagnoli) != r.sum {
		return &brokenRecord{"the checksum of its vectors differs"}
	}
	return err
}

// findSoundVectors returns the offset of a sound record with sound vectors after the record at off,
// whose vectors are damaged, in a file of n bytes. 0 means no such record.
func (s *Spool) findSoundVectors(off, n int64) (int64, error) {
	for first := s.tokens; off < n; {
		r, err := s.readRecord(off, n)
		if broken := (*brokenRecord)(nil); errors.As(err, &broken) { // then records have no known offsets
			return s.findSoundRecord(off, n)
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

// CompleteMatrix completes the separate file of vectors ([SpoolOptions].Vectors) to a .npy file [tokens, dim],
// and renames it to path, where it replaces any file. Afterwards the spool can neither add documents
// nor read vectors.
func (s *Spool) CompleteMatrix(path string) error {
	if s.matrix == nil || s.matrix.file == nil {
		return NewFileError(s.o.Path, fmt.Errorf("its vectors are not in a file of their own: %w", os.ErrClosed))
	}
	if err := s.Flush(); err != nil {
		return err
	}
	// Write the header into the reserved bytes.
	dtype := "<f4"
	if s.o.Float16 {
		dtype = "<f2"
	}
	head, err := npyHeader(dtype, []int{int(s.tokens), s.dim})
	if err == nil && len(head) != matrixHeaderBytes {
		err = fmt.Errorf("%w: a header of %d bytes", ErrShape, len(head))
	}
	if err == nil {
		_, err = s.matrix.file.WriteAt(head, 0)
	}
	if err == nil {
		err = s.matrix.file.Sync()
	}
	if err != nil {
		return s.matrixError(err)
	}
	// Rename the file, and refuse further use of the spool.
	if err := s.closeMatrix(); err != nil {
		return err
	}
	s.fault = NewFileError(s.o.Vectors, os.ErrClosed)
	if err := files.Rename(s.o.Vectors, path); err != nil {
		return NewFileError(path, withoutPath(err))
	}
	return files.SyncFolder(filepath.Dir(path))
}

// closeMatrix closes the separate file of vectors, if it is open.
func (s *Spool) closeMatrix() error {
	if s.matrix == nil || s.matrix.file == nil {
		return nil
	}
	f := s.matrix.file
	s.matrix.file = nil
	return s.matrixError(f.Close())
}
