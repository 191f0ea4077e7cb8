package tokenizer

import (
	"slices"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/encode/tokenizer/internal/chars"
)

// span is a range of bytes: of the input, of a buffer or of a word.
type span struct{ start, end int32 }

// buffer is text between two steps. If track is set, it has for each byte its source, the
// bytes of the input that it was made from: at least those of a whole character.
type buffer struct {
	track   bool
	text    []byte
	sources []span // one for each byte of text, if track
}

func (b *buffer) reset(track bool) {
	b.track, b.text, b.sources = track, b.text[:0], b.sources[:0]
}

// growBy makes room for n bytes at once: appending byte by byte would take several times
// the memory of a long text.
func (b *buffer) growBy(n int) {
	b.text = slices.Grow(b.text, n)
	if b.track {
		b.sources = slices.Grow(b.sources, n)
	}
}

// appendBytes appends text with one source.
func (b *buffer) appendBytes(p []byte, from span) {
	b.text = append(b.text, p...)
	b.appendSource(len(p), from)
}

// appendRune appends a character with its source.
func (b *buffer) appendRune(r rune, from span) {
	n := len(b.text)
	b.text = utf8.AppendRune(b.text, r)
	b.appendSource(len(b.text)-n, from)
}

// appendSource appends the source of n bytes.
func (b *buffer) appendSource(n int, from span) {
	if b.track {
		for range n {
			b.sources = append(b.sources, from)
		}
	}
}

// appendRange appends a range of another buffer.
func (b *buffer) appendRange(in *buffer, from, to int) {
	b.text = append(b.text, in.text[from:to]...)
	if b.track {
		b.sources = append(b.sources, in.sources[from:to]...)
	}
}

// sourceOf returns the source of a range: the span from the first to the last byte of its sources.
func (b *buffer) sourceOf(i, j int) span {
	if !b.track || i >= j {
		return span{}
	}
	p := b.sources[i]
	for _, s := range b.sources[i+1 : j] {
		p.start, p.end = min(p.start, s.start), max(p.end, s.end)
	}
	return p
}

// scratch is the memory of one call, for reuse by later calls.
type scratch struct {
	track bool
	ids   []int32
	spans []span // of each id, if track: in the input, or in the word while it is encoded

	input             buffer    // the input
	lowered           buffer    // the lowered input
	normBuffers       [2]buffer // normalizers write them alternately
	maxBytes          int       // the limit in bytes of normalized text, beyond which a normalizer may stop
	splitBuffers      [2]buffer // pre-tokenizers that rewrite text write them alternately
	cur               *buffer   // the text so far
	cuts              []span    // of cur: the text between added tokens, then words
	nextCuts          []span    // the cuts of the next step
	rawMatches        []match   // added tokens of the input
	normalizedMatches []match   // added tokens of normalized text

	items []chars.Item
	bpe   bpeScratch
	paths []bestPath
	ends  []span
}

// maxPooledBytes is the size in bytes of the largest buffers that are kept after a call.
const maxPooledBytes = 1 << 20

func (w *scratch) reset(track bool) {
	w.ids, w.spans, w.track = w.ids[:0], w.spans[:0], track
}

// rewrite returns the buffer of a pair that is not current, emptied, to write the next text.
func (w *scratch) rewrite(pair *[2]buffer) *buffer {
	b := &pair[0]
	if w.cur == b {
		b = &pair[1]
	}
	b.reset(w.track)
	b.growBy(len(w.cur.text))
	return b
}

// appendToken appends a token with its span in the input, or in the word that is encoded.
func (w *scratch) appendToken(id int32, at span) {
	w.ids = append(w.ids, id)
	if w.track {
		w.spans = append(w.spans, at)
	}
}

// appendWordToken appends a token of the bytes from from to to of the word.
func (w *scratch) appendWordToken(id int32, from, to int) {
	w.appendToken(id, span{int32(from), int32(to)})
}

// truncate removes the tokens from n on.
func (w *scratch) truncate(n int) {
	w.spans = w.spans[:len(w.spans)-min(len(w.spans), len(w.ids)-n)]
	w.ids = w.ids[:n]
}
