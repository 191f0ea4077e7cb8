package out

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/plaid-ir/plaid/internal/jsontext"
)

// JSONLine encodes v as one line of JSON.
func JSONLine(v any) ([]byte, error) {
	text, err := jsontext.MarshalUnescaped(v)
	return append(text, '\n'), err
}

// TypedJSONLine encodes v, whose JSON is an object, as one line of JSON with a field "type" before
// the fields of v.
func TypedJSONLine(kind string, v any) ([]byte, error) {
	line, err := JSONLine(v)
	if err != nil {
		return nil, err
	}
	head, err := json.Marshal(kind)
	if err != nil {
		return nil, err
	}
	fields, ok := bytes.CutPrefix(line, []byte("{"))
	if !ok {
		return nil, fmt.Errorf("%T is no JSON object", v)
	}
	typed := append([]byte(`{"type":`), head...)
	if !bytes.HasPrefix(fields, []byte("}")) {
		typed = append(typed, ',')
	}
	return append(typed, fields...), nil
}

// Snippet returns the part of a payload that a table shows: the title and the text of a JSON
// object, or else the payload itself.
func Snippet(p []byte) string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(p, &fields) == nil {
		var parts []string
		for _, name := range []string{"title", "text"} {
			var s string
			if json.Unmarshal(fields[name], &s) == nil && s != "" {
				parts = append(parts, s)
			}
		}
		if len(parts) > 0 {
			return strings.Join(parts, ": ")
		}
	}
	return string(p)
}

// TextField returns a field of a payload that is a text, or "" if it has no such field.
func TextField(p []byte, name string) (s string) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(p, &fields) == nil {
		_ = json.Unmarshal(fields[name], &s) // an error means that the value is not a text
	}
	return s
}
