package flags

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"iter"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/internal/jsontext"
	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/vectors"
)

// Texts holds the flags that name texts to encode, and say how they are split and stored.
type Texts struct {
	Paths []string
	// Spool is the file for the vectors. "" means a temporary one that is removed after success.
	Spool string
	// Drop keeps titles and texts out of the metadata.
	Drop bool

	// Model is the model that encodes the texts: passages are measured in its tokens.
	Model *encode.Config

	// OnSkipped, if not nil, is called with each file of a folder that is not read.
	OnSkipped func(name string)

	fields encode.Fields
	format string
	window Window
	set    *pflag.FlagSet
	// hidden has, for each of ownFields, whether a document's field of that name was left out.
	hidden [len(ownFields)]atomic.Bool
}

// Window holds the flags that say how texts are split into passages.
type Window struct {
	Size, Overlap int
	by            string
	set           *pflag.FlagSet
}

// Register adds the flags to f. For the help, defaultUnit is the unit without --window-by, and
// zeroMeaning says what a size of 0 does.
func (w *Window) Register(f *pflag.FlagSet, defaultUnit, zeroMeaning string) {
	w.set = f
	f.Var(Int(&w.Size, 0, 0), "window", "split texts into passages of at most this many tokens of the model, "+
		"with ids like doc#0 (words, with --encoder; 0: "+zeroMeaning+")")
	f.Var(Int(&w.Overlap, 0, 0), "overlap", "tokens, or words, of the previous passage that a passage repeats")
	var units []string
	for _, unit := range encode.Units() {
		units = append(units, string(unit))
	}
	f.Var(Choice(&w.by, "", units...), "window-by", "`UNIT` that is never split, unless it is longer than a passage: "+
		"words, sentences, headings (sections of Markdown) or blocks (of source code) (default: "+defaultUnit+")")
}

// Splitting returns the settings of the flags, with tokens counted by model. It checks them, so
// that a bad setting is found before texts are read.
func (w *Window) Splitting(model *encode.Config, threads int) (encode.Splitting, error) {
	p := encode.Splitting{
		By:      encode.Unit(w.by),
		Window:  w.Size,
		Overlap: w.Overlap,
		Model:   model,
		Threads: threads,
	}
	if err := p.Check(); err != nil {
		return p, Usagef("--window: %w", err)
	}
	return p, nil
}

// Register adds the flags to f, with --text for the paths.
func (t *Texts) Register(f *pflag.FlagSet) {
	t.RegisterForArguments(f)
	f.StringArrayVar(&t.Paths, "text", nil,
		"`FILE` of texts to encode: .jsonl, .csv, .tsv, .txt (one text in each line), each also as .gz, .zst "+
			"or .xz; .html; .ipynb; a folder of text, Markdown, .html, .ipynb and source code; - for stdin; may be "+
			"repeated")
}

// RegisterForArguments adds the flags of a command whose arguments are the paths: all except --text.
func (t *Texts) RegisterForArguments(f *pflag.FlagSet) {
	t.set = f
	var formats []string
	for _, format := range encode.Formats() {
		formats = append(formats, string(format))
	}
	f.Var(Choice(&t.format, "", formats...), "text-format",
		"`FORMAT` of the texts: "+strings.Join(formats, ", ")+" (default: by the name of the file; stdin: jsonl)")
	f.StringVar(&t.fields.Text, "text-field", "", "`NAME` of the field or column with the text (default: text)")
	f.StringVar(&t.fields.ID, "id-field", "", "`NAME` of the field or column with the id (default: _id, or else id)")
	f.StringVar(&t.fields.Title, "title-field", "", "`NAME` of the field or column with the title (default: title)")
	t.window.Register(f, string(encode.ByWords), "do not")
}

// RegisterDrop adds the flag that keeps titles and texts out of the metadata.
func (t *Texts) RegisterDrop(f *pflag.FlagSet) {
	f.BoolVar(&t.Drop, "drop-text", false, "do not store titles and texts as metadata: results cannot show "+
		"them then")
}

// RegisterSpool adds the flag for the file that keeps the vectors until they are stored.
func (t *Texts) RegisterSpool(f *pflag.FlagSet) {
	f.StringVar(&t.Spool, "spool", "", "`FILE` that keeps the vectors of texts: further builds with the same "+
		"model do not encode them again (default: INDEX.spool, removed when the index is complete; none with --device)")
}

// Given reports whether texts were named.
func (t *Texts) Given() bool { return len(t.Paths) > 0 }

// givenTextFlag returns the first given flag that makes sense only with --text, or "" if there is
// none.
func (t *Texts) givenTextFlag() string {
	return firstChanged(t.set, "window", "overlap", "window-by", "text-format", "text-field", "id-field",
		"title-field", "drop-text", "spool")
}

// Check returns an error for flags that do not go together.
func (t *Texts) Check() error {
	stdin := 0
	for _, path := range t.Paths {
		if path == "-" {
			stdin++
		}
	}
	if stdin > 1 {
		return Usagef("stdin (-) can be read only once")
	}
	switch w := &t.window; {
	case w.Size == 0 && firstChanged(w.set, "overlap", "window-by") != "":
		return Usagef("--overlap and --window-by go with --window")
	case w.Size > 0 && w.Overlap >= w.Size:
		return Usagef("--overlap %d must be less than --window %d", w.Overlap, w.Size)
	}
	return nil
}

