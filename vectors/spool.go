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

// Spool takes documents one after the other, as an encoder or a stream gives
// them, and is a [Source] of those that it has: a build reads its source more
// than once, which a stream cannot offer. Documents wait in a file; in memory
// are their ids and about 20 bytes each.
//
// A spool with a path of its own outlives the process: what was added before a
// kill is there when the path is opened again, but for a document that was cut
// short, so that work can go on where it stopped. Only the end of a file is cut: one
// that is damaged before its last document is not opened, and stays as it is.
//
// It is for one goroutine at a time.
type Spool struct {
	o      SpoolOptions
	dim    int
	file   *os.File
	closer io.Closer // of the file
	size   int64     // of the file with what is buffered
	buf    []byte

	apart   *matrix // of SpoolOptions.Vectors; nil: vectors are in the records
	at      []int64 // where documents begin
	rows    []uint32
	ids     []string // nil: row numbers
	seen    idSet
	keys    map[Key]uint32 // of a keyed spool: which document has a key
	tokens  int64
	fault   error // of writing: the end of the file is not known
	closed  bool
	scratch []float32
}

// SpoolOptions for NewSpool. The zero value, or nil, spools float32 vectors to a
// temporary file that is gone when the spool is closed.
type SpoolOptions struct {
	// Path is the file, which stays after Close; "": a temporary one.
	Path string
	// Resume goes on with what is at Path, if there is something. Without it a
	// file that is there is an error ([fs.ErrExist]).
	Resume bool
	// Tag says what the documents come from, such as a model and a collection. A
	// file with another tag is not resumed ([ErrSpool]).
	Tag string
	// Float16 stores vectors with half the bytes, rounded to 11 bits.
	Float16 bool
	// Vectors, where set, is a file that takes the vectors, beside Path, which has the
	// rest. [Spool.Matrix] makes a .npy file of it, without copying them.
	Vectors string
	// Matrix, where set, is that .npy file. A process that was killed after it was made, and
	// before Path was removed, left it in place of Vectors: it is taken back, but only if
	// the file at Path is the spool that is to go on.
	Matrix string
	// Keyed says that ids are keys: 16 bytes of any kind, each of them once. [Spool.Row] finds a
	// document by its key, and [Spool.ID] is the number of its row. In memory are about 45 bytes
	// for each document.
	Keyed bool
}

// Key is a digest that stands for what vectors were made from ([SpoolOptions].Keyed).
type Key [16]byte

// ErrSpool: a file that cannot be resumed, because it is none of a spool, or of
// one with another dimension, type of numbers or tag.
var ErrSpool = errors.New("not the spool that is to go on")

// ErrSpoolInUse: the file is that of a spool that is open, in this process or
// another. (Not noticed where there is no flock.)
var ErrSpoolInUse = errors.New("the spool is in use")

// A spool's file is a header and one record a document, all little-endian:
//
//	header  magic, dimension u32, bytes a number u32, length of the tag u32, tag, CRC32C of all this
//	record  length of the id, of the payload plus 1 (0: none), and token vectors, u32 each; CRC32C of the
//	        record without the checksum; id; payload; vectors
//
// Where the vectors are in a file of their own (spoolmatrix.go) the magic is another one,
// and a record has the CRC32C of its vectors in front of its own. A keyed spool has a magic of its
// own too, and a key in the place of an id.
const (
	spoolMagic  = "plaidsp\x01"
	keyedMagic  = "plaidsp\x03"
	recordBytes = 16
	// spoolBuffer is how much is written at once.
	spoolBuffer = 1 << 20
	maxTag      = 1 << 16
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// NewSpool makes an empty spool for vectors of dimension dim, or opens one.
//
// Errors: [ErrShape] (dim), [ErrSpool], [ErrSpoolInUse], [fs.ErrExist], [ErrFormat] for
// a file that is damaged, and those of the file.
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
		s.apart = &matrix{}
	}
	if err := s.begin(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Collect spools a stream of documents; the first error ends it.
func Collect(ctx context.Context, dim int, docs iter.Seq2[Document, error], o *SpoolOptions) (*Spool, error) {
	s, err := NewSpool(dim, o)
	if err != nil {
		return nil, err
	}
	for doc, derr := range docs {
		if err = errors.Join(derr, ctx.Err()); err == nil {
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
		return NewFileError(s.o.Path, cause(err))
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
		return errors.Join(NewFileError(s.o.Path, cause(err)), s.file.Close())
	}
	return nil
}

// begin writes the header, or reads what is there and cuts off what is not whole.
func (s *Spool) begin() error {
	head := s.header()
	info, err := s.file.Stat()
	if err != nil {
		return s.at0(err)
	}
	if n := info.Size(); n > 0 {
		got := make([]byte, min(n, int64(len(head))))
		if _, err := s.file.ReadAt(got, 0); err != nil {
			return s.at0(err)
		}
		if !slices.Equal(got, head[:len(got)]) {
			return s.at0(s.other())
		}
		if len(got) == len(head) {
			s.size = int64(len(head))
			if err := s.openMatrix(n > s.size); err != nil {
				return err
			}
			return s.recover(n)
		}
	}
	if err := s.file.Truncate(0); err != nil {
		return s.at0(err)
	}
	if err := s.openMatrix(false); err != nil {
		return err
	}
	if _, err := s.file.WriteAt(head, 0); err != nil {
		return s.at0(err)
	}
	s.size = int64(len(head))
	return s.cutMatrix()
}

// other says why the file cannot be gone on with: its head is not the one that is wanted.
func (s *Spool) other() error {
	head := make([]byte, len(spoolMagic)+12)
	_, err := s.file.ReadAt(head, 0)
	magic := string(head[:len(spoolMagic)])
	if err != nil || !slices.Contains([]string{spoolMagic, apartMagic, keyedMagic, keyedApartMagic}, magic) {
		return fmt.Errorf("%w: it is not a spool of this version", ErrSpool)
	}
	if magic != s.magic() {
		return fmt.Errorf("%w: it is a spool for another purpose", ErrSpool)
	}
	dim, width := binary.LittleEndian.Uint32(head[8:]), binary.LittleEndian.Uint32(head[12:])
	if int(dim) != s.dim || int(width) != s.width() {
		return fmt.Errorf("%w: it has vectors of dimension %d with %d bytes a number, wanted are %d and %d",
			ErrSpool, dim, width, s.dim, s.width())
	}
	return fmt.Errorf("%w: its vectors come from something else, such as another model or other settings of it", ErrSpool)
}

func (s *Spool) magic() string {
	switch {
	case s.apart != nil && s.keys != nil:
		return keyedApartMagic
	case s.apart != nil:
		return apartMagic
	case s.keys != nil:
		return keyedMagic
	}
	return spoolMagic
}

func (s *Spool) header() []byte {
	b := []byte(s.magic())
	b = binary.LittleEndian.AppendUint32(b, uint32(s.dim))
	b = binary.LittleEndian.AppendUint32(b, uint32(s.width()))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(s.o.Tag)))
	b = append(b, s.o.Tag...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func (s *Spool) width() int {
	if s.o.Float16 {
		return 2
	}
	return 4
}

func (s *Spool) at0(err error) error { return NewFileError(s.o.Path, cause(err)) }

// Tokens is the number of token vectors of all documents.
func (s *Spool) Tokens() int64 { return s.tokens }

// Row is the row of the document with a key, in a keyed spool.
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
func (s *Spool) Len() int { return len(s.at) }

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

// Close implements [Source]. A file that has a path of its own stays, with all
// that was added.
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
