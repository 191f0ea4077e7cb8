package folder

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/internal/jsontext"
	"github.com/plaid-ir/plaid/vectors"
)

// stored is the payload of a passage.
type stored struct {
	Path   string `json:"path"`
	Line   int    `json:"line"`
	Digest string `json:"digest"`
	Title  string `json:"title"`
	Text   string `json:"text"`
	Root   string `json:"root,omitempty"`
	Device string `json:"device,omitempty"`
	Cut    string `json:"cut"`
	Parts  int    `json:"parts"`
	Check  string `json:"check"`
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum returns a checksum of the fields that change only with the file or the cut.
func (s *stored) checksum() string {
	h := crc32.New(castagnoli)
	for _, field := range []string{
		s.Path, strconv.Itoa(s.Line), s.Digest, s.Title, s.Text, s.Cut, strconv.Itoa(s.Parts),
	} {
		fmt.Fprintf(h, "%d:%s", len(field), field)
	}
	return fmt.Sprintf("%08x", h.Sum32())
}

// payload returns the payload of a passage of a file: cut names how the file was cut, parts is the number of
// its passages, and line is where the passage begins. passage is nil for a text that is not split.
func (c *Content) payload(t *encode.Text, cut string, parts, line int, passage *vectors.Passage) ([]byte, error) {
	s := stored{
		Path:   c.Path,
		Line:   line,
		Digest: c.Digest,
		Title:  t.Title,
		Text:   t.Text,
		Root:   c.Root,
		Device: c.Device,
		Cut:    cut,
		Parts:  parts,
	}
	s.Check = s.checksum()
	text, err := jsontext.MarshalUnescaped(s)
	if err != nil || passage == nil {
		return text, err
	}
	return passage.Payload(text)
}

// Entry describes the file of a passage, as the passage's payload does.
type Entry struct {
	// Path and Digest belong to the file, Root and Device to its [Content].
	Path, Digest, Root, Device string
	// Cut names how the file was cut ([Cut]), and Parts is the number of its passages.
	Cut   string
	Parts int
	// Intact reports whether the fields of the passage are unchanged. Fields that were added
	// later do not count.
	Intact bool
}

// ReadEntry reads the payload of a passage. It returns false if the document came from another
// source.
func ReadEntry(payload []byte) (Entry, bool) {
	var s stored
	err := json.Unmarshal(payload, &s)
	var field *json.UnmarshalTypeError // a field whose type was changed: the others are read anyway
	if err != nil && !errors.As(err, &field) || s.Path == "" || s.Digest == "" {
		return Entry{}, false
	}
	return Entry{
		Path:   s.Path,
		Digest: s.Digest,
		Root:   s.Root,
		Device: s.Device,
		Cut:    s.Cut,
		Parts:  s.Parts,
		Intact: err == nil && s.Check == s.checksum(),
	}, true
}

// Cut names a way to cut files into passages. Settings that may lead to other passages have other
// names.
func Cut(how encode.Splitting) string {
	counted, length := "words", 0
	if how.Model != nil {
		length = how.Model.Document.Length
		if how.Model.Tokenizer != nil {
			counted = "tokens"
		}
	}
	return fmt.Sprintf("%s %d+%d of %d %s", cmp.Or(how.By, "kinds"), how.Window, how.Overlap, length, counted)
}
