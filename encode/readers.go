package encode

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/internal/jsontext"
	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/vectors"
)

// maxTextLine is the longest line that is read; longer ones are an error.
const maxTextLine = 64 << 20

// parser gives the texts of a stream to yield, until that says false.
type parser func(ctx context.Context, r io.Reader, yield func(Text, error) bool) error

// stream is a sequence over a reader, which can be gone through once. The name is
// for errors.
func (p parser) stream(ctx context.Context, r io.Reader, name string) iter.Seq2[Text, error] {
	return func(yield func(Text, error) bool) {
		err := p(ctx, r, func(t Text, err error) bool {
			t.From.Path = name
			return yield(t, err)
		})
		if err != nil {
			yield(Text{}, inText(name, err))
		}
	}
}

// file is a sequence that opens a file for each pass. The file may be a pipe; a
// name that ends in .gz is unpacked. One that changes while it is read is an error.
func (p parser) file(ctx context.Context, name string) iter.Seq2[Text, error] {
	return func(yield func(Text, error) bool) {
		var watch files.Watch
		f, err := watch.Stream(ctx, name)
		if err != nil {
			var pe *fs.PathError
			if errors.As(err, &pe) {
				err = pe.Err
			}
			yield(Text{}, inText(name, err))
			return
		}
		defer f.Close()
		stopped := false
		err = unpacked(f, name, func(r io.Reader) error {
			return p(ctx, r, func(t Text, err error) bool {
				if t.From.Path = name; err == nil {
					err = textChanged(watch.Look())
				}
				stopped = !yield(t, err) || err != nil
				return !stopped
			})
		})
		if stopped {
			return
		}
		// A fault that is due to a change is of no interest.
		if changed := textChanged(watch.Unchanged()); changed != nil {
			yield(Text{}, changed)
		} else if err != nil {
			yield(Text{}, inText(name, err))
		}
	}
}

// textChanged makes an error of texts of a file that changed.
func textChanged(err error) error {
	if c, ok := errors.AsType[*files.ChangedError](err); ok {
		return &TextError{Path: c.Path, Row: -1, Err: fmt.Errorf("%w: %s", vectors.ErrChanged, c.How)}
	}
	return err
}

func unpacked(r io.Reader, name string, read func(io.Reader) error) error {
	b := bufio.NewReader(r)
	if magic, _ := b.Peek(2); string(magic) != "\x1f\x8b" && !strings.HasSuffix(name, ".gz") {
		return read(b)
	}
	z, err := gzip.NewReader(b)
	if err != nil {
		return err
	}
	return errors.Join(read(z), z.Close())
}

// inText names the file of an error.
func inText(name string, err error) error {
	var te *TextError
	if !errors.As(err, &te) {
		te = &TextError{Row: -1, Err: err}
	}
	te.Path = name
	return te
}

// eachLine calls f with the lines of r, without their ends, and their numbers
// from 1, until it says false. A line is valid until f returns.
func eachLine(ctx context.Context, r io.Reader, f func(line []byte, n int) (bool, error)) error {
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
		more, err := f(line, lines.Number)
		if err != nil {
			return &TextError{Line: lines.Number, Row: -1, Err: err}
		}
		if !more {
			return nil
		}
	}
}

// JSONL reads a file of JSON objects, one a line, as the corpus.jsonl and
// queries.jsonl of BEIR: _id (or id), title, text, metadata. What an object has
// beside id, title and text goes into the payload, where there is something. A
// file that is compressed by gzip is unpacked.
func JSONL(ctx context.Context, name string) iter.Seq2[Text, error] {
	return (&Reader{Format: FormatJSONL}).Texts(ctx, name)
}

// textLine is a line of a file, from 1, and record what is in it: of one without a title
// and a text, without are the fields that it has.
type (
	textLine struct {
		bytes []byte
		n     int
	}
	record struct {
		text    Text
		without []string
		n       int
	}
)

