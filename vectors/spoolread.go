package vectors

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"slices"
)

// brokenRecord means that a record is damaged or cut short.
type brokenRecord struct{ reason string }

func (e *brokenRecord) Error() string { return "a record is damaged: " + e.reason }

// Unwrap makes errors.Is find ErrFormat.
func (e *brokenRecord) Unwrap() error { return ErrFormat }

// spoolRecord is a record of the file.
type spoolRecord struct {
	id, payload, vectors []byte // payload is nil if the document has none
	rows                 int64
	size                 int64  // bytes of the record
	sum                  uint32 // checksum of vectors in a separate file
}

// spoolLengths are the sizes in the head of a record, in bytes.
type spoolLengths struct {
	id, payload int64
	vectors     int64 // 0 if they are in a separate file
	head        int64
	rows        int64 // number of vectors
	hasPayload  bool
}

// headBytes returns the number of bytes of a record before its id.
func (s *Spool) headBytes() int {
	if s.matrix != nil {
		return recordBytes + 4 // the checksum of its vectors
	}
	return recordBytes
}

// parseRecordHead parses the head of a record.
func (s *Spool) parseRecordHead(head []byte) (l spoolLengths) {
	l.id = int64(binary.LittleEndian.Uint32(head[0:]))
	l.payload = int64(binary.LittleEndian.Uint32(head[4:]))
	l.hasPayload = l.payload > 0
	l.payload = max(l.payload-1, 0)
	l.head, l.rows = int64(s.headBytes()), int64(binary.LittleEndian.Uint32(head[8:]))
	if s.matrix == nil {
		l.vectors = l.rows * int64(s.dim*s.numberBytes())
	}
	return l
}

// recordBytes returns the size of the record in bytes.
func (l *spoolLengths) recordBytes() int64 { return l.head + l.id + l.payload + l.vectors }

// fitIn reports whether the lengths are possible for a record that has at most limit bytes.
func (l *spoolLengths) fitIn(limit int64) bool { return l.id <= MaxIDBytes && l.recordBytes() <= limit }

// readRecord reads and verifies the record at off in a file of n bytes. Its error is a [*brokenRecord] if the
// record is damaged.
func (s *Spool) readRecord(off, n int64) (r spoolRecord, err error) {
	head := make([]byte, s.headBytes())
	if n-off < int64(len(head)) {
		return r, &brokenRecord{"its head is cut short"}
	}
	if _, err := s.file.ReadAt(head, off); err != nil {
		return r, err
	}
	l := s.parseRecordHead(head)
	if !l.fitIn(n - off) {
		return r, &brokenRecord{"it is longer than the file"}
	}
	b := make([]byte, l.recordBytes()-l.head)
	if _, err := s.file.ReadAt(b, off+l.head); err != nil {
		return r, err
	}
	if !checksumMatches(head, b) {
		return r, &brokenRecord{"its checksum differs"}
	}
	r.size, r.rows = l.recordBytes(), l.rows
	r.sum = binary.LittleEndian.Uint32(head[12:])
	r.id, r.vectors = b[:l.id], b[l.id+l.payload:]
	if l.hasPayload {
		r.payload = b[l.id : l.id+l.payload]
	}
	return r, nil
}

// recordChecksum returns the checksum of a record: of its head, except the last four bytes, where the
// checksum is stored, and of its body.
func recordChecksum(head, body []byte) uint32 {
	return crc32.Update(crc32.Checksum(head[:len(head)-4], castagnoli), castagnoli, body)
}

// checksumMatches reports whether the checksum of a record is right.
func checksumMatches(head, body []byte) bool {
	return recordChecksum(head, body) == binary.LittleEndian.Uint32(head[len(head)-4:])
}

