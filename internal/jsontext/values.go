package jsontext

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
)

// Unquote returns the text of a valid JSON string. It reads about step bytes at a time, and calls
// proceed after each. If proceed returns false, the result is incomplete.
func Unquote(raw []byte, step int, proceed func(bytes int) bool) string {
	var out strings.Builder
	for start := 1; start < len(raw)-1; {
		end := textEnd(raw, start, step)
		quoted := raw
		if end-start < len(raw)-2 {
			quoted = append(append([]byte{'"'}, raw[start:end]...), '"')
		}
		var text string
		_ = json.Unmarshal(quoted, &text) // it is valid
		if out.WriteString(text); !proceed(end - start) {
			break
		}
		start = end
	}
	return out.String()
}

// textEnd returns an offset in a string, at least step bytes after from, between two characters.
func textEnd(raw []byte, from, step int) int {
	pos, afterHighHalf := from, false // afterHighHalf: the first half of a surrogate pair precedes pos
	for ; pos < len(raw)-1; pos++ {
		if c := raw[pos]; pos-from >= step && c&0xc0 != 0x80 && !afterHighHalf {
			break
		}
		if afterHighHalf = false; raw[pos] == '\\' {
			if pos++; raw[pos] == 'u' {
				afterHighHalf = raw[pos+1]|0x20 == 'd' && raw[pos+2] >= '8'
				pos += 4
			}
		}
	}
	return pos
}

// MarshalUnescaped returns the JSON of v without escapes of <, > and &, which only HTML needs: conditions
// compare lists as their text, and people and agents read it.
func MarshalUnescaped(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), err
}

// AppendMember appends a member to an object that has no closing brace yet. The key is written as
// [json.Marshal] does, the value unchanged.
func AppendMember(object []byte, key string, value json.RawMessage) []byte {
	if len(object) > len("{") {
		object = append(object, ',')
	}
	name, _ := json.Marshal(key) // a string
	return append(append(append(object, name...), ':'), value...)
}

var errNotObject = errors.New("it is not a JSON object")

// Members calls visit with the members of an object in order, with their values unchanged. An error
// of visit ends it.
func Members(object []byte, visit func(key string, value json.RawMessage) error) error {
	d := json.NewDecoder(bytes.NewReader(object))
	t, err := d.Token()
	if err == nil && t != json.Delim('{') {
		err = errNotObject
	}
	for err == nil && d.More() {
		if t, err = d.Token(); err != nil {
			break
		}
		var value json.RawMessage
		if err = d.Decode(&value); err == nil {
			err = visit(t.(string), value)
		}
	}
	if err == nil {
		_, err = d.Token() // the end of the object
	}
	return err
}
