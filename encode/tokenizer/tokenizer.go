// Package tokenizer converts text to the ids that an encoder was trained on.
//
// # The file
//
// [Read] reads the file tokenizer.json that the Python package "tokenizers"
// writes, with one of three models: WordPiece (BERT), byte-level or plain BPE
// (ModernBERT, RoBERTa), unigram (XLM-R). The ids of every text are those of that
// package. An unknown setting in the file is an error
// that names its place ([*Error]), because a tokenizer that is nearly right
// leads to vectors that are wrong without notice. Of truncation and padding it
// reads only the sides, since the encoder decides about lengths. It ignores the decoder.
//
// # From text to ids
//
// A text passes through five steps, after [Tokenizer.LowerFirst] may have lowered it:
//
//  1. Added tokens that are not normalized, such as [MASK], are cut out.
//  2. The normalizer rewrites the text between them.
//  3. Added tokens that are normalized are cut out.
//  4. The pre-tokenizer splits the remaining text into words.
//  5. The model splits each word into pieces, whose numbers are the ids.
//
// [Tokenizer.EncodeIDs] returns only ids, and caches frequent words;
// [Tokenizer.Encode] also returns each token's range in the text. Neither adds
// special tokens: [Tokenizer.Prefix] and [Tokenizer.Suffix] return those that the file's
// post-processor puts around a text.
//
// # Unicode
//
// The classes of characters, and how they are normalized, come
// from tables that were generated with the Python package; the package internal/chars
// explains why.
package tokenizer

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"unicode/utf8"
)

// Tokenizer converts text to ids. It is safe for concurrent use.
type Tokenizer struct {
	vocab                     *vocabulary
	added                     []addedToken
	rawAdded, normalizedAdded *addedSet // found in the input, and in normalized text
	normalizers               []normalizer
	preTokenizers             []preTokenizer
	model                     model
	kind                      string
	prefix, suffix            []int32
	needsSources              bool      // the pre-tokenizer reads the sources of text
	lowers                    bool      // texts are lowered before anything else
	sides                     [2]string // the sides at which the file pads and cuts texts
	hasTypes                  bool      // the template has token types other than 0
	settings                  []byte    // the model as JSON, without its pieces and merges
	fingerprint               [32]byte

	cache *cache
	pool  sync.Pool // of *scratch
}

// model appends the tokens of a word, which is not empty, to w.
type model interface {
	encode(w *scratch, word []byte) error
}

// Token is a piece of a text.
type Token struct {
	ID int32
	// Start and End bound the bytes of the text that the token was made from:
	// always whole characters, so that two tokens of parts of one character
	// both have all of it. Tokens of text that the tokenizer added, such as a
	// blank before the first word, have an empty range.
	Start, End int
}

// maxText keeps spans in 32 bits: one character may become 18 characters of three bytes.
const maxText = 64 << 20

// Encode returns the tokens of a text, without special tokens around it. A text that is
// not valid UTF-8 is an [ErrText].
func (t *Tokenizer) Encode(text string) ([]Token, error) {
	w := t.pool.Get().(*scratch)
	defer t.release(w)
	w.reset(true)
	if err := t.tokenize(w, text); err != nil {
		return nil, err
	}
	tokens := make([]Token, len(w.ids))
	for i, id := range w.ids {
		tokens[i] = Token{id, int(w.spans[i].start), int(w.spans[i].end)}
	}
	return tokens, nil
}

// EncodeIDs appends the ids that [Tokenizer.Encode] would return to dst. It is
// faster: it caches up to 32,768 words in 2.5 MiB, and allocates
// little except dst. After an error it returns dst unchanged.
func (t *Tokenizer) EncodeIDs(dst []int32, text string) ([]int32, error) {
	w := t.pool.Get().(*scratch)
	defer t.release(w)
	w.reset(t.needsSources)
	if err := t.tokenize(w, text); err != nil {
		return dst, err
	}
	return append(dst, w.ids...), nil
}

// release returns w to the pool, unless a long text made it large.
func (t *Tokenizer) release(w *scratch) {
	if cap(w.normBuffers[0].text) <= maxPooledBytes && cap(w.ids) <= maxPooledBytes {
		t.pool.Put(w)
	}
}

