package encode

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/plaid-ir/plaid/internal/registry"
)

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
			err = errors.Join(valid(t.Title), valid(t.Text))
			if len(t.Title)+len(t.Text) > maxTextLine {
				err = fmt.Errorf("has more than %d bytes", maxTextLine)
			}
			if err != nil {
				yield(Text{}, &TextError{Path: name, Row: row, ID: t.ID, Err: err})
				return
			}
			if !yield(t, nil) {
				return
			}
			row++
		}
	}
}
