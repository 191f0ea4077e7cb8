package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"sync/atomic"
	"unicode/utf8"
)

// maxID is the highest id that is accepted, since pieces are stored in a slice.
const maxID = 1<<24 - 1

// vocabulary holds the pieces of the model, and the added tokens once they are read.
type vocabulary struct {
	ids    map[string]int32
	pieces []string // by id. "" means that the id has no piece
	bytes  int      // of the model's pieces together
	size   int      // the number of the model's pieces, without added tokens
}

// readMap reads a vocabulary that maps pieces to ids.
func (v *vocabulary) readMap(o value) error {
	if err := o.decode(&v.ids, "an object of pieces and their ids"); err != nil {
		return err
	}
	highestID := int32(-1)
	for piece, id := range v.ids {
		// A high id in a small vocabulary would waste memory.
		if id < 0 || id > maxID || int(id) > 2*len(v.ids)+1<<16 {
			return o.errorf("piece %q has id %d, which %d pieces do not need", piece, id, len(v.ids))
		}
		highestID = max(highestID, id)
		v.bytes += len(piece)
	}
	v.size = len(v.ids)
	v.pieces = make([]string, highestID+1)
	used := make([]bool, highestID+1)
	for piece, id := range v.ids {
		if used[id] {
			return o.errorf("pieces %q and %q have id %d", min(piece, v.pieces[id]), max(piece, v.pieces[id]), id)
		}
		used[id], v.pieces[id] = true, piece
	}
	return nil
}

// add adds a piece, such as an added token, with its id.
func (v *vocabulary) add(piece string, id int32) {
	v.ids[piece] = id
	for int(id) >= len(v.pieces) {
		v.pieces = append(v.pieces, "")
	}
	v.pieces[id] = piece
}

// bytePieces returns the ids of the pieces <0x00> to <0xFF>, or −1 for those that are missing.
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

// scoredPiece is a piece of a unigram vocabulary: ["piece", -1.5].
type scoredPiece struct {
	piece string
	score float64
}

// UnmarshalJSON reads the pair.
func (s *scoredPiece) UnmarshalJSON(b []byte) error {
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

// wordPiece splits a word into the longest piece that it begins with, then the longest
// continuation, and so on. If no piece continues a word, the word is one unknown token.
type wordPiece struct {
	trie          *trie
	continuations uint32 // the trie's node above the continuations
	unknown       int32
	maxWordLength int // words of more characters are unknown
}

func (m *wordPiece) encode(w *scratch, word []byte) error {
	if len(word) > m.maxWordLength && utf8.RuneCount(word) > m.maxWordLength {
		w.appendWordToken(m.unknown, 0, len(word))
		return nil
	}
	begin, node := len(w.ids), uint32(0)
	for offset := 0; offset < len(word); {
		id, n := m.trie.longestPrefix(node, word[offset:])
		if n == 0 {
			w.truncate(begin)
			w.appendWordToken(m.unknown, 0, len(word))
			return nil
		}
		w.appendWordToken(id, offset, offset+n)
		offset += n
		node = m.continuations
	}
	return nil
}

// newWordPiece reads the part "model" of the file.
func newWordPiece(o object, v *vocabulary) (*wordPiece, error) {
	unknown, err := o.read("unk_token").stringOr("[UNK]")
	if err != nil {
		return nil, err
	}
	prefix, err := o.read("continuing_subword_prefix").stringOr("##")
	if err != nil {
		return nil, err
	}
	m := &wordPiece{maxWordLength: 100}
	if limit := o.read("max_input_chars_per_word"); !limit.absent() {
		if m.maxWordLength, err = limit.intValue(); err != nil {
			return nil, err
		}
		if m.maxWordLength < 0 {
			return nil, limit.errorf("is %d", m.maxWordLength)
		}
	}
	if err := v.readMap(o.read("vocab")); err != nil {
		return nil, err
	}
	id, ok := v.ids[unknown]
	if !ok {
		return nil, errorf(o.field+".unk_token", "%q is not in the vocabulary", unknown)
	}
	m.unknown = id
	// Two tries in one: all pieces are below the root, and the continuations are below a node that
	// no piece leads to (NUL, then a byte that is not in UTF-8).
	m.trie = newTrie(2*v.bytes + 2)
	inserted := m.trie.insert(0, "\x00\xff", -1)
	m.continuations = m.trie.child(m.trie.child(0, 0), 0xff)
	for piece, id := range v.ids {
		inserted = inserted && m.trie.insert(0, piece, id)
		if len(piece) > len(prefix) && piece[:len(prefix)] == prefix {
			inserted = inserted && m.trie.insert(m.continuations, piece[len(prefix):], id)
		}
	}
	if !inserted {
		return nil, errorf(o.field+".vocab", "is too large")
	}
	return m, nil
}

const (
	cacheSlots    = 1 << 15
	maxCachedWord = 30 // bytes of the longest word that is cached
	maxCachedIDs  = 9  // maximum of ids of a cached word
)

// cache holds the ids of words. A word has one slot, and the last word that is stored there
// stays. So the cache is bounded, and all goroutines share it
// without locks. It takes 2.5 MiB when full.
type cache struct {
	seed  maphash.Seed
	slots [cacheSlots]atomic.Pointer[cachedWord]
}

// cachedWord is a word with its ids, in one allocation.
type cachedWord struct {
	ids                [maxCachedIDs]int32
	idCount, wordBytes uint8 // ids, bytes
	word               [maxCachedWord]byte
}

func newCache() *cache { return &cache{seed: maphash.MakeSeed()} }

// slotOf returns the slot of a word.
func (c *cache) slotOf(word []byte) *atomic.Pointer[cachedWord] {
	return &c.slots[maphash.Bytes(c.seed, word)%cacheSlots]
}

// appendIDs appends the word's ids, and reports whether s has this word. s may be nil.
func (s *cachedWord) appendIDs(dst []int32, word []byte) ([]int32, bool) {
	if s == nil || string(s.word[:s.wordBytes]) != string(word) {
		return dst, false
	}
	return append(dst, s.ids[:s.idCount]...), true
}

// newCachedWord returns nil for a word of more than maxCachedIDs ids.
func newCachedWord(word []byte, ids []int32) *cachedWord {
	if len(ids) > maxCachedIDs {
		return nil
	}
	e := &cachedWord{idCount: uint8(len(ids)), wordBytes: uint8(len(word))}
	copy(e.word[:], word)
	copy(e.ids[:], ids)
	return e
}
