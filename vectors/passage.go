package vectors

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/plaid-ir/plaid/internal/jsontext"
)

// PassageField is the field of a payload that makes its document a passage of a longer one. plaid
// writes it; a value from a user must be consistent with the id.
const PassageField = "_passage"

// Passage identifies a part of the text of a longer document. A passage is stored as a separate
// document, whose id is that of the longer one, "#" and its number, and whose payload has the Passage
// in the field [PassageField].
type Passage struct {
	ParentID string `json:"of"`    // id of the longer document
	Number   int    `json:"n"`     // from 0
	Start    int    `json:"start"` // first byte in the text of that document
	End      int    `json:"end"`   // byte after the last
}

// ID returns the id of the passage.
func (p *Passage) ID() string { return p.ParentID + "#" + strconv.Itoa(p.Number) }

// SplitPassageID splits the id of a passage into the id of its document and its number. For an id of
// another form it returns that and −1. An id of this form does not make a document a passage.
func SplitPassageID(id string) (parent string, number int) {
	if i := strings.LastIndexByte(id, '#'); i >= 0 {
		if n, err := strconv.Atoi(id[i+1:]); err == nil && n >= 0 && strconv.Itoa(n) == id[i+1:] {
			return id[:i], n
		}
	}
	return id, -1
}

// PassageFromPayload returns the passage in the payload of the document with an id, or nil if the document is
// not a passage. The error is [ErrFormat] for an invalid field, or one that contradicts the id.
func PassageFromPayload(id string, payload []byte) (*Passage, error) {
	raw, count, name := passageField(payload)
	switch {
	case count == 0:
		return nil, nil
	case count > 1:
		return nil, fmt.Errorf("%w: field %s: it is there twice", ErrFormat, PassageField)
	case name != PassageField:
		return nil, fmt.Errorf("%w: field %.20q: it is written %s", ErrFormat, name, PassageField)
	}
	p := &Passage{Number: -1}
	seen := map[string]bool{}
	err := jsontext.Members(raw, func(key string, _ json.RawMessage) error {
		if !slices.Contains([]string{"of", "n", "start", "end"}, key) || seen[key] {
			return fmt.Errorf("%q is none of its fields, or is there twice", key)
		}
		seen[key] = true
		return nil
	})
	if err == nil {
		err = json.Unmarshal(raw, p)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: field %s: %w", ErrFormat, PassageField, err)
	case p.ParentID == "" || p.Number < 0 || p.Start < 0 || p.End < p.Start:
		return nil, fmt.Errorf("%w: field %s: %s is no part of a document", ErrFormat, PassageField, raw)
	case p.ID() != id:
		return nil, fmt.Errorf("%w: field %s: the id of that passage has to be %q", ErrFormat, PassageField, p.ID())
	}
	return p, nil
}

// HasPassage reports whether a payload has the field of a passage. It does not validate the field, as
// [PassageFromPayload] does.
func HasPassage(payload []byte) bool {
	_, count, _ := passageField(payload)
	return count > 0
}

// passageField finds the field of a passage in a payload. It returns the last value, the number of
// such fields, and the name as it is spelt there. Names are compared as in conditions: after decoding
// escapes, and ignoring case.
func passageField(payload []byte) (value json.RawMessage, count int, name string) {
	// Most payloads need not be parsed: they contain neither the name nor an escape of its letters.
	mayHaveField := false
	for _, escape := range []string{`\u004`, `\u005`, `\u006`, `\u007`} {
		mayHaveField = mayHaveField || bytes.Contains(payload, []byte(escape))
	}
	for unread := payload; !mayHaveField; {
		i := bytes.IndexByte(unread, PassageField[0])
		if i < 0 || len(unread)-i < len(PassageField) {
			break
		}
		mayHaveField = bytes.EqualFold(unread[i:i+len(PassageField)], []byte(PassageField))
		unread = unread[i+1:]
	}
	if !mayHaveField || !json.Valid(payload) {
		return nil, 0, ""
	}
	err := jsontext.Members(payload, func(key string, v json.RawMessage) error {
		if strings.EqualFold(key, PassageField) {
			value, name = v, key
			count++
		}
		return nil
	})
	if err != nil { // not an object
		return nil, 0, ""
	}
	return value, count, name
}

// Payload adds the passage to a payload, which is a JSON object or empty.
func (p *Passage) Payload(payload []byte) ([]byte, error) {
	b, err := json.Marshal(map[string]*Passage{PassageField: p})
	if err != nil {
		return nil, err
	}
	payload = bytes.TrimSpace(payload)
	members, isObject := bytes.CutPrefix(payload, []byte("{"))
	switch members = bytes.TrimSpace(members); {
	case len(payload) == 0:
		return b, nil
	case !isObject:
		return nil, fmt.Errorf("%w: the metadata of a passage has to be a JSON object", ErrFormat)
	case string(members) == "}":
		return b, nil
	}
	return append(append(b[:len(b)-1], ','), members...), nil
}

// DocumentPayload returns the payload of the document of a passage: that of the passage without the
// fields [PassageField] and text.
func DocumentPayload(payload []byte) []byte {
	out := []byte{'{'}
	err := jsontext.Members(payload, func(key string, value json.RawMessage) error {
		if key != PassageField && key != "text" {
			out = jsontext.AppendMember(out, key, value)
		}
		return nil
	})
	if err != nil {
		return payload
	}
	return append(out, '}')
}
