package condition

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Condition is a condition with the values of its parameters. It does not change, and is safe for
// concurrent use.
type Condition struct {
	expr    *Expr
	params  []Value
	root    *boundNode
	lenient bool
}

// boundNode is a node with the values of its placeholders.
type boundNode struct {
	join     string
	children []*boundNode
	test     *Test
}

// Bind sets the parameters of a condition, as many as it has placeholders; [ValueOf] converts them.
// Errors are [*Error] and wrap [ErrParameter].
func (e *Expr) Bind(params ...any) (*Condition, error) {
	if len(params) != len(e.params) {
		offset := len(e.text)
		if len(params) < len(e.params) {
			offset = e.params[len(params)]
		}
		return nil, e.parameterError(offset, "%s for %s",
			countOf(len(params), "parameter"), countOf(len(e.params), "question mark"))
	}
	values := make([]Value, len(params))
	for i, p := range params {
		var err error
		if values[i], err = ValueOf(p); err != nil {
			return nil, e.parameterError(e.params[i], "the value of parameter %d: %w", i+1, err)
		}
	}
	b := paramBinder{expr: e, values: values}
	root, err := b.bindNode(e.root)
	if err != nil {
		return nil, err
	}
	root.mergeLists()
	root.makePoints()
	return &Condition{expr: e, params: values, root: root}, nil
}

