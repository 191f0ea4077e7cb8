package encode

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/internal/parallel"
)

// Format is how the texts of a file are written.
type Format string

// The formats.
const (
	FormatJSONL Format = "jsonl" // as for [JSONL]
	FormatCSV   Format = "csv"   // a table with a line that names its columns, among them text
	// FormatTSV is a table whose cells tabs part. They are literal: each line is a row, and a quotation
	// mark is a character. The first line names the columns, or is a document, an id and a text.
	FormatTSV      Format = "tsv"
	FormatLines    Format = "lines"    // a text a line, without ids
	FormatHTML     Format = "html"     // a page is a text, without its tags
	FormatNotebook Format = "notebook" // a notebook of Jupyter is a text: its cells, without their output
)

var (
	// ErrSuffix: the name of a file of texts does not tell their format.
	ErrSuffix = errors.New("unknown suffix")
	// ErrLines: a file that is read as JSON lines has a text a line.
	ErrLines = errors.New("not a JSON object: a file with a text on each line has another format, lines")
	// ErrNoTextField: no record of a file has a field or column with a text.
	ErrNoTextField = errors.New("no text field")
	// ErrNoField: no record of a file has a field or column that was named.
	ErrNoField = errors.New("no such field")
	// ErrNoTexts: a folder has no file of a text.
	ErrNoTexts = errors.New("no text files")
)

// Formats are all of them.
func Formats() []Format {
	return []Format{FormatJSONL, FormatCSV, FormatTSV, FormatLines, FormatHTML, FormatNotebook}
}

// suffixes are the formats by the ends of names, in the order of messages.
var suffixes = []struct {
	suffix string
	format Format
}{
	{".jsonl", FormatJSONL}, {".ndjson", FormatJSONL}, {".json", FormatJSONL}, {".csv", FormatCSV}, {".tsv", FormatTSV},
	{".txt", FormatLines}, {".html", FormatHTML}, {".htm", FormatHTML}, {".ipynb", FormatNotebook},
}

// formatOf is the format of a file by its name, without .gz, .zst or .xz: [FormatJSONL] for one that has
// no suffix, and "" for one that is not known.
func formatOf(name string) Format {
	suffix := files.Suffix(name)
	if suffix == "" {
		return FormatJSONL
	}
	for _, s := range suffixes {
		if s.suffix == suffix {
			return s.format
		}
	}
	return ""
}

// Fields are what the parts of a text are called in the objects or columns of a file.
type Fields struct {
	ID    string // "": _id, or else id
	Title string // "": title
	Text  string // "": text
}

// Reader reads texts. The zero value reads each file by its name.
type Reader struct {
	// Format is how files are written; "": as their names say ([formatOf]), and
	// [FormatJSONL] for what has none.
	Format Format
	Fields Fields
	// PassedOver, where set, is told of each file of a folder that is not read.
	PassedOver func(name string)
	// Each, where set, makes of a text what is yielded of it. Lines of JSON in a file
	// are parsed on all processors, and Each is called there.
	Each func(Text) (Text, error)
}

// Texts reads a folder as [Folder] does, a file, or what a registered format reads
// ([RegisterFormat]); [ErrSuffix] if its name does not tell the format. A sequence over a
// regular file or a folder can be gone through again.
func (r *Reader) Texts(ctx context.Context, name string) iter.Seq2[Text, error] {
	if f, ok := registered.Of(name); ok && r.Format == "" {
		return r.each(ctx, checkedTexts(f.Texts(ctx, name, r.Fields), name))
	}
	info, err := os.Stat(name)
	if err == nil && info.IsDir() {
		if r.Fields != (Fields{}) {
			return failed(r.fieldless(name))
		}
		return r.each(ctx, folder(ctx, name, r.PassedOver))
	}
	f := r.Format
	if f == "" {
		if f = formatOf(name); f == "" {
			return failed(suffixError(name))
		}
	}
	threads := 1 // of what may block
	if err == nil && info.Mode().IsRegular() {
		threads = parallel.Processors()
	}
	return r.parser(f, filepath.Base(name), threads).file(ctx, name)
}

// Read reads texts from what can be read once. The name is for errors.
func (r *Reader) Read(ctx context.Context, in io.Reader, name string) iter.Seq2[Text, error] {
	return r.parser(r.Format, name, 1).stream(ctx, in, name)
}

func failed(err error) iter.Seq2[Text, error] {
	return func(yield func(Text, error) bool) { yield(Text{}, err) }
}

