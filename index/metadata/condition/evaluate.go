package condition

import (
	"context"
	"io"
	"unicode/utf8"
)

// Evaluation evaluates conditions on one document after the other for as long as its
// context goes on. It counts its steps, some nanoseconds each, and asks the context every
// so often, within a long text too. The zero value goes on without end. It is for one goroutine at a time.
type Evaluation struct {
	ctx       context.Context // nil: without end
	stepsLeft int             // until the context is asked
	err       error
}

// stepsPerCheck is how many steps are between two looks at the context.
const stepsPerCheck = 1 << 14

// NewEvaluation returns one that ends with a context.
func NewEvaluation(ctx context.Context) *Evaluation {
	return &Evaluation{ctx: ctx, stepsLeft: stepsPerCheck}
}

// Document reads a payload, which is kept and not to be changed, for as long as the context
// goes on. If Err is not nil afterwards, what the document was asked for means nothing.
func (e *Evaluation) Document(payload []byte, id string, ordinal uint32) *Record {
	return &Record{id: id, ordinal: ordinal, raw: payload, evaluation: e}
}

// Err looks at the context, unless it is known to have ended.
func (e *Evaluation) Err() error {
	e.stepsEnded(e.stepsLeft)
	return e.err
}

// stepsEnded reports, after so many steps, whether the context has ended. It has not where
// there is no evaluation.
func (e *Evaluation) stepsEnded(steps int) bool {
	if e == nil {
		return false
	}
	if e.stepsLeft -= steps; e.stepsLeft <= 0 && e.ctx != nil && e.err == nil {
		e.stepsLeft, e.err = stepsPerCheck, e.ctx.Err()
	}
	return e.err != nil
}

// Match tells whether a condition is true of a document. The error is that of the
// context.
func (e *Evaluation) Match(c *Condition, d *Record) (bool, error) {
	truth := c.root.evaluate(e, d)
	return truth == True && e.err == nil, e.err
}

// Truth is the value of a test for a value of its field. The error is that of the
// context.
func (e *Evaluation) Truth(t *Test, v Value) (Truth, error) {
	e.stepsEnded(1)
	return t.evaluate(e, v), e.err
}

// evaluate means nothing once the context has ended.
func (b *boundNode) evaluate(e *Evaluation, d *Record) Truth {
	switch b.join {
	case joinNot:
		return -b.parts[0].evaluate(e, d)
	case joinAnd: // the least of its parts
		truth := True
		for _, p := range b.parts {
			if truth = min(truth, p.evaluate(e, d)); truth == False || e.err != nil {
				break
			}
		}
		return truth
	case joinOr:
		truth := False
		for _, p := range b.parts {
			if truth = max(truth, p.evaluate(e, d)); truth == True || e.err != nil {
				break
			}
		}
		return truth
	}
	if b.test.op == opConstant {
		return truthFromBool(b.test.constant)
	}
	return b.test.evaluateRecord(e, d)
}

// evaluateRecord is the value of the test for a document. What is read counts as a step for each byte.
func (t *Test) evaluateRecord(e *Evaluation, d *Record) Truth {
	switch t.Field {
	case FieldID:
		return t.evaluate(e, textValue(d.id))
	case FieldOrdinal:
		return t.evaluate(e, intValue(int64(d.ordinal)))
	}
	if !d.parsed && e.stepsEnded(len(d.raw)) {
		return Unknown
	}
	hasValue, best := false, False
	visitValue := func(v Value) bool {
		e.stepsEnded(1 + len(v.Text))
		hasValue = true
		best = max(best, t.evaluate(e, v))
		return best < True && t.op != opIsNull
	}
	visitElement := func(raw []byte) bool { return raw[0] == 'n' || visitValue(parseValidJSON(e, raw)) }
	d.visitPath(t.path, func(m *member) bool {
		switch {
		case m.raw[0] == 'n':
			return true
		case m.raw[0] != '[' || t.op == opIsNull:
			return visitValue(m.wholeValue(e))
		case t.matchesArrayText && !visitValue(m.wholeValue(e)):
			return false
		}
		hasValue = true
		return visitElements(e, m.raw, visitElement)
	})
	switch {
	case !hasValue:
		return t.evaluate(e, Value{})
	case t.Never():
		return max(best, Unknown)
	}
	return best
}

// maxUninterrupted bounds the bytes of a text, times the instructions of a pattern, for
// which REGEXP does not look at the context: some milliseconds.
const maxUninterrupted = 1 << 20

func (t *Test) matchRegexp(e *Evaluation, text string) bool {
	work := len(text) * t.programSize
	if _, plain := t.regexp.LiteralPrefix(); plain || work <= maxUninterrupted || e.ctx == nil {
		e.stepsEnded(work / 16)
		return t.regexp.MatchString(text)
	}
	return t.regexp.MatchReader(&interruptibleText{e: e, text: text, stepsPerRune: 1 + t.programSize/16})
}

// interruptibleText is a text that ends when the context does.
type interruptibleText struct {
	e            *Evaluation
	text         string
	stepsPerRune int // for a character
}

// ReadRune returns the next character.
func (r *interruptibleText) ReadRune() (c rune, size int, err error) {
	if r.text == "" || r.e.stepsEnded(r.stepsPerRune) {
		return 0, 0, io.EOF
	}
	c, size = utf8.DecodeRuneInString(r.text)
	r.text = r.text[size:]
	return c, size, nil
}

// Sets tells [Select] of the documents of a collection.
type Sets[S any] interface {
	// Test is the set of documents for which a test has a value, True or False.
	Test(t *Test, is Truth) (S, error)
	// All is the set of all documents, None the empty one.
	All() S
	None() S
	// And and Or may change a, and return it.
	And(a, b S) S
	Or(a, b S) S
}

// Select is the set of documents that a condition is true of, by those of its tests:
// whoever answers them need not know what NULL does to AND, OR and NOT. What is not
// true can be false or unknown, so that sets are never taken from All; only the
// answers of tests are put together. A test that answers with too many documents makes
// the result too large, never too small. Between tests the context is looked at.
func Select[S any](ctx context.Context, c *Condition, sets Sets[S]) (S, error) {
	return selectNode(ctx, c.root, sets, True)
}

func selectNode[S any](ctx context.Context, b *boundNode, sets Sets[S], wanted Truth) (S, error) {
	switch b.join {
	case "":
		if err := ctx.Err(); err != nil {
			return sets.None(), err
		}
		if b.test.op != opConstant {
			return sets.Test(b.test, wanted)
		}
		if truthFromBool(b.test.constant) == wanted {
			return sets.All(), nil
		}
		return sets.None(), nil
	case joinNot:
		return selectNode(ctx, b.parts[0], sets, -wanted)
	}
	join := sets.Or // one part that is false makes AND false
	if (b.join == joinAnd) == (wanted == True) {
		join = sets.And
	}
	result, err := selectNode(ctx, b.parts[0], sets, wanted)
	for _, p := range b.parts[1:] {
		if err != nil {
			return result, err
		}
		var s S
		if s, err = selectNode(ctx, p, sets, wanted); err == nil {
			result = join(result, s)
		}
	}
	return result, err
}
