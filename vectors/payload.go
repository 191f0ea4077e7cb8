package vectors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// payloads is an index of a JSON-lines file: where the object of each document
// is.
type payloads struct {
	path string
	r    io.ReaderAt
	at   []span
	io.Closer
}

// span is a part of a file; n = 0 is none.
type span struct {
	off int64
	n   uint32
}

// openPayloads indexes a JSON-lines file for n documents. With ids an object
// belongs to the document of its _id or id, and others are ignored; without,
// the objects are the documents' in order, and must be as many.
func openPayloads(path string, n int, ids []string) (*payloads, error) {
	if err := refuseGzip(path); err != nil {
		return nil, err
	}
	f, size, err := openFile(path)
	if err != nil {
		return nil, err
	}
	p := &payloads{path: path, r: f, Closer: f, at: make([]span, n)}
	if err := p.scan(io.NewSectionReader(f, 0, size), ids); err != nil {
		f.Close()
		return nil, err
	}
	return p, nil
}

func (p *payloads) scan(r io.Reader, ids []string) error {
	var rows idSet
	var at []int // line of each document's object
	if ids != nil {
		rows, at = make(idSet, len(ids)), make([]int, len(ids))
		for i, id := range ids {
			rows[id] = i
		}
	}
	lines := newLineReader(r, maxLine)
	row := 0
	for {
		text, off, err := lines.line()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return inFile(err, p.path, -1, lines.no, "")
		}
		lead := blanks(text)
		off, text = off+int64(lead), bytes.TrimRight(text[lead:], " \t\r")
		if len(text) == 0 {
			continue
		}
		id, err := objectID(text)
		doc := row
		if err == nil && ids != nil {
			var known bool
			if doc, known, err = find(rows, id); err == nil && !known {
				continue
			}
		}
		if err != nil {
			return inFile(err, p.path, -1, lines.no, "")
		}
		if ids != nil {
			if at[doc] > 0 {
				return inFile(duplicateID(ids[doc], "line", at[doc], lines.no), p.path, -1, lines.no, "")
			}
			at[doc] = lines.no
		}
		if doc < len(p.at) {
			p.at[doc] = span{off, uint32(len(text))}
		}
		row++
	}
	if ids == nil && row != len(p.at) {
		return faultf(p.path, ErrShape, "%d objects for %d documents without ids: objects are matched in order, so give ids or as many of both", row, len(p.at))
	}
	return nil
}

// find looks up the raw JSON id of a payload.
func find(rows idSet, raw []byte) (doc int, known bool, err error) {
	if raw == nil {
		return 0, false, fmt.Errorf("%w: object has neither _id nor id", ErrID)
	}
	id, err := jsonID(raw)
	if err != nil {
		return 0, false, err
	}
	doc, known = rows[id]
	return doc, known, nil
}

// objectID is the raw id of a JSON object, which is validated as a whole: that
// of the key _id, else of id, else nil.
func objectID(text []byte) (id []byte, err error) {
	var plain []byte
	err = members(text, func(key, rest []byte) (int, error) {
		n := valueEnd(rest)
		if n > 0 {
			switch {
			case keyIs(key, "_id"):
				id = rest[:n]
			case keyIs(key, "id"):
				plain = rest[:n]
			}
		}
		return n, nil
	})
	if err == nil && !json.Valid(text) {
		err = fmt.Errorf("%w: is not JSON: %v", ErrFormat, json.Unmarshal(text, new(json.RawMessage)))
	}
	if id == nil {
		id = plain
	}
	return id, err
}

// get reads the payload of a document into buf; nil if it has none.
func (p *payloads) get(buf []byte, doc int) (payload, grown []byte, err error) {
	s := p.at[doc]
	if s.n == 0 {
		return nil, buf, nil
	}
	if buf, err = readSpan(p.r, buf, s, p.path); err != nil {
		return nil, buf, err
	}
	return buf, buf, nil
}

// readSpan reads a part of a file into buf, which it grows.
func readSpan(r io.ReaderAt, buf []byte, s span, path string) ([]byte, error) {
	if cap(buf) < int(s.n) {
		buf = make([]byte, s.n)
	}
	buf = buf[:s.n]
	if n, err := r.ReadAt(buf, s.off); n < len(buf) {
		return buf, NewFileError(path, malformed(err))
	}
	return buf, nil
}
