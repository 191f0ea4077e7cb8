package tokenizer

import (
	"bytes"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/encode/tokenizer/internal/chars"
)

// normalizer rewrites w.cur, the text between two added tokens.
type normalizer interface{ normalize(w *scratch) }

// maxDepth limits how deep sequences are nested.
const maxDepth = 8

// newNormalizers reads the part "normalizer" of the file, and flattens sequences.
func newNormalizers(v value, depth int) ([]normalizer, error) {
	if v.absent() {
		return nil, nil
	}
	o, kind, err := v.typedObject()
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
		n = form{compose: true, compatible: true}
	case "NFKD":
		n = form{compatible: true}
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
		s, err = o.read("prepend").stringValue()
		n = prepend{[]byte(s)}
	case "Precompiled":
		n, err = newCharsmap(o)
	default:
		return nil, o.unknownTypeError(kind)
	}
	if err != nil {
		return nil, err
	}
	return []normalizer{n}, o.checkAllRead()
}

// maxGrowth limits how many times longer normalizers may make a text: normalization forms need at most 54
// bytes for a character, but a file may replace characters by any text, several times. minGrowthLimit is the
// limit in bytes for short texts.
const (
	maxGrowth      = 128
	minGrowthLimit = 64 << 10
)

// normalize applies the normalizers to w.cur.
func (t *Tokenizer) normalize(w *scratch) error {
	inputBytes := len(w.cur.text)
	w.maxBytes = max(minGrowthLimit, min(maxGrowth*inputBytes, math.MaxInt32))
	for _, n := range t.normalizers {
		if n.normalize(w); len(w.cur.text) > w.maxBytes {
			return fmt.Errorf("%w: normalizers make more than %d bytes of %d", ErrText, w.maxBytes, inputBytes)
		}
	}
	return nil
}

// newSequence reads the list of steps of a Sequence, each by read, and flattens it.
func newSequence[T any](o object, key string, depth int, read func(value, int) ([]T, error)) ([]T, error) {
	list, err := o.read(key).listValue()
	if err != nil {
		return nil, err
	}
	if depth == maxDepth {
		return nil, o.errorf("sequences are nested more than %d deep", maxDepth)
	}
	var steps []T
	for _, v := range list {
		if v.absent() {
			return nil, v.errorf("is missing, want an object")
		}
		nested, err := read(v, depth+1)
		if err != nil {
			return nil, err
		}
		steps = append(steps, nested...)
	}
	return steps, o.checkAllRead()
}

// visitRunes calls visit for each character of the text, with its offset i, its length n and its
// source.
func (b *buffer) visitRunes(visit func(r rune, i, n int, from span)) {
	for i := 0; i < len(b.text); {
		r, n := utf8.DecodeRune(b.text[i:])
		visit(r, i, n, b.sourceOf(i, i+n))
		i += n
	}
}

// lowercase lowers each character by itself.
type lowercase struct{}

func (lowercase) normalize(w *scratch) {
	out := w.rewrite(&w.normBuffers)
	w.cur.visitRunes(func(r rune, i, n int, from span) {
		if !chars.InfoOf(r).Is(chars.Lowers) {
			out.appendRange(w.cur, i, i+n)
			return
		}
		first, second := chars.Lower(r)
		out.appendRune(first, from)
		if second != 0 {
			out.appendRune(second, from)
		}
	})
	w.cur = out
}

// stripAccents removes combining marks.
type stripAccents struct{}

func (stripAccents) normalize(w *scratch) {
	out := w.rewrite(&w.normBuffers)
	w.cur.visitRunes(func(r rune, i, n int, _ span) {
		if !chars.InfoOf(r).Is(chars.Mark) {
			out.appendRange(w.cur, i, i+n)
		}
	})
	w.cur = out
}

// strip removes white space at the ends.
type strip struct{ left, right bool }

// newStrip reads a Strip.
func newStrip(o object) (n strip, err error) {
	if n.left, err = o.read("strip_left").boolValue(); err == nil {
		n.right, err = o.read("strip_right").boolValue()
	}
	return n, err
}

func (n strip) normalize(w *scratch) {
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
	out := w.rewrite(&w.normBuffers)
	out.appendRange(w.cur, i, j)
	w.cur = out
}

