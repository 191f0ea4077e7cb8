package vectors

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/internal/files"
)

// payloads is an index of a JSON-lines file: where the object of each document
// is.
type payloads struct {
	path string
	r    io.ReaderAt
	at   []span
	ids  []string // whose they are; nil: they are in order
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
func (in *inputs) openPayloads(ctx context.Context, path string, n int, ids []string) (*payloads, error) {
	if err := refuseGzip(path); err != nil {
		return nil, err
	}
	f, size, err := in.open(path)
	if err != nil {
		return nil, err
	}
	p := &payloads{path: path, r: f, Closer: f, at: make([]span, n)}
	if err := p.scan(files.UntilDone(ctx, io.NewSectionReader(f, 0, size)), ids); err != nil {
		f.Close()
		return nil, err
	}
	return p, nil
}

func (p *payloads) scan(r io.Reader, ids []string) error {
	p.ids = ids
	var rows idSet
	var at []int // line of each document's object
	if ids != nil {
		rows, at = make(idSet, len(ids)), make([]int, len(ids))
		for i, id := range ids {
			rows[id] = i
		}
	}
	row := 0
	err := eachObject(r, p.path, func(o object) error {
		doc := row
		if ids != nil {
			id, err := o.needID()
			if err != nil {
				return err
			}
			var known bool
			if doc, known = rows[id]; !known {
				return nil
			}
			if at[doc] > 0 {
				return duplicateID(id, "line", at[doc], o.line)
			}
			at[doc] = o.line
		}
		if err := o.checkText(); err != nil {
			id := ""
			if ids != nil {
				id = ids[doc]
			}
			return inFile(err, p.path, doc, o.line, id)
		}
		if doc < len(p.at) {
			p.at[doc] = o.span
		}
		row++
		return nil
	})
	if err != nil {
		return err
	}
	if ids == nil && row != len(p.at) {
		return faultf(p.path, ErrShape, "%d objects for %d documents without ids: objects are matched in order, so give ids or as many of both", row, len(p.at))
	}
	return nil
}

// object is an object of a JSON-lines file.
type object struct {
	text []byte
	id   []byte // raw; nil if there is none
	span span
	line int // from 1
}

// eachObject calls visit for every object of a JSON-lines file, and gives its
// errors the place.
func eachObject(r io.Reader, path string, visit func(object) error) error {
	lines := newLineReader(r, maxLine)
	for {
		text, off, err := lines.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return inFile(err, path, -1, lines.Number, "")
		}
		lead := blanks(text)
		off, text = off+int64(lead), bytes.TrimRight(text[lead:], " \t\r")
		if len(text) == 0 {
			continue
		}
		id, err := objectID(text)
		if err == nil {
			err = visit(object{text, id, span{off, uint32(len(text))}, lines.Number})
		}
		if err != nil {
			return inFile(err, path, -1, lines.Number, "")
		}
	}
}

// needID is the id of an object that must have one.
func (o object) needID() (string, error) {
	if o.id == nil {
		return "", fmt.Errorf("%w: object has neither _id nor id", ErrID)
	}
	return jsonID(o.id)
}

// checkText refuses what encoding/json calls valid, and other readers of JSON do
// not.
func (o object) checkText() error {
	if utf8.Valid(o.text) {
		return nil
	}
	at := 0
	for {
		r, n := utf8.DecodeRune(o.text[at:])
		if r == utf8.RuneError && n == 1 {
			return fmt.Errorf("%w: byte %d of the object, %#02x, is not UTF-8", ErrFormat, at, o.text[at])
		}
		at += n
	}
}

// objectID is the raw id of a JSON object, which is validated as a whole: that
// of the key _id, else of id, else nil.
func objectID(text []byte) (id []byte, err error) {
	if id, err = findID(text); err == nil && !json.Valid(text) {
		err = fmt.Errorf("%w: is not JSON: %v", ErrFormat, json.Unmarshal(text, new(json.RawMessage)))
	}
	return id, err
}

// findID is objectID without validation.
func findID(text []byte) (id []byte, err error) {
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
	if p.ids != nil {
		err = stillHas(buf, p.ids[doc], p.path)
	}
	return buf, buf, err
}

// stillHas makes sure that an object is the one that was noted, whatever the file
// system says of the file.
func stillHas(text []byte, id, path string) error {
	if raw, err := findID(text); err != nil || !isID(raw, id) {
		return faultf(path, ErrChanged, "the object of %q is not where it was", id)
	}
	return nil
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

// Payloads is a JSON-lines file of which an object is found by its _id or id. Only
// the places of the objects are in memory. It is for one goroutine at a time.
type Payloads struct {
	path  string
	f     io.ReaderAt
	at    map[string]placed
	files inputs
	io.Closer
}

type placed struct {
	span
	line int // from 1
}

// OpenPayloads finds the objects of a file, each of which must have an id of its
// own. Errors are [*FileError] and wrap [ErrFormat], [ErrID], [ErrChanged] or an
// error of ctx or the operating system.
func OpenPayloads(ctx context.Context, path string) (*Payloads, error) {
	if err := refuseGzip(path); err != nil {
		return nil, err
	}
	p := &Payloads{path: path, at: map[string]placed{}}
	f, size, err := p.files.open(path)
	if err != nil {
		return nil, err
	}
	p.f, p.Closer = f, f
	err = eachObject(files.UntilDone(ctx, io.NewSectionReader(f, 0, size)), path, func(o object) error {
		id, err := o.needID()
		if err != nil {
			return err
		}
		if first, twice := p.at[id]; twice {
			return duplicateID(id, "line", first.line, o.line)
		}
		if err := o.checkText(); err != nil {
			return inFile(err, path, -1, o.line, id)
		}
		p.at[id] = placed{o.span, o.line}
		return nil
	})
	if err != nil {
		err = p.files.blame(err)
		f.Close()
		return nil, err
	}
	return p, nil
}

// Get returns the object of an id, nil if there is none.
func (p *Payloads) Get(id string) ([]byte, error) {
	place, ok := p.at[id]
	if !ok {
		return nil, nil
	}
	b, err := readSpan(p.f, nil, place.span, p.path)
	if err == nil {
		err = stillHas(b, id, p.path)
	}
	if err != nil {
		return nil, p.files.blame(err)
	}
	return b, nil
}

// Unchanged is [ErrChanged] if the file is not what it was when it was opened. Ask
// it after the last Get, before trusting what that returned.
func (p *Payloads) Unchanged() error { return p.files.check() }
