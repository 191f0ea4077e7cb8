package jsontext

import (
	"bytes"
	"encoding/json"
)

// Plain is the JSON of v with <, > and & as they are: conditions compare lists as their text,
// and people and agents read it. Escapes of these are for HTML alone.
func Plain(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), err
}