// CheckModel returns an error if passages are longer than the model reads. It is called before
// texts are read.
func (t *Texts) CheckModel() error {
	if t.window.Size == 0 {
		return nil
	}
	_, err := t.window.Splitting(t.Model, 0)
	return err
}

// SplitsTexts reports whether texts are split into passages.
func (t *Texts) SplitsTexts() bool { return t.window.Size > 0 }

// Rereadable reports whether the texts can be read more than once: they come from files and
// folders, and none from a pipe.
func (t *Texts) Rereadable() bool {
	for _, path := range t.Paths {
		info, err := os.Stat(path)
		if path == "-" || err == nil && !info.Mode().IsRegular() && !info.IsDir() {
			return false
		}
	}
	return true
}

// WithFileNames puts the names of the files before an error that concerns all of them.
func (t *Texts) WithFileNames(err error) error { return withFileNames(t.Paths, err) }

// Open returns the texts of all files, one file after another, split into passages and with their
// metadata.
func (t *Texts) Open(ctx context.Context, stdin io.Reader) iter.Seq2[encode.Text, error] {
	convert := t.withPayload
	if t.Drop && t.fields.ID == "" {
		convert = nil
	}
	if t.window.Size == 0 {
		return t.readFiles(ctx, stdin, convert)
	}
	splitting, err := t.window.Splitting(t.Model, parallel.Processors())
	if err != nil {
		return func(yield func(encode.Text, error) bool) { yield(encode.Text{}, err) }
	}
	texts := encode.Passages(ctx, withRowIDs(t.readFiles(ctx, stdin, nil)), splitting)
	if convert == nil {
		return texts
	}
	return parallel.Map(ctx, texts, 1, nil, convert)
}

// readFiles returns the texts of all files as they are, after convert, if that is not nil.
func (t *Texts) readFiles(ctx context.Context, stdin io.Reader,
	convert func(encode.Text) (encode.Text, error)) iter.Seq2[encode.Text, error] {
	return func(yield func(encode.Text, error) bool) {
		r := encode.Reader{
			Format:    encode.Format(t.format),
			Fields:    t.fields,
			OnSkipped: t.OnSkipped,
			Convert:   convert,
		}
		for _, path := range t.Paths {
			texts := r.Texts(ctx, path)
			if path == "-" {
				texts = r.Read(ctx, files.ContextReader(ctx, stdin), "stdin")
			}
			for text, err := range texts {
				if !yield(text, err) || err != nil {
					return
				}
			}
		}
	}
}

// withRowIDs uses the numbers of rows as ids, if the first text has no id.
func withRowIDs(texts iter.Seq2[encode.Text, error]) iter.Seq2[encode.Text, error] {
	return func(yield func(encode.Text, error) bool) {
		row, generateIDs := 0, false
		for t, err := range texts {
			if row == 0 {
				generateIDs = t.ID == ""
			}
			if generateIDs && t.ID == "" {
				t.ID = strconv.Itoa(row)
			}
			row++
			if !yield(t, err) {
				return
			}
		}
	}
}

// withPayload makes the metadata of a document: a JSON object of its title, its text and the other
// fields that the file has of it.
func (t *Texts) withPayload(text encode.Text) (encode.Text, error) {
	payload, err := t.payloadWithoutOwnFields(text)
	if err != nil || t.Drop {
		text.Payload = payload
		return text, err
	}
	object, err := jsontext.MarshalUnescaped(struct {
		Title string `json:"title,omitempty"`
		Text  string `json:"text"`
	}{text.Title, text.Text})
	if fields, ok := bytes.CutPrefix(payload, []byte("{")); ok {
		object = append(append(object[:len(object)-1], ','), fields...)
	}
	text.Payload = object
	return text, err
}

// payloadWithoutOwnFields returns the metadata of a text without the fields whose names its id,
// title and text take. Flags may name other fields for these, and then a document can have fields
// of these names, too; [Texts.Hidden] reports them.
func (t *Texts) payloadWithoutOwnFields(text encode.Text) (payload []byte, err error) {
	if t.fields == (encode.Fields{}) || len(text.Payload) == 0 {
		return text.Payload, nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text.Payload, &fields); err != nil {
		return nil, err
	}
	countBefore := len(fields)
	for i, taken := range []bool{t.fields.ID != "", !t.Drop && text.Title != "", !t.Drop} {
		if _, present := fields[ownFields[i]]; present && taken {
			t.hidden[i].Store(true)
			delete(fields, ownFields[i])
		}
	}
	switch len(fields) {
	case countBefore:
		return text.Payload, nil
	case 0:
		return nil, nil
	}
	return jsontext.MarshalUnescaped(fields)
}

// ownFields are the names that the id, the title and the text have in metadata.
var ownFields = [3]string{vectors.IDField, "title", "text"}

// Hidden returns the names of fields of documents that payloadWithoutOwnFields has left out.
func (t *Texts) Hidden() (names []string) {
	for i, name := range ownFields {
		if t.hidden[i].Load() {
			names = append(names, name)
		}
	}
	return names
}

// Name returns the names of the files, for messages.
func (t *Texts) Name() string { return joinFileNames(t.Paths) }