// countOf returns a number with its noun, in the plural unless the number is 1.
func countOf(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// parameterError returns an ErrParameter at an offset of the condition.
func (e *Expr) parameterError(offset int, format string, args ...any) error {
	err := fmt.Errorf("%w: %w", ErrParameter, fmt.Errorf(format, args...))
	return &Error{Condition: e.text, Offset: offset, Err: err}
}

// paramBinder binds the nodes of one condition.
type paramBinder struct {
	expr        *Expr
	values      []Value
	programSize int // instructions of the patterns so far
}

// bindNode binds a node and its children.
func (b *paramBinder) bindNode(n *node) (*boundNode, error) {
	out := &boundNode{join: n.join}
	if n.join == "" {
		var err error
		out.test, err = b.bindTest(n)
		return out, err
	}
	for _, part := range n.children {
		p, err := b.bindNode(part)
		if err != nil {
			return nil, err
		}
		if p.join == n.join && n.join != joinNot { // (a AND b) AND c: these parentheses change nothing
			out.children = append(out.children, p.children...)
		} else {
			out.children = append(out.children, p)
		}
	}
	return out, nil
}

// bindTest binds a test, and compiles its pattern if it has one.
func (b *paramBinder) bindTest(n *node) (*Test, error) {
	t := &Test{Field: n.field, op: n.op, constant: n.constant}
	if n.op == opEqual {
		t.op = opIn // a list of one value: it has the same truth, also for NULL
	}
	if n.op != opConstant {
		t.path = n.field.pathString()
	}
	t.matchesArrayText = t.op == opRegexp
	// Set the operands.
	for _, o := range n.operands {
		v := o.value
		if o.param >= 0 {
			v = b.values[o.param]
		}
		if v.Kind == Null {
			t.null = true
			if t.op == opIn {
				continue
			}
		}
		t.operands = append(t.operands, comparand{number: v.asNumber(), text: v.asText()})
		if t.op == opIn && v.Kind == Text {
			for _, other := range Spellings(v.Text) {
				v := textValue(other)
				t.operands = append(t.operands, comparand{number: v, text: v})
			}
		}
	}
	// Find the escape character of LIKE.
	escape := rune(noEscape)
	if n.op == opLike && len(t.operands) == 2 && t.operands[1].text.Kind == Text {
		text := t.operands[1].text.Text
		r, size := utf8.DecodeRuneInString(text)
		if size == 0 || size < len(text) {
			return nil, b.expr.parameterError(n.operands[1].offset,
				"ESCAPE is one character, and not %q", shorten(text))
		}
		escape = r
	}
	if t.null || n.op != opLike && n.op != opRegexp {
		return t, nil
	}
	// Compile the pattern of LIKE or REGEXP.
	pattern := t.operands[0].text.Text
	if len(pattern) > maxPattern {
		return nil, b.expr.parameterError(n.operands[0].offset,
			"%w: a pattern of %d bytes, at most %d are possible", ErrTooComplex, len(pattern), maxPattern)
	}
	if n.op == opLike {
		t.likes = []*likePattern{compileLike(pattern, escape)}
		for _, other := range Spellings(pattern) {
			// NFD writes é with an e, and ≠ with an =, which may be the escape character: skip such forms.
			if escape == noEscape || strings.Count(other, string(escape)) == strings.Count(pattern, string(escape)) {
				t.likes = append(t.likes, compileLike(other, escape))
			}
		}
		t.matchesArrayText = slices.ContainsFunc(t.likes, (*likePattern).mayMatchBracket)
		return t, nil
	}
	if err := b.compileRegexp(t, pattern); err != nil {
		return nil, b.expr.parameterError(n.operands[0].offset, "the pattern of REGEXP: %w", err)
	}
	return t, nil
}

// Spellings returns the other Unicode forms of a text: é is one character (NFC) or two (NFD), as in
// file names on some systems. A condition on one form includes both.
func Spellings(text string) (others []string) {
	if !strings.ContainsFunc(text, func(r rune) bool { return r >= utf8.RuneSelf }) {
		return nil
	}
	for _, form := range []norm.Form{norm.NFC, norm.NFD} {
		if other := form.String(text); other != text && !slices.Contains(others, other) {
			others = append(others, other)
		}
	}
	return others
}

// maxPattern is the largest pattern in bytes; SQLite has the same limit.
const maxPattern = 50000

// compileRegexp compiles a pattern unless its program is too large: repetitions are expanded, so a
// few bytes may become very many instructions.
func (b *paramBinder) compileRegexp(t *Test, pattern string) error {
	classes := strings.Count(pattern, `\p`) + strings.Count(pattern, `\P`) // parsing each takes some kilobytes
	tree, err := &syntax.Regexp{}, error(nil)
	if t.programSize = classes * unreadClassSize; b.programSize+t.programSize <= MaxProgram {
		if tree, err = syntax.Parse(pattern, syntax.Perl); err == nil {
			t.programSize = estimateProgram(tree)
		}
	}
	var syntaxErr *syntax.Error
	switch {
	case errors.As(err, &syntaxErr) && syntaxErr.Code == syntax.ErrLarge:
		return fmt.Errorf("%w: %w", ErrTooComplex, err)
	case err != nil:
		return err
	}
	if b.programSize += t.programSize; b.programSize > MaxProgram {
		return fmt.Errorf("%w: more than %d instructions, with those before it", ErrTooComplex, MaxProgram)
	}
	t.regexp, err = regexp.Compile(pattern)
	return err
}

// Estimates in instructions: unreadClassSize for a Unicode class before it is parsed, and one
// instruction for each rangeEndsPerInstruction ends of ranges of a class.
const (
	unreadClassSize         = 64
	rangeEndsPerInstruction = 16
)

// estimateProgram estimates the number of instructions of a pattern.
func estimateProgram(re *syntax.Regexp) int {
	sum := 0
	for _, sub := range re.Sub {
		sum = min(sum+estimateProgram(sub), MaxProgram+1)
	}
	size := sum
	switch re.Op {
	case syntax.OpConcat:
	case syntax.OpLiteral:
		size = len(re.Rune)
	case syntax.OpCharClass:
		size = 1 + len(re.Rune)/rangeEndsPerInstruction
	case syntax.OpCapture:
		size += 2
	case syntax.OpAlternate:
		size += len(re.Sub)
	case syntax.OpRepeat:
		size = (sum + 1) * max(re.Min, re.Max, 1)
	default: // one instruction of its own
		size++
	}
	return min(size, MaxProgram+1)
}

// mergeLists merges the lists of one field that are joined by OR, where an equality is a list of
// one value: a = 1 OR a IN (2, 3) becomes a IN (1, 2, 3), and NOT a = 1 AND NOT a = 2 becomes NOT a
// IN (1, 2). The truth is the same, also with NULLs.
func (b *boundNode) mergeLists() {
	for _, p := range b.children {
		p.mergeLists()
	}
	if b.join != joinOr && b.join != joinAnd {
		return
	}
	lists := map[Field]*Test{}
	b.children = slices.DeleteFunc(b.children, func(p *boundNode) bool {
		if b.join == joinAnd {
			if p.join != joinNot {
				return false
			}
			p = p.children[0]
		}
		if p.join != "" || p.test.op != opIn {
			return false
		}
		list, ok := lists[p.test.Field]
		if !ok {
			lists[p.test.Field] = p.test
			return false
		}
		list.operands = append(list.operands, p.test.operands...)
		list.null = list.null || p.test.null
		return true
	})
	if len(b.children) == 1 {
		*b = *b.children[0]
	}
}

// makePoints sorts the values of each list.
func (b *boundNode) makePoints() {
	for _, p := range b.children {
		p.makePoints()
	}
	if b.join == "" && b.test.op == opIn { // an array as text begins with a bracket
		t := b.test
		t.points, t.operands = newPoints(t.operands), nil
		t.matchesArrayText = slices.ContainsFunc(t.points.texts, func(v Value) bool {
			return strings.HasPrefix(v.Text, "[")
		})
	}
}

func (c *Condition) String() string { return c.expr.text }

// Params returns the values of the placeholders.
func (c *Condition) Params() []Value { return slices.Clone(c.params) }

// Fields returns the fields that the condition names, each once.
func (c *Condition) Fields() []Field { return c.expr.Fields() }

// Check does [Expr.Check], unless the condition is lenient.
func (c *Condition) Check(known func(Field) bool) error {
	if c.lenient {
		return nil
	}
	return c.expr.Check(known)
}

// Lenient returns the condition in a form that may name fields which no document has: they are
// NULL. It is for a shard, whose other shards may have the fields, and for callers who accept that
// fields may not exist yet.
func (c *Condition) Lenient() *Condition {
	l := *c
	l.lenient = true
	return &l
}

// IsLenient reports whether the condition was made by Lenient.
func (c *Condition) IsLenient() bool { return c.lenient }

// Match reports whether the condition is true of a document.
func (c *Condition) Match(d *Record) bool { return c.Truth(d) == True }

// Truth returns the truth of the condition for a document.
func (c *Condition) Truth(d *Record) Truth { return c.root.evaluate(&Evaluation{}, d) }
