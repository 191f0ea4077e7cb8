package condition

import (
	"cmp"
	"fmt"
	"strconv"
)

// Form distinguishes values that are the same value in conditions.
type Form uint8

// The forms of a [Literal].
const (
	Plain      Form = iota // a number, a text, or null
	Boolean                // true and false, stored as the Integers 1 and 0
	Nested                 // an array or an object, stored as the Text of its JSON
	WholeArray             // an array that is visited as text before its elements; see [Record.Fields]
)

// Literal is a value as JSON writes it: true is not 1, and an array is not a text. Equal numbers
// are the same literal. Literals may be compared with ==.
type Literal struct {
	Value
	Form Form
}

// plainLiteral returns the literal of a value that is not a boolean, array or object. A whole
// number becomes an Integer.
func plainLiteral(v Value) Literal {
	if v.Kind == Real {
		if whole := int64(v.Real); v.Real >= -(1<<63) && v.Real < 1<<63 && float64(whole) == v.Real {
			v = intValue(whole)
		}
	}
	return Literal{Value: v}
}

// Compare orders literals that are not null: by value, then by form, numbers and texts first.
func (l Literal) Compare(m Literal) int {
	return cmp.Or(l.Value.Compare(m.Value), cmp.Compare(l.Form, m.Form))
}

// String returns the literal as JSON.
func (l Literal) String() string {
	switch l.Form {
	case Boolean:
		return strconv.FormatBool(l.Int != 0)
	case Nested:
		return l.Text
	}
	return string(l.Value.appendJSON(nil))
}

// MarshalJSON returns the literal as it is written in a payload.
func (l Literal) MarshalJSON() ([]byte, error) { return []byte(l.String()), nil }

// NewLiteral returns the literal of a value with a form.
func NewLiteral(v Value, form Form) Literal {
	l := plainLiteral(v)
	l.Form = form
	return l
}

// Literals calls visit with the values of a field of the payload: with each element of an array,
// including equal ones, and with any other value as it is. found reports whether the payload has
// the field, even as null. If the evaluation has ended, not all values are visited.
func (d *Record) Literals(f Field, visit func(Literal) error) (hasField bool, err error) {
	visitElement := func(raw []byte) bool {
		err = visit(parseLiteral(d.evaluation, raw))
		return err == nil
	}
	d.visitPath(f.pathString(), func(m *member) bool {
		hasField = true
		if m.raw[0] == '[' {
			return visitElements(d.evaluation, m.raw, visitElement)
		}
		return visitElement(m.raw)
	})
	return hasField, err
}

// visitElements calls visit with the elements of an array of valid JSON. It stops and returns false
// when visit returns false or the evaluation has ended.
func visitElements(e *Evaluation, raw []byte, visit func(raw []byte) bool) bool {
	offset := skipSpace(raw, 1)
	for raw[offset] != ']' {
		end := valueEnd(e, raw, offset)
		if end == len(raw) || e.endedAfter(1) || !visit(raw[offset:end:end]) {
			return false
		}
		if offset = skipSpace(raw, end); raw[offset] == ',' {
			offset = skipSpace(raw, offset+1)
		}
	}
	return true
}

// parseLiteral returns the literal of valid JSON without surrounding white space.
func parseLiteral(e *Evaluation, raw []byte) Literal {
	return NewLiteral(parseValidJSON(e, raw), jsonForm(raw))
}

// jsonForm returns the form of a JSON value.
func jsonForm(raw []byte) Form {
	switch raw[0] {
	case 't', 'f':
		return Boolean
	case '[', '{':
		return Nested
	}
	return Plain
}

// ParseField parses a field as conditions write it, such as author.name or "publication date".
// Errors wrap an [*Error] and [ErrSyntax].
func ParseField(text string) (f Field, err error) {
	p := parser{expr: &Expr{text: text}}
	if p.tokens, err = tokenize(text); err == nil {
		f, err = p.parseField()
	}
	if err == nil && p.nextToken().kind != tokenEnd {
		err = p.unexpected("the end of the field")
	}
	if err != nil {
		return "", fmt.Errorf("%q is not a field: %w", text, err)
	}
	return f, nil
}
