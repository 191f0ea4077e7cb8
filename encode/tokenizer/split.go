package tokenizer

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/encode/tokenizer/internal/chars"
)

// behavior is how text is split at matches.
type behavior uint8

// The behaviors, in the order of behaviors: matches are dropped, are pieces by themselves, belong to
// the piece before or after them, or are joined to adjacent matches.
const (
	removed behavior = iota
	isolated
	withPrevious
	withNext
	contiguous
)

var behaviors = []string{"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"}

// newBehavior reads the name of a behavior.
func newBehavior(v value) (behavior, error) {
	s, err := v.stringValue()
	if err != nil {
		return 0, err
	}
	i := slices.Index(behaviors, s)
	if i < 0 {
		return 0, v.errorf("%q is not known", s)
	}
	return behavior(i), nil
}

// splitter splits at matches of a pattern or, with invert, at the text between them.
type splitter struct {
	pattern  matcher
	behavior behavior
	invert   bool
}

// newSplit reads a Split.
func newSplit(o object) (s splitter, err error) {
	if s.pattern, err = newMatcher(o.read("pattern")); err != nil {
		return s, err
	}
	if s.behavior, err = newBehavior(o.read("behavior")); err != nil {
		return s, err
	}
	s.invert, err = o.read("invert").boolValue()
	return s, err
}

// match is a range of text that is an added token, or has the id -1.
type match struct {
	span
	id int32
}

func (s splitter) split(w *scratch) {
	out := w.nextCuts[:0]
	for _, c := range w.cuts {
		out = s.splitPiece(w, out, c)
	}
	w.nextCuts, w.cuts = w.cuts, out
}

// splitPiece appends the parts of the cut c to out.
func (s splitter) splitPiece(w *scratch, out []span, c span) []span {
	text := w.cur.text[:c.end]
	matched := false // the last part was a match
	begin := len(out)
	add := func(from, to int, match bool) {
		if from == to {
			return
		}
		p := span{int32(from), int32(to)}
		hasLast := len(out) > begin
		switch {
		case match && s.behavior == removed:
			return
		case s.behavior == contiguous && hasLast && match == matched,
			s.behavior == withPrevious && match && !matched && hasLast,
			s.behavior == withNext && !match && matched:
			out[len(out)-1].end = p.end
		default:
			out = append(out, p)
		}
		matched = match
	}
	for next := int(c.start); next < int(c.end); {
		i, j := s.pattern.findMatch(text, next)
		if i < 0 {
			add(next, int(c.end), s.invert)
			break
		}
		add(next, i, s.invert)
		add(i, j, !s.invert)
		next = j
	}
	return out
}

// class matches a character of a class, or a run of at least minRun such characters.
type class struct {
	property chars.Prop
	char     rune // the only character of the class, if one is 0
	minRun   int  // 0 means each character by itself
}

// contains reports whether the class has a character.
func (m class) contains(r rune) bool {
	if m.property != 0 {
		return chars.InfoOf(r).Is(m.property)
	}
	return r == m.char
}

func (m class) findMatch(text []byte, from int) (int, int) {
	start, n := -1, 0
	for i := from; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		switch {
		case m.contains(r):
			if m.minRun == 0 {
				return i, i + size
			}
			if n == 0 {
				start = i
			}
			n++
		case n >= m.minRun && n > 0:
			return start, i
		default:
			n = 0
		}
		i += size
	}
	if n >= m.minRun && n > 0 {
		return start, len(text)
	}
	return -1, -1
}

// wordMatcher matches \w+ and [^\w\s]+.
type wordMatcher struct{}

func (wordMatcher) findMatch(text []byte, from int) (int, int) {
	start, kind := -1, chars.Prop(0)
	for i := from; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		k := chars.Prop(0)
		switch info := chars.InfoOf(r); {
		case info.Is(chars.Word):
			k = chars.Word
		case !info.Is(chars.Space):
			k = chars.Punct
		}
		if start >= 0 && k != kind {
			return start, i
		}
		if start < 0 && k != 0 {
			start, kind = i, k
		}
		i += size
	}
	if start < 0 {
		return -1, -1
	}
	return start, len(text)
}

// newMatcher reads {"String": s} or {"Regex": s}. It supports only the regular expressions
// that tokenizer files have.
func newMatcher(v value) (matcher, error) {
	o, err := v.objectValue()
	if err != nil {
		return nil, err
	}
	plain, regex := o.read("String"), o.read("Regex")
	if err := o.checkAllRead(); err != nil {
		return nil, err
	}
	if regex.absent() {
		s, err := plain.stringValue()
		if err == nil && s == "" {
			err = plain.errorf("is empty")
		}
		return literal{[]byte(s)}, err
	}
	if !plain.absent() {
		return nil, plain.errorf("stands beside Regex")
	}
	s, err := regex.stringValue()
	if err != nil {
		return nil, err
	}
	if m, ok := scanners[s]; ok {
		return m, nil
	}
	if m, ok := simpleRegex(s); ok {
		return m, nil
	}
	return nil, regex.errorf("pattern %q is not known", s)
}

// simpleRegex parses a character, \s, \p{L} or \p{N}, alone or with + or {n,}, and
// plain text. It returns false for other expressions.
func simpleRegex(s string) (matcher, bool) {
	const special = `\.+*?()|[]{}^$#&-~`
	if s != "" && !strings.ContainsAny(s, special) && utf8.RuneCountInString(s) > 1 {
		return literal{[]byte(s)}, true
	}
	var m class
	quantifier := s
	for _, c := range []struct {
		name string
		prop chars.Prop
	}{{`\s`, chars.Blank}, {`\p{L}`, chars.Letter}, {`\p{N}`, chars.Number}} {
		if strings.HasPrefix(s, c.name) {
			m.property, quantifier = c.prop, s[len(c.name):]
		}
	}
	if m.property == 0 {
		r, n := utf8.DecodeRuneInString(s)
		if n == 0 || strings.ContainsRune(special, r) {
			return nil, false
		}
		m.char, quantifier = r, s[n:]
	}
	switch {
	case quantifier == "":
		return m, true
	case quantifier == "+":
		m.minRun = 1
		return m, true
	case strings.HasPrefix(quantifier, "{") && strings.HasSuffix(quantifier, ",}"):
		digits := quantifier[1 : len(quantifier)-2]
		n, err := strconv.Atoi(digits)
		m.minRun = n
		return m, err == nil && n > 0 && n < 1000 && strconv.Itoa(n) == digits
	}
	return nil, false
}
