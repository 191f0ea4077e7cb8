package condition

import (
	"cmp"
	"fmt"
	"strconv"
)

// Form tells apart what conditions take for one value.
type Form uint8

// The forms of a [Literal].
const (
	Plain   Form = iota // a number, a text, or null
	Boolean             // true and false, which are the Integers 1 and 0
	Nested              // an array or an object, which is the Text of its JSON
	Whole               // an array as well as its elements: see [Record.Fields]
)

// Literal is a value as JSON writes it: true is not 1, and an array is no text. Numbers
// that are equal are one literal. Literals may be compared with ==.
type Literal struct {
	Value
	Form Form
}

// plainLiteral is a value that is neither a boolean nor an array or object.
func plainLiteral(v Value) Literal {
	if v.Kind == Real {
		if whole := int64(v.Real); v.Real >= -(1<<63) && v.Real < 1<<63 && float64(whole) == v.Real {
			v = intValue(whole)
		}
	}
	return Literal{Value: v}
}

// Compare is the order of literals that are not null: that of their values, and of those
// that conditions take for one, numbers and texts first.
func (l Literal) Compare(m Literal) int {
	return cmp.Or(l.Value.Compare(m.Value), cmp.Compare(l.Form, m.Form))
}

// String is the literal as JSON.
func (l Literal) String() string {
	switch l.Form {
	case Boolean:
		return strconv.FormatBool(l.Int != 0)
	case Nested:
		return l.Text
	}
	return string(l.Value.appendJSON(nil))
}

// MarshalJSON writes the literal as it stands in a payload.
func (l Literal) MarshalJSON() ([]byte, error) { return []byte(l.String()), nil }

// LiteralOf is the literal of a value of a form.
func LiteralOf(v Value, form Form) Literal {
	l := plainLiteral(v)
	l.Form = form
	return l
}

// Literals calls visit with what the payload has in a field: the elements of an array one
// by one, also those that are alike, and anything else as it is. It tells whether the
// payload has the field, be it null. If the evaluation has ended, not all are visited.
func (d *Record) Literals(f Field, visit func(Literal) error) (found bool, err error) {
	element := func(raw []byte) bool {
		err = visit(parseLiteral(d.evaluation, raw))
		return err == nil
	}
	d.visitPath(f.pathString(), func(m *member) bool {
		found = true
		if m.raw[0] == '[' {
			return visitElements(d.evaluation, m.raw, element)
		}
		return element(m.raw)
	})
	return found, err
}

// visitElements visits the elements of an array of valid JSON. It ends, with false, when visit
// returns false or the evaluation has ended.
func visitElements(e *Evaluation, raw []byte, visit func(raw []byte) bool) bool {
	offset := skipSpace(raw, 1)
	for raw[offset] != ']' {
		end := valueEnd(e, raw, offset)
		if end == len(raw) || e.stepsEnded(1) || !visit(raw[offset:end:end]) {
			return false
		}
		if offset = skipSpace(raw, end); raw[offset] == ',' {
			offset = skipSpace(raw, offset+1)
		}
	}
	return true
}

// parseLiteral is the literal of valid JSON without white space around it.
func parseLiteral(e *Evaluation, raw []byte) Literal {
	return LiteralOf(parseValidJSON(e, raw), jsonForm(raw))
}

func jsonForm(raw []byte) Form {
	switch raw[0] {
	case 't', 'f':
		return Boolean
	case '[', '{':
		return Nested
	}
	return Plain
}

// ParseField reads a field as conditions write it, such as author.name or "publication
// date". Errors wrap an [*Error] and [ErrSyntax].
func ParseField(text string) (f Field, err error) {
	p := parser{expr: &Expr{text: text}}
	if p.tokens, err = tokenize(text); err == nil {
		f, err = p.parseField()
	}
	if err == nil && p.nextToken().kind != tokenEnd {
		err = p.unexpected("the end of the field")
	}
	if err != nil {
		return "", fmt.Errorf("%q is no field: %w", text, err)
	}
	return f, nil
}
