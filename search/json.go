package search

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/jsontext"
	"github.com/plaid-ir/plaid/storage"
)

// MarshalText returns the name of the mode.
func (m Mode) MarshalText() ([]byte, error) {
	name, ok := modeNames[m]
	if !ok {
		return nil, fmt.Errorf("%w: mode %d", ErrOption, int(m))
	}
	return []byte(name), nil
}

// UnmarshalText reads the name of a mode.
func (m *Mode) UnmarshalText(text []byte) (err error) {
	*m, err = ParseMode(string(text))
	return err
}

// queryJSON is the JSON form of a query.
type queryJSON struct {
	Vectors json.RawMessage `json:"vectors,omitempty"`
	Dim     int             `json:"dim,omitempty"`
	Mask    json.RawMessage `json:"mask,omitempty"`
	Weights json.RawMessage `json:"weights,omitempty"`
	Model   *storage.Model  `json:"model,omitempty"`
	Filter  *Filter         `json:"filter,omitempty"`
}

// MarshalJSON writes the vectors as a list of lists of numbers, one for each token, if Dim is set,
// and as one list otherwise.
func (q Query) MarshalJSON() ([]byte, error) {
	out := queryJSON{Dim: q.Dim, Model: q.Model, Filter: q.Filter}
	vectors := any(q.Vectors)
	if q.Dim > 0 && len(q.Vectors) > 0 && len(q.Vectors)%q.Dim == 0 {
		rows := make([][]float32, len(q.Vectors)/q.Dim)
		for t := range rows {
			rows[t] = q.Vectors[t*q.Dim : (t+1)*q.Dim]
		}
		out.Dim, vectors = 0, rows
	}
	for _, f := range []struct {
		to    *json.RawMessage
		isSet bool
		from  any
	}{
		{&out.Vectors, q.Vectors != nil, vectors},
		{&out.Mask, q.Mask != nil, q.Mask},
		{&out.Weights, q.Weights != nil, q.Weights},
	} {
		if !f.isSet {
			continue
		}
		var err error
		if *f.to, err = json.Marshal(f.from); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrQuery, err) // a value that is not finite
		}
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads the output of MarshalJSON. Lists of numbers set Dim, and must have the same
// length. An unknown field is an error, since a later version may make it a restriction. So is null
// in a list: other encoders write it for NaN.
func (q *Query) UnmarshalJSON(text []byte) error {
	var in queryJSON
	if err := decodeStrictly(text, &in); err != nil {
		return fmt.Errorf("%w: %w", ErrQuery, err)
	}
	out := Query{Dim: in.Dim, Model: in.Model, Filter: in.Filter}
	var rows [][]float32
	vectors := any(&out.Vectors)
	if isListOfLists(in.Vectors) {
		vectors = &rows
	}
	for _, f := range []struct {
		name string
		from json.RawMessage
		to   any
	}{{"vectors", in.Vectors, vectors}, {"mask", in.Mask, &out.Mask}, {"weights", in.Weights, &out.Weights}} {
		if f.from == nil || string(f.from) == "null" {
			continue
		}
		if bytes.Contains(f.from, []byte("null")) {
			return fmt.Errorf("%w: %s: null is not a number", ErrQuery, f.name)
		}
		if err := json.Unmarshal(f.from, f.to); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrQuery, f.name, err)
		}
	}
	if out.Dim < 0 {
		return fmt.Errorf("%w: dimension %d", ErrQuery, out.Dim)
	}
	if rows != nil && out.Dim == 0 {
		out.Dim = len(rows[0])
	}
	for t, row := range rows {
		if len(row) != out.Dim || out.Dim == 0 {
			return fmt.Errorf("%w: token %d has %d values; %d are needed", ErrQuery, t, len(row), max(out.Dim, 1))
		}
		out.Vectors = append(out.Vectors, row...)
	}
	*q = out
	return nil
}

// decodeStrictly decodes JSON and rejects unknown fields.
func decodeStrictly(text []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(to)
}

// isListOfLists reports whether JSON begins with a list in a list.
func isListOfLists(list json.RawMessage) bool {
	list = bytes.TrimLeft(list, " \t\r\n")
	if len(list) == 0 || list[0] != '[' {
		return false
	}
	list = bytes.TrimLeft(list[1:], " \t\r\n")
	return len(list) > 0 && list[0] == '['
}

