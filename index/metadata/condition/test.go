package condition

import (
	"regexp"
	"slices"
	"unicode/utf8"
)

// Test is a leaf of a condition: a comparison of one field with values.
type Test struct {
	Field Field

	path             string // of the field
	op               operator
	constant         bool           // of opConstant
	null             bool           // one of the operands is NULL
	matchesArrayText bool           // the test may be true of an array as text
	operands         []comparand    // of a comparison
	points           *pointSets     // of opIn
	likes            []*likePattern // the test is true if one of them matches
	regexp           *regexp.Regexp
	programSize      int // estimate of the instructions of regexp
}

// comparand is an operand in the forms in which it is compared with numbers and with text. SQLite
// converts it by the type of the column; here each value of a field decides for itself.
type comparand struct{ number, text Value }

// forKindOf returns the form that is compared with v.
func (p *comparand) forKindOf(v Value) Value {
	if v.Kind == Text {
		return p.text
	}
	return p.number
}

// Truth returns the truth of the test for one value of its field. For a field with several values,
// the highest of their truths counts, and False for an empty array.
func (t *Test) Truth(v Value) Truth { return t.evaluate(&Evaluation{}, v) }

// evaluate is Truth. It is meaningless once the evaluation has ended.
func (t *Test) evaluate(e *Evaluation, v Value) Truth {
	switch t.op {
	case opConstant:
		return truthFromBool(t.constant)
	case opIsNull:
		return truthFromBool(v.Kind == Null)
	case opIn:
		return t.evaluateIn(v)
	}
	if v.Kind == Null {
		return Unknown
	}
	if t.op == opBetween { // one bound is enough for False, even if the other is NULL
		return min(compareWith(opGreaterEqual, v, &t.operands[0]), compareWith(opLessEqual, v, &t.operands[1]))
	}
	if t.null {
		return Unknown
	}
	switch t.op {
	case opLike:
		text := v.String()
		return truthFromBool(slices.ContainsFunc(t.likes, func(p *likePattern) bool { return p.matchText(e, text) }))
	case opRegexp:
		return truthFromBool(t.matchRegexp(e, v.String()))
	}
	return compareWith(t.op, v, &t.operands[0])
}

// compareWith compares a value that is not NULL with an operand.
func compareWith(op operator, v Value, p *comparand) Truth {
	other := p.forKindOf(v)
	if other.Kind == Null {
		return Unknown
	}
	return truthFromBool(satisfies(op, v.Compare(other)))
}

// satisfies reports whether the result of a comparison satisfies the operator.
func satisfies(op operator, outcome int) bool {
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

// evaluateIn returns the truth of IN.
func (t *Test) evaluateIn(v Value) Truth {
	switch {
	case t.points.isEmpty() && !t.null:
		return False // an empty list is False even for NULL
	case v.Kind == Null:
		return Unknown
	case t.points.contains(v):
		return True
	case t.null:
		return Unknown
	}
	return False
}

// pointSets holds the values of a list of IN in the forms in which they are compared with numbers
// and with text, each sorted and without duplicates.
type pointSets struct{ numbers, texts []Value }

// newPoints returns the values of the operands of IN, sorted and without duplicates.
func newPoints(operands []comparand) *pointSets {
	p := &pointSets{texts: make([]Value, 0, len(operands))}
	for _, o := range operands {
		p.texts = append(p.texts, o.text)
		if o.number.IsNumber() {
			p.numbers = append(p.numbers, o.number)
		}
	}
	for _, values := range []*[]Value{&p.numbers, &p.texts} {
		slices.SortFunc(*values, Value.Compare)
		*values = slices.CompactFunc(*values, func(v, w Value) bool { return v.Compare(w) == 0 })
	}
	return p
}

func (p *pointSets) isEmpty() bool { return len(p.texts) == 0 }

func (p *pointSets) contains(v Value) bool {
	values := p.numbers
	if v.Kind == Text {
		values = p.texts
	}
	_, ok := slices.BinarySearchFunc(values, v, Value.Compare)
	return ok
}

// Points returns the numbers and the texts for which the test is true, sorted and without
// duplicates. ok is false unless the test is = or IN.
func (t *Test) Points() (numbers, texts []Value, ok bool) {
	if t.op != opIn {
		return nil, nil, false
	}
	return t.points.numbers, t.points.texts, true
}

// MatchesArrayText reports whether the test may be true of an array as text, not only of its elements.
func (t *Test) MatchesArrayText() bool { return t.matchesArrayText }

// NeverFalse reports whether the test is False for no value, because it compares with NULL.
func (t *Test) NeverFalse() bool { return t.null && t.op != opBetween }

// likePattern is a compiled pattern of LIKE: % matches any text, _ any character; ASCII letters
// match in either case. A character after the escape character matches itself.
type likePattern struct {
	runes          []rune
	matchesNothing bool // it ends with the escape character
}

// Elements of runes that stand for % and _.
const (
	anyText = -1
	anyRune = -2
)

// noEscape is the escape character of a pattern without ESCAPE.
const noEscape = -1

// compileLike compiles a pattern.
func compileLike(pattern string, escape rune) *likePattern {
	p := &likePattern{}
	escaped := false
	for _, r := range pattern {
		switch {
		case !escaped && r == escape:
			escaped = true
			continue
		case escaped:
			if escaped = false; r < utf8.RuneSelf {
				r = rune(lowerASCII(byte(r)))
			}
		case r == '%':
			if n := len(p.runes); n > 0 && p.runes[n-1] == anyText {
				continue
			}
			r = anyText
		case r == '_':
			r = anyRune
		case r < utf8.RuneSelf:
			r = rune(lowerASCII(byte(r)))
		}
		p.runes = append(p.runes, r)
	}
	p.matchesNothing = escaped
	return p
}

// mayMatchBracket reports whether the pattern may match a text that begins with a bracket, as an
// array does.
func (p *likePattern) mayMatchBracket() bool {
	return len(p.runes) > 0 && (p.runes[0] == '[' || p.runes[0] == anyText || p.runes[0] == anyRune)
}

// matchText reports whether the pattern matches s. On a mismatch it returns only to the last %: any
// match of an earlier % can be extended by the last one. The result is meaningless once the
// evaluation has ended.
func (p *likePattern) matchText(e *Evaluation, s string) bool {
	next := 0                      // the next element of the pattern
	lastAnyText, resumeAt := -1, 0 // the last %, and where the text that it matches ends
	if e.endedAfter(1 + len(s)); p.matchesNothing {
		return false
	}
	for i, steps := 0, 0; i < len(s); {
		if steps++; steps == stepsPerCheck {
			if e.endedAfter(steps) {
				return false
			}
			steps = 0
		}
		r, size := rune(s[i]), 1
		if r >= utf8.RuneSelf {
			r, size = utf8.DecodeRuneInString(s[i:])
		} else {
			r = rune(lowerASCII(byte(r)))
		}
		switch {
		case next < len(p.runes) && p.runes[next] == anyText:
			lastAnyText, resumeAt = next, i
			next++
		case next < len(p.runes) && (p.runes[next] == r || p.runes[next] == anyRune):
			next++
			i += size
		case lastAnyText >= 0: // let the last % match one character more
			_, size := utf8.DecodeRuneInString(s[resumeAt:])
			resumeAt += size
			next, i = lastAnyText+1, resumeAt
		default:
			return false
		}
	}
	if next < len(p.runes) && p.runes[next] == anyText {
		next++
	}
	return next == len(p.runes)
}
