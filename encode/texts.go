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

// Text is a text that will be encoded as a document.
type Text struct {
	// ID is the id of the document. Either all texts of a stream have one, or none.
	ID string
	// Title may be ""; otherwise it is encoded before Text, with a blank between them.
	Title, Text string
	// Payload is the metadata of the document. nil means none.
	Payload []byte
	// From is where the text was read, for errors. It is not part of the text.
	From Place
}

// Place is where a text was read. Zero fields are unknown.
type Place struct {
	Path string // the file
	Line int    // the line, from 1
	Row  int    // the text in a file or stream without lines, from 1
}

// errorRow returns the row for a [TextError]: −1 if Path and Line name the text already, and
// streamRow, its row in the stream, if nothing else is known.
func (p Place) errorRow(streamRow int) int {
	switch {
	case p.Row > 0:
		return p.Row - 1
	case p.Path != "":
		return -1
	}
	return streamRow
}

// ErrorAt returns an error of a text with the place where it was read, or with its row in a stream,
// from 0.
func (t *Text) ErrorAt(row int, err error) *TextError {
	return &TextError{Path: t.From.Path, Line: t.From.Line, Row: t.From.errorRow(row), ID: t.ID, Err: err}
}

// checkStorable returns an error if the text cannot be stored, as passages if it is split.
func (t *Text) checkStorable(split bool) error {
	return vectors.CheckDocument(vectors.Draft{
		ID:      t.ID,
		Title:   t.Title,
		Text:    t.Text,
		Payload: t.Payload,
		Split:   split,
	})
}

// Full returns the title and the text as they are encoded.
func (t Text) Full() string {
	if t.Title == "" {
		return t.Text
	}
	return t.Title + " " + t.Text
}

// Texts returns texts in memory as a stream.
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
	Path string // of the file. "" means unknown
	Line int    // from 1. 0 means unknown
	Row  int    // of the text in its stream, from 0; −1 means unknown
	ID   string
	Err  error
}

// Error reads like: corpus.jsonl: line 3: not a JSON object.
func (e *TextError) Error() string {
	place := e.location()
	if e.ID != "" {
		place = joinPlace(place, fmt.Sprintf("id %.100q", e.ID))
	}
	return joinPlace(place, e.Err.Error())
}

// joinPlace puts a place, which may be "", before a message.
func joinPlace(place, message string) string {
	if place == "" {
		return message
	}
	return place + ": " + message
}

// location reads like: corpus.jsonl: line 3.
func (e *TextError) location() string {
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

// Unwrap returns the cause.
func (e *TextError) Unwrap() error { return e.Err }

// checkUTF8 returns an error that names the first byte that is not UTF-8, and the cure.
func checkUTF8(s string) error {
	if utf8.ValidString(s) {
		return nil
	}
	for i, r := range s {
		if r == utf8.RuneError && !strings.HasPrefix(s[i:], "\ufffd") { // and not a U+FFFD of the text
			return fmt.Errorf("is not valid UTF-8: byte %#x; "+
				"if it is Latin-1, iconv -f LATIN1 -t UTF-8 makes UTF-8 of it", s[i])
		}
	}
	return nil
}

// TextFormat is a kind of file with texts that another package reads, such as Parquet.
type TextFormat struct {
	// Suffixes are those of its files, in lower case, with the dot.
	Suffixes []string
	// Folder reports whether a folder has the format. nil means that only files have it.
	Folder func(path string) bool
	// Texts reads a file or a folder at each iteration of the sequence. Errors
	// name the file; the error for a missing field of the text wraps [ErrNoTextField].
	Texts func(ctx context.Context, path string, fields Fields) iter.Seq2[Text, error]
}

var registeredFormats registry.Formats[TextFormat]

// RegisterFormat lets [Reader.Texts] read files of a format by their names. Programs call it when
// they start. It panics if a suffix is registered already.
func RegisterFormat(f TextFormat) {
	for _, suffix := range f.Suffixes {
		if formatByName("x"+suffix) != "" {
			panic(fmt.Sprintf("encode: suffix %s is read already", suffix))
		}
	}
	registeredFormats.Add(f, f.Suffixes, f.Folder)
}

// checkedTexts yields texts of a registered format, with their places. It checks what the readers
// of this package check: titles and texts are UTF-8, and not longer than a line may be.
func checkedTexts(texts iter.Seq2[Text, error], name string) iter.Seq2[Text, error] {
	return func(yield func(Text, error) bool) {
		row := 0
		for t, err := range texts {
			if err != nil {
				yield(Text{}, err)
				return
			}
			t.From = Place{Path: name, Row: row + 1}
			err = errors.Join(checkUTF8(t.Title), checkUTF8(t.Text))
			if len(t.Title)+len(t.Text) > maxTextLine {
				err = fmt.Errorf("has more than %d bytes", maxTextLine)
			}
			if err != nil {
				yield(Text{}, t.ErrorAt(row, err))
				return
			}
			if !yield(t, nil) {
				return
			}
			row++
		}
	}
}
