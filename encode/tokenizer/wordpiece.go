package tokenizer

import "unicode/utf8"

// wordPiece takes the longest piece that a word begins with, then the longest
// continuation, and so on; a word that cannot be finished is one unknown token.
type wordPiece struct {
	trie    *trie
	inside  uint32 // the trie's node below which continuations are
	unknown int32
	longest int // words of more characters are unknown
}

func (m *wordPiece) encode(w *work, word []byte) error {
	if len(word) > m.longest && utf8.RuneCount(word) > m.longest {
		w.emit(m.unknown, 0, len(word))
		return nil
	}
	begin, node := len(w.ids), uint32(0)
	for at := 0; at < len(word); {
		id, n := m.trie.longest(node, word[at:])
		if n == 0 {
			w.cut(begin)
			w.emit(m.unknown, 0, len(word))
			return nil
		}
		w.emit(id, at, at+n)
		at += n
		node = m.inside
	}
	return nil
}

// newWordPiece reads the part "model" of the file.
func newWordPiece(o object, v *vocabulary) (*wordPiece, error) {
	unknown, err := o.get("unk_token").strOr("[UNK]")
	if err != nil {
		return nil, err
	}
	prefix, err := o.get("continuing_subword_prefix").strOr("##")
	if err != nil {
		return nil, err
	}
	m := &wordPiece{longest: 100}
	if most := o.get("max_input_chars_per_word"); !most.absent() {
		if m.longest, err = most.int(); err != nil {
			return nil, err
		}
		if m.longest < 0 {
			return nil, most.faultf("is %d", m.longest)
		}
	}
	if err := v.readMap(o.get("vocab")); err != nil {
		return nil, err
	}
	id, ok := v.ids[unknown]
	if !ok {
		return nil, faultf(o.field+".unk_token", "%q is not in the vocabulary", unknown)
	}
	m.unknown = id
	// Two tries in one: below the root all pieces as they are, below a node that
	// no piece leads to (NUL, then a byte that is not in UTF-8) the continuations.
	m.trie = newTrie(2*v.bytes + 2)
	fits := m.trie.insert(0, "\x00\xff", -1)
	m.inside = m.trie.step(m.trie.step(0, 0), 0xff)
	for piece, id := range v.ids {
		fits = fits && m.trie.insert(0, piece, id)
		if rest := len(piece) - len(prefix); rest > 0 && piece[:len(prefix)] == prefix {
			fits = fits && m.trie.insert(m.inside, piece[len(prefix):], id)
		}
	}
	if !fits {
		return nil, faultf(o.field+".vocab", "is too large")
	}
	return m, nil
}
