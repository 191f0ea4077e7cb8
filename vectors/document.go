package vectors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/internal/errkind"
	"github.com/plaid-ir/plaid/internal/jsontext"
)

// Errors of [CheckDocument], in addition to [ErrID]; test with errors.Is.
var (
	// ErrText means that a title or a text is not UTF-8.
	ErrText = errors.New("bad text")
	// ErrPayload means that a payload is not a JSON object, has an invalid field, or is too large.
	ErrPayload = errkind.New(errkind.BadRequest, "bad metadata")
)

// MaxPayload is the maximum size of a payload in bytes. It equals the maximum length of a line of
// texts, since a payload may contain the text. Collections have a lower limit.
const MaxPayload = 64 << 20

// Draft is a document before it is stored.
type Draft struct {
	// ID is the id of the document. "" means that the index assigns one.
	ID string
	// Title and Text are encoded. If both are empty, the document has no tokens.
	Title, Text string
	// Payload is stored with the vectors.
	Payload []byte
	// Split means that the document is stored as passages if it is long.
	Split bool
}

// CheckDocument checks that a document may be stored. All code that accepts documents calls it before
// any costly work, and has no other rules for a single document:
//
//  1. An id is UTF-8 of 1 to [MaxIDBytes] bytes, without control characters such as tabs and line
//     ends, and does not begin with a byte order mark ([CheckID]). White space at its ends is part of it.
//     In JSON it is a string or an integer. null means no id ([ParseID]).
//  2. The index assigns an id to a document without one.
//  3. The id of a document that is split is short enough to append "#" and the number of a passage.
//  4. Title and text are UTF-8. Both may be empty or blank; such a document has no tokens.
//  5. A payload is a JSON object. No bytes, white space, null and {} mean no payload.
//  6. A payload is UTF-8, has whole characters (no single half of a surrogate pair), no NaN, no Infinity
//     and no number beyond float64, is not nested deeper than [jsontext.MaxDepth], and has at most
//     [MaxPayload] bytes ([CheckObject]).
//  7. A payload has no key twice.
//  8. If it has the key _id, its value is the id. The keys _subset_ and _content_id_, and _id in other
//     letters, are reserved: answers use them. [PassageField] must be true of the id ([PassageFromPayload]).
//
// It does not check for duplicate ids, which concern several documents. The error wraps [ErrID],
// [ErrText] or [ErrPayload], and does not name the document.
func CheckDocument(d Draft) error {
	if d.ID != "" {
		if err := CheckID(d.ID); err != nil {
			return err
		}
		if limit := MaxIDBytes - maxPassageSuffix; d.Split && len(d.ID) > limit {
			return fmt.Errorf("%w: %d bytes; at most %d leave room for the numbers of passages",
				ErrID, len(d.ID), limit)
		}
	}
	for _, field := range []struct{ name, text string }{{"title", d.Title}, {"text", d.Text}} {
		if err := checkUTF8(field.name, field.text); err != nil {
			return err
		}
	}
	return checkPayload(d.ID, d.Payload)
}

// maxPassageSuffix is the length of the longest suffix of a passage's id. Passages have ordinals of 32 bits.
const maxPassageSuffix = len("#4294967295")

// checkUTF8 returns an error for the first byte of a field that is not UTF-8.
func checkUTF8(name, text string) error {
	if utf8.ValidString(text) {
		return nil
	}
	for i := 0; ; {
		r, n := utf8.DecodeRuneInString(text[i:])
		if r == utf8.RuneError && n == 1 {
			problem := "is not UTF-8"
			if text[i] == 0xed { // the first byte of a surrogate, as some programs write it
				problem += " or half of a character"
			}
			return fmt.Errorf("%w: %s: byte %d, %#02x, %s: convert the text, or put U+FFFD in its place",
				ErrText, name, i, text[i], problem)
		}
		i += n
	}
}

