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
	FormatJSONL Format = "jsonl" // see [JSONL]
	FormatCSV   Format = "csv"   // a table with a line that names its columns, among them text
	// FormatTSV is a table with tabs between its cells. Nothing is quoted: each line is a row, and a
	// quotation mark is a character. The first line names the columns, or is a document: an id and a text.
	FormatTSV      Format = "tsv"
	FormatLines    Format = "lines"    // one text per line, without ids
	FormatHTML     Format = "html"     // a web page is one text, without its tags
	FormatNotebook Format = "notebook" // a Jupyter notebook is one text: its cells, without their output
)

var (
	// ErrSuffix reports a file name whose suffix no format has.
	ErrSuffix = errors.New("unknown suffix")
	// ErrLines reports a file of plain text lines that was read as JSON lines.
	ErrLines = errors.New("not a JSON object: a file with a text on each line has another format, lines")
	// ErrNoTextField reports a file in which no record has a field or column with a text.
	ErrNoTextField = errors.New("no text field")
	// ErrNoField reports a file in which no record has a field or column that was named.
	ErrNoField = errors.New("no such field")
	// ErrNoTexts reports a folder without files of text.
	ErrNoTexts = errors.New("no text files")
)

// Formats returns all formats.
func Formats() []Format {
	return []Format{FormatJSONL, FormatCSV, FormatTSV, FormatLines, FormatHTML, FormatNotebook}
}

// suffixes maps the suffixes of file names to formats, in the order of messages.
var suffixes = []struct {
	suffix string
	format Format
}{
	{".jsonl", FormatJSONL}, {".ndjson", FormatJSONL}, {".json", FormatJSONL}, {".csv", FormatCSV}, {".tsv", FormatTSV},
	{".txt", FormatLines}, {".html", FormatHTML}, {".htm", FormatHTML}, {".ipynb", FormatNotebook},
}

