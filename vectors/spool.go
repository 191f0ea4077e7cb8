package vectors

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"os"
	"slices"
	"strconv"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/kernels"
)

// Spool stores documents that come one after another, from an encoder or a stream, and is a [Source] of
// them. A build reads its source several times, which a stream cannot offer. The documents are in a file;
// the memory has their ids and about 20 bytes for each.
//
// A spool with a path outlives the process: when the path is opened again, it has all documents that were
// added before a kill, except one that was cut short, so that work can continue. Only the end of a file
// is truncated: a file with damage before its last document is not opened, and stays unchanged.
//
// It is for one goroutine at a time.
type Spool struct {
	o      SpoolOptions
	dim    int
	file   *os.File
	closer io.Closer // of the file
	size   int64     // bytes of the file, with buf
	buf    []byte    // records not written yet

	matrix  *matrix // the separate file of vectors, or nil if the records have them
	offsets []int64 // offset of each document
	rows    []uint32
	ids     []string // nil means row numbers
	seen    idSet
	keys    map[Key]uint32 // the document of each key, in a keyed spool
	tokens  int64
	fault   error // of a failed write, after which the end of the file is unknown
	closed  bool
	scratch []float32
}

// SpoolOptions are the options of [NewSpool]. The zero value, or nil, spools float32 vectors to a
// temporary file, which is removed when the spool is closed.
type SpoolOptions struct {
	// Path is the file, which stays after Close. "" means a temporary one.
	Path string
	// Resume continues the spool at Path, if there is one. Without Resume an existing file is an error
	// ([fs.ErrExist]).
	Resume bool
	// Tag identifies the origin of the documents, such as a model and a collection. A file with another
	// tag is not resumed ([ErrSpool]).
	Tag string
	// Float16 stores vectors in half the bytes, rounded to 11 bits.
	Float16 bool
	// Vectors, if set, is a separate file for the vectors; Path has everything else. [Spool.CompleteMatrix]
	// completes it to a .npy file without copying the vectors.
	Vectors string
	// Matrix, if set, is the path of that .npy file. If a process was killed after
	// [Spool.CompleteMatrix] and before it removed Path, only this file exists. It is renamed back to
	// Vectors, but only if the file at Path is the spool to resume.
	Matrix string
	// Keyed means that ids are keys: 16 arbitrary bytes, each key once. [Spool.Row] finds a document by
	// its key, and [Spool.ID] returns the number of its row. The memory has about 45 bytes for each
	// document.
	Keyed bool
}

// Key is a digest of the input from which vectors were computed ([SpoolOptions].Keyed).
type Key [16]byte

// ErrSpool means that a file cannot be resumed: it is not a spool, or one with another dimension, number
// type or tag.
var ErrSpool = errors.New("not the spool that is to go on")

// ErrSpoolInUse means that the spool is open, in this process or another. (On systems without flock this
// is not detected.)
var ErrSpoolInUse = errors.New("the spool is in use")

