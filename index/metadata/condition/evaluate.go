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
	ctx   context.Context // nil: without end
	steps int             // until the context is asked
	err   error
}

// askAfter is how many steps are between two looks at the context.
const askAfter = 1 << 14

// NewEvaluation returns one that ends with a context.
func NewEvaluation(ctx context.Context) *Evaluation { return &Evaluation{ctx: ctx, steps: askAfter} }

// Document reads a payload, which is kept and not to be changed, for as long as the context
// goes on. If Err is not nil afterwards, what the document was asked for means nothing.
func (e *Evaluation) Document(payload []byte, id string, ordinal uint32) *Record {
	return &Record{id: id, ordinal: ordinal, raw: payload, e: e}
}

// Err looks at the context, unless it is known to have ended.
func (e *Evaluation) Err() error {
	e.ended(e.steps)
	return e.err
}

// ended reports, after so many steps, whether the context has ended. It has not where
// there is no evaluation.
func (e *Evaluation) ended(steps int) bool {
	if e == nil {
		return false
	}
	if e.steps -= steps; e.steps <= 0 && e.ctx != nil && e.err == nil {
		e.steps, e.err = askAfter, e.ctx.Err()
	}
	return e.err != nil
}

// Match tells whether a condition is true of a document. The error is that of the
// context.
func (e *Evaluation) Match(c *Condition, d *Record) (bool, error) {
	truth := c.root.truth(e, d)
	return truth == True && e.err == nil, e.err
}

// Truth is the value of a test for a value of its field. The error is that of the
// context.
func (e *Evaluation) Truth(t *Test, v Value) (Truth, error) {
	e.ended(1)
	return t.truth(e, v), e.err
}

// truth means nothing once the context has ended.
func (b *bound) truth(e *Evaluation, d *Record) Truth {
	switch b.join {
	case joinNot:
		return -b.parts[0].truth(e, d)
	case joinAnd: // the least of its parts
		least := True
		for _, p := range b.parts {
			if least = min(least, p.truth(e, d)); least == False || e.err != nil {
				break
			}
		}
		return least
	case joinOr:
		most := False
		for _, p := range b.parts {
			if most = max(most, p.truth(e, d)); most == True || e.err != nil {
				break
			}
		}
		return most
	}
	if b.test.op == opConstant {
		return truthOf(b.test.constant)
	}
	return b.test.holds(e, d)
}

// holds is the value of the test for a document. What is read counts as a step for each byte.
func (t *Test) holds(e *Evaluation, d *Record) Truth {
	switch t.Field {
	case FieldID:
		return t.truth(e, textValue(d.id))
	case FieldOrdinal:
		return t.truth(e, intValue(int64(d.ordinal)))
	}
	if !d.opened && e.ended(len(d.raw)) {
		return Unknown
	}
	there, most := false, False
	value := func(v Value) bool {
		e.ended(1 + len(v.Text))
		there = true
		most = max(most, t.truth(e, v))
		return most < True && t.op != opIsNull
	}
	element := func(raw []byte) bool { return raw[0] == 'n' || value(validJSON(e, raw)) }
	d.find(t.path, func(m *member) bool {
		switch {
		case m.raw[0] == 'n':
			return true
		case m.raw[0] != '[' || t.op == opIsNull:
			return value(m.valueOf(e))
		case t.whole && !value(m.valueOf(e)):
			return false
		}
		there = true
		return eachElement(e, m.raw, element)
	})
	switch {
	case !there:
		return t.truth(e, Value{})
	case t.Never():
		return max(most, Unknown)
	}
	return most
}

// searchedAtOnce bounds the bytes of a text, times the instructions of a pattern, for
// which REGEXP does not look at the context: some milliseconds.
const searchedAtOnce = 1 << 20

func (t *Test) finds(e *Evaluation, text string) bool {
	work := len(text) * t.program
	if _, plain := t.regexp.LiteralPrefix(); plain || work <= searchedAtOnce || e.ctx == nil {
		e.ended(work / 16)
		return t.regexp.MatchString(text)
	}
	return t.regexp.MatchReader(&endingText{e: e, text: text, steps: 1 + t.program/16})
}

// endingText is a text that ends when the context does.
type endingText struct {
	e     *Evaluation
	text  string
	steps int // for a character
}

// ReadRune returns the next character.
func (r *endingText) ReadRune() (c rune, size int, err error) {
	if r.text == "" || r.e.ended(r.steps) {
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

func selectNode[S any](ctx context.Context, b *bound, sets Sets[S], is Truth) (S, error) {
	switch b.join {
	case "":
		if err := ctx.Err(); err != nil {
			return sets.None(), err
		}
		if b.test.op != opConstant {
			return sets.Test(b.test, is)
		}
		if truthOf(b.test.constant) == is {
			return sets.All(), nil
		}
		return sets.None(), nil
	case joinNot:
		return selectNode(ctx, b.parts[0], sets, -is)
	}
	join := sets.Or // one part that is false makes AND false
	if (b.join == joinAnd) == (is == True) {
		join = sets.And
	}
	all, err := selectNode(ctx, b.parts[0], sets, is)
	for _, p := range b.parts[1:] {
		if err != nil {
			return all, err
		}
		var s S
		if s, err = selectNode(ctx, p, sets, is); err == nil {
			all = join(all, s)
		}
	}
	return all, err
}
