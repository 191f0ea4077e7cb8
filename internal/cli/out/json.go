package out

import (
	"bytes"
	"encoding/json"
	"strings"
)

// JSON is v as one line of JSON.
func JSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return b.Bytes(), err
}

// Snippet is what a table shows of a payload: title and text of a JSON object
// that has them, else the payload itself.
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
