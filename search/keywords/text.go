package keywords

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/vectors"
)

// values appends the texts of a payload that are searched, in their order:
//
//	JSON          every string, number, true and false, however deep; of an object with
//	              fields given, those below the fields only, and else none of what says
//	              that it is a passage
//	other text    the text
//	other bytes   nothing
//
// A field is a name, or a path of names with dots between them; lists add nothing to
// a path.
func values(dst []string, payload []byte, fields []string) []string {
	switch {
	case !utf8.Valid(payload):
		return dst
	case !json.Valid(payload):
		return append(dst, string(payload))
	}
	if p := bytes.TrimLeft(payload, " \t\r\n"); p[0] != '{' {
		fields = nil
	}
	d := json.NewDecoder(bytes.NewReader(payload))
	d.UseNumber() // as it is written
	w := walker{fields: fields}
	for {
		t, err := d.Token()
		if err != nil { // the end
			return dst
		}
		if text, ok := w.next(t); ok {
			dst = append(dst, text)
		}
	}
}

// walker knows where in a JSON text it is.
type walker struct {
	fields []string
	path   []string // names of the fields around; "" for lists
	open   []level
}

type level struct {
	object bool
	name   bool // the next token is the name of a field
}

// next takes a token, which is the text of a value that is searched, or not.
func (w *walker) next(t json.Token) (text string, ok bool) {
	var top *level
	if n := len(w.open); n > 0 {
		top = &w.open[n-1]
	}
	if d, is := t.(json.Delim); is {
		if d == '}' || d == ']' {
			w.open, w.path = w.open[:len(w.open)-1], w.path[:len(w.path)-1]
			return "", false
		}
		w.beginValue(top)
		w.open = append(w.open, level{object: d == '{', name: d == '{'})
		w.path = append(w.path, "")
		return "", false
	}
	if top != nil && top.name {
		w.path[len(w.path)-1], _ = t.(string)
		top.name = false
		return "", false
	}
	w.beginValue(top)
	if !w.wanted() {
		return "", false
	}
	switch t := t.(type) {
	case string:
		return t, t != ""
	case json.Number:
		return t.String(), true
	case bool:
		if t {
			return "true", true
		}
		return "false", true
	}
	return "", false // null
}

// beginValue notes that a value begins: after it comes a name again.
func (w *walker) beginValue(top *level) {
	if top != nil {
		top.name = top.object
	}
}

func (w *walker) wanted() bool {
	if len(w.fields) == 0 {
		return len(w.path) == 0 || w.path[0] != vectors.PassageField // numbers, and an id
	}
	path := strings.Join(slices.DeleteFunc(slices.Clone(w.path), func(s string) bool { return s == "" }), ".")
	for _, f := range w.fields {
		if path == f || strings.HasPrefix(path, f+".") {
			return true
		}
	}
	return false
}