// filterJSON is the JSON form of a filter.
type filterJSON struct {
	IDs          *[]string         `json:"ids,omitempty"`
	AllowMissing bool              `json:"allow_missing,omitempty"`
	Where        string            `json:"where,omitempty"`
	Parameters   []condition.Value `json:"parameters,omitempty"`
}

// MarshalJSON writes the list of ids and the text of the condition.
func (f Filter) MarshalJSON() ([]byte, error) {
	if f.Docs != nil {
		return nil, fmt.Errorf("%w: a filter with a set of ordinals has no JSON form", ErrOption)
	}
	out := filterJSON{AllowMissing: f.AllowMissing}
	if f.IDs != nil || f.Where == nil {
		out.IDs = &f.IDs
	}
	if f.Where != nil {
		out.Where, out.Parameters = f.Where.String(), f.Where.Params()
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads the output of MarshalJSON. An unknown field is an error, as in a query, and
// so is an invalid condition.
func (f *Filter) UnmarshalJSON(text []byte) error {
	var in struct {
		IDs          []string          `json:"ids"`
		AllowMissing bool              `json:"allow_missing"`
		Where        string            `json:"where"`
		Parameters   []json.RawMessage `json:"parameters"`
	}
	if err := decodeStrictly(text, &in); err != nil {
		return fmt.Errorf("%w: filter: %w", ErrOption, err)
	}
	out := Filter{IDs: in.IDs, AllowMissing: in.AllowMissing}
	if in.Where == "" && in.Parameters != nil {
		return fmt.Errorf("%w: filter: parameters without where", ErrOption)
	}
	if in.Where != "" {
		e, err := condition.Parse(in.Where)
		if err != nil {
			return fmt.Errorf("%w: filter: %w", ErrOption, err)
		}
		params := make([]any, len(in.Parameters))
		for i, p := range in.Parameters {
			params[i] = p
		}
		if out.Where, err = e.Bind(params...); err != nil {
			return fmt.Errorf("%w: filter: %w", ErrOption, err)
		}
	}
	*f = out
	return nil
}

// Payload is the metadata of a document, any bytes. Its JSON form depends on its content:
//
//	JSON                 the value itself
//	other text (UTF-8)   a string
//	other bytes          {"base64": "…"}
//
// JSON that would read as one of the other two, a string or an object with base64 alone, is written
// as text. So reading returns the bytes that were written, except for white space in JSON values.
type Payload []byte

// MarshalJSON writes the payload.
func (p Payload) MarshalJSON() ([]byte, error) {
	switch {
	case p == nil:
		return []byte("null"), nil
	case !utf8.Valid(p):
		return json.Marshal(map[string]string{"base64": base64.StdEncoding.EncodeToString(p)})
	case json.Valid(p) && standsForItself(p):
		return p, nil
	}
	return jsontext.MarshalUnescaped(string(p)) // escapes of HTML are for the encoder around this one
}

// standsForItself reports whether valid JSON can be written as it is.
func standsForItself(p []byte) bool {
	p = bytes.TrimLeft(p, " \t\r\n")
	switch p[0] { // valid JSON is not empty
	case '"', 'n': // null means no payload
		return false
	case '{':
		_, ok := decodeBytes(p)
		return !ok
	}
	return true
}

// decodeBytes returns the text of an object that has the field base64 alone.
func decodeBytes(object []byte) (text string, ok bool) {
	var fields map[string]*string
	if json.Unmarshal(object, &fields) != nil || len(fields) != 1 || fields["base64"] == nil {
		return "", false
	}
	return *fields["base64"], true
}

// UnmarshalJSON reads a payload.
func (p *Payload) UnmarshalJSON(text []byte) error {
	switch text[0] {
	case 'n':
		*p = nil
		return nil
	case '"':
		var s string
		if err := json.Unmarshal(text, &s); err != nil {
			return err
		}
		*p = Payload(s)
		return nil
	case '{':
		if s, ok := decodeBytes(text); ok {
			data, err := base64.StdEncoding.DecodeString(s)
			if err != nil {
				return fmt.Errorf("metadata: %w", err)
			}
			*p = data
			return nil
		}
	}
	*p = bytes.Clone(text)
	return nil
}