// IsEmptyPayload reports whether a payload means no payload: no bytes, white space, null or an empty object.
func IsEmptyPayload(payload []byte) bool {
	p := bytes.TrimSpace(payload)
	switch {
	case len(p) == 0 || string(p) == "null":
		return true
	case len(p) > 64: // avoid scanning: an empty object with white space in it is short
		return false
	}
	inner, opens := bytes.CutPrefix(p, []byte("{"))
	inner, closes := bytes.CutSuffix(inner, []byte("}"))
	return opens && closes && len(bytes.TrimSpace(inner)) == 0
}

// checkPayload checks the payload of a document by rules 5 to 8 of [CheckDocument].
func checkPayload(id string, payload []byte) error {
	if IsEmptyPayload(payload) {
		return nil
	}
	err := checkObject(payload, func(name string, value []byte) error {
		if name != IDField {
			return checkReserved(name)
		}
		if payloadID, err := ParseID(value); err != nil || payloadID != id {
			return fmt.Errorf("%s is %.60s, and the document's id %.80q: leave it out, or rename it",
				IDField, value, id)
		}
		return nil
	})
	if err != nil {
		return err
	}
	switch p, err := PassageFromPayload(id, payload); {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrPayload, err)
	case p != nil && id == "":
		return fmt.Errorf("%w: field %s: a passage needs an id", ErrPayload, PassageField)
	}
	return nil
}

// IDField is the key of a document's id in metadata.
const IDField = "_id"

// checkReserved returns an error for a key that has another meaning in responses. It ignores case, as
// conditions do.
func checkReserved(name string) error {
	if name == "" || name[0] != '_' {
		return nil
	}
	for _, key := range []string{"_subset_", "_content_id_", IDField} {
		if strings.EqualFold(name, key) {
			return fmt.Errorf("key %q is reserved: rename it", name)
		}
	}
	return nil
}

// CheckKey returns [ErrPayload] for a key that cannot be set in a payload.
func CheckKey(name string) error {
	if err := checkReserved(name); err != nil {
		return fmt.Errorf("%w: %w", ErrPayload, err)
	}
	return nil
}

// CheckObject checks that a text is a JSON object by the rules of payloads, except those about keys.
// Readers of lines call it before they decode one, since encoding/json would replace bytes that are
// not UTF-8 by U+FFFD. The error is [ErrPayload], and names the field.
func CheckObject(text []byte) error {
	return checkObject(text, func(string, []byte) error { return nil })
}

// checkObject is CheckObject, and calls visit with each key and its value.
func checkObject(text []byte, visit func(name string, value []byte) error) error {
	if len(text) > MaxPayload {
		return fmt.Errorf("%w: %d bytes, at most %d are possible", ErrPayload, len(text), MaxPayload)
	}
	err := jsontext.Check(text, jsontext.Options{})
	if b := bytes.TrimLeft(text, " \t\r\n"); err == nil && b[0] != '{' {
		err = fmt.Errorf("it is no JSON object but %s", quoteExcerpt(b))
	}
	if err == nil {
		seen := map[string]bool{}
		err = visitMembers(text, func(key, valueText []byte) (int, error) {
			name := string(key[1 : len(key)-1])
			if strings.IndexByte(name, '\\') >= 0 { // decode escapes
				var err error
				if name, err = jsonString(key); err != nil {
					return 0, err
				}
			}
			if seen[name] {
				return 0, fmt.Errorf("key %q twice: leave out one", name)
			}
			seen[name] = true
			n := valueEnd(valueText)
			return n, visit(name, valueText[:max(n, 0)])
		})
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrPayload, err)
	}
	return nil
}

// ParseID parses the id of a document in JSON: a string, or an integer, whose digits are the id. It
// returns "" for null, which means no id. The error is [ErrID].
func ParseID(raw json.RawMessage) (string, error) {
	raw = bytes.TrimSpace(raw)
	if string(raw) == "null" {
		return "", nil
	}
	return jsonID(raw)
}
