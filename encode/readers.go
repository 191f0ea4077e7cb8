package encode

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/internal/jsontext"
	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/vectors"
)

// maxTextLine is the length in bytes of the longest line, text or file that is read; longer ones
// are an error.
const maxTextLine = 64 << 20

// parser passes the texts of a stream to yield, until it returns false.
type parser func(ctx context.Context, r io.Reader, yield func(Text, error) bool) error

// readStream returns a sequence over a reader, which can be iterated once. The name is
// for errors.
func (p parser) readStream(ctx context.Context, r io.Reader, name string) iter.Seq2[Text, error] {
	return func(yield func(Text, error) bool) {
		err := p(ctx, r, func(t Text, err error) bool {
			t.From.Path = name
			return yield(t, err)
		})
		if err != nil {
			yield(Text{}, fileError(name, err))
		}
	}
}

// readFile returns a sequence that opens a file at each iteration. The file may be a pipe. A file
// that changes while it is read is an error.
func (p parser) readFile(ctx context.Context, name string) iter.Seq2[Text, error] {
	return func(yield func(Text, error) bool) {
		var watch files.Watch
		f, err := watch.Stream(ctx, name)
		if err != nil {
			var pe *fs.PathError
			if errors.As(err, &pe) {
				err = pe.Err
			}
			yield(Text{}, fileError(name, err))
			return
		}
		defer f.Close()
		stopped := false
		err = p(ctx, f, func(t Text, err error) bool {
			if t.From.Path = name; err == nil {
				err = changedError(watch.UnchangedSometimes())
			}
			stopped = !yield(t, err) || err != nil
			return !stopped
		})
		if stopped {
			return
		}
		// If the file changed, that explains any other error.
		if changed := changedError(watch.Unchanged()); changed != nil {
			yield(Text{}, changed)
		} else if err != nil {
			yield(Text{}, fileError(name, err))
		}
	}
}

// changedError converts a [files.ChangedError] to a [TextError], and returns other errors as they are.
func changedError(err error) error {
	if c, ok := errors.AsType[*files.ChangedError](err); ok {
		return &TextError{Path: c.Path, Row: -1, Err: fmt.Errorf("%w: %s", vectors.ErrChanged, c.How)}
	}
	return err
}

// fileError returns err as a [TextError] with the name of the file.
func fileError(name string, err error) error {
	var te *TextError
	if !errors.As(err, &te) {
		te = &TextError{Row: -1, Err: err}
	}
	te.Path = name
	return te
}

// visitLines calls visit with the lines of r, without their ends, and their numbers
// from 1, until it returns false. A line is valid until visit returns.
func visitLines(ctx context.Context, r io.Reader, visit func(line []byte, n int) (bool, error)) error {
	for lines := files.NewLineReader(r, maxTextLine); ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		line, _, err := lines.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return &TextError{Line: lines.Number, Row: -1, Err: err}
		}
		wantsMore, err := visit(line, lines.Number)
		if te := (*TextError)(nil); errors.As(err, &te) {
			return err
		} else if err != nil {
			return &TextError{Line: lines.Number, Row: -1, Err: err}
		}
		if !wantsMore {
			return nil
		}
	}
}

// JSONL reads a file of JSON objects, one per line, such as corpus.jsonl and
// queries.jsonl of BEIR: _id (or id), title, text, metadata. The other fields of an object
// become the payload; an object without other fields has none. A
// file that is compressed by gzip, zstd or xz is unpacked.
func JSONL(ctx context.Context, name string) iter.Seq2[Text, error] {
	return (&Reader{Format: FormatJSONL}).Texts(ctx, name)
}

type (
	// textLine is a line of a file, numbered from 1.
	textLine struct {
		bytes []byte
		n     int
	}
	// record is the text of a line of JSON.
	record struct {
		text Text
		has  presence
		// names are the fields of an object that lacks a field which some object must have; nil
		// means that it lacks none.
		names []string
		n     int // line number
	}
)

// presence holds which fields of a text an object or table has.
type presence struct{ id, title, text bool }

// jsonlParser returns a parser of JSON objects, one per line. It reads lines in order and parses them
// on several goroutines. Some object has to have each field that is named, and some object a title
// or a text.
func (r *Reader) jsonlParser(threads int) parser {
	return func(ctx context.Context, in io.Reader, yield func(Text, error) bool) error {
		lines := func(yield func(textLine, error) bool) {
			err := visitLines(ctx, in, func(line []byte, n int) (bool, error) {
				blank := len(bytes.TrimSpace(jsontext.TrimByteOrderMark(line))) == 0
				return blank || yield(textLine{bytes.Clone(line), n}, nil), nil
			})
			if err != nil {
				yield(textLine{}, err)
			}
		}
		var incomplete *record // the first object that lacks a field
		var present presence   // fields that some object has
		lineBytes := func(l textLine) int { return len(l.bytes) }
		for rec, err := range parallel.Map(ctx, lines, threads, lineBytes, r.parseRecord) {
			if err != nil {
				return err
			}
			if incomplete == nil && rec.names != nil {
				incomplete = &rec
			}
			present = presence{present.id || rec.has.id, present.title || rec.has.title, present.text || rec.has.text}
			if !yield(rec.text, nil) {
				return nil
			}
		}
		if incomplete == nil {
			return nil
		}
		if err := r.Fields.missingError(present, "no object has", "this one has", incomplete.names); err != nil {
			return &TextError{Line: incomplete.n, Row: -1, Err: err}
		}
		return nil
	}
}