// jsonl reads lines in order and parses them on so many goroutines.
func (r *Reader) jsonl(threads int) parser {
	return func(ctx context.Context, in io.Reader, yield func(Text, error) bool) error {
		lines := func(yield func(textLine, error) bool) {
			err := eachLine(ctx, in, func(line []byte, n int) (bool, error) {
				return len(bytes.TrimSpace(line)) == 0 || yield(textLine{bytes.Clone(line), n}, nil), nil
			})
			if err != nil {
				yield(textLine{}, err)
			}
		}
		var without []string // the fields of the first object, as long as none has a text
		first, none := 0, true
		for got, err := range parallel.Map(ctx, lines, threads, func(l textLine) int { return len(l.bytes) }, r.record) {
			if err != nil {
				return err
			}
			if none && got.without == nil {
				none = false
			} else if none && first == 0 {
				without, first = got.without, got.n
			}
			if !yield(got.text, nil) {
				return nil
			}
		}
		if none && first > 0 {
			return &TextError{Line: first, Row: -1, Err: fmt.Errorf("%w: no object has %s, this one has %s",
				ErrNoTextField, cmp.Or(r.Fields.Text, "text"), strings.Join(without, ", "))}
		}
		return nil
	}
}

// record reads a line.
func (r *Reader) record(l textLine) (got record, err error) {
	got.n = l.n
	got.text, got.without, err = r.object(l.bytes)
	if got.text.From.Line = l.n; err == nil && r.Each != nil {
		got.text, err = r.Each(got.text)
	}
	if err != nil {
		err = &TextError{Line: l.n, Row: -1, Err: err}
	}
	return got, err
}

