package vectors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/internal/jsontext"
)

// Errors of [CheckDocument], which has [ErrID] too; test with errors.Is.
var (
	// ErrText: a title or a text that is not UTF-8.
	ErrText = errors.New("bad text")
	// ErrPayload: a payload that is no JSON object, has a field that is not possible, or is too large.
	ErrPayload = errors.New("bad metadata")
)

// MaxPayload is the largest payload in bytes. It is as long as the longest line of texts that is read,
// since a payload may keep the text. A collection takes less.
const MaxPayload = 64 << 20

// Draft is a document before it is stored.
type Draft struct {
	// ID names it; "" means that the index does.
	ID string
	// Title and Text are encoded. Without any text, a document has no tokens.
	Title, Text string
	// Payload is stored with the vectors.
	Payload []byte
	// Split says that the document is stored as passages, if it is long.
	Split bool
}

// CheckDocument decides whether a document may be stored. Whoever takes documents asks it, before
// anything costly is done with them, and has no rule of its own about a single document:
//
//  1. An id is UTF-8 of 1 to [MaxIDBytes] bytes, without control characters such as tabs and line
//     ends, and does not begin with a byte order mark ([CheckID]). White space at its ends is part of it.
//     In JSON it is a string or an integer, and null is no id ([ParseID]).
//  2. A document without an id is named by the index.
//  3. The id of a document that is split leaves room for "#" and the number of a passage.
//  4. Title and text are UTF-8. Both may be empty or blank; such a document has no tokens.
//  5. A payload is a JSON object. Nothing, white space, null and {} mean that there is none.
//  6. A payload is UTF-8, has whole characters (no single half of a surrogate pair), no NaN, no Infinity
//     and no number beyond float64, is not nested deeper than [jsontext.MaxDepth], and has at most
//     [MaxPayload] bytes ([CheckObject]).
//  7. A payload has no key twice.
//  8. If it has the key _id, its value is the id. The keys _subset_ and _content_id_, and _id in other
//     letters, are reserved: answers use them. [PassageField] must be true of the id ([PassageOf]).
//
// Duplicate ids, and ids that are taken, are no matter of a single document. The error wraps [ErrID],
// [ErrText] or [ErrPayload], and does not name the document.
func CheckDocument(d Draft) error {
	if d.ID != "" {
		if err := CheckID(d.ID); err != nil {
			return err
		}
		if most := MaxIDBytes - passageRoom; d.Split && len(d.ID) > most {
			return fmt.Errorf("%w: %d bytes; at most %d leave room for the numbers of passages", ErrID, len(d.ID), most)
		}
	}
	for _, part := range []struct{ name, text string }{{"title", d.Title}, {"text", d.Text}} {
		if err := checkUTF8(part.name, part.text); err != nil {
			return err
		}
	}
	return checkPayload(d.ID, d.Payload)
}

// passageRoom is the length of the longest end of a passage's id: ordinals have 32 bits.
const passageRoom = len("#4294967295")

func checkUTF8(name, text string) error {
	if utf8.ValidString(text) {
		return nil
	}
	for at := 0; ; {
		r, n := utf8.DecodeRuneInString(text[at:])
		if r == utf8.RuneError && n == 1 {
			what := "is not UTF-8"
			if text[at] == 0xed { // how some programs write a surrogate
				what += " or half of a character"
			}
			return fmt.Errorf("%w: %s: byte %d, %#02x, %s: convert the text, or put U+FFFD in its place",
				ErrText, name, at, text[at], what)
		}
		at += n
	}
}

// NoPayload reports whether a payload stands for none: nothing, white space, null or an empty object.
func NoPayload(payload []byte) bool {
	p := bytes.TrimSpace(payload)
	switch {
	case len(p) == 0 || string(p) == "null":
		return true
	case len(p) > 64: // an empty object with white space in it is short
		return false
	}
	inner, object := bytes.CutPrefix(p, []byte("{"))
	inner, closed := bytes.CutSuffix(inner, []byte("}"))
	return object && closed && len(bytes.TrimSpace(inner)) == 0
}

func checkPayload(id string, payload []byte) error {
	if NoPayload(payload) {
		return nil
	}
	err := checkObject(payload, func(name string, value []byte) error {
		if name != IDField {
			return reserved(name)
		}
		if said, err := ParseID(value); err != nil || said != id {
			return fmt.Errorf("%s is %.60s, and the document's id %.80q: leave it out, or rename it", IDField, value, id)
		}
		return nil
	})
	if err != nil {
		return err
	}
	switch p, err := PassageOf(id, payload); {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrPayload, err)
	case p != nil && id == "":
		return fmt.Errorf("%w: field %s: a passage needs an id", ErrPayload, PassageField)
	}
	return nil
}

// IDField is the key of a document's id in metadata.
const IDField = "_id"

// reserved refuses names of keys that stand for something else in answers. In conditions the case
// of a name does not matter.
func reserved(name string) error {
	if name == "" || name[0] != '_' {
		return nil
	}
	for _, own := range []string{"_subset_", "_content_id_", IDField} {
		if strings.EqualFold(name, own) {
			return fmt.Errorf("key %q is reserved: rename it", name)
		}
	}
	return nil
}

// CheckKey refuses keys that cannot be set in a payload ([ErrPayload]).
func CheckKey(name string) error {
	if err := reserved(name); err != nil {
		return fmt.Errorf("%w: %w", ErrPayload, err)
	}
	return nil
}

// CheckObject decides whether a text is a JSON object by the rules of payloads, whatever its keys
// are. Readers of lines ask it before they decode one: encoding/json puts U+FFFD in the place of
// bytes that are no character. The error is [ErrPayload], and names the field.
func CheckObject(text []byte) error {
	return checkObject(text, func(string, []byte) error { return nil })
}

// checkObject is CheckObject, and passes each key and its value to visit.
func checkObject(text []byte, visit func(name string, value []byte) error) error {
	if len(text) > MaxPayload {
		return fmt.Errorf("%w: %d bytes, at most %d are possible", ErrPayload, len(text), MaxPayload)
	}
	err := jsontext.Check(text, jsontext.Options{})
	if b := bytes.TrimLeft(text, " \t\r\n"); err == nil && b[0] != '{' {
		err = fmt.Errorf("it is no JSON object but %s", excerpt(b))
	}
	if err == nil {
		seen := map[string]bool{}
		err = members(text, func(key, rest []byte) (int, error) {
			name := string(key[1 : len(key)-1])
			if strings.IndexByte(name, '\\') >= 0 {
				var err error
				if name, err = jsonString(key); err != nil {
					return 0, err
				}
			}
			if seen[name] {
				return 0, fmt.Errorf("key %q twice: leave out one", name)
			}
			seen[name] = true
			n := valueEnd(rest)
			return n, visit(name, rest[:max(n, 0)])
		})
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrPayload, err)
	}
	return nil
}

// ParseID reads the id of a document in JSON: a string, or an integer, which is taken as its
// digits. null is no id, as if there were none. The error is [ErrID].
func ParseID(raw json.RawMessage) (string, error) {
	raw = bytes.TrimSpace(raw)
	if string(raw) == "null" {
		return "", nil
	}
	return jsonID(raw)
}
