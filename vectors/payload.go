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

// payloads is a JSON-lines file with the locations of the objects of documents.
type payloads struct {
	path  string
	r     io.ReaderAt
	spans []span   // location of the object of each document
	ids   []string // ids of the documents. nil means that objects are in the order of documents
	matchCount
	io.Closer
}

// matchCount counts the objects of a file by whether a document has them.
type matchCount struct {
	docs    int    // documents with an object
	foreign int    // objects without document
	line    int    // of the first object without document
	id      string // of that object
}

// addForeign counts an object without document.
func (m *matchCount) addForeign(line int, id string) {
	if m.foreign++; m.foreign == 1 || line < m.line {
		m.line, m.id = line, id
	}
}

// report returns an error if the file has objects but none for any of n documents. If only some objects
// and documents match, it calls notice, which may be nil, with a text about that. exampleID returns the
// id of a document, for the error.
func (m *matchCount) report(path string, n int, exampleID func() string, notice func(string)) error {
	switch {
	case n == 0 && m.foreign == 0, m.docs == n && m.foreign == 0:
		return nil
	case m.docs == 0 && m.foreign > 0 && n > 0:
		return faultf(path, ErrID,
			"none of its objects is of a document: line %d has the id %.80q, and a document %.80q",
			m.line, m.id, exampleID())
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

// span is a range of bytes of a file. A length n of 0 means none.
type span struct {
	off int64
	n   uint32
}

// openPayloads scans a JSON-lines file for the objects of n documents. If ids is not nil, an object
// belongs to the document of its _id or id, and notice is called with a text about objects and documents
// that do not match. If ids is nil, objects are in the order of documents, and must be as many.
func (in *inputs) openPayloads(
	ctx context.Context, path string, n int, ids []string, notice func(string),
) (*payloads, error) {
	f, size, err := in.openRandomAccess(ctx, path)
	if err != nil {
		return nil, err
	}
	p := &payloads{path: path, r: f, Closer: f, spans: make([]span, n)}
	err = p.findObjects(files.UntilDone(ctx, io.NewSectionReader(f, 0, size)), ids)
	if err == nil && ids != nil {
		err = p.report(path, n, func() string { return ids[0] }, notice)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return p, nil
}

// findObjects finds the objects of documents, and checks that they can be stored.
func (p *payloads) findObjects(r io.Reader, ids []string) error {
	p.ids = ids
	var rows idSet       // the document of each id
	var objectLine []int // the line of the object of each document
	if ids != nil {
		rows, objectLine = make(idSet, len(ids)), make([]int, len(ids))
		for i, id := range ids {
			rows[id] = i
		}
	}
	row := 0 // of the object
	err := eachObject(r, p.path, func(o object) error {
		doc, id := row, ""
		if ids != nil {
			var err error
			if id, err = o.requireID(); err != nil {
				return err
			}
			var known bool
			if doc, known = rows[id]; !known {
				p.addForeign(o.line, id)
				return nil
			}
			if objectLine[doc] > 0 {
				return duplicateID(id, "line", objectLine[doc], o.line)
			}
			objectLine[doc] = o.line
			p.docs++
		}
		if err := o.checkStorable(id, row); err != nil {
			return inFile(err, p.path, doc, o.line, id)
		}
		if doc < len(p.spans) {
			p.spans[doc] = o.span
		}
		row++
		return nil
	})
	if err != nil {
		return err
	}
	if ids == nil && row != len(p.spans) {
		return faultf(p.path, ErrShape, "%d objects for %d documents without ids: "+
			"objects are matched in order, so give ids or as many of both", row, len(p.spans))
	}
	return nil
}

// object is an object of a JSON-lines file.
type object struct {
	text         []byte
	id           []byte // raw value of _id, or else of id, or nil
	underscoreID []byte // raw value of _id, or nil
	span         span
	line         int // from 1
}

// eachObject calls visit for every object of a JSON-lines file, and adds the line to its errors.
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
		lead := blankCount(text)
		off, text = off+int64(lead), bytes.TrimRight(text[lead:], " \t\r")
		if len(text) == 0 {
			continue
		}
		id, underscoreID, err := objectID(text)
		if err == nil {
			err = visit(object{
				text:         text,
				id:           id,
				underscoreID: underscoreID,
				span:         span{off, uint32(len(text))},
				line:         lines.Number,
			})
		}
		if err != nil {
			return inFile(err, path, -1, lines.Number, "")
		}
	}
}

// requireID returns the id of an object, or an error if it has none.
func (o object) requireID() (string, error) {
	if o.id == nil {
		return "", fmt.Errorf("%w: object has neither _id nor id", ErrID)
	}
	return jsonID(o.id)
}

// checkStorable checks that the object may be stored with the document of an id. "" means a document whose id is
// the number of its row.
func (o object) checkStorable(id string, row int) error {
	if id == "" && o.underscoreID != nil {
		if ownID, err := ParseID(o.underscoreID); err != nil || ownID != "" && ownID != strconv.Itoa(row) {
			return fmt.Errorf("%w: object has the %s %.80s, and the documents have no ids, "+
				"but numbers from 0: give them ids", ErrID, IDField, o.underscoreID)
		}
		id = strconv.Itoa(row)
	}
	return CheckDocument(Draft{ID: id, Payload: o.text})
}

// objectID validates a JSON object, and returns the raw value of its key _id, or else of id, or nil.
// underscoreID is the value of _id, or nil.
func objectID(text []byte) (id, underscoreID []byte, err error) {
	if id, underscoreID, err = findID(text); err == nil && !json.Valid(text) {
		err = fmt.Errorf("%w: is not JSON: %v", ErrFormat, json.Unmarshal(text, new(json.RawMessage)))
	}
	return id, underscoreID, err
}

// findID is objectID without validation.
func findID(text []byte) (id, underscoreID []byte, err error) {
	var plainID []byte // of the key id
	err = visitMembers(text, func(key, value []byte) (int, error) {
		n := valueEnd(value)
		if n > 0 {
			switch {
			case keyEquals(key, "_id"):
				underscoreID = value[:n]
			case keyEquals(key, "id"):
				plainID = value[:n]
			}
		}
		return n, nil
	})
	if id = underscoreID; id == nil {
		id = plainID
	}
	return id, underscoreID, err
}

// readPayload reads the payload of a document into buf, which it may grow. payload is nil if the document has
// none.
func (p *payloads) readPayload(buf []byte, doc int) (payload, grown []byte, err error) {
	s := p.spans[doc]
	if s.n == 0 {
		return nil, buf, nil
	}
	if buf, err = readSpan(p.r, buf, s, p.path); err != nil {
		return nil, buf, err
	}
	if p.ids != nil {
		err = checkObjectID(buf, p.ids[doc], p.path)
	}
	return buf, buf, err
}

// checkObjectID checks that an object has the id that it had when the file was opened. It does not rely on
// the size and time of the file.
func checkObjectID(text []byte, id, path string) error {
	if raw, _, err := findID(text); err != nil || !idEquals(raw, id) {
		return faultf(path, ErrChanged, "the object of %q is not where it was", id)
	}
	return nil
}

// readSpan reads a span of a file into buf, which it may grow.
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

// Payloads is a JSON-lines file that finds objects by their _id or id. Only the locations of objects are
// in memory. It is for one goroutine at a time.
type Payloads struct {
	path    string
	f       io.ReaderAt
	objects map[string]objectLocation
	files   inputs
	calls   int    // calls of Get
	lastID  string // id of the last call
	io.Closer
}

// objectLocation is the location of an object.
type objectLocation struct {
	span
	line    int  // from 1
	matched bool // Get was called for it
}

// OpenPayloads finds the objects of a file, which must have distinct ids. Errors are [*FileError] and
// wrap [ErrFormat], [ErrID], [ErrChanged] or an error of ctx or the operating system.
func OpenPayloads(ctx context.Context, path string) (*Payloads, error) {
	p := &Payloads{path: path, objects: map[string]objectLocation{}}
	f, size, err := p.files.openRandomAccess(ctx, path)
	if err != nil {
		return nil, err
	}
	p.f, p.Closer = f, f
	err = eachObject(files.UntilDone(ctx, io.NewSectionReader(f, 0, size)), path, func(o object) error {
		id, err := o.requireID()
		if err != nil {
			return err
		}
		if first, twice := p.objects[id]; twice {
			return duplicateID(id, "line", first.line, o.line)
		}
		const noRow = 0 // objects with an id need none
		if err := o.checkStorable(id, noRow); err != nil {
			return inFile(err, path, -1, o.line, id)
		}
		p.objects[id] = objectLocation{span: o.span, line: o.line}
		return nil
	})
	if err != nil {
		err = p.files.explainByChange(err)
		f.Close()
		return nil, err
	}
	return p, nil
}

// Get returns the object of an id, or nil if the file has none.
func (p *Payloads) Get(id string) ([]byte, error) {
	p.calls++
	p.lastID = id
	object, ok := p.objects[id]
	if !ok {
		return nil, nil
	}
	object.matched = true
	p.objects[id] = object
	b, err := readSpan(p.f, nil, object.span, p.path)
	if err == nil {
		err = checkObjectID(b, id, p.path)
	}
	if err != nil {
		return nil, p.files.explainByChange(err)
	}
	return b, nil
}

// CheckMatched returns [ErrID] if Get found no object for any document. It assumes one call of Get for each
// document. It calls notice, if not nil, with a text about objects without document, and documents
// without object.
func (p *Payloads) CheckMatched(notice func(string)) error {
	var m matchCount
	for id, object := range p.objects {
		if object.matched {
			m.docs++
		} else {
			m.addForeign(object.line, id)
		}
	}
	return m.report(p.path, p.calls, func() string { return p.lastID }, notice)
}

// CheckUnchanged returns [ErrChanged] if the file has changed since it was opened. Call it after the last Get,
// before using the objects.
func (p *Payloads) CheckUnchanged() error { return p.files.checkUnchanged() }
