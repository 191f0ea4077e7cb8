package encode

import (
	"fmt"
	"iter"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Text is one that is to be encoded as a document.
type Text struct {
	// ID is the document's. All texts have one, or none has.
	ID string
	// Title, where there is one, comes before Text, with a blank between.
	Title, Text string
	// Payload goes with the document; nil if there is none.
	Payload []byte
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
	var place []string
	if e.Path != "" {
		place = append(place, e.Path)
	}
	if e.Line > 0 {
		place = append(place, "line "+strconv.Itoa(e.Line))
	}
	if e.Row >= 0 {
		place = append(place, "text "+strconv.Itoa(e.Row))
	}
	if e.ID != "" {
		place = append(place, fmt.Sprintf("id %q", e.ID))
	}
	return strings.Join(append(place, e.Err.Error()), ": ")
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
