package server

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/plaid-ir/plaid/internal/nearest"
)

// bodyField is a field that a body may have.
type bodyField struct {
	name string
	typ  reflect.Type
}

// bodyShape is what a value may have: fields, or items with fields.
type bodyShape struct {
	fields []bodyField
	items  bool
}

var bodyShapes sync.Map // of reflect.Type

func shapeOf(t reflect.Type) *bodyShape {
	if s, ok := bodyShapes.Load(t); ok {
		return s.(*bodyShape)
	}
	s := &bodyShape{fieldsOf(t), t.Kind() == reflect.Slice && fieldPaths(t, "") != nil}
	bodyShapes.Store(t, s)
	return s
}

// fieldsOf are the fields of an object that is decoded into a type; none for what is no
// object, or decodes itself.
func fieldsOf(t reflect.Type) (all []bodyField) {
	if t.Kind() != reflect.Struct {
		return nil
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			all = append(all, fieldsOf(f.Type)...)
		case f.IsExported() && name != "" && name != "-":
			all = append(all, bodyField{name, f.Type})
		}
	}
	return all
}

// fieldPaths are the paths of all fields that a body of a type may have.
func fieldPaths(t reflect.Type, before string) (paths []string) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		if t.Kind() == reflect.Slice {
			before = strings.TrimSuffix(before, ".") + "[]."
		}
		t = t.Elem()
	}
	for _, f := range fieldsOf(t) {
		paths = append(append(paths, before+f.name), fieldPaths(f.typ, before+f.name+".")...)
	}
	return paths
}

// checkFields refuses a body with a field that the route does not know, which as a rule is
// one that is misspelt or in the wrong place. The text is valid JSON.
func checkFields(ctx context.Context, text []byte, t reflect.Type) error {
	w := fieldWalk{scanner{text: text, ctx: ctx}, t}
	if err := w.check(t, ""); err != nil {
		return err
	}
	return w.ended
}

type fieldWalk struct {
	scanner
	body reflect.Type
}

// check goes over a value that is decoded into a type.
func (w *fieldWalk) check(t reflect.Type, path string) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	shape := shapeOf(t)
	fields := shape.fields
	switch c := w.next(); {
	case c == '{' && fields != nil:
		return w.members(func(name string) error {
			i := slices.IndexFunc(fields, func(f bodyField) bool { return strings.EqualFold(f.name, name) })
			if i < 0 {
				return w.unknown(fields, path, name)
			}
			return w.check(fields[i].typ, path+fields[i].name+".")
		})
	case c == '[' && shape.items:
		w.at++
		for n := 0; !w.end(); n++ {
			if err := w.check(t.Elem(), fmt.Sprintf("%s[%d].", strings.TrimSuffix(path, "."), n)); err != nil {
				return err
			}
		}
	default:
		w.skip()
	}
	return nil
}

// unknown names the fields that may have been meant: one of the same place with nearly
// that name, or one of that name in another place.
func (w *fieldWalk) unknown(fields []bodyField, path, name string) error {
	var names []string
	for _, f := range fields {
		names = append(names, f.name)
	}
	var p *Problem
	elsewhere := fieldPaths(w.body, "")
	if near := nearest.Name(name, names); near != "" {
		p = bad("unknown field %.80q: did you mean %q?", path+name, path+near)
	} else if i := slices.IndexFunc(elsewhere, func(f string) bool { return strings.EqualFold(f[strings.LastIndexByte(f, '.')+1:], name) }); i >= 0 {
		p = bad("unknown field %.80q: did you mean %q?", path+name, elsewhere[i])
	} else if strings.HasPrefix(path, "queries[") && strings.HasPrefix(name, "embeddings") {
		p = bad("unknown field %.80q: queries are texts here; vectors go to the route without %s", path+name, encodesTexts)
	} else {
		p = bad("unknown field %.80q: known here are %s", path+name, strings.Join(nearest.Order(name, names), ", "))
	}
	if where, ok := whereInBody(path); ok {
		p = p.at(where)
	}
	return p
}