// The file of a spool is a header and one record per document, all little-endian:
//
//	header  magic, dimension u32, bytes per number u32, length of the tag u32, tag, CRC32C of all this
//	record  length of the id, length of the payload plus 1 (0 means no payload), number of token vectors,
//	        u32 each; CRC32C of the record without the checksum; id; payload; vectors
//
// If the vectors are in a separate file (spoolmatrix.go), the magic differs, and a record has the CRC32C
// of its vectors before its own. A keyed spool also has another magic, and keys in place of ids.
const (
	spoolMagic  = "plaidsp\x01"
	keyedMagic  = "plaidsp\x03"
	recordBytes = 16 // of a record before its id
	// spoolBuffer is the number of buffered bytes at which they are written.
	spoolBuffer = 1 << 20
	maxTag      = 1 << 16
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// NewSpool creates a spool for vectors of dimension dim, or opens an existing one.
//
// Errors: [ErrShape] (dim), [ErrSpool], [ErrSpoolInUse], [fs.ErrExist], [ErrFormat] for a damaged file,
// and those of the file.
func NewSpool(dim int, o *SpoolOptions) (*Spool, error) {
	s := &Spool{dim: dim, seen: idSet{}, scratch: []float32{}}
	if o != nil {
		s.o = *o
	}
	if dim < 1 || dim > kernels.MaxDim {
		return nil, faultf(s.o.Path, ErrShape, "dimension %d is not in 1..%d", dim, kernels.MaxDim)
	}
	if len(s.o.Tag) > maxTag {
		return nil, faultf(s.o.Path, ErrShape, "a tag of %d bytes; at most %d are possible", len(s.o.Tag), maxTag)
	}
	if s.o.Keyed {
		s.keys = map[Key]uint32{}
	}
	if s.o.Vectors != "" && s.o.Path == "" {
		return nil, faultf(s.o.Vectors, ErrShape, "a file for vectors alone, and none for the rest")
	}
	if err := s.openFile(); err != nil {
		return nil, err
	}
	if s.o.Vectors != "" {
		s.matrix = &matrix{}
	}
	if err := s.openRecords(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// SpoolDocuments spools a sequence of documents, until its first error.
func SpoolDocuments(ctx context.Context, dim int, docs iter.Seq2[Document, error], o *SpoolOptions) (*Spool, error) {
	s, err := NewSpool(dim, o)
	if err != nil {
		return nil, err
	}
	for doc, docErr := range docs {
		if err = errors.Join(docErr, ctx.Err()); err == nil {
			err = s.Add(doc)
		}
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	if err := s.Flush(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// openFile opens or creates the file, and locks one that has a path.
func (s *Spool) openFile() (err error) {
	if s.o.Path == "" {
		temporary, err := files.NewTemporary("", "plaid-spool-*")
		if err != nil {
			return err
		}
		s.file, s.closer = temporary.File, temporary
		return nil
	}
	flags := os.O_RDWR | os.O_CREATE
	if !s.o.Resume {
		flags |= os.O_EXCL
	}
	if s.file, err = os.OpenFile(s.o.Path, flags, 0o600); err != nil {
		return NewFileError(s.o.Path, withoutPath(err))
	}
	s.closer = s.file
	info, err := s.file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%w: it is no regular file", ErrSpool)
	}
	if err == nil && !files.TryLock(s.file) {
		err = ErrSpoolInUse
	}
	if err != nil {
		return errors.Join(NewFileError(s.o.Path, withoutPath(err)), s.file.Close())
	}
	return nil
}

// openRecords reads the header and the documents of an existing spool, or writes the header of a new one. A
// file that has only a part of the header is a new one, too.
func (s *Spool) openRecords() error {
	head := s.header()
	info, err := s.file.Stat()
	if err != nil {
		return s.fileError(err)
	}
	// Continue an existing spool.
	if n := info.Size(); n > 0 {
		stored := make([]byte, min(n, int64(len(head))))
		if _, err := s.file.ReadAt(stored, 0); err != nil {
			return s.fileError(err)
		}
		if !slices.Equal(stored, head[:len(stored)]) {
			return s.fileError(s.mismatchError())
		}
		if len(stored) == len(head) {
			s.size = int64(len(head))
			if err := s.openMatrix(n > s.size); err != nil {
				return err
			}
			return s.recoverDocs(n)
		}
	}
	// Begin a new spool.
	if err := s.file.Truncate(0); err != nil {
		return s.fileError(err)
	}
	const hasDocuments = false
	if err := s.openMatrix(hasDocuments); err != nil {
		return err
	}
	if _, err := s.file.WriteAt(head, 0); err != nil {
		return s.fileError(err)
	}
	s.size = int64(len(head))
	return s.truncateMatrix()
}

// mismatchError returns the error of a file whose header differs from the one that the options require.
func (s *Spool) mismatchError() error {
	head := make([]byte, len(spoolMagic)+12)
	_, err := s.file.ReadAt(head, 0)
	magic := string(head[:len(spoolMagic)])
	if err != nil || !slices.Contains([]string{spoolMagic, matrixMagic, keyedMagic, keyedMatrixMagic}, magic) {
		return fmt.Errorf("%w: it is not a spool of this version", ErrSpool)
	}
	if magic != s.magicBytes() {
		return fmt.Errorf("%w: it is a spool for another purpose", ErrSpool)
	}
	dim, width := binary.LittleEndian.Uint32(head[8:]), binary.LittleEndian.Uint32(head[12:])
	if int(dim) != s.dim || int(width) != s.numberBytes() {
		return fmt.Errorf("%w: it has vectors of dimension %d with %d bytes a number, wanted are %d and %d",
			ErrSpool, dim, width, s.dim, s.numberBytes())
	}
	return fmt.Errorf("%w: its vectors come from something else, such as another model or other settings of it",
		ErrSpool)
}

// magicBytes returns the first bytes of the file, which depend on its layout.
func (s *Spool) magicBytes() string {
	switch {
	case s.matrix != nil && s.keys != nil:
		return keyedMatrixMagic
	case s.matrix != nil:
		return matrixMagic
	case s.keys != nil:
		return keyedMagic
	}
	return spoolMagic
}

// header returns the header of the file.
func (s *Spool) header() []byte {
	b := []byte(s.magicBytes())
	b = binary.LittleEndian.AppendUint32(b, uint32(s.dim))
	b = binary.LittleEndian.AppendUint32(b, uint32(s.numberBytes()))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(s.o.Tag)))
	b = append(b, s.o.Tag...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// numberBytes returns the number of bytes of a stored number.
func (s *Spool) numberBytes() int {
	if s.o.Float16 {
		return 2
	}
	return 4
}

// fileError adds the path of the file to an error.
func (s *Spool) fileError(err error) error { return NewFileError(s.o.Path, withoutPath(err)) }

// Tokens returns the number of token vectors of all documents.
func (s *Spool) Tokens() int64 { return s.tokens }

// Row returns the row of the document with a key, in a keyed spool.
func (s *Spool) Row(k Key) (row int, ok bool) {
	n, ok := s.keys[k]
	return int(n), ok
}

// Dim implements [Source].
func (s *Spool) Dim() int {
	if s.tokens == 0 {
		return 0
	}
	return s.dim
}

// Len implements [Source].
func (s *Spool) Len() int { return len(s.offsets) }

// Rows implements [Source].
func (s *Spool) Rows(i int) int { return int(s.rows[i]) }

// ID implements [Source].
func (s *Spool) ID(i int) string {
	if s.ids == nil {
		return strconv.Itoa(i)
	}
	return s.ids[i]
}

func (s *Spool) name() string {
	if s.o.Path == "" {
		return "spooled documents"
	}
	return s.o.Path
}

// Numbered reports whether ids are row numbers.
func (s *Spool) Numbered() bool { return s.ids == nil }

// Close implements [Source]. A file with a path stays, with all added documents; a temporary one is
// removed.
func (s *Spool) Close() error {
	if s.closed {
		return nil
	}
	var err error
	if s.o.Path != "" && s.fault == nil {
		err = s.Flush()
	}
	s.closed = true
	return errors.Join(err, s.closeMatrix(), s.closer.Close())
}
