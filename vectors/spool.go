package vectors

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"iter"
	"math"
	"os"
	"slices"
	"strconv"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/internal/floats"
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
	o    SpoolOptions
	dim  int
	file *os.File
	size int64 // of the file with what is buffered
	buf  []byte

	apart   *matrix // of SpoolOptions.Vectors; nil: vectors are in the records
	at      []int64 // where documents begin
	rows    []uint32
	ids     []string // nil: row numbers
	seen    idSet
	keys    map[Key]uint32 // of a keyed spool: which document has a key; nil: it is none
	tokens  int64
	keep    bool
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
		if s.file, err = os.CreateTemp("", "plaid-spool-*"); err != nil {
			return err
		}
		os.Remove(s.file.Name()) // gone at once where the system allows it, at Close elsewhere
		return nil
	}
	flags := os.O_RDWR | os.O_CREATE
	if !s.o.Resume {
		flags |= os.O_EXCL
	}
	if s.file, err = os.OpenFile(s.o.Path, flags, 0o600); err != nil {
		return NewFileError(s.o.Path, cause(err))
	}
	s.keep = true
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

// other says why the file cannot be gone on with, whose head is not the one that is wanted.
func (s *Spool) other() error {
	head := make([]byte, len(spoolMagic)+12)
	if _, err := s.file.ReadAt(head, 0); err != nil || !slices.Contains([]string{spoolMagic, apartMagic, keyedMagic, keyedApartMagic}, string(head[:len(spoolMagic)])) {
		return fmt.Errorf("%w: it is not a spool of this version", ErrSpool)
	}
	if string(head[:len(spoolMagic)]) != s.magic() {
		return fmt.Errorf("%w: it is a spool for another purpose", ErrSpool)
	}
	dim, width := binary.LittleEndian.Uint32(head[8:]), binary.LittleEndian.Uint32(head[12:])
	if int(dim) != s.dim || int(width) != s.width() {
		return fmt.Errorf("%w: it has vectors of dimension %d with %d bytes a number, wanted are %d and %d", ErrSpool, dim, width, s.dim, s.width())
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

// note enters a document of the file.
func (s *Spool) note(id []byte, rows int, size int64) error {
	i := len(s.at)
	switch {
	case s.keys != nil:
		if len(id) != len(Key{}) {
			return inFile(fmt.Errorf("%w: a key has %d bytes, not %d", ErrID, len(Key{}), len(id)), s.o.Path, i, -1, "")
		}
		if first, twice := s.keys[Key(id)]; twice {
			return inFile(fmt.Errorf("%w: document %d has the same key", ErrID, first), s.o.Path, i, -1, "")
		}
		s.keys[Key(id)] = uint32(i)
	case i > 0 && (len(id) > 0) != (s.ids != nil):
		return inFile(fmt.Errorf("%w: some documents have one and others have none", ErrID), s.o.Path, i, -1, string(id))
	case len(id) > 0:
		err := CheckID(string(id))
		if first, twice := s.seen.note(string(id), i); err == nil && twice {
			err = duplicateID(string(id), "document", first, i)
		}
		if err != nil {
			return inFile(err, s.o.Path, i, -1, "")
		}
		s.ids = append(s.ids, string(id))
	}
	if s.apart != nil {
		s.apart.firsts = append(s.apart.firsts, s.tokens)
	}
	s.at = append(s.at, s.size)
	s.rows = append(s.rows, uint32(rows))
	s.tokens += int64(rows)
	s.size += size
	return nil
}

// Add appends a document; nothing of it is kept by reference. Every document has
// an id or none has, and then ids are row numbers. After an error that is not of
// the document but of the file, no more can be added.
//
// Errors: [ErrID], [ErrShape], [ErrValue] (also a value beyond float16), and
// those of the file.
func (s *Spool) Add(doc Document) error {
	if err := s.usable(); err != nil {
		return err
	}
	i, id := len(s.at), doc.ID
	if s.keys != nil {
		id = "" // in errors
	}
	if len(doc.Tokens)%s.dim != 0 {
		err := fmt.Errorf("%w: %d values are no multiple of the dimension %d", ErrShape, len(doc.Tokens), s.dim)
		return inFile(err, "", i, -1, id)
	}
	if !s.o.Float16 { // halves are looked at as they are made
		if err := checkFinite(doc.Tokens, s.dim); err != nil {
			return inFile(err, "", i, -1, id)
		}
	}
	if err := checkCount(i+1, s.o.Path); err != nil {
		return err
	}
	rows := len(doc.Tokens) / s.dim
	if int64(len(doc.Payload)) >= math.MaxUint32 || int64(rows) > math.MaxUint32 {
		err := fmt.Errorf("%w: %d token vectors and %d bytes of metadata are too many", ErrShape, rows, len(doc.Payload))
		return inFile(err, "", i, -1, id)
	}
	start := len(s.buf)
	b := binary.LittleEndian.AppendUint32(s.buf, uint32(len(doc.ID)))
	payload := uint32(0)
	if doc.Payload != nil {
		payload = uint32(len(doc.Payload)) + 1
	}
	b = binary.LittleEndian.AppendUint32(b, payload)
	b = binary.LittleEndian.AppendUint32(b, uint32(rows))
	b, err := s.appendRecord(b, start, doc)
	if err != nil {
		return inFile(err, "", i, -1, id)
	}
	if err := s.note([]byte(doc.ID), rows, int64(len(b)-start)); err != nil {
		return err
	}
	s.buf = b
	if s.apart != nil {
		s.apart.take()
	}
	if s.buffered() >= spoolBuffer {
		return s.Flush()
	}
	return nil
}

// appendRecord completes a record that begins with its lengths, at start.
func (s *Spool) appendRecord(b []byte, start int, doc Document) (_ []byte, err error) {
	if s.apart != nil {
		if b, err = s.apart.append(b, s, doc.Tokens); err != nil {
			return b, err
		}
	}
	head := start + s.headBytes()
	b = append(b, 0, 0, 0, 0)
	b = append(append(b, doc.ID...), doc.Payload...)
	if s.apart == nil {
		if b, err = s.appendVectors(b, doc.Tokens); err != nil {
			return b, err
		}
	}
	binary.LittleEndian.PutUint32(b[head-4:], recordSum(b[start:head], b[head:]))
	return b, nil
}

func (s *Spool) buffered() int {
	if s.apart != nil {
		return len(s.buf) + len(s.apart.buf)
	}
	return len(s.buf)
}

func (s *Spool) appendVectors(b []byte, values []float32) ([]byte, error) {
	n := len(b)
	b = slices.Grow(b, len(values)*s.width())
	if !s.o.Float16 {
		for _, v := range values {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
		return b, nil
	}
	b = b[:n+2*len(values)]
	if !floats.EncodeFloat16(b[n:], values) {
		if err := checkFinite(values, s.dim); err != nil {
			return b, err
		}
		j := slices.IndexFunc(values, func(v float32) bool { return floats.Float16(v)&0x7fff == 0x7c00 })
		fe := NewFileError("", fmt.Errorf("%w: %v, as float16", ErrValue, values[j]))
		fe.Token, fe.Dim = j/s.dim, j%s.dim
		return b, fe
	}
	return b, nil
}

func (s *Spool) usable() error {
	if s.closed {
		return NewFileError(s.o.Path, os.ErrClosed)
	}
	return s.fault
}

// Flush writes what is buffered, so that a kill does not lose it. It does not
// wait for the disk.
func (s *Spool) Flush() error {
	if err := s.usable(); err != nil {
		return err
	}
	if err := s.flushMatrix(); err != nil { // first, so that a record has its vectors
		s.fault = err
		return s.fault
	}
	if _, err := s.file.WriteAt(s.buf, s.size-int64(len(s.buf))); err != nil {
		s.fault = s.at0(err)
		return s.fault
	}
	s.buf = s.buf[:0]
	return nil
}

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

// Docs implements [Source]. Records are checked again as they are read.
func (s *Spool) Docs(ctx context.Context, from, to int) iter.Seq2[Document, error] {
	return func(yield func(Document, error) bool) {
		if err := s.Flush(); err != nil {
			yield(Document{}, err)
			return
		}
		eachDocument(ctx, s.o.Path, from, to, len(s.at), yield, s.doc)
	}
}

// Doc is document i, as [Spool.Docs] yields it.
func (s *Spool) Doc(i int) (Document, error) {
	if err := errors.Join(checkRange(s.o.Path, i, i+1, len(s.at)), s.Flush()); err != nil {
		return Document{}, err
	}
	return s.doc(i)
}

func (s *Spool) doc(i int) (Document, error) {
	if err := s.usable(); err != nil {
		return Document{}, err
	}
	id := s.ID(i)
	r, err := s.read(s.at[i], s.size)
	if err == nil && s.apart != nil {
		err = s.readVectors(&r, s.apart.firsts[i])
	}
	if err == nil && (!s.has(i, r.id) || len(r.vectors) != s.Rows(i)*s.dim*s.width()) {
		err = &brokenRecord{"it is another document's"}
	}
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = &brokenRecord{"the file was cut short"}
		}
		return Document{}, inFile(cause(err), s.o.Path, i, -1, id)
	}
	s.scratch = slices.Grow(s.scratch[:0], s.Rows(i)*s.dim)[:s.Rows(i)*s.dim]
	k := kindF32
	if s.o.Float16 {
		k = kindF16
	}
	decodeFloats(s.scratch, r.vectors, k)
	return Document{ID: id, Tokens: s.scratch, Payload: r.payload}, nil
}

// has reports whether an id in the file is that of a document.
func (s *Spool) has(i int, id []byte) bool {
	switch {
	case s.keys != nil:
		if len(id) != len(Key{}) {
			return false
		}
		n, ok := s.keys[Key(id)]
		return ok && int(n) == i
	case s.ids != nil:
		return string(id) == s.ids[i]
	}
	return true
}

// Close implements [Source]. A file that has a path of its own stays, with all
// that was added.
func (s *Spool) Close() error {
	if s.closed {
		return nil
	}
	var err error
	if s.keep && s.fault == nil {
		err = s.Flush()
	}
	s.closed = true
	err = errors.Join(err, s.closeMatrix(), s.file.Close())
	if !s.keep {
		if rerr := os.Remove(s.file.Name()); !errors.Is(rerr, fs.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
	}
	return err
}
