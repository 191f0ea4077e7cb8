package condition

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/internal/jsontext"
)

// ErrNotObject reports a payload that is not a JSON object, and so has no fields to set.
var ErrNotObject = errors.New("metadata is not a JSON object")

// ErrNested reports an update of a field by a name with dots, if the field is within an object.
var ErrNested = errors.New("field is within an object, which can only be set as a whole")

// Fields are fields of an object to set or, if the value is empty, to remove. null is a value like
// others.
type Fields map[string]json.RawMessage

// WithNullRemoving returns the fields with null replaced by an empty value, which removes the field.
func (f Fields) WithNullRemoving() Fields {
	out := maps.Clone(f)
	for key, value := range f {
		if string(bytes.TrimSpace(value)) == "null" {
			out[key] = nil
		}
	}
	return out
}

// Validate checks names and values: values are JSON that payloads may have ([jsontext.Check]), no
// two names differ only in case, and none is that of the id or the ordinal, which are not in the
// payload.
func (f Fields) Validate() error {
	seen := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(f)) {
		folded := Fold(key)
		switch first, twice := seen[folded]; {
		case twice:
			return fmt.Errorf("fields %q and %q differ in case only", first, key)
		case Field(folded) == FieldID || Field(folded) == FieldOrdinal:
			return fmt.Errorf("field %q cannot be set", key)
		case !utf8.ValidString(key):
			return fmt.Errorf("field %q is not UTF-8", key)
		}
		if len(f[key]) > 0 {
			if err := jsontext.Check(f[key], jsontext.Options{}); err != nil {
				return fmt.Errorf("field %q: its value %.60q: %w", key, f[key], err)
			}
		}
		seen[folded] = key
	}
	return nil
}

// Merge returns the payload with the fields set. Existing fields keep their position and the spelling
// of their key; new ones follow, sorted. An empty payload is an object without fields; a payload
// that is not an object is [ErrNotObject]. A name with dots is a key with dots; if the payload has
// such a field within an object, the error is [ErrNested]. Merge returns nil if fields were removed
// and none is left.
func (f Fields) Merge(payload []byte) ([]byte, error) {
	if len(payload) == 0 {
		payload = []byte("{}")
	}
	if !json.Valid(payload) || bytes.TrimSpace(payload)[0] != '{' {
		return nil, ErrNotObject
	}
	record := &Record{raw: payload}
	// Refuse names with dots that lead into an object: only the member of that name may be found.
	for _, key := range slices.Sorted(maps.Keys(f)) {
		topLevel := record.object().member(Fold(key))
		if !record.visitPath(Fold(key), func(m *member) bool { return m == topLevel }) {
			first, _, _ := strings.Cut(key, ".")
			return nil, fmt.Errorf("%w: %q is in %q", ErrNested, key, first)
		}
	}
	// Write the existing fields with their changes, then the new fields.
	changes, removes := map[string]json.RawMessage{}, false
	for key, value := range f {
		changes[Fold(key)] = value
		removes = removes || len(value) == 0
	}
	out := []byte{'{'}
	add := func(key string, value json.RawMessage) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(appendQuoted(out, key), ':'), value...)
	}
	err := jsontext.Members(payload, func(key string, value json.RawMessage) error {
		if updated, ok := changes[Fold(key)]; ok {
			value = updated
		}
		if len(value) > 0 {
			add(key, value)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, key := range slices.Sorted(maps.Keys(f)) {
		if len(f[key]) > 0 && record.object().member(Fold(key)) == nil {
			add(key, f[key])
		}
	}
	if removes && len(out) == 1 {
		return nil, nil
	}
	return append(out, '}'), nil
}
