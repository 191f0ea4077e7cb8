package server

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
)

// largeBody is from where on a body is decoded piece by piece: what is shorter takes a few
// milliseconds.
const largeBody = 1 << 20

// unmarshal is json.Unmarshal for a text that is known to be JSON, and ends with the
// context: an object's lists are decoded item by item. hold counts what is copied.
func unmarshal(ctx context.Context, text []byte, into any, hold func(int64) error) error {
	s := scanner{text: text}
	if _, whole := into.(json.Unmarshaler); whole || reflect.TypeOf(into).Elem().Kind() != reflect.Struct || s.next() != '{' {
		return json.Unmarshal(text, into)
	}
	body := reflect.ValueOf(into).Elem()
	s.at++
	rest := []byte{'{'}
	for s.next() == '"' {
		begin := s.at
		s.skip()
		var name string
		if err := json.Unmarshal(s.text[begin:s.at], &name); err != nil {
			return err
		}
		s.next()
		s.at++ // the colon
		if list := listField(body, name); list.IsValid() && s.next() == '[' {
			if err := unmarshalList(ctx, &s, name, list); err != nil {
				return err
			}
			continue
		}
		s.skip()
		if len(rest) > 1 {
			rest = append(rest, ',')
		}
		if err := hold(int64(s.at - begin)); err != nil {
			return err
		}
		rest = append(rest, s.text[begin:s.at]...)
	}
	return json.Unmarshal(append(rest, '}'), into)
}

// unmarshalList decodes a list item by item.
func unmarshalList(ctx context.Context, s *scanner, name string, list reflect.Value) error {
	s.at++
	items := reflect.MakeSlice(list.Type(), 0, 0)
	for !s.end() {
		if err := ctx.Err(); err != nil {
			return err
		}
		begin := s.at
		s.skip()
		item := reflect.New(list.Type().Elem())
		if err := json.Unmarshal(s.text[begin:s.at], item.Interface()); err != nil {
			var shape *json.UnmarshalTypeError
			if errors.As(err, &shape) {
				shape.Field = strings.TrimSuffix(name+"."+shape.Field, ".")
			}
			return err
		}
		items = reflect.Append(items, item.Elem())
	}
	list.Set(items)
	return nil
}

// listField is a field of a name that is decoded as a list of items; the zero Value if it
// is none.
func listField(v reflect.Value, name string) reflect.Value {
	for i := range v.NumField() {
		f, field := v.Type().Field(i), v.Field(i)
		of, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && of == "" && f.Type.Kind() == reflect.Struct:
			if found := listField(field, name); found.IsValid() {
				return found
			}
		case of != name || !f.IsExported() || f.Type.Kind() != reflect.Slice || f.Type.Elem().Kind() == reflect.Uint8:
		case !field.Addr().Type().Implements(reflect.TypeFor[json.Unmarshaler]()):
			return field
		}
	}
	return reflect.Value{}
}
