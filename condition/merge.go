package condition

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// ErrNoObject: a payload that is not a JSON object, and so has no fields to set.
var ErrNoObject = errors.New("payload is not a JSON object")

// Fields are members of an object that are to be set.
type Fields map[string]json.RawMessage

// Validate checks names and values: valid JSON, no two names that differ in case only,
// and not those of the id and the ordinal, which are not in the payload.
func (f Fields) Validate() error {
	seen := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(f)) {
		folded := fold(key)
		switch first, twice := seen[folded]; {
		case twice:
			return fmt.Errorf("fields %q and %q differ in case only", first, key)
		case Field(folded) == FieldID || Field(folded) == FieldOrdinal:
			return fmt.Errorf("field %q cannot be set", key)
		case !json.Valid(f[key]):
			return fmt.Errorf("field %q: its value is not JSON: %q", key, f[key])
		}
		seen[folded] = key
	}
	return nil
}

// Merge returns a payload with fields set. Those that it has keep their place, and the
// spelling of their key; new ones follow, in order. An empty payload is an object
// without fields; one that is no object is [ErrNoObject].
func (f Fields) Merge(payload []byte) ([]byte, error) {
	if len(payload) == 0 {
		payload = []byte("{}")
	}
	if !json.Valid(payload) || bytes.TrimSpace(payload)[0] != '{' {
		return nil, ErrNoObject
	}
	left := map[string]json.RawMessage{}
	for key, value := range f {
		left[fold(key)] = value
	}
	out := []byte{'{'}
	add := func(key string, value json.RawMessage) error {
		if len(out) > 1 {
			out = append(out, ',')
		}
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(key); err != nil {
			return err
		}
		out = append(out, bytes.TrimSpace(b.Bytes())...)
		out = append(out, ':')
		out = append(out, value...)
		return nil
	}
	members := json.NewDecoder(bytes.NewReader(payload))
	if _, err := members.Token(); err != nil {
		return nil, err
	}
	for members.More() {
		key, err := members.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := members.Decode(&value); err != nil {
			return nil, err
		}
		if updated, ok := left[fold(key.(string))]; ok {
			value = updated
		}
		if err := add(key.(string), value); err != nil {
			return nil, err
		}
	}
	had := (&Document{raw: payload}).object()
	for _, key := range slices.Sorted(maps.Keys(f)) {
		if had.find(fold(key)) == nil {
			if err := add(key, f[key]); err != nil {
				return nil, err
			}
		}
	}
	return append(out, '}'), nil
}
