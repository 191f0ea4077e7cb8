package tokenizer

import (
	"bytes"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/encode/tokenizer/internal/chars"
)

// normalizer rewrites w.cur, a stretch between added tokens.
type normalizer interface{ normalize(w *work) }

// deepest is how many sequences may be one in another.
const deepest = 8

// newNormalizers reads the part "normalizer" of the file; sequences become flat.
func newNormalizers(v value, depth int) ([]normalizer, error) {
	if v.absent() {
		return nil, nil
	}
	o, kind, err := v.typed()
	if err != nil {
		return nil, err
	}
	var n normalizer
	switch kind {
	case "Sequence":
		return newSequence(o, "normalizers", depth, newNormalizers)
	case "BertNormalizer":
		n, err = newBert(o)
	case "NFC":
		n = form{compose: true}
	case "NFD":
		n = form{}
	case "NFKC":
		n = form{compose: true, compat: true}
	case "NFKD":
		n = form{compat: true}
	case "Lowercase":
		n = lowercase{}
	case "StripAccents":
		n = stripAccents{}
	case "Strip":
		n, err = newStrip(o)
	case "Replace":
		n, err = newReplace(o)
	case "Prepend":
		var s string
		s, err = o.get("prepend").str()
		n = prepend{[]byte(s)}
	case "Precompiled":
		n, err = newCharsmap(o)
	default:
		return nil, o.unknown(kind)
	}
	if err != nil {
		return nil, err
	}
	return []normalizer{n}, o.rest()
}

// mostGrowth is how many bytes normalizers may make of one: characters become 54 bytes at most, but files may
// put any text in their places, and do so again and again. Short texts may become leastGrown bytes.
const (
	mostGrowth = 128
	leastGrown = 64 << 10
)

// normalize takes w.cur through the normalizers.
func (t *Tokenizer) normalize(w *work) error {
	given := len(w.cur.text)
	w.most = max(leastGrown, min(mostGrowth*given, math.MaxInt32))
	for _, n := range t.normalizers {
		if n.normalize(w); len(w.cur.text) > w.most {
			return fmt.Errorf("%w: normalizers make more than %d bytes of %d", ErrText, w.most, given)
		}
	}
	return nil
}

// newSequence reads a list of steps.
func newSequence[T any](o object, key string, depth int, read func(value, int) ([]T, error)) ([]T, error) {
	list, err := o.get(key).list()
	if err != nil {
		return nil, err
	}
	if depth == deepest {
		return nil, o.faultf("sequences are nested more than %d deep", deepest)
	}
	var steps []T
	for _, v := range list {
		if v.absent() {
			return nil, v.faultf("is missing, want an object")
		}
		more, err := read(v, depth+1)
		if err != nil {
			return nil, err
		}
		steps = append(steps, more...)
	}
	return steps, o.rest()
}

// visitRunes calls f for the characters of the text with where they came from.
func (b *buffer) visitRunes(f func(r rune, i, n int, from place)) {
	for i := 0; i < len(b.text); {
		r, n := utf8.DecodeRune(b.text[i:])
		f(r, i, n, b.placeOf(i, i+n))
		i += n
	}
}

type lowercase struct{}

func (lowercase) normalize(w *work) {
	out := w.rewrite(&w.norm)
	w.cur.visitRunes(func(r rune, i, n int, from place) {
		if !chars.InfoOf(r).Is(chars.Lowers) {
			out.copy(w.cur, i, i+n)
			return
		}
		first, second := chars.Lower(r)
		out.rune(first, from)
		if second != 0 {
			out.rune(second, from)
		}
	})
	w.cur = out
}

type stripAccents struct{}

func (stripAccents) normalize(w *work) {
	out := w.rewrite(&w.norm)
	w.cur.visitRunes(func(r rune, i, n int, _ place) {
		if !chars.InfoOf(r).Is(chars.Mark) {
			out.copy(w.cur, i, i+n)
		}
	})
	w.cur = out
}

// strip drops white space at the ends.
type strip struct{ left, right bool }

func newStrip(o object) (n strip, err error) {
	if n.left, err = o.get("strip_left").bool(); err == nil {
		n.right, err = o.get("strip_right").bool()
	}
	return n, err
}