// tokenize applies all steps to a text, and leaves the tokens in w.
func (t *Tokenizer) tokenize(w *scratch, text string) error {
	if len(text) > maxText {
		return fmt.Errorf("%w: it has %d bytes, at most %d are read", ErrText, len(text), maxText)
	}
	in := &w.input
	in.reset(w.track)
	in.text = append(in.text, text...)
	if !utf8.Valid(in.text) {
		offset := 0
		for offset < len(text) {
			r, n := utf8.DecodeRuneInString(text[offset:])
			if r == utf8.RuneError && n == 1 {
				break
			}
			offset += n
		}
		return fmt.Errorf("%w: not valid UTF-8 at byte %d", ErrText, offset)
	}
	if w.track {
		in.sources = slices.Grow(in.sources, len(in.text))
		for i := 0; i < len(in.text); {
			_, n := utf8.DecodeRune(in.text[i:])
			in.appendSource(n, span{int32(i), int32(i + n)})
			i += n
		}
	}
	if t.lowers {
		w.lowerInput()
	}
	w.rawMatches = t.rawAdded.splitText(w.rawMatches[:0], in.text)
	for _, m := range w.rawMatches {
		if m.id >= 0 {
			w.appendToken(m.id, in.sourceOf(int(m.start), int(m.end)))
			continue
		}
		if err := t.segment(w, m.span); err != nil {
			return err
		}
	}
	return nil
}

