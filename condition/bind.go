package condition

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
)

// Condition is a condition with the values of its parameters. It does not change, and
// is safe for concurrent use.
type Condition struct {
	expr    *Expr
	params  []Value
	root    *bound
	lenient bool
}

// bound is a node with values.
type bound struct {
	join  string
	parts []*bound
	test  *Test
}

// Bind gives a condition its parameters, of which there must be as many as
// placeholders; [ValueOf] says what may be one. Errors are [*Error] and wrap
// [ErrParameter].
func (e *Expr) Bind(params ...any) (*Condition, error) {
	if len(params) != len(e.params) {
		at := len(e.text)
		if len(params) < len(e.params) {
			at = e.params[len(params)]
		}
		return nil, e.parameterError(at, "%d for %d placeholders", len(params), len(e.params))
	}
	values := make([]Value, len(params))
	for i, p := range params {
		var err error
		if values[i], err = ValueOf(p); err != nil {
			return nil, e.parameterError(e.params[i], "the value of parameter %d: %w", i+1, err)
		}
	}
	root, err := e.bind(e.root, values)
	if err != nil {
		return nil, err
	}
	return &Condition{expr: e, params: values, root: root}, nil
}

func (e *Expr) parameterError(at int, format string, args ...any) error {
	return &Error{Condition: e.text, Offset: at, Err: fmt.Errorf("%w: %w", ErrParameter, fmt.Errorf(format, args...))}
}

func (e *Expr) bind(n *node, values []Value) (*bound, error) {
	b := &bound{join: n.join}
	if n.join == "" {
		var err error
		b.test, err = e.bindTest(n, values)
		return b, err
	}
	for _, part := range n.parts {
		p, err := e.bind(part, values)
		if err != nil {
			return nil, err
		}
		b.parts = append(b.parts, p)
	}
	return b, nil
}

func (e *Expr) bindTest(n *node, values []Value) (*Test, error) {
	t := &Test{Field: n.field, op: n.op, constant: n.constant}
	if n.op != opConstant {
		t.keys = n.field.Keys()
	}
	for _, o := range n.operands {
		v := o.value
		if o.param >= 0 {
			v = values[o.param]
		}
		if v.Kind == Null {
			t.null = true
			if n.op == opIn {
				continue
			}
		}
		t.operands = append(t.operands, pair{number: v.asNumber(), text: v.asText()})
	}
	switch {
	case n.op == opLike && !t.null:
		pattern := t.operands[0].text.Text
		if len(pattern) > maxPattern {
			return nil, e.parameterError(n.operands[0].at, "a pattern of %d bytes, at most %d are possible", len(pattern), maxPattern)
		}
		t.like = compileLike(pattern)
	case n.op == opRegexp && !t.null:
		pattern := t.operands[0].text.Text
		err := errors.New("longer than is possible")
		if len(pattern) <= maxPattern {
			t.regexp, err = regexp.Compile(pattern)
		}
		if err != nil {
			return nil, e.parameterError(n.operands[0].at, "the pattern of REGEXP: %w", err)
		}
	case n.op == opIn:
		t.members = newMembers(t.operands)
	}
	return t, nil
}

// maxPattern bounds the bytes of a pattern, as SQLite does.
const maxPattern = 50000

func (c *Condition) String() string { return c.expr.text }

// Params are the values of its placeholders.
func (c *Condition) Params() []Value { return slices.Clone(c.params) }

// Fields are the fields that the condition names, each once.
func (c *Condition) Fields() []Field { return c.expr.Fields() }

// Check is [Expr.Check]; of a lenient condition there is nothing to check.
func (c *Condition) Check(known func(Field) bool) error {
	if c.lenient {
		return nil
	}
	return c.expr.Check(known)
}

// Lenient returns the condition as one that may name fields which no document has: they
// are NULL. It is for a part of a collection, of which other parts may have them.
func (c *Condition) Lenient() *Condition {
	l := *c
	l.lenient = true
	return &l
}

// Match tells whether the condition is true of a document.
func (c *Condition) Match(d *Document) bool { return c.Truth(d) == True }

// Truth is the value of the condition for a document.
func (c *Condition) Truth(d *Document) Truth { return c.root.truth(d) }

func (b *bound) truth(d *Document) Truth {
	switch b.join {
	case "NOT":
		return -b.parts[0].truth(d)
	case "AND": // the least of its parts
		least := True
		for _, p := range b.parts {
			if least = min(least, p.truth(d)); least == False {
				break
			}
		}
		return least
	case "OR":
		most := False
		for _, p := range b.parts {
			if most = max(most, p.truth(d)); most == True {
				break
			}
		}
		return most
	}
	if b.test.op == opConstant {
		return truthOf(b.test.constant)
	}
	return b.test.Truth(d.value(b.test.keys))
}