func (n strip) normalize(w *work) {
	text := w.cur.text
	i, j := 0, len(text)
	if n.left {
		i = j - len(bytes.TrimLeftFunc(text, isSpace))
	}
	if n.right {
		j = i + len(bytes.TrimRightFunc(text[i:], isSpace))
	}
	if i == 0 && j == len(text) {
		return
	}
	out := w.rewrite(&w.norm)
	out.copy(w.cur, i, j)
	w.cur = out
}

// replace puts a text in place of each match.
type replace struct {
	what    matcher
	content []byte
}

func newReplace(o object) (n replace, err error) {
	if n.what, err = newMatcher(o.get("pattern")); err != nil {
		return n, err
	}
	s, err := o.get("content").str()
	n.content = []byte(s)
	return n, err
}

func (n replace) normalize(w *work) {
	var out *buffer
	done := 0
	for done <= len(w.cur.text) {
		i, j := n.what.find(w.cur.text, done)
		if i < 0 {
			break
		}
		if out == nil {
			out = w.rewrite(&w.norm)
		}
		out.copy(w.cur, done, i)
		out.bytes(n.content, w.cur.placeOf(i, j))
		done = j
		if len(out.text) > w.most {
			break
		}
	}
	if out != nil {
		out.copy(w.cur, done, len(w.cur.text))
		w.cur = out
	}
}

// prepend puts a text before what is not empty.
type prepend struct{ what []byte }

func (n prepend) normalize(w *work) {
	if len(w.cur.text) == 0 {
		return
	}
	out := w.rewrite(&w.norm)
	out.bytes(n.what, w.cur.before())
	out.copy(w.cur, 0, len(w.cur.text))
	w.cur = out
}

// before is the empty place in front of the first character, where what is put
// before it stands.
func (b *buffer) before() place {
	if !b.track || len(b.src) == 0 {
		return place{}
	}
	return place{b.src[0].start, b.src[0].start}
}

// form is one of the normalization forms of Unicode, with the tables of chars.
type form struct{ compose, compat bool }

func (n form) normalize(w *work) {
	text := w.cur.text
	moves := chars.Joins | chars.Decomposes
	if n.compat {
		moves |= chars.DecomposesK
	}
	var out *buffer
	done := 0
	for i := 0; i < len(text); {
		if text[i] < utf8.RuneSelf {
			i++
			continue
		}
		r, size := utf8.DecodeRune(text[i:])
		if !chars.InfoOf(r).Is(moves) {
			i += size
			continue
		}
		// What stands before may be joined with this; what comes after, up to the
		// next character that begins anew, belongs to it.
		from := i
		if chars.InfoOf(r).Is(chars.Joins) && from > done {
			_, before := utf8.DecodeLastRune(text[done:from])
			from -= before
		}
		to := i + size
		for to < len(text) && text[to] >= utf8.RuneSelf {
			r, size := utf8.DecodeRune(text[to:])
			if !chars.InfoOf(r).Is(moves) {
				break
			}
			to += size
		}
		if out == nil {
			out = w.rewrite(&w.norm)
		}
		out.copy(w.cur, done, from)
		n.stretch(w, out, from, to)
		done, i = to, to
	}
	if out != nil {
		out.copy(w.cur, done, len(text))
		w.cur = out
	}
}

// stretch appends a range of w.cur in the form.
func (n form) stretch(w *work, out *buffer, from, to int) {
	items := w.items[:0]
	for i := from; i < to; {
		r, size := utf8.DecodeRune(w.cur.text[i:])
		p := w.cur.placeOf(i, i+size)
		items = chars.AppendDecomposed(items, r, p.start, p.end, n.compat)
		i += size
	}
	chars.Order(items)
	w.items = items
	if n.compose {
		items = chars.Compose(items)
	}
	for _, it := range items {
		out.rune(it.R, place{it.Start, it.End})
	}
}

// matcher finds the next match at or after from; -1, -1: none.
type matcher interface {
	find(text []byte, from int) (start, end int)
}

type literal struct{ what []byte }

func (m literal) find(text []byte, from int) (int, int) {
	i := bytes.Index(text[from:], m.what)
	if i < 0 {
		return -1, -1
	}
	return from + i, from + i + len(m.what)
}
