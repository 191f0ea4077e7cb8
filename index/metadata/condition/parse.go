package condition

import "strings"

// Expr is a condition as it was written, without the values of its placeholders.
type Expr struct {
	text   string
	root   *node
	params []int // where each placeholder is
	fields []place
}

// place is where a field is first named.
type place struct {
	field  Field
	offset int
}

// node is a part of a condition: parts joined by a word, or a test.
type node struct {
	join  string // joinAnd, joinOr or joinNot; "" for a test
	parts []*node

	op       operator
	field    Field
	operands []operand
	constant bool // of an operator that compares two integers
}

const (
	joinAnd = "AND"
	joinOr  = "OR"
	joinNot = "NOT"
)

// operand is a placeholder or a literal.
type operand struct {
	offset int
	param  int // from 0; -1: a literal
	value  Value
}

type operator uint8

const (
	opEqual operator = iota
	opLess
	opLessEqual
	opGreater
	opGreaterEqual
	opBetween
	opIn
	opLike
	opRegexp
	opIsNull
	opConstant
)

// Parse reads a condition. Values are placeholders, written ?, or literals: 'text',
// numbers, TRUE, FALSE and NULL. Errors are [*Error] and wrap [ErrSyntax].
func Parse(text string) (*Expr, error) { return parse(text, true) }

// ParsePlaceholders is Parse without literals: every value is a placeholder, so that
// what a client puts together from text cannot pass for a part of the condition.
func ParsePlaceholders(text string) (*Expr, error) { return parse(text, false) }

func parse(text string, literals bool) (*Expr, error) {
	tokens, err := lex(text)
	if err != nil {
		return nil, err
	}
	p := parser{expr: &Expr{text: text}, tokens: tokens, literals: literals, named: map[Field]bool{}}
	if ok, err := p.whole(); ok || err != nil {
		return p.expr, err
	}
	if p.expr.root, err = p.or(); err != nil {
		return nil, err
	}
	if p.peek().kind != tokenEnd {
		return nil, p.unexpected("AND, OR or the end")
	}
	return p.expr, nil
}

// Params is the number of placeholders.
func (e *Expr) Params() int { return len(e.params) }

// Fields are the fields that the condition names, each once, in order.
func (e *Expr) Fields() []Field {
	fields := make([]Field, len(e.fields))
	for i, p := range e.fields {
		fields[i] = p.field
	}
	return fields
}

// Check returns an error that wraps [ErrUnknownField] for the first field that is not
// known. [FieldID] and [FieldOrdinal] are always known.
func (e *Expr) Check(known func(Field) bool) error {
	for _, p := range e.fields {
		if p.field != FieldID && p.field != FieldOrdinal && !known(p.field) {
			return &Error{Condition: e.text, Offset: p.offset, Err: &UnknownFieldError{Field: p.field}}
		}
	}
	return nil
}

func (e *Expr) String() string { return e.text }

type parser struct {
	expr     *Expr
	tokens   []token
	literals bool
	depth    int
	tests    int
	named    map[Field]bool // fields that the condition has named
}

// maxDepth bounds what is nested: the parser and the evaluation recur.
const maxDepth = 200

func (p *parser) peek() token { return p.tokens[0] }

func (p *parser) next() token {
	t := p.tokens[0]
	if t.kind != tokenEnd {
		p.tokens = p.tokens[1:]
	}
	return t
}

// skip goes past a sign or keyword if it is next.
func (p *parser) skip(text string) bool {
	if t := p.peek(); (t.kind == tokenSign || t.kind == tokenWord) && t.text == text {
		p.next()
		return true
	}
	return false
}

func (p *parser) errorf(at int, format string, args ...any) error {
	return syntaxError(p.expr.text, at, format, args...)
}

func (p *parser) unexpected(wanted string) error {
	return p.errorf(p.peek().offset, "%s is needed", wanted)
}

func (p *parser) need(text string) error {
	if !p.skip(text) {
		return p.unexpected(text)
	}
	return nil
}

// whole reads a condition that compares two integers, such as 1=1; ok is false for
// any other.
func (p *parser) whole() (ok bool, err error) {
	t := p.tokens
	if len(t) != 4 || t[0].kind != tokenNumber || t[1].kind != tokenSign || t[2].kind != tokenNumber {
		return false, nil
	}
	op, negated, ok := comparison(t[1].text)
	a, b := parseNumber(t[0].text), parseNumber(t[2].text)
	if !ok || a.Kind != Integer || b.Kind != Integer {
		return false, nil
	}
	p.expr.root = &node{op: opConstant, constant: holds(op, a.Compare(b)) != negated}
	return true, nil
}

func (p *parser) or() (*node, error)  { return p.list(joinOr, p.and) }
func (p *parser) and() (*node, error) { return p.list(joinAnd, p.unary) }

func (p *parser) list(word string, part func() (*node, error)) (*node, error) {
	first, err := part()
	if err != nil || !p.skip(word) {
		return first, err
	}
	n := &node{join: word, parts: []*node{first}}
	for {
		next, err := part()
		if err != nil {
			return nil, err
		}
		n.parts = append(n.parts, next)
		if !p.skip(word) {
			return n, nil
		}
	}
}

func (p *parser) unary() (*node, error) {
	t := p.peek()
	if p.depth++; p.depth > maxDepth {
		return nil, p.errorf(t.offset, "it is nested more than %d deep", maxDepth)
	}
	defer func() { p.depth-- }()
	switch {
	case p.skip("NOT"):
		n, err := p.unary()
		return not(n), err
	case p.skip("("):
		n, err := p.or()
		if err != nil {
			return nil, err
		}
		return n, p.need(")")
	}
	return p.test()
}

