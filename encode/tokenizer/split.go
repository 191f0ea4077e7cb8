package tokenizer

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/encode/tokenizer/internal/chars"
)

// behavior is what becomes of the matches at which text is split.
type behavior uint8

const (
	removed behavior = iota
	isolated
	withPrevious
	withNext
	contiguous
)

var behaviors = []string{"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"}

func newBehavior(v value) (behavior, error) {
	s, err := v.str()
	if err != nil {
		return 0, err
	}
	i := slices.Index(behaviors, s)
	if i < 0 {
		return 0, v.faultf("%q is not known", s)
	}
	return behavior(i), nil
}

// splitter splits at matches, or with invert at what lies between them.
type splitter struct {
	what   matcher
	how    behavior
	invert bool
}

func newSplit(o object) (s splitter, err error) {
	if s.what, err = newMatcher(o.get("pattern")); err != nil {
		return s, err
	}
	if s.how, err = newBehavior(o.get("behavior")); err != nil {
		return s, err
	}
	s.invert, err = o.get("invert").bool()
	return s, err
}

// match is a stretch of text; id is that of an added token, -1: none.
type match struct {
	place
	id int32
}

func (s splitter) split(w *work) {
	out := w.next[:0]
	for _, c := range w.cuts {
		out = s.splitPiece(w, out, c)
	}
	w.next, w.cuts = w.cuts, out
}

// splitPiece appends the parts of a cut.
func (s splitter) splitPiece(w *work, out []place, c place) []place {
	text := w.cur.text[:c.end]
	// The last part appended, whether it may grow and whether it was a match.
	matched, open := false, false
	begin := len(out)
	add := func(from, to int, match bool) {
		if from == to {
			return
		}
		p := place{int32(from), int32(to)}
		last := len(out) > begin
		switch {
		case match && s.how == removed:
			return
		case s.how == contiguous && last && match == matched,
			s.how == withPrevious && match && !matched && last,
			s.how == withNext && !match && open:
			out[len(out)-1].end = p.end
		default:
			out = append(out, p)
		}
		open = match // the next that is none may be joined to it
		matched = match
	}
	for at := int(c.start); at < int(c.end); {
		i, j := s.what.find(text, at)
		if i < 0 {
			add(at, int(c.end), s.invert)
			break
		}
		add(at, i, s.invert)
		add(i, j, !s.invert)
		at = j
	}
	return out
}

// class matches a character of a class, or at least so many in a row.
type class struct {
	one   chars.Prop
	char  rune // if one is 0
	least int  // 0: each by itself
}

func (m class) is(r rune) bool {
	if m.one != 0 {
		return chars.InfoOf(r).Is(m.one)
	}
	return r == m.char
}

func (m class) find(text []byte, from int) (int, int) {
	start, n := -1, 0
	for i := from; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		switch {
		case m.is(r):
			if m.least == 0 {
				return i, i + size
			}
			if n == 0 {
				start = i
			}
			n++
		case n >= m.least && n > 0:
			return start, i
		default:
			n = 0
		}
		i += size
	}
	if n >= m.least && n > 0 {
		return start, len(text)
	}
	return -1, -1
}

// words matches \w+ and [^\w\s]+.
type words struct{}

func (words) find(text []byte, from int) (int, int) {
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

// newMatcher reads {"String": s} or {"Regex": s}. Of regular expressions only
// those are known that tokenizer files have.
func newMatcher(v value) (matcher, error) {
	o, err := v.object()
	if err != nil {
		return nil, err
	}
	plain, regex := o.get("String"), o.get("Regex")
	if err := o.rest(); err != nil {
		return nil, err
	}
	if regex.absent() {
		s, err := plain.str()
		if err == nil && s == "" {
			err = plain.faultf("is empty")
		}
		return literal{[]byte(s)}, err
	}
	if !plain.absent() {
		return nil, plain.faultf("stands beside Regex")
	}
	s, err := regex.str()
	if err != nil {
		return nil, err
	}
	if m, ok := scanners[s]; ok {
		return m, nil
	}
	if m, ok := simpleRegex(s); ok {
		return m, nil
	}
	return nil, regex.faultf("pattern %q is not known", s)
}

// simpleRegex knows a character, \s, \p{L} or \p{N}, alone or with + or {n,}, and
// plain text.
func simpleRegex(s string) (matcher, bool) {
	const special = `\.+*?()|[]{}^$#&-~`
	if s != "" && !strings.ContainsAny(s, special) && utf8.RuneCountInString(s) > 1 {
		return literal{[]byte(s)}, true
	}
	var m class
	rest := s
	for _, c := range []struct {
		name string
		prop chars.Prop
	}{{`\s`, chars.Blank}, {`\p{L}`, chars.Letter}, {`\p{N}`, chars.Number}} {
		if strings.HasPrefix(s, c.name) {
			m.one, rest = c.prop, s[len(c.name):]
		}
	}
	if m.one == 0 {
		r, n := utf8.DecodeRuneInString(s)
		if n == 0 || strings.ContainsRune(special, r) {
			return nil, false
		}
		m.char, rest = r, s[n:]
	}
	switch {
	case rest == "":
		return m, true
	case rest == "+":
		m.least = 1
		return m, true
	case strings.HasPrefix(rest, "{") && strings.HasSuffix(rest, ",}"):
		n, err := strconv.Atoi(rest[1 : len(rest)-2])
		m.least = n
		return m, err == nil && n > 0 && n < 1000 && strconv.Itoa(n) == rest[1:len(rest)-2]
	}
	return nil, false
}
