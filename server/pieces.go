package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding"
	"encoding/base64"
	"encoding/json"
	"errors"
	"reflect"
	"strings"

	"github.com/plaid-ir/plaid/internal/jsontext"
)

// Bodies and answers can have many megabytes. They are read and written in pieces, between
// which the context is looked at: one piece takes less than a millisecond or two.

// Lengths of texts, variables so that tests see many pieces.
var (
	largeBody = 256 << 10 // from here on a body, or an answer, is done in pieces
	pieceText = 64 << 10  // of a piece
)

// unmarshal is json.Unmarshal for a text that is known to be JSON, and ends with the
// context. Fields that are not known are passed over.
func unmarshal(ctx context.Context, text []byte, into any) error {
	return (&scanner{text: text, ctx: ctx}).decode(reflect.ValueOf(into).Elem())
}

// decode reads a value that fills the text.
func (s *scanner) decode(v reflect.Value) error {
	if len(s.text) > pieceText {
		switch into := v.Addr().Interface().(type) {
		case *rowsJSON:
			if s.next() == '[' {
				return into.read(s)
			}
		case *floatsJSON:
			if s.next() == '"' {
				return into.read(s)
			}
		case *textQueryIn:
			type plain textQueryIn
			if s.next() == '"' {
				return s.decode(reflect.ValueOf(&into.Text).Elem())
			}
			return s.decode(reflect.ValueOf((*plain)(into)).Elem())
		case *textsJSON:
			if c := s.next(); c == '[' {
				return s.decode(reflect.ValueOf((*[]string)(into)).Elem())
			} else if c == '"' {
				*into = textsJSON{""}
				return s.decode(reflect.ValueOf(&(*into)[0]).Elem())
			}
		case *json.RawMessage:
			*into = append((*into)[:0], s.text...)
			return nil
		case json.Unmarshaler:
		default:
			if done, err := s.decodeParts(v); done || err != nil {
				return err
			}
		}
	}
	return cmp.Or(s.ended, json.Unmarshal(s.text, v.Addr().Interface()))
}

// decodeParts reads what has parts, or is a text; done is false for what is something else,
// or other JSON than its type wants.
func (s *scanner) decodeParts(v reflect.Value) (done bool, err error) {
	c := s.next()
	switch {
	case v.Kind() == reflect.Pointer && c != 'n':
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		return true, s.decode(v.Elem())
	case v.Kind() == reflect.String && c == '"':
		v.SetString(jsontext.Unquote(s.value(), pieceText, func(int) bool { return s.looks() }))
	case v.Kind() == reflect.Slice && c == '[':
		s.at++
		items := reflect.MakeSlice(v.Type(), 0, 0)
		for !s.end() {
			item := reflect.New(v.Type().Elem()).Elem()
			if err := s.decodePart(item); err != nil {
				return true, err
			}
			items = reflect.Append(items, item)
		}
		v.Set(items)
	case v.Kind() == reflect.Struct && c == '{':
		return true, s.members(func(name string) error {
			if field := fieldNamed(v, name); field.IsValid() {
				return inField(name, s.decodePart(field))
			}
			s.skip()
			return nil
		})
	case v.Kind() == reflect.Map && v.Type().Key().Kind() == reflect.String && c == '{':
		if v.IsNil() {
			v.Set(reflect.MakeMap(v.Type()))
		}
		return true, s.members(func(name string) error {
			member := reflect.New(v.Type().Elem()).Elem()
			if err := s.decodePart(member); err != nil {
				return inField(name, err)
			}
			v.SetMapIndex(reflect.ValueOf(name), member)
			return nil
		})
	default:
		return false, nil
	}
	return true, s.ended
}

// decodePart reads the value that comes next.
func (s *scanner) decodePart(v reflect.Value) error {
	if !s.looks() {
		return s.ended
	}
	part := s.value()
	if s.ended != nil {
		return s.ended
	}
	return (&scanner{text: part, ctx: s.ctx}).decode(v)
}

// members goes over those of an object. visit reads the value of one.
func (s *scanner) members(visit func(name string) error) error {
	s.at++
	for s.next() == '"' {
		name := s.value()
		if s.ended != nil {
			break
		}
		key := jsontext.Unquote(name, pieceText, func(int) bool { return s.looks() })
		if s.next(); s.ended != nil {
			break
		}
		s.at++ // the colon
		if err := visit(key); err != nil {
			return err
		}
	}
	s.at++
	return s.ended
}

// value is the text of the value that comes next.
func (s *scanner) value() []byte {
	s.next()
	begin := s.at
	if s.skip(); s.ended != nil {
		return nil
	}
	return s.text[begin:s.at]
}

// inField is an error with the name of the field that it is in.
func inField(name string, err error) error {
	var shape *json.UnmarshalTypeError
	if errors.As(err, &shape) {
		shape.Field = strings.TrimSuffix(name+"."+shape.Field, ".")
	}
	return err
}

// fieldNamed is a field of a struct; the zero Value if there is none.
func fieldNamed(v reflect.Value, name string) (found reflect.Value) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		of, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && of == "" && f.Type.Kind() == reflect.Struct:
			if inner := fieldNamed(v.Field(i), name); inner.IsValid() {
				return inner
			}
		case of == name && f.IsExported():
			return v.Field(i)
		case strings.EqualFold(of, name) && f.IsExported() && of != "-":
			found = v.Field(i)
		}
	}
	return found
}