// fieldless is the error of a file without fields where one was named.
func (r *Reader) fieldless(name string) error {
	named := cmp.Or(r.Fields.Text, r.Fields.ID, r.Fields.Title)
	err := fmt.Errorf("%w: there is no %s: it has texts without fields", ErrNoField, clipped(named))
	return &TextError{Path: name, Row: -1, Err: err}
}

// each calls Each with texts, one after the other.
func (r *Reader) each(ctx context.Context, texts iter.Seq2[Text, error]) iter.Seq2[Text, error] {
	if r.Each == nil {
		return texts
	}
	return parallel.Map(ctx, texts, 1, nil, r.applyEach)
}

// applyEach calls Each with a text. Errors have the place of the text.
func (r *Reader) applyEach(t Text) (Text, error) {
	made, err := r.Each(t)
	if err != nil {
		err = t.Fault(-1, err)
	}
	return made, err
}

func suffixError(name string) error {
	suffix := files.Suffix(name)
	var known []string
	for _, s := range suffixes {
		known = append(known, s.suffix)
	}
	known = append(known, registered.Suffixes()...)
	last := len(known) - 1
	if advice := foreignAdvice(suffix); advice != "" {
		return fmt.Errorf("%s: %w %q: %s", name, ErrSuffix, suffix, advice)
	}
	return fmt.Errorf("%s: %w: %q is none of %s and %s", name, ErrSuffix, suffix, strings.Join(known[:last], ", "), known[last])
}

// foreignAdvice is the advice about files with a suffix; "" if nothing is known.
func foreignAdvice(suffix string) string {
	for _, k := range foreign {
		if k.suffix != "" && k.suffix == suffix {
			return k.advice
		}
	}
	return ""
}

// foreignContent is the advice about a file by its first bytes; nil if nothing is known.
func foreignContent(begin []byte) error {
	for _, k := range foreign {
		switch {
		case k.magic == "" || !bytes.HasPrefix(begin, []byte(k.magic)):
		case slices.Contains(registered.Suffixes(), k.suffix):
			return fmt.Errorf("it is of the format %s: its name has to end so, and no other format be given", k.suffix)
		default:
			return errors.New(k.advice)
		}
	}
	return nil
}

func (r *Reader) parser(f Format, name string, threads int) parser {
	p, fields := r.jsonl(threads), true
	bare, _ := files.Unpacked(name)
	switch f {
	case FormatCSV:
		p = r.parseCSV
	case FormatTSV:
		p = r.parseTSV
	case FormatLines:
		p, fields = parseLines, false
	case FormatHTML:
		p, fields = parseWhole(bare, kindsByEnd[".html"]), false
	case FormatNotebook:
		p, fields = parseWhole(bare, kindsByEnd[".ipynb"]), false
	}
	return func(ctx context.Context, in io.Reader, yield func(Text, error) bool) error {
		if !fields && r.Fields != (Fields{}) {
			return r.fieldless(name)
		}
		b, err := files.Unpack(in, name)
		if err != nil {
			return err
		}
		begin, err := b.Peek(8)
		if len(begin) == 0 && err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if packing := files.Packing(begin); packing != "" {
			return fmt.Errorf("what is unpacked is compressed by %s once more: unpack it first", packing)
		}
		if err := foreignContent(begin); err != nil {
			return err
		}
		if f == FormatJSONL || f == "" || r.Each == nil {
			return p(ctx, b, yield)
		}
		var failed error
		err = p(ctx, b, func(t Text, err error) bool {
			if err == nil {
				if t, failed = r.applyEach(t); failed != nil {
					return false
				}
			}
			return yield(t, err)
		})
		return cmp.Or(failed, err)
	}
}

// foreign are files that are often given and hold no text as it is read here, with what
// to do about them.
var foreign = []struct{ suffix, magic, advice string }{
	{".pdf", "%PDF-", "it is a PDF: make text of it first, as pdftotext does"},
	{".docx", "PK\x03\x04", "it is a ZIP archive, as office documents are: make text of it first, as pandoc -t plain does"},
	{".parquet", "PAR1", "it is Parquet: the program of the formats module reads it (docs/formats.md)"},
	{".arrow", "ARROW1", "it is Arrow: the program of the formats module reads it (docs/formats.md)"},
	{".feather", "", "it is Arrow: the program of the formats module reads it (docs/formats.md)"},
	{"", "\xff\xfe", "it is UTF-16: iconv -f UTF-16 -t UTF-8 makes UTF-8 of it"},
	{"", "\xfe\xff", "it is UTF-16: iconv -f UTF-16 -t UTF-8 makes UTF-8 of it"},
}
