package tokenizer

import (
	"fmt"
	"math"
	"slices"
	"unicode/utf8"
)

// unigram takes the pieces whose scores have the largest sum.
type unigram struct {
	trie     *trie
	scores   []float64
	unknown  int32   // -1: none
	penalty  float64 // score of a character that no piece has
	fallback *[256]int32
}

// path is the best way to a byte of the word.
type path struct {
	score   float64
	from    int32
	id      int32
	reached bool
}

// unknownPenalty is how far below the lowest score an unknown character is.
const unknownPenalty = 10

func (m *unigram) encode(w *work, word []byte) error {
	paths := w.paths[:0]
	for range len(word) + 1 {
		paths = append(paths, path{})
	}
	w.paths = paths
	for at := 0; at < len(word); {
		here := paths[at].score
		single := false
		_, n := utf8.DecodeRune(word[at:])
		node := uint32(0)
		for i := at; i < len(word); i++ {
			if node = m.trie.step(node, word[i]); node == 0 {
				break
			}
			if id := m.trie.ids[node]; id >= 0 {
				paths[i+1].offer(here+m.scores[id], at, id)
				single = single || i+1-at == n
			}
		}
		if !single {
			if m.unknown < 0 {
				return fmt.Errorf("%w: %q is in no piece and the tokenizer has no unknown one", ErrText, word[at:at+n])
			}
			paths[at+n].offer(here+m.penalty, at, m.unknown)
		}
		at += n
	}
	// From the end: pieces, and what is unknown side by side as one.
	ends := w.ends[:0]
	fusing := false
	for at := len(word); at > 0; at = int(paths[at].from) {
		unknown := paths[at].id == m.unknown
		if unknown && fusing {
			ends[len(ends)-1].start = paths[at].from
		} else {
			ends = append(ends, place{paths[at].from, int32(at)})
		}
		fusing = unknown
	}
	w.ends = ends
	for i := len(ends) - 1; i >= 0; i-- {
		m.emit(w, word, ends[i])
	}
	return nil
}

func (p *path) offer(score float64, from int, id int32) {
	if !p.reached || score > p.score {
		*p = path{score, int32(from), id, true}
	}
}

// emit appends the piece at p, or what stands for it if it is none.
func (m *unigram) emit(w *work, word []byte, p place) {
	piece := word[p.start:p.end]
	if id, ok := m.trie.get(0, piece); ok {
		w.token(id, p)
		return
	}
	if m.fallback == nil || slices.ContainsFunc(piece, func(b byte) bool { return m.fallback[b] < 0 }) {
		w.token(m.unknown, p)
		return
	}
	for _, b := range piece {
		w.token(m.fallback[b], p)
	}
}

// newUnigram reads the part "model" of the file.
func newUnigram(o object, v *vocabulary) (*unigram, error) {
	list, unk := o.get("vocab"), o.get("unk_id")
	var pieces []scored
	if err := list.into(&pieces, "a list of pieces and their scores"); err != nil {
		return nil, err
	}
	m := &unigram{unknown: -1, scores: make([]float64, len(pieces))}
	v.ids = make(map[string]int32, len(pieces))
	v.pieces, v.size = make([]string, len(pieces)), len(pieces)
	if len(pieces) > maxID {
		return nil, list.faultf("has %d pieces, want at most %d", len(pieces), maxID)
	}
	lowest := math.Inf(1)
	for i, p := range pieces {
		v.ids[p.piece], v.pieces[i], m.scores[i] = int32(i), p.piece, p.score
		v.bytes += len(p.piece)
		lowest = min(lowest, p.score)
	}
	m.penalty = lowest - unknownPenalty
	m.trie = newTrie(v.bytes)
	for i, p := range pieces {
		if p.piece != "" && !m.trie.insert(0, p.piece, int32(i)) {
			return nil, list.faultf("is too large")
		}
	}
	if !unk.absent() {
		id, err := unk.id()
		if err != nil {
			return nil, err
		}
		if int(id) >= len(pieces) {
			return nil, unk.faultf("is %d, but there are %d pieces", id, len(pieces))
		}
		m.unknown = id
	}
	fall, err := o.get("byte_fallback").boolOr(false)
	if err != nil {
		return nil, err
	}
	if fall {
		m.fallback = v.bytePieces()
	}
	return m, nil
}
