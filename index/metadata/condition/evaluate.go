package condition

import (
	"context"
	"io"
	"unicode/utf8"
)

// Evaluation evaluates conditions for one document after another until its context ends. It counts
// steps of some nanoseconds each, and checks the context at intervals, also within a long text. The
// zero value never ends. It is for one goroutine at a time.
type Evaluation struct {
	ctx            context.Context // nil if the evaluation never ends
	remainingSteps int             // until the next check of the context
	err            error
}

// stepsPerCheck is the number of steps between two checks of the context.
const stepsPerCheck = 1 << 14

// NewEvaluation returns an evaluation that ends with a context.
func NewEvaluation(ctx context.Context) *Evaluation {
	return &Evaluation{ctx: ctx, remainingSteps: stepsPerCheck}
}

// Document returns a record of a payload, which the record keeps: do not change it. If Err is not
// nil afterwards, results from the record are meaningless.
func (e *Evaluation) Document(payload []byte, id string, ordinal uint32) *Record {
	return &Record{id: id, ordinal: ordinal, raw: payload, evaluation: e}
}

// Err checks the context, unless it is known to have ended.
func (e *Evaluation) Err() error {
	e.endedAfter(e.remainingSteps) // as many as make it check
	return e.err
}

// endedAfter counts steps, and reports whether the context has ended. A nil evaluation never ends.
func (e *Evaluation) endedAfter(steps int) bool {
	if e == nil {
		return false
	}
	if e.remainingSteps -= steps; e.remainingSteps <= 0 && e.ctx != nil && e.err == nil {
		e.remainingSteps, e.err = stepsPerCheck, e.ctx.Err()
	}
	return e.err != nil
}

// Match reports whether a condition is true of a document. The error is that of the context.
func (e *Evaluation) Match(c *Condition, d *Record) (bool, error) {
	truth := c.root.evaluate(e, d)
	return truth == True && e.err == nil, e.err
}

// Truth returns the truth of a test for a value of its field. The error is that of the context.
func (e *Evaluation) Truth(t *Test, v Value) (Truth, error) {
	e.endedAfter(1)
	return t.evaluate(e, v), e.err
}

// evaluate returns the truth of a node for a document. It is meaningless once the context has
// ended.
func (b *boundNode) evaluate(e *Evaluation, d *Record) Truth {
	switch b.join {
	case joinNot:
		return -b.children[0].evaluate(e, d)
	case joinAnd: // the lowest truth of its children
		truth := True
		for _, p := range b.children {
			if truth = min(truth, p.evaluate(e, d)); truth == False || e.err != nil {
				break
			}
		}
		return truth
	case joinOr: // the highest truth of its children
		truth := False
		for _, p := range b.children {
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

// evaluateRecord returns the truth of the test for a document. Each byte that it reads counts as a
// step.
func (t *Test) evaluateRecord(e *Evaluation, d *Record) Truth {
	switch t.Field {
	case FieldID:
		return t.evaluate(e, textValue(d.id))
	case FieldOrdinal:
		return t.evaluate(e, intValue(int64(d.ordinal)))
	}
	if !d.parsed && e.endedAfter(len(d.raw)) {
		return Unknown
	}
	// The truth for several values is the highest of their truths.
	hasValue, best := false, False
	visitValue := func(v Value) bool {
		e.endedAfter(1 + len(v.Text))
		hasValue = true
		best = max(best, t.evaluate(e, v))
		return best < True && t.op != opIsNull // one value decides IS NULL
	}
	// raw[0] is n for null, which is not a value.
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
	// Without a value the field is NULL; a test with NULL is never false.
	switch {
	case !hasValue:
		return t.evaluate(e, Value{})
	case t.NeverFalse():
		return max(best, Unknown)
	}
	return best
}

// maxUninterrupted limits the bytes of a text times the instructions of a pattern for which REGEXP
// does not check the context: some milliseconds.
const maxUninterrupted = 1 << 20

// instructionsPerStep is the number of instructions of a pattern that take as long as a step.
const instructionsPerStep = 16

// matchRegexp reports whether the pattern matches. A long search ends with the evaluation.
func (t *Test) matchRegexp(e *Evaluation, text string) bool {
	work := len(text) * t.programSize
	if _, plain := t.regexp.LiteralPrefix(); plain || work <= maxUninterrupted || e.ctx == nil {
		e.endedAfter(work / instructionsPerStep)
		return t.regexp.MatchString(text)
	}
	stepsPerRune := 1 + t.programSize/instructionsPerStep
	return t.regexp.MatchReader(&interruptibleText{e: e, text: text, stepsPerRune: stepsPerRune})
}

// interruptibleText is a text that ends early when the evaluation ends.
type interruptibleText struct {
	e            *Evaluation
	text         string
	stepsPerRune int // steps to count for a character
}

// ReadRune returns the next character.
func (r *interruptibleText) ReadRune() (c rune, size int, err error) {
	if r.text == "" || r.e.endedAfter(r.stepsPerRune) {
		return 0, 0, io.EOF
	}
	c, size = utf8.DecodeRuneInString(r.text)
	r.text = r.text[size:]
	return c, size, nil
}

// Sets computes with sets of documents for [Select].
type Sets[S any] interface {
	// Test returns the documents for which a test has the wanted truth, True or False.
	Test(t *Test, wanted Truth) (S, error)
	// All returns the set of all documents, None the empty set.
	All() S
	None() S
	// And and Or may change a, and return it.
	And(a, b S) S
	Or(a, b S) S
}

// Select returns the documents for which a condition is true, from the sets of its tests.
// Implementations of Sets need not know what NULL does to AND, OR and NOT: since a document for
// which a condition is not true may be false or unknown, sets are never complemented; Select only
// intersects and unites the sets of tests. If Test returns too many documents, the result has too
// many, never too few. Select checks the context between tests.
func Select[S any](ctx context.Context, c *Condition, sets Sets[S]) (S, error) {
	return selectNode(ctx, c.root, sets, True)
}

// selectNode returns the documents for which a node has the wanted truth, True or False.
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
		return selectNode(ctx, b.children[0], sets, -wanted)
	}
	// De Morgan: AND is true where all children are true, and false where one of them is false.
	// OR is true where one child is true, and false where all of them are false.
	join := sets.Or
	if (b.join == joinAnd) == (wanted == True) {
		join = sets.And
	}
	result, err := selectNode(ctx, b.children[0], sets, wanted)
	for _, p := range b.children[1:] {
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
