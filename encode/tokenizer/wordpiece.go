package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"sync/atomic"
	"unicode/utf8"
)

// maxID is the highest id that is read: pieces are kept in a slice.
const maxID = 1<<24 - 1

// vocabulary is the pieces of the model, later with the added tokens.
type vocabulary struct {
	ids    map[string]int32
	pieces []string // by id; an id without a piece has an empty one
	bytes  int      // of all pieces together
	size   int      // number of the model's pieces, before tokens are added
}

// readMap reads a vocabulary of pieces to ids.
func (v *vocabulary) readMap(o value) error {
	if err := o.into(&v.ids, "an object of pieces and their ids"); err != nil {
		return err
	}
	top := int32(-1)
	for piece, id := range v.ids {
		if id < 0 || id > maxID || int(id) > 2*len(v.ids)+1<<16 {
			return o.faultf("piece %q has id %d, which %d pieces do not need", piece, id, len(v.ids))
		}
		top = max(top, id)
		v.bytes += len(piece)
	}
	v.size = len(v.ids)
	v.pieces = make([]string, top+1)
	taken := make([]bool, top+1)
	for piece, id := range v.ids {
		if taken[id] {
			return o.faultf("pieces %q and %q have id %d", min(piece, v.pieces[id]), max(piece, v.pieces[id]), id)
		}
		taken[id], v.pieces[id] = true, piece
	}
	return nil
}

// add gives a piece beyond the model's its id.
func (v *vocabulary) add(piece string, id int32) {
	v.ids[piece] = id
	for int(id) >= len(v.pieces) {
		v.pieces = append(v.pieces, "")
	}
	v.pieces[id] = piece
}

// bytePieces are the ids of the pieces <0x00> to <0xFF>, −1 for what is not there.
func (v *vocabulary) bytePieces() *[256]int32 {
	var ids [256]int32
	for b := range ids {
		id, ok := v.ids[fmt.Sprintf("<0x%02X>", b)]
		if ids[b] = id; !ok {
			ids[b] = -1
		}
	}
	return &ids
}

// scored is a piece of a unigram vocabulary: ["piece", -1.5].
type scored struct {
	piece string
	score float64
}

// UnmarshalJSON reads the pair.
func (s *scored) UnmarshalJSON(b []byte) error {
	var pair []json.RawMessage
	if err := json.Unmarshal(b, &pair); err != nil {
		return err
	}
	if len(pair) != 2 {
		return errors.New("not a pair")
	}
	if err := json.Unmarshal(pair[0], &s.piece); err != nil {
		return err
	}
	return json.Unmarshal(pair[1], &s.score)
}

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

const (
	cacheSlots = 1 << 15
	cacheWord  = 30 // bytes of the longest word that is remembered
	cacheIDs   = 9  // most ids of such a word
)

// cache remembers the ids of words. A word has one place, where the last one
// to come there stays; so the cache is bounded, and all goroutines share it
// without locks. It takes 2.5 MiB when full.
type cache struct {
	seed  maphash.Seed
	slots [cacheSlots]atomic.Pointer[entry]
}

// entry is a remembered word, in one allocation.
type entry struct {
	ids  [cacheIDs]int32
	n, m uint8 // ids, bytes
	word [cacheWord]byte
}

func newCache() *cache { return &cache{seed: maphash.MakeSeed()} }

func (c *cache) slot(word []byte) *atomic.Pointer[entry] {
	return &c.slots[maphash.Bytes(c.seed, word)%cacheSlots]
}

// get appends the word's ids, if they are remembered.
func (s *entry) get(dst []int32, word []byte) ([]int32, bool) {
	if s == nil || string(s.word[:s.m]) != string(word) {
		return dst, false
	}
	return append(dst, s.ids[:s.n]...), true
}

// newEntry is nil for ids that are too many.
func newEntry(word []byte, ids []int32) *entry {
	if len(ids) > cacheIDs {
		return nil
	}
	e := &entry{n: uint8(len(ids)), m: uint8(len(word))}
	copy(e.word[:], word)
	copy(e.ids[:], ids)
	return e
}
