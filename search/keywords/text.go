package keywords

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
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
	w := walker{Decoder: json.NewDecoder(bytes.NewReader(payload)), fields: fields, texts: dst}
	w.UseNumber() // as it is written
	w.value(nil, len(fields) == 0)
	return w.texts
}

// walker collects the texts of a JSON text, which is valid.
type walker struct {
	*json.Decoder
	fields []string
	texts  []string
}

// value goes over a value, whose path has the names of the fields around it, "" for lists. It
// reports whether there is one.
func (w *walker) value(path []string, wanted bool) bool {
	token, err := w.Token()
	if err != nil {
		return false
	}
	text := ""
	switch t := token.(type) {
	case json.Delim:
		path = append(path, "")
		for w.More() {
			inside := wanted
			if t == '{' {
				name, _ := w.Token()
				path[len(path)-1], _ = name.(string)
				inside = w.wanted(path)
			}
			if !w.value(path, inside) {
				return false
			}
		}
		_, err = w.Token()
	case string:
		text = t
	case json.Number:
		text = t.String()
	case bool:
		text = strconv.FormatBool(t)
	}
	if wanted && text != "" {
		w.texts = append(w.texts, text)
	}
	return err == nil
}

// wanted tells whether what is in a field is searched.
func (w *walker) wanted(path []string) bool {
	if len(w.fields) == 0 {
		return path[0] != vectors.PassageField // numbers, and an id
	}
	name := strings.Join(slices.DeleteFunc(slices.Clone(path), func(s string) bool { return s == "" }), ".")
	return slices.ContainsFunc(w.fields, func(f string) bool { return name == f || strings.HasPrefix(name, f+".") })
}
