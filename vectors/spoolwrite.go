package vectors

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"slices"

	"github.com/plaid-ir/plaid/internal/floats"
)

// addRecord records a document whose record of size bytes ends the file. It checks the id.
func (s *Spool) addRecord(id []byte, rows int, size int64) error {
	i := len(s.offsets)
	switch {
	case s.keys != nil:
		if len(id) != len(Key{}) {
			err := fmt.Errorf("%w: a key has %d bytes, not %d", ErrID, len(Key{}), len(id))
			return inFile(err, s.o.Path, i, -1, "")
		}
		if first, twice := s.keys[Key(id)]; twice {
			return inFile(fmt.Errorf("%w: document %d has the same key", ErrID, first), s.o.Path, i, -1, "")
		}
		s.keys[Key(id)] = uint32(i)
	case i > 0 && (len(id) > 0) != (s.ids != nil):
		err := fmt.Errorf("%w: some documents have one and others have none", ErrID)
		return inFile(err, s.o.Path, i, -1, string(id))
	case len(id) > 0:
		err := CheckID(string(id))
		if first, twice := s.seen.add(string(id), i); err == nil && twice {
			err = duplicateID(string(id), "document", first, i)
		}
		if err != nil {
			return inFile(err, s.o.Path, i, -1, "")
		}
		s.ids = append(s.ids, string(id))
	}
	if s.matrix != nil {
		s.matrix.firstRows = append(s.matrix.firstRows, s.tokens)
	}
	s.offsets = append(s.offsets, s.size)
	s.rows = append(s.rows, uint32(rows))
	s.tokens += int64(rows)
	s.size += size
	return nil
}

// Add appends a document, without keeping references to its slices. Either every document has an id, or
// none has, and ids are row numbers. After an error of the file, no more documents can be added; after an
// error of the document they can.
//
// Errors: [ErrID], [ErrShape], [ErrValue] (also for a value beyond float16), and those of the file.
func (s *Spool) Add(doc Document) error {
	if err := s.checkUsable(); err != nil {
		return err
	}
	// Check the document.
	i, id := len(s.offsets), doc.ID // for errors
	if s.keys != nil {
		id = "" // a key cannot be printed
	}
	if len(doc.Tokens)%s.dim != 0 {
		err := fmt.Errorf("%w: %d values are no multiple of the dimension %d", ErrShape, len(doc.Tokens), s.dim)
		return inFile(err, "", i, -1, id)
	}
	if !s.o.Float16 { // appendVectors checks values when it converts them to float16
		if err := checkFinite(doc.Tokens, s.dim); err != nil {
			return inFile(err, "", i, -1, id)
		}
	}
	if err := checkCount(i+1, s.o.Path); err != nil {
		return err
	}
	rows := len(doc.Tokens) / s.dim
	if int64(len(doc.Payload)) >= math.MaxUint32 || int64(rows) > math.MaxUint32 {
		err := fmt.Errorf("%w: %d token vectors and %d bytes of metadata are too many",
			ErrShape, rows, len(doc.Payload))
		return inFile(err, "", i, -1, id)
	}
	// Encode its record.
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
	// Add the record to the buffer.
	if err := s.addRecord([]byte(doc.ID), rows, int64(len(b)-start)); err != nil {
		return err
	}
	s.buf = b
	if s.matrix != nil {
		s.matrix.commitVectors()
	}
	if s.bufferedBytes() >= spoolBuffer {
		return s.Flush()
	}
	return nil
}

// appendRecord appends a record except its lengths, which b has already, from start on.
func (s *Spool) appendRecord(b []byte, start int, doc Document) (_ []byte, err error) {
	if s.matrix != nil {
		if b, err = s.matrix.encodeVectors(b, s, doc.Tokens); err != nil {
			return b, err
		}
	}
	head := start + s.headBytes()
	b = append(b, 0, 0, 0, 0)
	b = append(append(b, doc.ID...), doc.Payload...)
	if s.matrix == nil {
		if b, err = s.appendVectors(b, doc.Tokens); err != nil {
			return b, err
		}
	}
	binary.LittleEndian.PutUint32(b[head-4:], recordChecksum(b[start:head], b[head:]))
	return b, nil
}

// bufferedBytes returns the number of bytes that were not written yet.
func (s *Spool) bufferedBytes() int {
	if s.matrix != nil {
		return len(s.buf) + len(s.matrix.buf)
	}
	return len(s.buf)
}

// appendVectors appends vectors as float32 or float16. Its error is [ErrValue] for a value that is not
// finite as float16.
func (s *Spool) appendVectors(b []byte, values []float32) ([]byte, error) {
	n := len(b)
	b = slices.Grow(b, len(values)*s.numberBytes())
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
		infinite := func(v float32) bool { return floats.Float16(v)&0x7fff == 0x7c00 }
		j := slices.IndexFunc(values, infinite)
		fe := NewFileError("", fmt.Errorf("%w: %v, as float16", ErrValue, values[j]))
		fe.Token, fe.Dim = j/s.dim, j%s.dim
		return b, fe
	}
	return b, nil
}

// checkUsable returns an error if the spool is closed, or a write has failed.
func (s *Spool) checkUsable() error {
	if s.closed {
		return NewFileError(s.o.Path, os.ErrClosed)
	}
	return s.fault
}

// Flush writes buffered documents to the file, so that a kill does not lose them. It does not sync.
func (s *Spool) Flush() error {
	if err := s.checkUsable(); err != nil {
		return err
	}
	if err := s.flushMatrix(); err != nil { // before the records that need these vectors
		s.fault = err
		return s.fault
	}
	if _, err := s.file.WriteAt(s.buf, s.size-int64(len(s.buf))); err != nil {
		s.fault = s.fileError(err)
		return s.fault
	}
	s.buf = s.buf[:0]
	return nil
}
