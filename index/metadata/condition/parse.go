package condition

import "strings"

// Expr is a parsed condition without the values of its placeholders.
type Expr struct {
	text   string
	root   *node
	params []int // offset of each placeholder
	fields []fieldUse
}

// fieldUse is a field with the offset of its first use.
type fieldUse struct {
	field  Field
	offset int
}

// node is a node of a parsed condition: children joined by a word, or a test.
type node struct {
	join     string // joinAnd, joinOr or joinNot, or "" for a test
	children []*node

	op       operator
	field    Field
	operands []operand
	constant bool // of opConstant: the truth of a comparison of two integers
}

const (
	joinAnd = "AND"
	joinOr  = "OR"
	joinNot = "NOT"
)

// operand is a placeholder or a literal.
type operand struct {
	offset int
	param  int // index of the placeholder; -1 means a literal
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

// Parse parses a condition. Values are placeholders, written ?, or literals: 'text', numbers, TRUE,
// FALSE and NULL. Errors are [*Error] and wrap [ErrSyntax].
func Parse(text string) (*Expr, error) { return parse(text, allowLiterals) }

// ParsePlaceholders does Parse without literals: every value is a placeholder, so that text which a
// client inserts cannot become a part of the condition.
func ParsePlaceholders(text string) (*Expr, error) { return parse(text, placeholdersOnly) }

// valueSyntax selects the values that a condition may have.
type valueSyntax bool

const (
	allowLiterals    valueSyntax = true
	placeholdersOnly valueSyntax = false
)

func parse(text string, values valueSyntax) (*Expr, error) {
	tokens, err := tokenize(text)
	if err != nil {
		return nil, err
	}
	p := parser{
		expr:     &Expr{text: text},
		tokens:   tokens,
		literals: bool(values),
		named:    map[Field]bool{},
	}
	if ok, err := p.parseConstant(); ok || err != nil {
		return p.expr, err
	}
	if p.expr.root, err = p.parseOr(); err != nil {
		return nil, err
	}
	if p.nextToken().kind != tokenEnd {
		return nil, p.unexpected("AND, OR or the end")
	}
	return p.expr, nil
}

// Params returns the number of placeholders.
func (e *Expr) Params() int { return len(e.params) }

// Fields returns the fields that the condition names, each once, in order.
func (e *Expr) Fields() []Field {
	fields := make([]Field, len(e.fields))
	for i, p := range e.fields {
		fields[i] = p.field
	}
	return fields
}

// Check returns an error that wraps [ErrUnknownField] for the first unknown field. [FieldID] and
// [FieldOrdinal] are always known.
func (e *Expr) Check(known func(Field) bool) error {
	for _, p := range e.fields {
		if p.field != FieldID && p.field != FieldOrdinal && !known(p.field) {
			return &Error{Condition: e.text, Offset: p.offset, Err: &UnknownFieldError{Field: p.field}}
		}
	}
	return nil
}

func (e *Expr) String() string { return e.text }

// parser is a recursive descent parser. Its methods consume the tokens that they parse.
type parser struct {
	expr     *Expr
	tokens   []token
	literals bool // allowed as values
	depth    int
	tests    int
	named    map[Field]bool // fields in expr.fields
}

// maxDepth limits the nesting, because parser and evaluation are recursive.
const maxDepth = 200

// nextToken returns the next token without consuming it.
func (p *parser) nextToken() token { return p.tokens[0] }

// consume returns the next token and moves past it, unless it is the last.
func (p *parser) consume() token {
	t := p.tokens[0]
	if t.kind != tokenEnd {
		p.tokens = p.tokens[1:]
	}
	return t
}

// consumeIf consumes a sign or keyword if it is next, and reports whether it was.
func (p *parser) consumeIf(text string) bool {
	if t := p.nextToken(); (t.kind == tokenSign || t.kind == tokenWord) && t.text == text {
		p.consume()
		return true
	}
	return false
}

func (p *parser) errorf(offset int, format string, args ...any) error {
	return syntaxError(p.expr.text, offset, format, args...)
}

// unexpected returns the error for a missing sign, word or value.
func (p *parser) unexpected(wanted string) error {
	return p.errorf(p.nextToken().offset, "%s is needed", wanted)
}

// expect consumes a sign or keyword, which must be next.
func (p *parser) expect(text string) error {
	if !p.consumeIf(text) {
		return p.unexpected(text)
	}
	return nil
}

// parseConstant parses a condition that compares two integers, such as 1=1; ok is false for any
// other.
func (p *parser) parseConstant() (ok bool, err error) {
	t := p.tokens // three, and tokenEnd
	if len(t) != 4 || t[0].kind != tokenNumber || t[1].kind != tokenSign || t[2].kind != tokenNumber {
		return false, nil
	}
	op, negated, ok := comparisonOperator(t[1].text)
	a, b := parseNumber(t[0].text), parseNumber(t[2].text)
	if !ok || a.Kind != Integer || b.Kind != Integer {
		return false, nil
	}
	p.expr.root = &node{op: opConstant, constant: satisfies(op, a.Compare(b)) != negated}
	return true, nil
}

// parseOr and parseAnd parse conditions joined by a word; AND binds more tightly.
func (p *parser) parseOr() (*node, error)  { return p.parseJoined(joinOr, p.parseAnd) }
func (p *parser) parseAnd() (*node, error) { return p.parseJoined(joinAnd, p.parseUnary) }

// parseJoined parses one or more conditions with the word in between.
func (p *parser) parseJoined(word string, parseChild func() (*node, error)) (*node, error) {
	first, err := parseChild()
	if err != nil || !p.consumeIf(word) {
		return first, err
	}
	n := &node{join: word, children: []*node{first}}
	for {
		next, err := parseChild()
		if err != nil {
			return nil, err
		}
		n.children = append(n.children, next)
		if !p.consumeIf(word) {
			return n, nil
		}
	}
}

// parseUnary parses NOT, parentheses, or a test.
func (p *parser) parseUnary() (*node, error) {
	t := p.nextToken()
	if p.depth++; p.depth > maxDepth {
		return nil, p.errorf(t.offset, "it is nested more than %d deep", maxDepth)
	}
	defer func() { p.depth-- }()
	switch {
	case p.consumeIf("NOT"):
		n, err := p.parseUnary()
		return notNode(n), err
	case p.consumeIf("("):
		n, err := p.parseOr()
		if err != nil {
			return nil, err
		}
		return n, p.expect(")")
	}
	return p.parseTest()
}

// notNode negates a node.
func notNode(n *node) *node { return &node{join: joinNot, children: []*node{n}} }

// parseTest parses a field and its comparison.
func (p *parser) parseTest() (*node, error) {
	n := &node{}
	offset := p.nextToken().offset
	if p.tests++; p.tests > MaxTests {
		return nil, tooComplex(p.expr.text, offset,
			"it has more than %d tests; IN compares with many values in one", MaxTests)
	}
	var err error
	// Parse the field.
	if n.field, err = p.parseField(); err != nil {
		return nil, err
	}
	if !p.named[n.field] {
		p.named[n.field] = true
		p.expr.fields = append(p.expr.fields, fieldUse{n.field, offset})
	}
	// Parse a comparison sign or IS NULL, which cannot be preceded by NOT.
	if op, negated, ok := comparisonOperator(p.nextToken().text); ok && p.nextToken().kind == tokenSign {
		p.consume()
		n.op = op
		return negateIf(n, negated, p.parseValue(n))
	}
	if p.consumeIf("IS") {
		n.op = opIsNull
		negated := p.consumeIf("NOT")
		return negateIf(n, negated, p.expect("NULL"))
	}
	// Parse one of the operators that NOT may precede.
	negated := p.consumeIf("NOT")
	switch {
	case p.consumeIf("LIKE"):
		n.op, err = opLike, p.parseValue(n)
		t := p.nextToken() // ESCAPE is a keyword only here
		if err == nil && t.kind == tokenName && strings.EqualFold(t.text, "ESCAPE") {
			p.consume()
			err = p.parseValue(n)
		}
	case p.consumeIf("REGEXP"):
		n.op, err = opRegexp, p.parseValue(n)
	case p.consumeIf("BETWEEN"):
		n.op, err = opBetween, p.parseValue(n)
		if err == nil {
			err = p.expect("AND")
		}
		if err == nil {
			err = p.parseValue(n)
		}
	case p.consumeIf("IN"):
		n.op, err = opIn, p.parseList(n)
	case negated:
		err = p.unexpected("LIKE, REGEXP, BETWEEN or IN")
	case p.nextToken().kind == tokenName && strings.EqualFold(p.nextToken().text, "CONTAINS"):
		err = p.unexpected("a comparison (= is true of a list that contains the value)")
	default:
		err = p.unexpected("a comparison")
	}
	return negateIf(n, negated, err)
}

// negateIf returns n, or its negation, unless err is set.
func negateIf(n *node, negated bool, err error) (*node, error) {
	if err != nil {
		return nil, err
	}
	if negated {
		n = notNode(n)
	}
	return n, nil
}

// comparisonOperator returns the operator of a sign; != is the negation of =.
func comparisonOperator(sign string) (op operator, negated, ok bool) {
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

// parseField parses names with dots in between.
func (p *parser) parseField() (Field, error) {
	var keys []string
	for {
		t := p.nextToken()
		keywordAfterDot := len(keys) > 0 && t.kind == tokenWord // there it can only be a name
		if t.kind != tokenName && t.kind != tokenQuoted && !keywordAfterDot {
			if t.kind == tokenWord {
				return "", p.errorf(t.offset,
					"a field is needed; the name %s must be in double quotes", t.text)
			}
			if t.kind == tokenString && len(keys) == 0 {
				return "", p.errorf(t.offset, "a field is needed, and comes before the value "+
					"(tags = 'a' is true of a list with 'a'); its name is in double quotes, or in none")
			}
			return "", p.unexpected("a field")
		}
		p.consume()
		keys = append(keys, t.text)
		if !p.consumeIf(".") {
			return MakeField(keys...), nil
		}
	}
}

// parseList parses the list of IN; it may be empty.
func (p *parser) parseList(n *node) error {
	if err := p.expect("("); err != nil || p.consumeIf(")") {
		return err
	}
	for {
		if err := p.parseValue(n); err != nil {
			return err
		}
		if !p.consumeIf(",") {
			return p.expect(")")
		}
	}
}

// shorten returns the beginning of a long text.
func shorten(text string) string {
	n := 0
	for i := range text {
		if n++; n > shownChars {
			return text[:i] + "…"
		}
	}
	return text
}

// parseValue parses a value and adds it to the operands of n.
func (p *parser) parseValue(n *node) error {
	t := p.consume()
	o := operand{offset: t.offset, param: -1}
	sign := ""
	if t.kind == tokenSign && (t.text == "-" || t.text == "+") && p.nextToken().kind == tokenNumber {
		sign = t.text
		t = p.consume()
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
	case t.kind == tokenWord && t.text == "NULL": // the zero Value
	case t.kind == tokenName || t.kind == tokenQuoted:
		return p.errorf(o.offset, "a value is needed, and text stands in single quotes: '%s'",
			strings.ReplaceAll(shorten(t.text), "'", "''"))
	default:
		return p.errorf(o.offset, "a value is needed: ?, 'text', a number, TRUE, FALSE or NULL")
	}
	n.operands = append(n.operands, o)
	return nil
}
