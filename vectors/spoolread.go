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

// brokenRecord: the file has no whole record there.
type brokenRecord struct{ reason string }

func (e *brokenRecord) Error() string { return "a record is damaged: " + e.reason }

// Unwrap makes errors.Is find ErrFormat.
func (e *brokenRecord) Unwrap() error { return ErrFormat }

type spoolRecord struct {
	id, payload, vectors []byte // payload: nil if there is none
	rows, size           int64
	sum                  uint32 // of vectors that are apart
}

// spoolLengths are what the head of a record says of it, in bytes.
type spoolLengths struct {
	id, payload, vectors int64 // vectors: 0 where they are apart
	head, rows           int64
	hasPayload           bool
}

// headBytes is what a record has in front of its id.
func (s *Spool) headBytes() int {
	if s.apart != nil {
		return recordBytes + 4
	}
	return recordBytes
}

func (s *Spool) lengths(head []byte) (l spoolLengths) {
	l.id = int64(binary.LittleEndian.Uint32(head[0:]))
	l.payload = int64(binary.LittleEndian.Uint32(head[4:]))
	l.hasPayload = l.payload > 0
	l.payload = max(l.payload-1, 0)
	l.head, l.rows = int64(s.headBytes()), int64(binary.LittleEndian.Uint32(head[8:]))
	if s.apart == nil {
		l.vectors = l.rows * int64(s.dim*s.width())
	}
	return l
}

func (l *spoolLengths) record() int64 { return l.head + l.id + l.payload + l.vectors }

// fit: a record of these lengths has room in so many bytes.
func (l *spoolLengths) fit(room int64) bool { return l.id <= MaxIDBytes && l.record() <= room }

// read returns the record at off of a file of n bytes.
func (s *Spool) read(off, n int64) (r spoolRecord, err error) {
	head := make([]byte, s.headBytes())
	if n-off < int64(len(head)) {
		return r, &brokenRecord{"its head is cut short"}
	}
	if _, err := s.file.ReadAt(head, off); err != nil {
		return r, err
	}
	l := s.lengths(head)
	if !l.fit(n - off) {
		return r, &brokenRecord{"it is longer than the file"}
	}
	b := make([]byte, l.record()-l.head)
	if _, err := s.file.ReadAt(b, off+l.head); err != nil {
		return r, err
	}
	if !wholeRecord(head, b) {
		return r, &brokenRecord{"its checksum differs"}
	}
	r.size, r.rows = l.record(), l.rows
	r.sum = binary.LittleEndian.Uint32(head[12:])
	r.id, r.vectors = b[:l.id], b[l.id+l.payload:]
	if l.hasPayload {
		r.payload = b[l.id : l.id+l.payload]
	}
	return r, nil
}

// recordSum is the checksum of a record with a head, which ends with its place, and what
// follows it.
func recordSum(head, rest []byte) uint32 {
	return crc32.Update(crc32.Checksum(head[:len(head)-4], castagnoli), castagnoli, rest)
}

func wholeRecord(head, rest []byte) bool {
	return recordSum(head, rest) == binary.LittleEndian.Uint32(head[len(head)-4:])
}

// recover takes in the whole records of a file of n bytes. What is behind the last of
// them goes: it was cut short when the writer died. A damaged record with a whole one
// behind it was not, and is an error, which leaves the file as it is.
func (s *Spool) recover(n int64) error {
	for s.size < n {
		r, err := s.read(s.size, n)
		behind := s.wholeBehind
		if err == nil && s.apart != nil {
			if err = s.readVectors(&r, s.tokens); err != nil {
				behind = s.wholeVectorsBehind
			}
		}
		var broken *brokenRecord
		if errors.As(err, &broken) {
			whole, err := behind(s.size, n)
			if err == nil && whole > 0 {
				err = fmt.Errorf("%w at byte %d, and a whole one is at byte %d; the file stays as it is: "+
					"remove it to start again", broken, s.size, whole)
			}
			if err != nil {
				return inFile(cause(err), s.o.Path, len(s.at), -1, "")
			}
			break
		}
		if err != nil {
			return s.at0(err)
		}
		if err := s.note(r.id, int(r.rows), r.size); err != nil {
			return s.at0(err)
		}
	}
	if s.size < n {
		if err := s.file.Truncate(s.size); err != nil {
			return s.at0(err)
		}
	}
	return s.cutMatrix()
}

// searchedBytes bounds the checksums of one search for whole records: values that look
// like lengths everywhere would take the square of the file. A variable, for tests.
var searchedBytes int64 = 4 << 30

// wholeBehind finds where the first whole record behind that at off begins, in a file
// of n bytes; 0: there is none. The lengths of a damaged record are not to be trusted,
// so every byte may be the first.
func (s *Spool) wholeBehind(off, n int64) (int64, error) {
	window := make([]byte, min(spoolBuffer, n-off))
	left := searchedBytes
	headBytes := s.headBytes()
	for lo := off + 1; lo+int64(headBytes) <= n; lo += int64(len(window)-headBytes) + 1 {
		window = window[:min(int64(len(window)), n-lo)]
		if _, err := s.file.ReadAt(window, lo); err != nil {
			return 0, err
		}
		for i := range len(window) - headBytes + 1 {
			head, begin := window[i:i+headBytes], lo+int64(i)
			l := s.lengths(head)
			if !l.fit(n - begin) {
				continue
			}
			if size := l.record(); size > int64(len(window)-i) {
				_, err := s.read(begin, n)
				if err == nil {
					return begin, nil
				}
				if broken := (*brokenRecord)(nil); !errors.As(err, &broken) {
					return 0, err
				}
			} else if wholeRecord(head, window[i+headBytes:i+int(size)]) {
				return begin, nil
			}
			if left -= l.record(); left < 0 {
				return 0, &brokenRecord{fmt.Sprintf("at byte %d, and too much behind it looks like a whole one; "+
					"remove the file to start again", off)}
			}
		}
	}
	return 0, nil
}

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