// read reads rows from a long text.
func (r *rowsJSON) read(s *scanner) error {
	*r = rowsJSON{given: true}
	r.err = r.parse(s)
	return s.ended
}

// read reads base64 from a long text, in pieces of whole groups of four characters.
func (f *floatsJSON) read(s *scanner) error {
	const piece = 1 << 20
	inner := s.text[s.at+1 : len(s.text)-1]
	all := floatsJSON{given: true, data: make([]byte, 0, base64.StdEncoding.DecodedLen(len(inner)))}
	for at := 0; at < len(inner) && all.err == nil && s.looks(); at += piece {
		part := inner[at:min(at+piece, len(inner))]
		if bytes.ContainsAny(part, "\\\r\n") || len(part) == piece && bytes.IndexByte(part, '=') >= 0 {
			return json.Unmarshal(s.text, f) // it is not regular
		}
		var next floatsJSON
		next.decode(part)
		all.data, all.err = append(all.data, next.data...), next.err
		var corrupt base64.CorruptInputError
		if errors.As(all.err, &corrupt) {
			all.err = corrupt + base64.CorruptInputError(at)
		}
	}
	*f = all
	return s.ended
}

// marshal is json.Marshal, and ends with the context.
func marshal(ctx context.Context, v any) ([]byte, error) {
	w := &pieceWriter{ctx: ctx}
	err := w.write(reflect.ValueOf(v))
	return w.text, err
}

type pieceWriter struct {
	ctx  context.Context
	text []byte
}

// scalarsAtOnce is how many numbers, texts or the like of a list are one piece.
const scalarsAtOnce = 1 << 10

func (w *pieceWriter) write(v reflect.Value) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	if !v.IsValid() {
		w.text = append(w.text, "null"...)
		return nil
	}
	if v.CanAddr() && writesItself(reflect.PointerTo(v.Type())) {
		return w.whole(v.Addr())
	}
	if !writesItself(v.Type()) {
		switch v.Kind() {
		case reflect.Pointer, reflect.Interface:
			if !v.IsNil() {
				return w.write(v.Elem())
			}
		case reflect.Struct:
			if fields, plain := plainFields(v); plain {
				return w.object(v, fields)
			}
		case reflect.Slice:
			if v.IsNil() || v.Type().Elem().Kind() == reflect.Uint8 {
				break
			}
			return w.list(v)
		}
	}
	return w.whole(v)
}

// writesItself tells whether encoding/json leaves it to a type how it is written.
func writesItself(t reflect.Type) bool {
	return t.Implements(reflect.TypeFor[json.Marshaler]()) || t.Implements(reflect.TypeFor[encoding.TextMarshaler]())
}

func (w *pieceWriter) whole(v reflect.Value) error {
	text, err := json.Marshal(v.Interface())
	w.text = append(w.text, text...)
	return err
}

func (w *pieceWriter) list(v reflect.Value) error {
	w.text = append(w.text, '[')
	switch v.Type().Elem().Kind() {
	case reflect.Struct, reflect.Slice, reflect.Pointer, reflect.Interface, reflect.Map, reflect.Array:
		for i := range v.Len() {
			if i > 0 {
				w.text = append(w.text, ',')
			}
			if err := w.write(v.Index(i)); err != nil {
				return err
			}
		}
	default:
		for i := 0; i < v.Len(); i += scalarsAtOnce {
			if err := w.ctx.Err(); err != nil {
				return err
			}
			if i > 0 {
				w.text = append(w.text, ',')
			}
			from := len(w.text)
			if err := w.whole(v.Slice(i, min(i+scalarsAtOnce, v.Len()))); err != nil {
				return err
			}
			w.text = append(w.text[:from], w.text[from+1:len(w.text)-1]...) // without its brackets
		}
	}
	w.text = append(w.text, ']')
	return nil
}

func (w *pieceWriter) object(v reflect.Value, fields []outField) error {
	w.text = append(w.text, '{')
	first := true
	for _, f := range fields {
		value := v.Field(f.at)
		if f.omitEmpty && isEmpty(value) || f.omitZero && isZero(value) {
			continue
		}
		if !first {
			w.text = append(w.text, ',')
		}
		first = false
		w.text = append(append(append(w.text, '"'), f.name...), `":`...)
		if err := w.write(value); err != nil {
			return err
		}
	}
	w.text = append(w.text, '}')
	return nil
}

// outField is a field of a struct as JSON has it.
type outField struct {
	at                  int
	name                string
	omitEmpty, omitZero bool
}

// plainFields are the fields of a struct, if encoding/json makes nothing special of one.
func plainFields(v reflect.Value) (fields []outField, plain bool) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous || strings.Contains(options, "string") || name == "" && f.IsExported():
			return nil, false
		case !f.IsExported() || name == "-":
			continue
		}
		fields = append(fields, outField{i, name, strings.Contains(options, "omitempty"), strings.Contains(options, "omitzero")})
	}
	return fields, true
}

// isEmpty tells what omitempty leaves out.
func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice, reflect.Map, reflect.String, reflect.Array:
		return v.Len() == 0
	case reflect.Struct:
		return false
	}
	return v.IsZero()
}

// isZero tells what omitzero leaves out.
func isZero(v reflect.Value) bool {
	if z, ok := v.Interface().(interface{ IsZero() bool }); ok && (v.Kind() != reflect.Pointer || !v.IsNil()) {
		return z.IsZero()
	}
	return v.IsZero()
}
