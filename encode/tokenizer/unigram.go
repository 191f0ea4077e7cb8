package tokenizer

import (
	"fmt"
	"math"
	"slices"
	"unicode/utf8"
)

// unigram splits a word into the pieces whose scores have the largest sum.
type unigram struct {
	trie     *trie
	scores   []float64
	unknown  int32       // -1 means that it has no unknown token
	penalty  float64     // the score of a character that is not a piece
	fallback *[256]int32 // [vocabulary.bytePieces]. nil means not used
}

// bestPath is the best split of a word up to an offset: its score and its last piece.
type bestPath struct {
	score   float64
	from    int32 // where the last piece begins
	id      int32
	reached bool
}

// unknownPenalty is how much the score of an unknown character is below the lowest score.
const unknownPenalty = 10

func (m *unigram) encode(w *scratch, word []byte) error {
	// Find the best path to each offset (Viterbi).
	paths := w.paths[:0]
	for range len(word) + 1 {
		paths = append(paths, bestPath{})
	}
	w.paths = paths
	for begin := 0; begin < len(word); {
		score := paths[begin].score
		isPiece := false // the first character is a piece
		_, n := utf8.DecodeRune(word[begin:])
		node := uint32(0)
		for i := begin; i < len(word); i++ {
			if node = m.trie.child(node, word[i]); node == 0 {
				break
			}
			if id := m.trie.ids[node]; id >= 0 {
				paths[i+1].improve(score+m.scores[id], begin, id)
				isPiece = isPiece || i+1-begin == n
			}
		}
		if !isPiece {
			if m.unknown < 0 {
				return fmt.Errorf("%w: %q is in no piece and the tokenizer has no unknown one",
					ErrText, word[begin:begin+n])
			}
			paths[begin+n].improve(score+m.penalty, begin, m.unknown)
		}
		begin += n
	}
	// Collect the pieces from the end. Consecutive unknown characters are one piece.
	ends := w.ends[:0]
	fusing := false
	for end := len(word); end > 0; end = int(paths[end].from) {
		unknown := paths[end].id == m.unknown
		if unknown && fusing {
			ends[len(ends)-1].start = paths[end].from
		} else {
			ends = append(ends, span{paths[end].from, int32(end)})
		}
		fusing = unknown
	}
	w.ends = ends
	for i := len(ends) - 1; i >= 0; i-- {
		m.appendPiece(w, word, ends[i])
	}
	return nil
}

// improve replaces the path by another one if that has a higher score.
func (p *bestPath) improve(score float64, from int, id int32) {
	if !p.reached || score > p.score {
		*p = bestPath{score, int32(from), id, true}
	}
}

// appendPiece appends the token of the piece at p, or the tokens of its bytes, or the unknown token.
func (m *unigram) appendPiece(w *scratch, word []byte, p span) {
	piece := word[p.start:p.end]
	if id, ok := m.trie.find(0, piece); ok {
		w.appendToken(id, p)
		return
	}
	if m.fallback == nil || slices.ContainsFunc(piece, func(b byte) bool { return m.fallback[b] < 0 }) {
		w.appendToken(m.unknown, p)
		return
	}
	for _, b := range piece {
		w.appendToken(m.fallback[b], p)
	}
}

// newUnigram reads the part "model" of the file.
func newUnigram(o object, v *vocabulary) (*unigram, error) {
	list, unk := o.read("vocab"), o.read("unk_id")
	var pieces []scoredPiece
	if err := list.decode(&pieces, "a list of pieces and their scores"); err != nil {
		return nil, err
	}
	m := &unigram{unknown: -1, scores: make([]float64, len(pieces))}
	v.ids = make(map[string]int32, len(pieces))
	v.pieces, v.size = make([]string, len(pieces)), len(pieces)
	if len(pieces) > maxID {
		return nil, list.errorf("has %d pieces, want at most %d", len(pieces), maxID)
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
			return nil, list.errorf("is too large")
		}
	}
	if !unk.absent() {
		id, err := unk.idValue()
		if err != nil {
			return nil, err
		}
		if int(id) >= len(pieces) {
			return nil, unk.errorf("is %d, but there are %d pieces", id, len(pieces))
		}
		m.unknown = id
	}
	byteFallback, err := o.read("byte_fallback").boolOr(false)
	if err != nil {
		return nil, err
	}
	if byteFallback {
		m.fallback = v.bytePieces()
	}
	return m, nil
}