func not(n *node) *node { return &node{join: joinNot, parts: []*node{n}} }

func (p *parser) test() (*node, error) {
	n := &node{}
	at := p.peek().offset
	if p.tests++; p.tests > MaxTests {
		return nil, tooComplex(p.expr.text, at, "it has more than %d tests; IN takes many values in one", MaxTests)
	}
	var err error
	if n.field, err = p.field(); err != nil {
		return nil, err
	}
	if !p.named[n.field] {
		p.named[n.field] = true
		p.expr.fields = append(p.expr.fields, place{n.field, at})
	}
	if op, negated, ok := comparison(p.peek().text); ok && p.peek().kind == tokenSign {
		p.next()
		n.op = op
		return negate(n, negated, p.value(n))
	}
	if p.skip("IS") {
		n.op = opIsNull
		negated := p.skip("NOT")
		return negate(n, negated, p.need("NULL"))
	}
	negated := p.skip("NOT")
	switch {
	case p.skip("LIKE"):
		n.op, err = opLike, p.value(n)
		if t := p.peek(); err == nil && t.kind == tokenName && strings.EqualFold(t.text, "ESCAPE") { // elsewhere a field
			p.next()
			err = p.value(n)
		}
	case p.skip("REGEXP"):
		n.op, err = opRegexp, p.value(n)
	case p.skip("BETWEEN"):
		n.op, err = opBetween, p.value(n)
		if err == nil {
			err = p.need("AND")
		}
		if err == nil {
			err = p.value(n)
		}
	case p.skip("IN"):
		n.op, err = opIn, p.in(n)
	case negated:
		err = p.unexpected("LIKE, REGEXP, BETWEEN or IN")
	case p.peek().kind == tokenName && strings.EqualFold(p.peek().text, "CONTAINS"):
		err = p.unexpected("a comparison (= is true of a list that contains the value)")
	default:
		err = p.unexpected("a comparison")
	}
	return negate(n, negated, err)
}

func negate(n *node, negated bool, err error) (*node, error) {
	if err != nil {
		return nil, err
	}
	if negated {
		n = not(n)
	}
	return n, nil
}

// comparison is the operator that a sign stands for; != is the negation of =.
func comparison(sign string) (op operator, negated, ok bool) {
	switch sign {
	case "=", "==":
		return opEqual, false, true
	case "!=", "<>":
		return opEqual, true, true
	case "<":
		return opLess, false, true
	case "<=":
		return opLessEqual, false, true
	case ">":
		return opGreater, false, true
	case ">=":
		return opGreaterEqual, false, true
	}
	return 0, false, false
}

func (p *parser) field() (Field, error) {
	var keys []string
	for {
		t := p.peek()
		after := len(keys) > 0 && t.kind == tokenWord // a dot can have no keyword behind it
		if t.kind != tokenName && t.kind != tokenQuoted && !after {
			if t.kind == tokenWord {
				return "", p.errorf(t.offset, "a field is needed; one of the name %s has to be in double quotes", t.text)
			}
			if t.kind == tokenString && len(keys) == 0 {
				return "", p.errorf(t.offset, "a field is needed, and comes before the value (tags = 'a' is true of a list with 'a'); its name stands in double quotes, or in none")
			}
			return "", p.unexpected("a field")
		}
		p.next()
		keys = append(keys, t.text)
		if !p.skip(".") {
			return MakeField(keys...), nil
		}
	}
}

// in reads the list of IN; it may be empty.
func (p *parser) in(n *node) error {
	if err := p.need("("); err != nil || p.skip(")") {
		return err
	}
	for {
		if err := p.value(n); err != nil {
			return err
		}
		if !p.skip(",") {
			return p.need(")")
		}
	}
}

// shortened is the beginning of a long text.
func shortened(text string) string {
	n := 0
	for i := range text {
		if n++; n > shownAround {
			return text[:i] + "…"
		}
	}
	return text
}

// value reads a value.
func (p *parser) value(n *node) error {
	t := p.next()
	o := operand{offset: t.offset, param: -1}
	sign := ""
	if t.kind == tokenSign && (t.text == "-" || t.text == "+") && p.peek().kind == tokenNumber {
		sign = t.text
		t = p.next()
	}
	switch {
	case t.kind == tokenSign && t.text == "?":
		o.param = len(p.expr.params)
		p.expr.params = append(p.expr.params, t.offset)
	case !p.literals:
		return p.errorf(o.offset, "? is needed: values are parameters here")
	case t.kind == tokenString:
		o.value = textValue(t.text)
	case t.kind == tokenNumber:
		o.value = parseNumber(sign + t.text)
	case t.kind == tokenWord && (t.text == "TRUE" || t.text == "FALSE"):
		o.value = boolValue(t.text == "TRUE")
	case t.kind == tokenWord && t.text == "NULL":
	case t.kind == tokenName || t.kind == tokenQuoted:
		return p.errorf(o.offset, "a value is needed, and text stands in single quotes: '%s'",
			strings.ReplaceAll(shortened(t.text), "'", "''"))
	default:
		return p.errorf(o.offset, "a value is needed: ?, 'text', a number, TRUE, FALSE or NULL")
	}
	n.operands = append(n.operands, o)
	return nil
}