// replace replaces each match by a text.
type replace struct {
	pattern matcher
	content []byte
}

// newReplace reads a Replace.
func newReplace(o object) (n replace, err error) {
	if n.pattern, err = newMatcher(o.read("pattern")); err != nil {
		return n, err
	}
	s, err := o.read("content").stringValue()
	n.content = []byte(s)
	return n, err
}

func (n replace) normalize(w *scratch) {
	var out *buffer
	done := 0
	for done <= len(w.cur.text) {
		i, j := n.pattern.findMatch(w.cur.text, done)
		if i < 0 {
			break
		}
		if out == nil {
			out = w.rewrite(&w.normBuffers)
		}
		out.appendRange(w.cur, done, i)
		out.appendBytes(n.content, w.cur.sourceOf(i, j))
		done = j
		if len(out.text) > w.maxBytes {
			break
		}
	}
	if out != nil {
		out.appendRange(w.cur, done, len(w.cur.text))
		w.cur = out
	}
}

// prepend puts a text before any text that is not empty.
type prepend struct{ text []byte }

func (n prepend) normalize(w *scratch) {
	if len(w.cur.text) == 0 {
		return
	}
	out := w.rewrite(&w.normBuffers)
	out.appendBytes(n.text, w.cur.emptySpanBefore())
	out.appendRange(w.cur, 0, len(w.cur.text))
	w.cur = out
}

// emptySpanBefore returns the empty span before the first character, the source of text that is put there.
func (b *buffer) emptySpanBefore() span {
	if !b.track || len(b.sources) == 0 {
		return span{}
	}
	return span{b.sources[0].start, b.sources[0].start}
}

// form is a normalization form of Unicode, by the tables of chars.
type form struct{ compose, compatible bool }

// normalize rewrites the runs of characters that the form may change, and copies the text between them.
func (n form) normalize(w *scratch) {
	text := w.cur.text
	changing := chars.Joins | chars.Decomposes
	if n.compatible {
		changing |= chars.DecomposesK
	}
	var out *buffer
	done := 0
	for i := 0; i < len(text); {
		if text[i] < utf8.RuneSelf {
			i++
			continue
		}
		r, size := utf8.DecodeRune(text[i:])
		if !chars.InfoOf(r).Is(changing) {
			i += size
			continue
		}
		// The character before may compose with this one. All characters after it belong to the run, up to
		// the next one that the form does not change.
		from := i
		if chars.InfoOf(r).Is(chars.Joins) && from > done {
			_, before := utf8.DecodeLastRune(text[done:from])
			from -= before
		}
		to := i + size
		for to < len(text) && text[to] >= utf8.RuneSelf {
			r, size := utf8.DecodeRune(text[to:])
			if !chars.InfoOf(r).Is(changing) {
				break
			}
			to += size
		}
		if out == nil {
			out = w.rewrite(&w.normBuffers)
		}
		out.appendRange(w.cur, done, from)
		n.normalizeRun(w, out, from, to)
		done, i = to, to
	}
	if out != nil {
		out.appendRange(w.cur, done, len(text))
		w.cur = out
	}
}

// normalizeRun appends a range of w.cur in the form.
func (n form) normalizeRun(w *scratch, out *buffer, from, to int) {
	items := w.items[:0]
	for i := from; i < to; {
		r, size := utf8.DecodeRune(w.cur.text[i:])
		p := w.cur.sourceOf(i, i+size)
		items = chars.AppendDecomposed(items, r, p.start, p.end, n.compatible)
		i += size
	}
	chars.Order(items)
	w.items = items
	if n.compose {
		items = chars.Compose(items)
	}
	for _, it := range items {
		out.appendRune(it.R, span{it.Start, it.End})
	}
}

// matcher finds the next match at or after from. -1, -1 means none.
type matcher interface {
	findMatch(text []byte, from int) (start, end int)
}

// literal matches a text.
type literal struct{ text []byte }

func (m literal) findMatch(text []byte, from int) (int, int) {
	i := bytes.Index(text[from:], m.text)
	if i < 0 {
		return -1, -1
	}
	return from + i, from + i + len(m.text)
}