// segment applies steps 2 to 5 to the text between two added tokens.
func (t *Tokenizer) segment(w *scratch, text span) error {
	w.cur = &w.normBuffers[0]
	w.cur.reset(w.track)
	w.cur.appendRange(&w.input, int(text.start), int(text.end))
	if err := t.normalize(w); err != nil {
		return err
	}
	normal := w.cur
	w.normalizedMatches = t.normalizedAdded.splitText(w.normalizedMatches[:0], normal.text)
	for _, m := range w.normalizedMatches {
		if m.id >= 0 {
			w.appendToken(m.id, normal.sourceOf(int(m.start), int(m.end)))
			continue
		}
		w.cur, w.cuts = normal, append(w.cuts[:0], m.span)
		for _, p := range t.preTokenizers {
			p.split(w)
		}
		w.ids = slices.Grow(w.ids, len(w.cuts))
		if w.track {
			w.spans = slices.Grow(w.spans, len(w.cuts))
		}
		for _, c := range w.cuts {
			if err := t.tokenizeWord(w, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// tokenizeWord appends the tokens of a word of w.cur. Without spans, it uses the cache.
func (t *Tokenizer) tokenizeWord(w *scratch, c span) error {
	word, begin := w.cur.text[c.start:c.end], len(w.ids)
	if w.track {
		err := t.model.encode(w, word)
		for i := begin; i < len(w.spans); i++ {
			p := w.spans[i]
			w.spans[i] = w.cur.sourceOf(int(c.start+p.start), int(c.start+p.end))
		}
		return err
	}
	if len(word) > maxCachedWord {
		return t.model.encode(w, word)
	}
	slot := t.cache.slotOf(word)
	ids, ok := slot.Load().appendIDs(w.ids, word)
	if ok {
		w.ids = ids
		return nil
	}
	if err := t.model.encode(w, word); err != nil {
		return err
	}
	if e := newCachedWord(word, w.ids[begin:]); e != nil {
		slot.Store(e)
	}
	return nil
}

// LowerFirst makes the tokenizer lower texts as Python's str.lower does, before it searches for added
// tokens, so that "[MASK]" in a text is not a token. Call it before the tokenizer is used.
func (t *Tokenizer) LowerFirst() { t.lowers = true }

// RemoveTokensFrom removes and returns the added tokens with ids from n on, for which the encoder has no embeddings:
// they are tokenized like other text. ok is false if another id is not below n. Call it before the
// tokenizer is used.
func (t *Tokenizer) RemoveTokensFrom(n int) (tokens []string, ok bool) {
	isBeyond := func(id int32) bool { return int(id) >= n }
	if t.vocab.size > n || slices.ContainsFunc(slices.Concat(t.prefix, t.suffix), isBeyond) {
		return nil, false
	}
	t.added = slices.DeleteFunc(t.added, func(a addedToken) bool {
		beyond := isBeyond(a.id)
		if beyond {
			tokens = append(tokens, a.content)
			delete(t.vocab.ids, a.content)
		}
		return beyond
	})
	t.vocab.pieces = t.vocab.pieces[:min(n, len(t.vocab.pieces))]
	return tokens, t.buildAddedSets("") == nil
}

// Prefix returns the ids that the file puts before a text, such as those of [CLS] or <s>.
func (t *Tokenizer) Prefix() []int32 { return slices.Clone(t.prefix) }

// Suffix returns the ids that the file puts after a text, such as those of [SEP] or </s>.
func (t *Tokenizer) Suffix() []int32 { return slices.Clone(t.suffix) }

// IDsAround returns the number of ids of Prefix and Suffix together.
func (t *Tokenizer) IDsAround() int { return len(t.prefix) + len(t.suffix) }

// AddedToken is a token of the file's part "added_tokens".
type AddedToken struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// Added returns the added tokens, in the order of the file.
func (t *Tokenizer) Added() []AddedToken {
	var tokens []AddedToken
	for _, a := range t.added {
		tokens = append(tokens, AddedToken{
			ID:         a.id,
			Content:    a.content,
			SingleWord: a.singleWord,
			LStrip:     a.lstrip,
			RStrip:     a.rstrip,
			Normalized: a.normalized,
			Special:    a.special,
		})
	}
	return tokens
}

// Sides returns the sides at which the file pads and cuts texts: "left", "right", or "" if it does not
// say.
func (t *Tokenizer) Sides() (padding, truncation string) { return t.sides[0], t.sides[1] }

// HasTokenTypes reports whether the file sets a token type other than 0 for a text or the tokens around it.
func (t *Tokenizer) HasTokenTypes() bool { return t.hasTypes }

// ID returns the id of a piece or added token, spelled as in the file.
func (t *Tokenizer) ID(token string) (int32, bool) {
	id, ok := t.vocab.ids[token]
	return id, ok
}

// Piece returns the piece or added token of an id, spelled as in the file: ##ing, Ġthe,
// ▁the. It returns "" for an unknown id.
func (t *Tokenizer) Piece(id int32) string {
	if id < 0 || int(id) >= len(t.vocab.pieces) {
		return ""
	}
	return t.vocab.pieces[id]
}

// Unknown returns the id of the unknown token. ok is false if the model
// has none, such as a byte-level model.
func (t *Tokenizer) Unknown() (id int32, ok bool) {
	id = -1
	switch m := t.model.(type) {
	case *wordPiece:
		id = m.unknown
	case *bpe:
		id = m.unknown
	case *unigram:
		id = m.unknown
	}
	return id, id >= 0
}

// MaxWordLength returns the maximum length, in normalized characters, of words that the model splits into
// pieces. A longer word becomes one unknown token. 0 means any length.
func (t *Tokenizer) MaxWordLength() int {
	if m, ok := t.model.(*wordPiece); ok {
		return m.maxWordLength
	}
	return 0
}

// VocabSize returns the highest id plus one, the number of rows that an encoder needs.
func (t *Tokenizer) VocabSize() int { return len(t.vocab.pieces) }

// Kind returns the kind of model: WordPiece, BPE or Unigram.
func (t *Tokenizer) Kind() string { return t.kind }

// Fingerprint returns a SHA-256 of everything in the file that ids depend on. The
// layout of the file, its truncation, its padding and its decoder do not change it.
func (t *Tokenizer) Fingerprint() [32]byte { return t.fingerprint }

// Errors of this package. Test for them with errors.Is.
var (
	// ErrTokenizer reports a tokenizer.json that is damaged, or has an unknown setting.
	ErrTokenizer = errors.New("tokenizer is not understood")
	// ErrText reports a text that cannot be tokenized.
	ErrText = errors.New("text cannot be tokenized")
)

// Error is an error of a tokenizer.json, with its place. It wraps [ErrTokenizer].
type Error struct {
	Path  string // the file. "" means that it was not read from a file
	Field string // the path in the file, like pre_tokenizer.pretokenizers[1].type. "" means the whole file
	Err   error
}

// Error reads like: m/tokenizer.json: normalizer.type: "Nmt" is not known.
func (e *Error) Error() string {
	msg := ""
	for _, s := range []string{e.Path, e.Field} {
		if s != "" {
			msg += s + ": "
		}
	}
	return msg + e.Err.Error()
}

// Unwrap returns ErrTokenizer and the cause.
func (e *Error) Unwrap() []error { return []error{ErrTokenizer, e.Err} }

// errorf returns an error of a field.
func errorf(field, format string, args ...any) *Error {
	return &Error{Field: field, Err: fmt.Errorf(format, args...)}
}
