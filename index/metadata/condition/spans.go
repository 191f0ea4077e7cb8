package condition

// Span is an interval of values of one kind, numbers or texts.
type Span struct {
	// Low and High are the ends; NULL means that the span is not bounded on that side.
	Low, High Value
	// LowOpen and HighOpen exclude the end itself.
	LowOpen, HighOpen bool
}

// IsUnbounded reports whether the span has all values of its kind.
func (s *Span) IsUnbounded() bool { return s.Low.Kind == Null && s.High.Kind == Null }

// Above reports whether the whole span is above a value.
func (s *Span) Above(v Value) bool {
	if s.Low.Kind == Null {
		return false
	}
	c := s.Low.Compare(v)
	return c > 0 || c == 0 && s.LowOpen
}

// Below reports whether the whole span is below a value.
func (s *Span) Below(v Value) bool {
	if s.High.Kind == Null {
		return false
	}
	c := s.High.Compare(v)
	return c < 0 || c == 0 && s.HighOpen
}

// Spans returns the numbers and the texts for which the test is at least minTruth, which is True or
// Unknown, as disjoint spans in ascending order. ok is false for tests without spans: = and IN have
// Points, LIKE and REGEXP must be evaluated for each value. NULL is in no span; see Truth.
func (t *Test) Spans(minTruth Truth) (numbers, texts []Span, ok bool) {
	switch t.op {
	case opIn, opLike, opRegexp, opConstant:
		return nil, nil, false
	case opIsNull:
		return nil, nil, true
	}
	if t.null && (t.op != opBetween || minTruth == True) {
		return nil, nil, true
	}
	return t.spansOfKind(ofNumbers), t.spansOfKind(ofTexts), true
}

// spanKind selects the values of spans.
type spanKind bool

const (
	ofNumbers spanKind = false
	ofTexts   spanKind = true
)

// spansOfKind returns the spans of numbers or texts for which the test is true, ignoring operands
// that are NULL.
func (t *Test) spansOfKind(kind spanKind) []Span {
	// bound returns operand i in the form that is compared with values of the kind.
	bound := func(i int) Value {
		if kind == ofTexts {
			return t.operands[i].text
		}
		return t.operands[i].number
	}
	if t.op != opBetween {
		return spanOfComparison(t.op, bound(0), kind)
	}
	between := []Span{{}}
	for i, op := range []operator{opGreaterEqual, opLessEqual} {
		if operand := bound(i); operand.Kind != Null {
			between = intersect(between, spanOfComparison(op, operand, kind))
		}
	}
	return between
}

// spanOfComparison returns the values of a kind for which a comparison with an operand is true. The
// operand may be of the other kind: numbers are less than any text.
func spanOfComparison(op operator, operand Value, kind spanKind) []Span {
	if kind == ofNumbers && operand.Kind == Text { // every number is less
		if op == opLess || op == opLessEqual {
			return []Span{{}}
		}
		return nil
	}
	if op == opLess || op == opLessEqual {
		return []Span{{High: operand, HighOpen: op == opLess}}
	}
	return []Span{{Low: operand, LowOpen: op == opGreater}}
}

// intersect returns the intersection of two lists of at most one span. The spans must not be bounded
// on the same side.
func intersect(a, b []Span) []Span {
	if len(a) == 0 || len(b) == 0 {
		return nil
	}
	s := a[0]
	if bound := b[0]; bound.Low.Kind != Null {
		s.Low, s.LowOpen = bound.Low, bound.LowOpen
	}
	if bound := b[0]; bound.High.Kind != Null {
		s.High, s.HighOpen = bound.High, bound.HighOpen
	}
	if s.Low.Kind != Null && s.High.Kind != Null && s.Low.Compare(s.High) > 0 {
		return nil
	}
	return []Span{s}
}

// Complement returns the gaps between disjoint ascending spans.
func Complement(spans []Span) []Span {
	var out []Span
	next := Span{}
	for _, s := range spans {
		if s.Low.Kind != Null {
			next.High, next.HighOpen = s.Low, !s.LowOpen
			out = append(out, next)
		}
		if s.High.Kind == Null {
			return out
		}
		next = Span{Low: s.High, LowOpen: !s.HighOpen}
	}
	return append(out, next)
}
