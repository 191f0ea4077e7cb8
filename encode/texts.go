package encode

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/internal/registry"
	"github.com/plaid-ir/plaid/vectors"
)

// Text is one that is to be encoded as a document.
type Text struct {
	// ID is the document's. All texts have one, or none has.
	ID string
	// Title, where there is one, comes before Text, with a blank between.
	Title, Text string
	// Payload goes with the document; nil if there is none.
	Payload []byte
	// From is where the text was read, for errors. It is no part of the text.
	From Place
}

// Place is where a text was read; zero fields are not known.
type Place struct {
	Path string // of the file
	Line int    // from 1
	Row  int    // of the text in the file or stream, from 1, where it has no lines
}

// row is the row for a [TextError] of a text: the one in the stream where nothing else is known.
func (p Place) row(ofStream int) int {
	switch {
	case p.Row > 0:
		return p.Row - 1
	case p.Path != "":
		return -1
	}
	return ofStream
}

// Fault is an error of a text, with the place where it was read, or with its row in a stream, from 0.
func (t *Text) Fault(row int, err error) *TextError {
	return &TextError{Path: t.From.Path, Line: t.From.Line, Row: t.From.row(row), ID: t.ID, Err: err}
}

// check decides whether the text can be stored, as passages if it is split.
func (t *Text) check(split bool) error {
	return vectors.CheckDocument(vectors.Draft{ID: t.ID, Title: t.Title, Text: t.Text, Payload: t.Payload, Split: split})
}

// Full is the title and the text.
func (t Text) Full() string {
	if t.Title == "" {
		return t.Text
	}
	return t.Title + " " + t.Text
}

// Texts are texts that are in memory, for what takes a stream of them.
func Texts(texts ...Text) iter.Seq2[Text, error] {
	return func(yield func(Text, error) bool) {
		for _, t := range texts {
			if !yield(t, nil) {
				return
			}
		}
	}
}

// TextError names a text that cannot be encoded or read.
type TextError struct {
	Path string // of the file; "" if it is not known
	Line int    // from 1; 0 if it is not known
	Row  int    // of the text in its stream, from 0; −1 if it is not known
	ID   string
	Err  error
}

// Error reads like: corpus.jsonl: line 3: not a JSON object.
func (e *TextError) Error() string {
	place := e.place()
	if e.ID != "" {
		place = join(place, fmt.Sprintf("id %.100q", e.ID))
	}
	return join(place, e.Err.Error())
}

func join(place, rest string) string {
	if place == "" {
		return rest
	}
	return place + ": " + rest
}

// place reads like: corpus.jsonl: line 3.
func (e *TextError) place() string {
	var place []string
	if e.Path != "" {
		place = append(place, e.Path)
	}
	if e.Line > 0 {
		place = append(place, "line "+strconv.Itoa(e.Line))
	}
	if e.Row >= 0 {
		place = append(place, "text "+strconv.Itoa(e.Row+1)) // as lines are counted
	}
	return strings.Join(place, ": ")
}

// Unwrap gives the cause.
func (e *TextError) Unwrap() error { return e.Err }

// valid refuses what the tokenizer would.
func valid(s string) error {
	if utf8.ValidString(s) {
		return nil
	}
	for i, r := range s {
		if r == utf8.RuneError && !strings.HasPrefix(s[i:], "\ufffd") {
			return fmt.Errorf("is not valid UTF-8: byte %#x; if it is Latin-1, iconv -f LATIN1 -t UTF-8 makes UTF-8 of it", s[i])
		}
	}
	return nil
}

// TextFormat is a kind of file with texts that another package reads, such as Parquet.
type TextFormat struct {
	// Suffixes of its files, in small letters, with the dot.
	Suffixes []string
	// Folder, where set, tells whether a folder is of the format.
	Folder func(path string) bool
	// Texts reads a file or a folder, each time that the sequence is gone through. Errors
	// name the file; one without the field of the text wraps [ErrNoTextField].
	Texts func(ctx context.Context, path string, fields Fields) iter.Seq2[Text, error]
}

var registered registry.Formats[TextFormat]

// RegisterFormat lets [Reader.Texts] read files of a format by their names; it is for the
// start of a program. Suffixes that are taken already panic.
func RegisterFormat(f TextFormat) {
	for _, suffix := range f.Suffixes {
		if formatOf("x"+suffix) != "" {
			panic(fmt.Sprintf("encode: suffix %s is read already", suffix))
		}
	}
	registered.Add(f, f.Suffixes, f.Folder)
}

// checkedTexts refuses what no reader of this package gives: titles and texts that are not
// UTF-8, or longer than a line may be.
func checkedTexts(texts iter.Seq2[Text, error], name string) iter.Seq2[Text, error] {
	return func(yield func(Text, error) bool) {
		row := 0
		for t, err := range texts {
			if err != nil {
				yield(Text{}, err)
				return
			}
			t.From = Place{Path: name, Row: row + 1}
			err = errors.Join(valid(t.Title), valid(t.Text))
			if len(t.Title)+len(t.Text) > maxTextLine {
				err = fmt.Errorf("has more than %d bytes", maxTextLine)
			}
			if err != nil {
				yield(Text{}, t.Fault(row, err))
				return
			}
			if !yield(t, nil) {
				return
			}
			row++
		}
	}
}
