package folder

import (
	"fmt"
	"iter"
	"strings"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/internal/jsontext"
	"github.com/plaid-ir/plaid/vectors"
)

// Texts are the passages of a file, each with the path of the file and what it is below as
// its title. The payload has the path of the file, the line in which the passage begins,
// from 1, the digest of the file, the title, the text and the root. A file without a word has
// one that is empty, so that it is known.
//
// how says how long passages are; by what a file is parted is its kind's.
func (c *Content) Texts(how encode.Parting) iter.Seq2[encode.Text, error] {
	return func(yield func(encode.Text, error) bool) {
		whole := func(yield func(encode.Text, error) bool) {
			// An id that looks like a passage's makes even a short text one.
			yield(encode.Text{ID: c.Path, Title: c.Path, Text: c.Text}, nil)
		}
		line, at := 1, 0
		how.By = c.kind
		for t, err := range encode.Passages(whole, how) {
			if err != nil {
				yield(t, fmt.Errorf("%s: %w", c.Path, err))
				return
			}
			own, err := vectors.PassageOf(t.ID, t.Payload)
			if err != nil {
				yield(t, fmt.Errorf("%s: %w", c.Path, err))
				return
			}
			start := 0 // a file that is no longer than a passage is its text, whatever it begins with
			if own != nil {
				start = own.Start
			}
			if start < at { // passages overlap
				line -= strings.Count(c.Text[start:at], "\n")
			} else {
				line += strings.Count(c.Text[at:start], "\n")
			}
			at = start
			if t.Payload, err = c.payload(&t, line, own); err != nil {
				yield(t, fmt.Errorf("%s: %w", c.Path, err))
				return
			}
			if !yield(t, nil) {
				return
			}
		}
	}
}

func (c *Content) payload(t *encode.Text, line int, own *vectors.Passage) ([]byte, error) {
	text, err := jsontext.Plain(struct {
		Path   string `json:"path"`
		Line   int    `json:"line"`
		Digest string `json:"digest"`
		Title  string `json:"title"`
		Text   string `json:"text"`
		Root   string `json:"root,omitempty"`
	}{c.Path, line, c.Digest, t.Title, t.Text, c.Root})
	if err != nil || own == nil {
		return text, err
	}
	return own.Payload(text)
}