// formatByName returns the format of a file by its suffix before .gz, .zst or .xz: [FormatJSONL] without
// a suffix, and "" for an unknown one.
func formatByName(name string) Format {
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

// Fields names the fields or columns of a file that hold id, title and text.
type Fields struct {
	ID    string // "" means _id, or else id
	Title string // "" means title
	Text  string // "" means text
}

// Reader reads texts. The zero value reads each file in the format of its suffix.
type Reader struct {
	// Format is the format of all files. "" means the one of each file's suffix, and
	// [FormatJSONL] for [Reader.Read].
	Format Format
	Fields Fields
	// OnSkipped is called with each file of a folder that is not read; it may be nil.
	OnSkipped func(name string)
	// Convert is called with each text before it is yielded. A nil Convert leaves texts as they are.
	// Lines of JSON in a file are parsed on all processors, and Convert is called there, concurrently.
	Convert func(Text) (Text, error)
}

// Texts reads a folder with a file per text ([KindByName]), a file with texts, or a file or folder of a
// registered format ([RegisterFormat]). A suffix without a format is an [ErrSuffix]. A sequence over
// a regular file or a folder can be iterated again.
func (r *Reader) Texts(ctx context.Context, name string) iter.Seq2[Text, error] {
	if f, ok := registeredFormats.Find(name); ok && r.Format == "" {
		return r.convertTexts(ctx, checkedTexts(f.Texts(ctx, name, r.Fields), name))
	}
	info, err := os.Stat(name)
	if err == nil && info.IsDir() {
		if r.Fields != (Fields{}) {
			return failedTexts(r.noFieldsError(name))
		}
		return r.convertTexts(ctx, folderTexts(ctx, name, r.OnSkipped))
	}
	f := r.Format
	if f == "" {
		if f = formatByName(name); f == "" {
			return failedTexts(suffixError(name))
		}
	}
	threads := 1 // a pipe or terminal: reading ahead could block
	if err == nil && info.Mode().IsRegular() {
		threads = parallel.Processors()
	}
	return r.newParser(f, filepath.Base(name), threads).readFile(ctx, name)
}

// Read reads texts from a stream, once. The name is for errors.
func (r *Reader) Read(ctx context.Context, in io.Reader, name string) iter.Seq2[Text, error] {
	return r.newParser(r.Format, name, 1).readStream(ctx, in, name)
}

// failedTexts returns a sequence that yields only an error.
func failedTexts(err error) iter.Seq2[Text, error] {
	return func(yield func(Text, error) bool) { yield(Text{}, err) }
}

// noFieldsError returns the error of a file whose format has no fields, for a reader that names one.
func (r *Reader) noFieldsError(name string) error {
	named := cmp.Or(r.Fields.Text, r.Fields.ID, r.Fields.Title)
	err := fmt.Errorf("%w: there is no %s: it has texts without fields", ErrNoField, clipName(named))
	return &TextError{Path: name, Row: -1, Err: err}
}

// convertTexts calls Convert with the texts of a stream, one after the other.
func (r *Reader) convertTexts(ctx context.Context, texts iter.Seq2[Text, error]) iter.Seq2[Text, error] {
	if r.Convert == nil {
		return texts
	}
	return parallel.Map(ctx, texts, 1, nil, r.convertText)
}

// convertText calls Convert with a text. Its errors name the file and the row of the text.
func (r *Reader) convertText(t Text) (Text, error) {
	converted, err := r.Convert(t)
	if err != nil {
		err = t.ErrorAt(-1, err)
	}
	return converted, err
}

// suffixError returns the [ErrSuffix] of a file, with the known suffixes or advice about its own.
func suffixError(name string) error {
	suffix := files.Suffix(name)
	var known []string
	for _, s := range suffixes {
		known = append(known, s.suffix)
	}
	known = append(known, registeredFormats.Suffixes()...)
	last := len(known) - 1
	if advice := foreignAdvice(suffix); advice != "" {
		return fmt.Errorf("%s: %w %q: %s", name, ErrSuffix, suffix, advice)
	}
	return fmt.Errorf("%s: %w: %q is none of %s and %s",
		name, ErrSuffix, suffix, strings.Join(known[:last], ", "), known[last])
}

// foreignAdvice returns advice about files with a suffix. "" means that there is nothing to say.
func foreignAdvice(suffix string) string {
	for _, k := range foreignFormats {
		if k.suffix != "" && k.suffix == suffix {
			return k.advice
		}
	}
	return ""
}

// foreignContentError returns an error with advice about a file that begins like a format which holds no
// texts. nil means that no such format is known.
func foreignContentError(begin []byte) error {
	for _, k := range foreignFormats {
		switch {
		case k.magic == "" || !bytes.HasPrefix(begin, []byte(k.magic)):
		case slices.Contains(registeredFormats.Suffixes(), k.suffix):
			return fmt.Errorf("it is of the format %s: its name has to end so, "+
				"and no other format be given", k.suffix)
		default:
			return errors.New(k.advice)
		}
	}
	return nil
}

// newParser returns the parser of a format. It unpacks the file, and refuses files of other formats by
// their first bytes. name is the name of the file, threads the number of goroutines that parse JSON lines.
func (r *Reader) newParser(f Format, name string, threads int) parser {
	p, hasFields := r.jsonlParser(threads), true
	bare, _ := files.TrimPackedSuffix(name)
	switch f {
	case FormatCSV:
		p = r.parseCSV
	case FormatTSV:
		p = r.parseTSV
	case FormatLines:
		p, hasFields = parseLines, false
	case FormatHTML:
		p, hasFields = parseWhole(bare, kindsByEnd[".html"]), false
	case FormatNotebook:
		p, hasFields = parseWhole(bare, kindsByEnd[".ipynb"]), false
	}
	return func(ctx context.Context, in io.Reader, yield func(Text, error) bool) error {
		if !hasFields && r.Fields != (Fields{}) {
			return r.noFieldsError(name)
		}
		b, err := files.Unpack(in, name)
		if err != nil {
			return err
		}
		begin, err := b.Peek(8) // longer than each magic number
		if len(begin) == 0 && err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if packing := files.PackingName(begin); packing != "" {
			return fmt.Errorf("it is compressed twice, by %s inside: unpack it first", packing)
		}
		if err := foreignContentError(begin); err != nil {
			return err
		}
		if f == FormatJSONL || f == "" || r.Convert == nil { // the parser of JSON calls Convert itself
			return p(ctx, b, yield)
		}
		var convertErr error
		err = p(ctx, b, func(t Text, err error) bool {
			if err == nil {
				if t, convertErr = r.convertText(t); convertErr != nil {
					return false
				}
			}
			return yield(t, err)
		})
		return cmp.Or(convertErr, err)
	}
}

// foreignFormats lists formats that are often tried and that hold no texts for the readers here, with
// advice for each: its suffix, the first bytes of its files, and the cure.
var foreignFormats = []struct{ suffix, magic, advice string }{
	{".pdf", "%PDF-", "it is a PDF: make text of it first, as pdftotext does"},
	{
		".docx", "PK\x03\x04",
		"it is a ZIP archive, as office documents are: make text of it first, as pandoc -t plain does",
	},
	{".parquet", "PAR1", "it is Parquet: the program of the formats module reads it (docs/formats.md)"},
	{".arrow", "ARROW1", "it is Arrow: the program of the formats module reads it (docs/formats.md)"},
	{".feather", "", "it is Arrow: the program of the formats module reads it (docs/formats.md)"},
	{"", "\xff\xfe", "it is UTF-16: iconv -f UTF-16 -t UTF-8 makes UTF-8 of it"},
	{"", "\xfe\xff", "it is UTF-16: iconv -f UTF-16 -t UTF-8 makes UTF-8 of it"},
}
