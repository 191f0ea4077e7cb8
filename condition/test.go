package condition

import (
	"math"
	"regexp"
)

// Test is the smallest part of a condition: a comparison of one field with values.
type Test struct {
	Field Field

	keys     []string
	op       operator
	constant bool   // of opConstant
	null     bool   // one of the operands is NULL
	operands []pair // of opIn without NULL
	members  *members
	like     *likePattern
	regexp   *regexp.Regexp
}

// pair is an operand as it is compared with numbers and with text. SQLite converts
// it by the type of the column; here each value of a field decides for itself.
type pair struct{ number, text Value }

func (p *pair) against(v Value) Value {
	if v.Kind == Text {
		return p.text
	}
	return p.number
}

// Truth is the value of the test for a value of its field.
func (t *Test) Truth(v Value) Truth {
	switch t.op {
	case opConstant:
		return truthOf(t.constant)
	case opIsNull:
		return truthOf(v.Kind == Null)
	case opIn:
		return t.in(v)
	}
	if v.Kind == Null {
		return Unknown
	}
	if t.op == opBetween { // one bound can be enough to say no
		return min(ordered(opGreaterEqual, v, &t.operands[0]), ordered(opLessEqual, v, &t.operands[1]))
	}
	if t.null {
		return Unknown
	}
	switch t.op {
	case opLike:
		return truthOf(t.like.match(v.String()))
	case opRegexp:
		return truthOf(t.regexp.MatchString(v.String()))
	}
	return ordered(t.op, v, &t.operands[0])
}

// ordered compares a value that is not NULL with an operand.
func ordered(op operator, v Value, p *pair) Truth {
	w := p.against(v)
	if w.Kind == Null {
		return Unknown
	}
	return truthOf(holds(op, v.Compare(w)))
}

// holds tells whether a comparison of that outcome satisfies the operator.
func holds(op operator, outcome int) bool {
	switch op {
	case opEqual:
		return outcome == 0
	case opLess:
		return outcome < 0
	case opLessEqual:
		return outcome <= 0
	case opGreater:
		return outcome > 0
	}
	return outcome >= 0 // opGreaterEqual
}

func (t *Test) in(v Value) Truth {
	switch {
	case len(t.operands) == 0 && !t.null:
		return False // of an empty list, even for NULL
	case v.Kind == Null:
		return Unknown
	case t.members.has(v):
		return True
	case t.null:
		return Unknown
	}
	return False
}

// members are the values of a list of IN.
type members struct {
	ints  map[int64]struct{}
	reals map[float64]struct{} // those that are no int64
	texts map[string]struct{}
}

func newMembers(operands []pair) *members {
	m := &members{map[int64]struct{}{}, map[float64]struct{}{}, map[string]struct{}{}}
	for _, p := range operands {
		m.texts[p.text.Text] = struct{}{}
		if i, ok := p.number.whole(); ok {
			m.ints[i] = struct{}{}
		} else if p.number.Kind == Real {
			m.reals[p.number.Real] = struct{}{}
		}
	}
	return m
}

func (m *members) has(v Value) bool {
	var ok bool
	if v.Kind == Text {
		_, ok = m.texts[v.Text]
	} else if i, whole := v.whole(); whole {
		_, ok = m.ints[i]
	} else {
		_, ok = m.reals[v.Real]
	}
	return ok
}

// whole is the integer that a number is equal to, if it is.
func (v Value) whole() (i int64, ok bool) {
	switch {
	case v.Kind == Integer:
		return v.Int, true
	case v.Kind == Real && v.Real >= -(1<<63) && v.Real < 1<<63 && v.Real == math.Trunc(v.Real):
		return int64(v.Real), true
	}
	return 0, false
}