// recoverDocs adds the documents of the sound records in a file of n bytes, and truncates the file after
// them: the last record was cut short when the writer died. If a sound record follows a damaged one, the
// file is damaged otherwise: recoverDocs returns an error and leaves the file unchanged.
func (s *Spool) recoverDocs(n int64) error {
	for s.size < n {
		// Read the next record.
		r, err := s.readRecord(s.size, n)
		findSound := s.findSoundRecord
		if err == nil && s.matrix != nil {
			if err = s.readVectors(&r, s.tokens); err != nil {
				findSound = s.findSoundVectors
			}
		}
		// A damaged record must be the last.
		var broken *brokenRecord
		if errors.As(err, &broken) {
			sound, err := findSound(s.size, n)
			if err == nil && sound > 0 {
				err = fmt.Errorf("%w at byte %d, and a whole one is at byte %d; the file stays as it is: "+
					"remove it to start again", broken, s.size, sound)
			}
			if err != nil {
				return inFile(withoutPath(err), s.o.Path, len(s.offsets), -1, "")
			}
			break
		}
		if err != nil {
			return s.fileError(err)
		}
		if err := s.addRecord(r.id, int(r.rows), r.size); err != nil {
			return s.fileError(err)
		}
	}
	if s.size < n {
		if err := s.file.Truncate(s.size); err != nil {
			return s.fileError(err)
		}
	}
	return s.truncateMatrix()
}

// maxSearchedBytes is the maximum number of bytes that a search for sound records checksums. Without it a
// file in which all bytes look like lengths would take time quadratic in its size. A variable, for tests.
var maxSearchedBytes int64 = 4 << 30

// findSoundRecord returns the offset of the first sound record after the one at off, in a file of n bytes. 0
// means none. The lengths of a damaged record cannot be trusted, so that a record may begin at any byte.
func (s *Spool) findSoundRecord(off, n int64) (int64, error) {
	window := make([]byte, min(spoolBuffer, n-off))
	remaining := maxSearchedBytes
	headBytes := s.headBytes()
	for lo := off + 1; lo+int64(headBytes) <= n; lo += int64(len(window)-headBytes) + 1 {
		window = window[:min(int64(len(window)), n-lo)]
		if _, err := s.file.ReadAt(window, lo); err != nil {
			return 0, err
		}
		for i := range len(window) - headBytes + 1 {
			head, start := window[i:i+headBytes], lo+int64(i)
			l := s.parseRecordHead(head)
			if !l.fitIn(n - start) {
				continue
			}
			if size := l.recordBytes(); size > int64(len(window)-i) { // it ends beyond the window
				_, err := s.readRecord(start, n)
				if err == nil {
					return start, nil
				}
				if broken := (*brokenRecord)(nil); !errors.As(err, &broken) {
					return 0, err
				}
			} else if checksumMatches(head, window[i+headBytes:i+int(size)]) {
				return start, nil
			}
			if remaining -= l.recordBytes(); remaining < 0 {
				return 0, &brokenRecord{fmt.Sprintf("at byte %d, and too much behind it looks like a whole one; "+
					"remove the file to start again", off)}
			}
		}
	}
	return 0, nil
}

// Docs implements [Source]. It verifies the checksums of records.
func (s *Spool) Docs(ctx context.Context, from, to int) iter.Seq2[Document, error] {
	return func(yield func(Document, error) bool) {
		if err := s.Flush(); err != nil {
			yield(Document{}, err)
			return
		}
		eachDocument(ctx, s.o.Path, from, to, len(s.offsets), yield, s.readDoc)
	}
}

// Doc returns document i, as [Spool.Docs] yields it.
func (s *Spool) Doc(i int) (Document, error) {
	if err := errors.Join(checkRange(s.o.Path, i, i+1, len(s.offsets)), s.Flush()); err != nil {
		return Document{}, err
	}
	return s.readDoc(i)
}

// readDoc reads document i, which must have been flushed.
func (s *Spool) readDoc(i int) (Document, error) {
	if err := s.checkUsable(); err != nil {
		return Document{}, err
	}
	id := s.ID(i)
	r, err := s.readRecord(s.offsets[i], s.size)
	if err == nil && s.matrix != nil {
		err = s.readVectors(&r, s.matrix.firstRows[i])
	}
	if err == nil && (!s.hasID(i, r.id) || len(r.vectors) != s.Rows(i)*s.dim*s.numberBytes()) {
		err = &brokenRecord{"it is another document's"}
	}
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = &brokenRecord{"the file was cut short"}
		}
		return Document{}, inFile(withoutPath(err), s.o.Path, i, -1, id)
	}
	s.scratch = slices.Grow(s.scratch[:0], s.Rows(i)*s.dim)[:s.Rows(i)*s.dim]
	k := kindF32
	if s.o.Float16 {
		k = kindF16
	}
	decodeFloats(s.scratch, r.vectors, k)
	return Document{ID: id, Tokens: s.scratch, Payload: r.payload}, nil
}

// hasID reports whether an id in the file is that of document i.
func (s *Spool) hasID(i int, id []byte) bool {
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