// object reads a line of JSONL. Of one without a title and a text, names are the fields
// that it has.
func (r *Reader) object(line []byte) (t Text, names []string, err error) {
	if err := valid(string(line)); err != nil {
		return t, nil, err
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(line, &m); err != nil || m == nil {
		switch b := bytes.TrimSpace(line); {
		case b[0] == '[':
			return t, nil, errors.New("not a JSON object but the start of an array: write one object a line, as jq -c '.[]' does")
		case b[0] != '{':
			return t, nil, ErrLines
		}
		if bad := (*json.SyntaxError)(nil); errors.As(err, &bad) {
			return t, nil, fmt.Errorf("not a JSON object: byte %d: %w", bad.Offset, err)
		}
		return t, nil, fmt.Errorf("not a JSON object: %w", err)
	}
	parts := []struct {
		key string
		to  *string
	}{{"_id", &t.ID}, {"id", &t.ID}, {cmp.Or(r.Fields.Title, "title"), &t.Title}, {cmp.Or(r.Fields.Text, "text"), &t.Text}}
	if r.Fields.ID != "" {
		parts[0].key, parts[1].key = r.Fields.ID, r.Fields.ID
	}
	says := false
	for i, f := range parts {
		raw, ok := m[f.key]
		if !ok || i == 1 && t.ID != "" {
			continue
		}
		says = says || i > 1
		delete(m, f.key)
		if string(raw) == "null" {
			continue
		}
		if err := json.Unmarshal(raw, f.to); err != nil {
			// Ids are numbers in some collections.
			var n json.Number
			if f.to != &t.ID || json.Unmarshal(raw, &n) != nil {
				return t, nil, fmt.Errorf("%s is not a string", f.key)
			}
			t.ID = n.String()
		}
	}
	if !says {
		names = append(slices.Sorted(maps.Keys(m)), "nothing else")
		if len(names) > 1 {
			names = names[:len(names)-1]
		}
	}
	if string(bytes.TrimSpace(m["metadata"])) == "{}" || string(bytes.TrimSpace(m["metadata"])) == "null" {
		delete(m, "metadata")
	}
	if len(m) > 0 {
		if t.Payload, err = jsontext.Plain(m); err != nil {
			return t, nil, err
		}
	}
	return t, names, nil
}

// parseLines reads a text a line, without ids; empty lines are texts too.
func parseLines(ctx context.Context, r io.Reader, yield func(Text, error) bool) error {
	return eachLine(ctx, r, func(line []byte, n int) (bool, error) {
		if err := valid(string(line)); err != nil {
			return false, err
		}
		return yield(Text{Text: string(line), From: Place{Line: n}}, nil), nil
	})
}

// table reads a table whose columns are parted by comma. Its first line names them:
// text, and if they are there id (or _id) and title. Others go into the payload, as a
// JSON object of strings.
func (fr *Reader) table(comma rune) parser {
	return func(ctx context.Context, r io.Reader, yield func(Text, error) bool) error {
		b := bufio.NewReader(r)
		if mark, _ := b.Peek(3); string(mark) == "\ufeff" {
			b.Discard(3)
		}
		in := csv.NewReader(b)
		in.ReuseRecord = true
		in.Comma = comma
		columns, err := fr.columns(in)
		if err != nil {
			return err
		}
		for {
			if err := ctx.Err(); err != nil {
				return err
			}
			record, err := in.Read()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			t, err := tableRow(in, columns, record)
			if err != nil {
				return err
			}
			if !yield(t, nil) {
				return nil
			}
		}
	}
}

// column is one of a table; its role is id, title, text, or "" for one of the payload.
type column struct{ name, role string }

// columns reads the line that names the columns.
func (fr *Reader) columns(in *csv.Reader) (columns []column, err error) {
	head, err := in.Read()
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("is empty: want a line that names the columns")
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, h := range head {
		h = strings.TrimSpace(h)
		if slices.Contains(names, h) {
			return nil, &TextError{Line: 1, Row: -1, Err: fmt.Errorf("names column %q twice", h)}
		}
		names, columns = append(names, h), append(columns, column{name: h})
	}
	id := cmp.Or(fr.Fields.ID, "_id")
	if fr.Fields.ID == "" && !slices.Contains(names, id) {
		id = "id"
	}
	for _, part := range []struct {
		name, role string
		wanted     bool
	}{{id, "id", fr.Fields.ID != ""}, {cmp.Or(fr.Fields.Title, "title"), "title", fr.Fields.Title != ""}, {cmp.Or(fr.Fields.Text, "text"), "text", true}} {
		if at := slices.Index(names, part.name); at >= 0 {
			columns[at].role = part.role
		} else if part.wanted {
			return nil, &TextError{Line: 1, Row: -1, Err: fmt.Errorf("%w: there is no column %s, only %s", ErrNoTextField, part.name, strings.Join(names, ", "))}
		}
	}
	return columns, nil
}

// tableRow is the text of a row.
func tableRow(in *csv.Reader, columns []column, record []string) (t Text, err error) {
	rest := map[string]string{}
	t.From.Line, _ = in.FieldPos(0)
	for i, v := range record {
		if err := valid(v); err != nil {
			line, _ := in.FieldPos(i)
			return t, &TextError{Line: line, Row: -1, Err: fmt.Errorf("column %s %w", columns[i].name, err)}
		}
		switch columns[i].role {
		case "id":
			t.ID = v
		case "title":
			t.Title = v
		case "text":
			t.Text = v
		default:
			rest[columns[i].name] = v
		}
	}
	if len(rest) > 0 {
		t.Payload, err = jsontext.Plain(rest)
	}
	return t, err
}

// folder reads the files of texts and pages below a folder, in the order of their names.
// Ids are paths within the folder, with slashes. Links in it and files whose names
// begin with a dot are passed over.
func folder(ctx context.Context, dir string, passedOver func(string)) iter.Seq2[Text, error] {
	suffixes := []string{".txt", ".md", ".html", ".htm"}
	return func(yield func(Text, error) bool) {
		stopped := errors.New("stopped")
		read, others, advice := 0, 0, ""
		root := dir
		if info, err := os.Lstat(dir); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			root += string(filepath.Separator) // what it leads to
		}
		err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				return err
			}
			hidden := name != root && strings.HasPrefix(d.Name(), ".")
			if d.IsDir() && hidden {
				return fs.SkipDir
			}
			if !d.Type().IsRegular() || hidden {
				return nil
			}
			if suffix := strings.ToLower(filepath.Ext(name)); !slices.Contains(suffixes, suffix) {
				if others++; passedOver != nil {
					passedOver(name)
				}
				advice = cmp.Or(advice, foreignAdvice(suffix))
				return nil
			}
			read++
			rel, err := filepath.Rel(root, name)
			if err != nil {
				return err
			}
			f, err := os.Open(name)
			if err != nil {
				return err
			}
			defer f.Close()
			t, err := wholeText(f, path.Clean(filepath.ToSlash(rel)), formatOf(name) == FormatHTML)
			if err != nil {
				return inText(name, err)
			}
			t.From.Path = name
			if !yield(t, nil) {
				return stopped
			}
			return nil
		})
		if err == nil && read == 0 {
			err = fmt.Errorf("%w: none ends in %s; other files: %d", ErrNoTexts, strings.Join(suffixes, ", "), others)
			if advice != "" {
				err = fmt.Errorf("%w; of one of these: %s", err, advice)
			}
			err = &TextError{Path: dir, Row: -1, Err: err}
		}
		if err != nil && !errors.Is(err, stopped) {
			yield(Text{}, err)
		}
	}
}
