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

// ErrNoObject: a payload that is not a JSON object, and so has no fields to set.
var ErrNoObject = errors.New("metadata is not a JSON object")

// ErrNested: a field that is to be set or removed by a name with dots, and is within an object.
var ErrNested = errors.New("field is within an object, which can only be set as a whole")

// Fields are members of an object that are to be set, or, where the value is empty, to be
// removed. null is a value like others.
type Fields map[string]json.RawMessage

// NullRemoves returns the fields with those to be removed that would be set to null.
func (f Fields) NullRemoves() Fields {
	out := maps.Clone(f)
	for key, value := range f {
		if string(bytes.TrimSpace(value)) == "null" {
			out[key] = nil
		}
	}
	return out
}

// Validate checks names and values: JSON that payloads may have ([jsontext.Check]), no two names that
// differ in case only, and not those of the id and the ordinal, which are not in the payload.
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

// Merge returns a payload with fields set. Those that it has keep their place, and the
// spelling of their key; new ones follow, in order. An empty payload is an object
// without fields; one that is no object is [ErrNoObject]. A name with dots is a key with dots;
// where the payload has such a field within an object, it is [ErrNested]. Nothing is returned
// if fields were to be removed and none are left.
func (f Fields) Merge(payload []byte) ([]byte, error) {
	if len(payload) == 0 {
		payload = []byte("{}")
	}
	if !json.Valid(payload) || bytes.TrimSpace(payload)[0] != '{' {
		return nil, ErrNoObject
	}
	record := &Record{raw: payload}
	for _, key := range slices.Sorted(maps.Keys(f)) {
		topLevel := record.object().member(Fold(key))
		if !record.visitPath(Fold(key), func(m *member) bool { return m == topLevel }) {
			first, _, _ := strings.Cut(key, ".")
			return nil, fmt.Errorf("%w: %q is in %q", ErrNested, key, first)
		}
	}
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
