package tokenizer

import (
	"slices"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/encode/tokenizer/internal/chars"
)

// place is a range of bytes: of the text as it was given, of a buffer or of a word.
type place struct{ start, end int32 }

// buffer is text on its way. Where places are wanted it knows for each byte
// which bytes of the given text it came from: those of a whole character at
// least.
type buffer struct {
	track bool
	text  []byte
	src   []place
}

func (b *buffer) reset(track bool) {
	b.track, b.text, b.src = track, b.text[:0], b.src[:0]
}

// grow makes room for n bytes at once: append, called for one byte after another, takes several times
// the memory of a long text.
func (b *buffer) grow(n int) {
	b.text = slices.Grow(b.text, n)
	if b.track {
		b.src = slices.Grow(b.src, n)
	}
}

// bytes appends text that came from one place.
func (b *buffer) bytes(p []byte, from place) {
	b.text = append(b.text, p...)
	b.mark(len(p), from)
}

// rune appends a character that came from one place.
func (b *buffer) rune(r rune, from place) {
	n := len(b.text)
	b.text = utf8.AppendRune(b.text, r)
	b.mark(len(b.text)-n, from)
}

func (b *buffer) mark(n int, from place) {
	if b.track {
		for range n {
			b.src = append(b.src, from)
		}
	}
}

// copy appends a range of another buffer.
func (b *buffer) copy(in *buffer, from, to int) {
	b.text = append(b.text, in.text[from:to]...)
	if b.track {
		b.src = append(b.src, in.src[from:to]...)
	}
}

// placeOf is where a range came from.
func (b *buffer) placeOf(i, j int) place {
	if !b.track || i >= j {
		return place{}
	}
	p := b.src[i]
	for _, s := range b.src[i+1 : j] {
		p.start, p.end = min(p.start, s.start), max(p.end, s.end)
	}
	return p
}

// work is what one call needs; calls take turns with it.
type work struct {
	track  bool
	ids    []int32
	places []place // as many as ids if track; while a word is encoded, within it

	given   buffer
	lowered buffer
	norm    [2]buffer // normalizers write them in turn
	most    int       // bytes that normalizers may make of a text; they may stop beyond them
	split   [2]buffer // pre-tokenizers that rewrite text write them in turn
	cur     *buffer
	cuts    []place // of cur: what is between added tokens, then words
	next    []place
	raw     []match // added tokens of the text
	mid     []match // added tokens of normalized text

	items []chars.Item
	bpe   bpeScratch
	paths []path
	ends  []place
}

// keep is the size in bytes of buffers that outlive a call.
const keep = 1 << 20

func (w *work) begin(track bool) {
	w.ids, w.places, w.track = w.ids[:0], w.places[:0], track
}

// rewrite is the buffer to write next of a pair.
func (w *work) rewrite(pair *[2]buffer) *buffer {
	b := &pair[0]
	if w.cur == b {
		b = &pair[1]
	}
	b.reset(w.track)
	b.grow(len(w.cur.text))
	return b
}

// token appends a token that stands at a place: of the given text, or of the word under way.
func (w *work) token(id int32, at place) {
	w.ids = append(w.ids, id)
	if w.track {
		w.places = append(w.places, at)
	}
}

// emit appends a token that stands at from to to of the word.
func (w *work) emit(id int32, from, to int) { w.token(id, place{int32(from), int32(to)}) }

// cut takes back the tokens from n on.
func (w *work) cut(n int) {
	w.places = w.places[:len(w.places)-min(len(w.places), len(w.ids)-n)]
	w.ids = w.ids[:n]
}
