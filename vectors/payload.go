package vectors

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/plaid-ir/plaid/internal/files"
)

// payloads is an index of a JSON-lines file: where the object of each document
// is.
type payloads struct {
	path string
	r    io.ReaderAt
	at   []span
	ids  []string // whose they are; nil: they are in order
	matches
	io.Closer
}

// matches counts the objects of a file that documents have, and the others.
type matches struct {
	docs    int // with an object
	foreign int // objects of no document
	line    int // of the first of these
	id      string
}

// strange notes an object that is of no document.
func (m *matches) strange(line int, id string) {
	if m.foreign++; m.foreign == 1 || line < m.line {
		m.line, m.id = line, id
	}
}

// tell is the error of a file that has no object of any of n documents, and says what else does not
// match.
func (m *matches) tell(path string, n int, doc func() string, notice func(string)) error {
	switch {
	case n == 0 && m.foreign == 0, m.docs == n && m.foreign == 0:
		return nil
	case m.docs == 0 && m.foreign > 0 && n > 0:
		return faultf(path, ErrID, "none of its objects is of a document: line %d has the id %.80q, and a document %.80q",
			m.line, m.id, doc())
	case notice == nil:
		return nil
	}
	text := fmt.Sprintf("%s has objects for %d of %d documents", path, m.docs, n)
	if m.foreign == 1 {
		text += fmt.Sprintf("; line %d (id %.80q) is of none", m.line, m.id)
	} else if m.foreign > 1 {
		text += fmt.Sprintf("; %d lines are of none (the first is line %d, id %.80q)", m.foreign, m.line, m.id)
	}
	notice(text)
	return nil
}

// span is a part of a file; n = 0 is none.
type span struct {
	off int64
	n   uint32
}

// openPayloads indexes a JSON-lines file for n documents. With ids an object
// belongs to the document of its _id or id, and notice is told of others and of documents without
// one; without, the objects are the documents' in order, and must be as many.
func (in *inputs) openPayloads(
	ctx context.Context, path string, n int, ids []string, notice func(string),
) (*payloads, error) {
	f, size, err := in.openLookedUp(ctx, path)
	if err != nil {
		return nil, err
	}
	p := &payloads{path: path, r: f, Closer: f, at: make([]span, n)}
	err = p.scan(files.UntilDone(ctx, io.NewSectionReader(f, 0, size)), ids)
	if err == nil && ids != nil {
		err = p.tell(path, n, func() string { return ids[0] }, notice)
	}
	if err != nil {
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
		doc, id := row, ""
		if ids != nil {
			var err error
			if id, err = o.needID(); err != nil {
				return err
			}
			var known bool
			if doc, known = rows[id]; !known {
				p.strange(o.line, id)
				return nil
			}
			if at[doc] > 0 {
				return duplicateID(id, "line", at[doc], o.line)
			}
			at[doc] = o.line
			p.docs++
		}
		if err := o.check(id, row); err != nil {
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
	own  []byte // the same of _id alone
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
		id, own, err := objectID(text)
		if err == nil {
			err = visit(object{text, id, own, span{off, uint32(len(text))}, lines.Number})
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

// check decides whether the object may be stored with the document of an id, "" the one of a
// number, which its index names.
func (o object) check(id string, row int) error {
	if id == "" && o.own != nil {
		if said, err := ParseID(o.own); err != nil || said != "" && said != strconv.Itoa(row) {
			return fmt.Errorf("%w: object has the %s %.80s, and the documents have no ids, "+
				"but numbers from 0: give them ids", ErrID, IDField, o.own)
		}
		id = strconv.Itoa(row)
	}
	return CheckDocument(Draft{ID: id, Payload: o.text})
}

// objectID is the raw id of a JSON object, which is validated as a whole: that
// of the key _id, which own is, else of id, else nil.
func objectID(text []byte) (id, own []byte, err error) {
	if id, own, err = findID(text); err == nil && !json.Valid(text) {
		err = fmt.Errorf("%w: is not JSON: %v", ErrFormat, json.Unmarshal(text, new(json.RawMessage)))
	}
	return id, own, err
}

// findID is objectID without validation.
func findID(text []byte) (id, own []byte, err error) {
	var plain []byte
	err = members(text, func(key, rest []byte) (int, error) {
		n := valueEnd(rest)
		if n > 0 {
			switch {
			case keyIs(key, "_id"):
				own = rest[:n]
			case keyIs(key, "id"):
				plain = rest[:n]
			}
		}
		return n, nil
	})
	if id = own; id == nil {
		id = plain
	}
	return id, own, err
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
	if raw, _, err := findID(text); err != nil || !isID(raw, id) {
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
	asked int    // calls of Get
	last  string // what the last one asked for
	io.Closer
}

type placed struct {
	span
	line  int // from 1
	asked bool
}

// OpenPayloads finds the objects of a file, each of which must have an id of its
// own. Errors are [*FileError] and wrap [ErrFormat], [ErrID], [ErrChanged] or an
// error of ctx or the operating system.
func OpenPayloads(ctx context.Context, path string) (*Payloads, error) {
	p := &Payloads{path: path, at: map[string]placed{}}
	f, size, err := p.files.openLookedUp(ctx, path)
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
		if err := o.check(id, 0); err != nil {
			return inFile(err, path, -1, o.line, id)
		}
		p.at[id] = placed{span: o.span, line: o.line}
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
	p.asked++
	p.last = id
	place, ok := p.at[id]
	if !ok {
		return nil, nil
	}
	place.asked = true
	p.at[id] = place
	b, err := readSpan(p.f, nil, place.span, p.path)
	if err == nil {
		err = stillHas(b, id, p.path)
	}
	if err != nil {
		return nil, p.files.blame(err)
	}
	return b, nil
}

// Matched is the error ([ErrID]) of a file without an object for any of the documents that Get was
// asked for, each once. It tells notice of objects that were not asked for, and of documents without
// one.
func (p *Payloads) Matched(notice func(string)) error {
	var m matches
	for id, place := range p.at {
		if place.asked {
			m.docs++
		} else {
			m.strange(place.line, id)
		}
	}
	return m.tell(p.path, p.asked, func() string { return p.last }, notice)
}

// Unchanged is [ErrChanged] if the file is not what it was when it was opened. Ask
// it after the last Get, before trusting what that returned.
func (p *Payloads) Unchanged() error { return p.files.check() }
