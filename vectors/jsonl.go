package vectors

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/kernels"
)

// jsonlSource reads documents from lines of JSON. Opening it scans the file for the offsets of lines;
// the numbers in a line are parsed when its document is read.
type jsonlSource struct {
	source
	r      io.ReaderAt
	dim    int
	docs   []jsonlDoc
	ownIDs bool // ids are those of the lines, not of another file
	line   []byte
	tokens []float32
}

// jsonlDoc is the location and size of a document.
type jsonlDoc struct {
	span
	line int // from 1
	rows int
}

// record is a parsed line. Its slices point into the line.
type record struct {
	id      []byte // raw JSON, or nil
	vectors []byte // from [[ to ]]
	rows    int
	extra   bool // has fields other than vectors and the id
}

// newJSONL scans a file of size bytes. If ownIDs is true, it reads and checks the ids of the lines;
// otherwise it ignores them.
func newJSONL(ctx context.Context, r io.ReaderAt, size int64, path string, ownIDs bool) (*jsonlSource, error) {
	s := &jsonlSource{source: source{path: path, files: new(inputs)}, r: r, ownIDs: ownIDs}
	lines := newLineReader(files.UntilDone(ctx, io.NewSectionReader(r, 0, size)), maxLine)
	seen := idSet{}
	var payload []byte
	for {
		text, off, err := lines.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil && blankCount(text) == len(text) {
			continue
		}
		doc := len(s.docs)
		if err != nil {
			return nil, inFile(err, path, doc, lines.Number, "")
		}
		payload = payload[:0]
		rec, err := parseRecord(text, &payload, s.checkDim)
		if err == nil && rec.extra {
			err = s.checkFields(rec.id, payload)
		}
		if err != nil {
			return nil, inFile(err, path, doc, lines.Number, "")
		}
		s.docs = append(s.docs, jsonlDoc{span{off, uint32(len(text))}, lines.Number, rec.rows})
		if !ownIDs {
			continue
		}
		if err := s.appendID(rec.id, seen); err != nil {
			return nil, inFile(err, path, doc, lines.Number, "")
		}
	}
	if err := checkCount(len(s.docs), path); err != nil {
		return nil, err
	}
	return s, nil
}

// checkFields checks the fields of a line other than vectors, which are stored as its payload.
func (s *jsonlSource) checkFields(rawID, payload []byte) error {
	if !s.ownIDs {
		return CheckObject(payload)
	}
	id := ""
	if rawID != nil {
		var err error
		if id, err = jsonID(rawID); err != nil {
			return err
		}
	}
	return CheckDocument(Draft{ID: id, Payload: payload})
}

// checkDim compares the dimension of a row with that of the rows before it. It counts commas.
func (s *jsonlSource) checkDim(token int, text []byte) error {
	n := componentCount(text)
	if n == s.dim && n > 0 {
		return nil
	}
	fe := NewFileError("", nil)
	fe.Token = token
	switch {
	case n < 1 || n > kernels.MaxDim:
		fe.Err = fmt.Errorf("%w: dimension %d is not in 1..%d", ErrShape, n, kernels.MaxDim)
	case s.dim == 0:
		s.dim = n
		return nil
	default:
		fe.Err = fmt.Errorf("%w: dimension %d, vectors before it have %d", ErrShape, n, s.dim)
	}
	return fe
}

// appendID adds the id of the last document. raw is JSON, or nil if the line has no id; then no line may
// have one.
func (s *jsonlSource) appendID(raw []byte, seen idSet) error {
	n := len(s.docs)
	if raw == nil {
		if s.ids != nil {
			return fmt.Errorf("%w: no id, lines before it have one", ErrID)
		}
		return nil
	}
	if s.ids == nil && n > 1 {
		return fmt.Errorf("%w: an id, lines before it have none", ErrID)
	}
	id, err := jsonID(raw)
	if err != nil {
		return err
	}
	line := s.docs[n-1].line
	if first, twice := seen.add(id, line); twice {
		return duplicateID(id, "line", first, line)
	}
	s.ids = append(s.ids, id)
	return nil
}