// parseRecord parses a line and calls Convert with its text. Errors name the line.
func (r *Reader) parseRecord(l textLine) (rec record, err error) {
	rec.n = l.n
	err = r.parseObject(l.bytes, &rec)
	rec.text.From.Line = l.n
	switch {
	case err != nil:
		err = &TextError{Line: l.n, Row: -1, Err: err}
	case r.Convert != nil:
		rec.text, err = r.convertText(rec.text)
	}
	return rec, err
}

// parseObject parses a JSON object into the text and the fields of rec.
func (r *Reader) parseObject(line []byte, rec *record) error {
	line = bytes.TrimSpace(jsontext.TrimByteOrderMark(line)) // concatenated files have byte order marks inside
	if err := checkUTF8(string(line)); err != nil {
		return err
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(line, &m); err != nil || m == nil {
		return notObjectError(line, err)
	}
	if err := vectors.CheckObject(line); err != nil { // encoding/json would turn half a surrogate pair into U+FFFD
		return err
	}
	// Read id, title and text.
	t, f := &rec.text, &r.Fields
	ids := []string{f.ID}
	if f.ID == "" {
		ids = []string{"_id", "id"}
	}
	title, text := cmp.Or(f.Title, "title"), cmp.Or(f.Text, "text")
	_, rec.has.title = m[title]
	_, rec.has.text = m[text]
	used := []string{title, text}
	for _, key := range ids {
		if raw, ok := m[key]; ok && t.ID == "" {
			rec.has.id, used = true, append(used, key)
			var err error
			if t.ID, err = vectors.ParseID(raw); err != nil {
				return err
			}
		}
	}
	if title != text {
		if err := decodeString(m[title], title, &t.Title); err != nil {
			return err
		}
	}
	if err := decodeString(m[text], text, &t.Text); err != nil {
		return err
	}
	// Note the fields of an object that lacks one: it is an error if all objects lack it.
	if f.missingError(rec.has, "", "", nil) != nil {
		rec.names = slices.Sorted(maps.Keys(m))
		if len(m) == 0 {
			rec.names = []string{"nothing"}
		}
	}
	if f.ID != "" && !rec.has.id { // all texts have an id, or none
		return f.lacksError(ErrNoField, "the object has no", f.ID, "only", rec.names)
	}
	// The remaining fields are the payload.
	for _, key := range used {
		delete(m, key)
	}
	if vectors.IsEmptyPayload(m["metadata"]) {
		delete(m, "metadata")
	}
	if len(m) == 0 {
		return nil
	}
	var err error
	t.Payload, err = jsontext.MarshalUnescaped(m)
	return err
}

// decodeString decodes a field that is a string into dst; null or a missing field is "".
func decodeString(raw json.RawMessage, key string, dst *string) error {
	if n := len(raw); n >= 2 && raw[0] == '"' && bytes.IndexByte(raw, '\\') < 0 { // nothing is escaped
		*dst = string(raw[1 : n-1])
		return nil
	}
	if raw == nil || string(raw) == "null" || json.Unmarshal(raw, dst) == nil {
		return nil
	}
	return fmt.Errorf("%s is not a string", key)
}

// notObjectError returns the error of a line that is not a JSON object: why, and the cure.
func notObjectError(line []byte, err error) error {
	switch {
	case line[0] == '[':
		return errors.New("not a JSON object but the start of an array: write one object a line, as jq -c '.[]' does")
	case line[0] != '{':
		return ErrLines
	}
	bad := (*json.SyntaxError)(nil)
	if !errors.As(err, &bad) {
		return fmt.Errorf("not a JSON object: %w", err)
	}
	if bad.Error() == "unexpected end of JSON input" {
		return errors.New("ends within the JSON object: the file is cut short, " +
			"or the object goes on in the next line; jq -c . writes one object a line")
	}
	for _, word := range []string{"NaN", "Infinity"} {
		if bytes.HasPrefix(line[max(bad.Offset-1, 0):], []byte(word)) {
			return fmt.Errorf("not a JSON object: byte %d: JSON has no %s: write null", bad.Offset, word)
		}
	}
	if strings.HasSuffix(bad.Error(), "after top-level value") {
		err = errors.New("the line goes on after the object: write one object a line, as jq -c . does")
	}
	return fmt.Errorf("not a JSON object: byte %d: %w", bad.Offset, err)
}

// parseLines reads one text per line, without ids; empty lines are texts too.
func parseLines(ctx context.Context, r io.Reader, yield func(Text, error) bool) error {
	return visitLines(ctx, r, func(line []byte, n int) (bool, error) {
		if err := checkUTF8(string(line)); err != nil {
			return false, err
		}
		return yield(Text{Text: string(line), From: Place{Line: n}}, nil), nil
	})
}
