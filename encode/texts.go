package encode

import (
	"fmt"
	"iter"
	"strconv"
	"strings"
	"unicode"
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

// Window parts texts of more than size words into passages of size words, of
// which each repeats the last overlap words of the one before. Words are what
// lies between white space. Passages keep the title and the payload; their ids
// are that of the text, "#" and their number from 0, which [WindowID] takes
// apart. Texts that are short enough stay as they are, but for an id that ends
// like that of a passage: "#0" is put behind it.
func Window(texts iter.Seq2[Text, error], size, overlap int) iter.Seq2[Text, error] {
	return func(yield func(Text, error) bool) {
		if size < 1 || overlap < 0 || overlap >= size {
			yield(Text{}, fmt.Errorf("windows of %d words that overlap by %d are impossible", size, overlap))
			return
		}
		row := -1
		for t, err := range texts {
			row++
			if err != nil {
				yield(Text{}, err)
				return
			}
			begins := words(t.Text)
			if len(begins) <= size {
				if _, n := WindowID(t.ID); n >= 0 {
					t.ID += "#0"
				}
				if !yield(t, nil) {
					return
				}
				continue
			}
			if t.ID == "" {
				yield(Text{}, &TextError{Row: row, Err: fmt.Errorf("has no id, which its passages need")})
				return
			}
			for n, first := 0, 0; ; n, first = n+1, first+size-overlap {
				p, end := t, len(t.Text)
				if first+size < len(begins) {
					end = begins[first+size]
				}
				p.ID = t.ID + "#" + strconv.Itoa(n)
				p.Text = strings.TrimRightFunc(t.Text[begins[first]:end], unicode.IsSpace)
				if !yield(p, nil) {
					return
				}
				if first+size >= len(begins) {
					break
				}
			}
		}
	}
}

// WindowID takes the id of a passage apart into that of its text and its number.
// The id of a text that was not parted gives itself and −1.
func WindowID(id string) (text string, passage int) {
	if at := strings.LastIndexByte(id, '#'); at >= 0 {
		if n, err := strconv.Atoi(id[at+1:]); err == nil && n >= 0 && strconv.Itoa(n) == id[at+1:] {
			return id[:at], n
		}
	}
	return id, -1
}

// words are the bytes that words begin at.
func words(s string) (begins []int) {
	space := true
	for i, r := range s {
		is := unicode.IsSpace(r)
		if space && !is {
			begins = append(begins, i)
		}
		space = is
	}
	return begins
}

// valid refuses what the tokenizer would.
func valid(s string) error {
	if !utf8.ValidString(s) {
		return fmt.Errorf("is not valid UTF-8")
	}
	return nil
}
