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

// PassageField is the field of a payload that makes its document a passage of a longer
// one. It is plaid's own: what it says has to be true.
const PassageField = "_passage"

// Passage says which part of which document another one is. A passage is stored as a
// document of its own, whose id is that of the longer one, "#" and its number, and whose
// payload has the passage in the field [PassageField].
type Passage struct {
	Of     string `json:"of"`    // id of the longer document
	Number int    `json:"n"`     // from 0
	Start  int    `json:"start"` // first byte in the text of that document
	End    int    `json:"end"`   // byte after the last
}

// ID is the id of the passage.
func (p *Passage) ID() string { return p.Of + "#" + strconv.Itoa(p.Number) }

// SplitPassageID takes the id of a passage apart into that of its document and its
// number. Another id gives itself and −1. That a document has an id of this form does not
// make it a passage.
func SplitPassageID(id string) (of string, number int) {
	if at := strings.LastIndexByte(id, '#'); at >= 0 {
		if n, err := strconv.Atoi(id[at+1:]); err == nil && n >= 0 && strconv.Itoa(n) == id[at+1:] {
			return id[:at], n
		}
	}
	return id, -1
}

// PassageOf is what a payload says of the document of an id; nil: it is no passage. The
// error is [ErrFormat] where the field says what cannot be.
func PassageOf(id string, payload []byte) (*Passage, error) {
	raw, times, spelt := passageField(payload)
	switch {
	case times == 0:
		return nil, nil
	case times > 1:
		return nil, fmt.Errorf("%w: field %s: it is there twice", ErrFormat, PassageField)
	case spelt != PassageField:
		return nil, fmt.Errorf("%w: field %.20q: it is written %s", ErrFormat, spelt, PassageField)
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
	case p.Of == "" || p.Number < 0 || p.Start < 0 || p.End < p.Start:
		return nil, fmt.Errorf("%w: field %s: %s is no part of a document", ErrFormat, PassageField, raw)
	case p.ID() != id:
		return nil, fmt.Errorf("%w: field %s: the id of that passage has to be %q", ErrFormat, PassageField, p.ID())
	}
	return p, nil
}

// HasPassage reports whether a payload has the field of a passage, which it does not check
// ([PassageOf] does).
func HasPassage(payload []byte) bool {
	_, times, _ := passageField(payload)
	return times > 0
}

// passageField is the value of the field of a payload, how often it is there, and how its
// name is spelt. Names are compared as conditions compare them: without escapes, and in any
// case of their letters.
func passageField(payload []byte) (value json.RawMessage, times int, spelt string) {
	may := false // most payloads need not be read
	for _, part := range []string{`\u004`, `\u005`, `\u006`, `\u007`} {
		may = may || bytes.Contains(payload, []byte(part))
	}
	for rest := payload; !may; {
		at := bytes.IndexByte(rest, PassageField[0])
		if at < 0 || len(rest)-at < len(PassageField) {
			break
		}
		may = bytes.EqualFold(rest[at:at+len(PassageField)], []byte(PassageField))
		rest = rest[at+1:]
	}
	if !may || !json.Valid(payload) {
		return nil, 0, ""
	}
	err := jsontext.Members(payload, func(key string, v json.RawMessage) error {
		if strings.EqualFold(key, PassageField) {
			value, spelt = v, key
			times++
		}
		return nil
	})
	if err != nil { // it is no object
		return nil, 0, ""
	}
	return value, times, spelt
}

// Payload adds the passage to a payload, which is a JSON object or nothing.
func (p *Passage) Payload(payload []byte) ([]byte, error) {
	b, err := json.Marshal(map[string]*Passage{PassageField: p})
	if err != nil {
		return nil, err
	}
	payload = bytes.TrimSpace(payload)
	rest, ok := bytes.CutPrefix(payload, []byte("{"))
	switch rest = bytes.TrimSpace(rest); {
	case len(payload) == 0:
		return b, nil
	case !ok:
		return nil, fmt.Errorf("%w: the metadata of a passage has to be a JSON object", ErrFormat)
	case string(rest) == "}":
		return b, nil
	}
	return append(append(b[:len(b)-1], ','), rest...), nil
}

// WholePayload is the payload of a passage without what is its own, the field
// [PassageField] and its text: what its document has.
func WholePayload(payload []byte) []byte {
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