// parseRecord parses a line. It calls visitRow with the text of each row of the vectors, and appends
// the other fields to payload as a JSON object, unless payload is nil.
func parseRecord(line []byte, payload *[]byte, visitRow func(token int, text []byte) error) (rec record, err error) {
	var plainID []byte // of the key id; _id takes precedence
	err = visitMembers(line, func(key, text []byte) (int, error) {
		// The vectors.
		if keyEquals(key, "vectors") || keyEquals(key, "embeddings") {
			if rec.vectors != nil {
				return 0, fmt.Errorf("%w: vectors (or embeddings) twice", ErrFormat)
			}
			n, rows, err := walkRows(text, visitRow)
			if err != nil {
				return 0, err
			}
			rec.vectors, rec.rows = text[:n], rows
			return n, nil
		}
		// Any other field.
		n := valueEnd(text)
		if n <= 0 || !json.Valid(text[:n]) {
			return 0, fmt.Errorf("%w: field %s: malformed value", ErrFormat, quoteExcerpt(key))
		}
		value := text[:n]
		if !utf8.Valid(key) || !utf8.Valid(value) {
			kind := ErrFormat
			if keyEquals(key, "_id") || keyEquals(key, "id") {
				kind = ErrID
			}
			return 0, fmt.Errorf("%w: field %s is not UTF-8", kind, quoteExcerpt(key))
		}
		switch {
		case keyEquals(key, "_id"):
			rec.id = value
		case keyEquals(key, "id"):
			plainID = value
		default:
			rec.extra = true
		}
		if payload != nil {
			separator := byte(',')
			if len(*payload) == 0 {
				separator = '{'
			}
			*payload = append(append(append(append(*payload, separator), key...), ':'), value...)
		}
		return n, nil
	})
	if rec.id == nil {
		rec.id = plainID
	} else if plainID != nil { // id is an ordinary field if the line has _id
		rec.extra = true
	}
	if payload != nil && len(*payload) > 0 {
		*payload = append(*payload, '}')
	}
	if err == nil && rec.vectors == nil {
		err = fmt.Errorf("%w: object has no vectors (or embeddings)", ErrFormat)
	}
	return rec, err
}

func (s *jsonlSource) Dim() int       { return s.dim }
func (s *jsonlSource) Len() int       { return len(s.docs) }
func (s *jsonlSource) Rows(i int) int { return s.docs[i].rows }

func (s *jsonlSource) Docs(ctx context.Context, from, to int) iter.Seq2[Document, error] {
	return s.files.guardDocs(from, func(yield func(Document, error) bool) {
		// Take the buffers from s during the loop, so that a nested loop allocates others.
		line, tokens, payload := s.line, s.tokens, []byte(nil)
		s.line, s.tokens = nil, nil
		defer func() { s.line, s.tokens = line, tokens }()
		eachDocument(ctx, s.path, from, to, len(s.docs), yield, func(i int) (doc Document, err error) {
			doc.ID = s.ID(i)
			if line, err = readSpan(s.r, line, s.docs[i].span, s.path); err == nil {
				payload = payload[:0]
				doc.Payload, err = s.parse(line, &tokens, &payload, i)
			}
			if err == nil && s.payload != nil {
				doc.Payload, payload, err = s.payload.readPayload(payload, i)
			}
			if err != nil {
				err = inFile(err, s.path, i, s.docs[i].line, doc.ID)
			}
			doc.Tokens = tokens
			return doc, err
		})
	})
}

// parse parses the line of document i into tokens and payload, and returns the payload. It is nil if
// the line has none, and also if another file has the payloads.
func (s *jsonlSource) parse(line []byte, tokens *[]float32, payload *[]byte, i int) ([]byte, error) {
	*tokens = (*tokens)[:0]
	if want := s.docs[i].rows * s.dim; cap(*tokens) < want {
		*tokens = make([]float32, 0, want)
	}
	if s.payload != nil {
		payload = nil
	}
	rec, err := parseRecord(line, payload, func(token int, text []byte) (err error) {
		*tokens, err = parseRow(*tokens, token, text)
		return err
	})
	if err != nil {
		return nil, err
	}
	if rec.rows != s.docs[i].rows || len(*tokens) != rec.rows*s.dim {
		return nil, fmt.Errorf("%w: the line has other vectors", ErrChanged)
	}
	if s.ownIDs && s.ids != nil && !idEquals(rec.id, s.ids[i]) {
		return nil, fmt.Errorf("%w: the line has another id", ErrChanged)
	}
	if rec.extra && payload != nil {
		return *payload, nil
	}
	return nil, nil
}
