package tokenizer

import (
	"fmt"
	"slices"
	"sync"
	"unicode/utf8"
)

// Tokenizer turns text into ids. It is safe for concurrent use.
type Tokenizer struct {
	vocab          *vocabulary
	raw, mid       *addedSet // found in the text as it stands, and once it is normalized
	normalizers    []normalizer
	preTokenizers  []preTokenizer
	model          model
	kind           string
	prefix, suffix []int32
	places         bool // the pre-tokenizer asks where text came from
	fingerprint    [32]byte

	cache *cache
	pool  sync.Pool // of *work
}

// model appends the tokens of a word, which is not empty.
type model interface {
	encode(w *work, word []byte) error
}

// Token is a piece of a text.
type Token struct {
	ID int32
	// Start and End bound the bytes of the given text that the token was made of:
	// whole characters always, so that two tokens made of parts of one character
	// both have all of it. Tokens of what the tokenizer itself put in, such as a
	// blank before the first word, have an empty range.
	Start, End int
}

// maxText keeps places in 32 bits: one character may become 18, of three bytes.
const maxText = 64 << 20

// Encode is the tokens of a text, without special tokens around it. A text that is
// not valid UTF-8 is [ErrText].
func (t *Tokenizer) Encode(text string) ([]Token, error) {
	w := t.pool.Get().(*work)
	defer t.put(w)
	w.begin(true)
	if err := t.run(w, text); err != nil {
		return nil, err
	}
	tokens := make([]Token, len(w.ids))
	for i, id := range w.ids {
		tokens[i] = Token{id, int(w.places[i].start), int(w.places[i].end)}
	}
	return tokens, nil
}

// EncodeIDs appends the ids that [Tokenizer.Encode] would give to dst. It is
// faster: it remembers words, up to 32,768 of them in 2.5 MiB, and allocates
// little else than dst. On an error dst is returned as it was.
func (t *Tokenizer) EncodeIDs(dst []int32, text string) ([]int32, error) {
	w := t.pool.Get().(*work)
	defer t.put(w)
	w.begin(t.places)
	if err := t.run(w, text); err != nil {
		return dst, err
	}
	return append(dst, w.ids...), nil
}

func (t *Tokenizer) put(w *work) {
	if cap(w.norm[0].text) <= keep && cap(w.ids) <= keep {
		t.pool.Put(w)
	}
}

// run takes a text through all steps.
func (t *Tokenizer) run(w *work, text string) error {
	if len(text) > maxText {
		return fmt.Errorf("%w: it has %d bytes, at most %d are read", ErrText, len(text), maxText)
	}
	in := &w.given
	in.reset(w.track)
	in.text = append(in.text, text...)
	if !utf8.Valid(in.text) {
		at := 0
		for at < len(text) {
			r, n := utf8.DecodeRuneInString(text[at:])
			if r == utf8.RuneError && n == 1 {
				break
			}
			at += n
		}
		return fmt.Errorf("%w: not valid UTF-8 at byte %d", ErrText, at)
	}
	if w.track {
		for i := 0; i < len(in.text); {
			_, n := utf8.DecodeRune(in.text[i:])
			in.mark(n, place{int32(i), int32(i + n)})
			i += n
		}
	}
	w.raw = t.raw.cut(w.raw[:0], in.text)
	for _, m := range w.raw {
		if m.id >= 0 {
			w.token(m.id, m.place)
			continue
		}
		if err := t.segment(w, m.place); err != nil {
			return err
		}
	}
	return nil
}

// token appends a token that stands at a place of the given text.
func (w *work) token(id int32, at place) {
	w.ids = append(w.ids, id)
	if w.track {
		w.places = append(w.places, at)
	}
}

// segment takes what lies between two added tokens through the other steps.
func (t *Tokenizer) segment(w *work, at place) error {
	w.cur = &w.norm[0]
	w.cur.reset(w.track)
	w.cur.copy(&w.given, int(at.start), int(at.end))
	for _, n := range t.normalizers {
		n.normalize(w)
	}
	normal := w.cur
	w.mid = t.mid.cut(w.mid[:0], normal.text)
	for _, m := range w.mid {
		if m.id >= 0 {
			w.token(m.id, normal.placeOf(int(m.start), int(m.end)))
			continue
		}
		w.cur, w.cuts = normal, append(w.cuts[:0], m.place)
		for _, p := range t.preTokenizers {
			p.split(w)
		}
		for _, c := range w.cuts {
			if err := t.word(w, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// word appends the tokens of a word of w.cur.
func (t *Tokenizer) word(w *work, c place) error {
	word, begin := w.cur.text[c.start:c.end], len(w.ids)
	if w.track {
		err := t.model.encode(w, word)
		for i := begin; i < len(w.places); i++ {
			p := w.places[i]
			w.places[i] = w.cur.placeOf(int(c.start+p.start), int(c.start+p.end))
		}
		return err
	}
	if len(word) > cacheWord {
		return t.model.encode(w, word)
	}
	slot := t.cache.slot(word)
	ids, ok := slot.Load().get(w.ids, word)
	if ok {
		w.ids = ids
		return nil
	}
	if err := t.model.encode(w, word); err != nil {
		return err
	}
	if e := newEntry(word, w.ids[begin:]); e != nil {
		slot.Store(e)
	}
	return nil
}

// Prefix is the ids that the file puts before a text: [CLS] or <s>, if it has any.
func (t *Tokenizer) Prefix() []int32 { return slices.Clone(t.prefix) }

// Suffix is the ids that the file puts after a text: [SEP] or </s>, if it has any.
func (t *Tokenizer) Suffix() []int32 { return slices.Clone(t.suffix) }

// ID is the number of a piece or added token, spelled as in the file.
func (t *Tokenizer) ID(token string) (int32, bool) {
	id, ok := t.vocab.ids[token]
	return id, ok
}

// Piece is the piece or added token of an id, spelled as in the file: ##ing, Ġthe,
// ▁the. An id that has none gives "".
func (t *Tokenizer) Piece(id int32) string {
	if id < 0 || int(id) >= len(t.vocab.pieces) {
		return ""
	}
	return t.vocab.pieces[id]
}

// VocabSize is the highest id plus one: an encoder needs so many rows.
func (t *Tokenizer) VocabSize() int { return len(t.vocab.pieces) }

// Kind is the kind of model: WordPiece, BPE or Unigram.
func (t *Tokenizer) Kind() string { return t.kind }

// Fingerprint is a SHA-256 of everything in the file that ids depend on. It is
// the same however the file is laid out, and whatever its truncation, padding
// and decoder.
func (t *Tokenizer) Fingerprint() [32]byte { return t.fingerprint }
