package tokenizer

import (
	"math"
	"slices"
	"unicode/utf8"
)

// bpe merges the symbols of a word pair by pair: the pair of the lowest rank
// first, and the leftmost of equal pairs.
type bpe struct {
	ids          map[string]int32
	merges       *mergeTable
	byteLevel    bool             // symbols are bytes, spelled as by byteRune in the vocabulary
	byteSymbols  [4][256]int32    // for byteLevel, the symbol of a byte by position, or -1
	decorated    bool             // prefix or suffix is set
	prefix       string           // of all symbols except a word's first
	suffix       string           // of a word's last symbol
	unknown      int32            // -1 means that text without a symbol is dropped
	fuseUnknown  bool             // consecutive unknown symbols are one
	fallback     *[256]int32      // [vocabulary.bytePieces]. nil means not used
	ignoreMerges bool             // a word in the vocabulary is not merged
	byteWords    map[string]int32 // for byteLevel, the vocabulary by the bytes of words
	mergesHash   [32]byte         // SHA-256 of the merges in order
}

// noRank is the rank of a pair that does not merge.
const noRank = math.MaxUint32

// mergeTable is a hash table of the merges with open addressing.
type mergeTable struct {
	slots []mergeSlot
	shift uint8
}

type mergeSlot struct {
	key  uint64 // pairKey, or 0 for a free slot
	rank uint32
	id   int32 // of the merged symbol
}

// newMergeTable returns a table for n merges, at most half full.
func newMergeTable(n int) *mergeTable {
	p := &mergeTable{shift: 60} // 64 bits of a hash without the 4 of an index
	size := 1 << 4
	for size < 2*n {
		size <<= 1
		p.shift--
	}
	p.slots = make([]mergeSlot, size)
	return p
}

func pairKey(a, b int32) uint64 { return (uint64(uint32(a))<<32 | uint64(uint32(b))) + 1 }

// findSlot returns the slot of a pair, or the free slot where it belongs.
func (p *mergeTable) findSlot(a, b int32) *mergeSlot {
	key := pairKey(a, b)
	for h := key * 0x9E3779B97F4A7C15 >> p.shift; ; h++ { // 2⁶⁴ over the golden ratio spreads the keys
		s := &p.slots[h&uint64(len(p.slots)-1)]
		if s.key == 0 || s.key == key {
			return s
		}
	}
}

// setRank sets the rank of a pair; the last call counts.
func (p *mergeTable) setRank(a, b int32, rank uint32, id int32) {
	*p.findSlot(a, b) = mergeSlot{pairKey(a, b), rank, id}
}

// findRank returns the rank of a pair, or noRank.
func (p *mergeTable) findRank(a, b int32) uint32 {
	if s := p.findSlot(a, b); s.key != 0 {
		return s.rank
	}
	return noRank
}

// bpeScratch holds the symbols of the word that is encoded.
type bpeScratch struct {
	ids   []int32
	spans []span
	ranks []uint32 // of the pair of each symbol and the next
	next  []int32  // for mergeLong, the index of the next symbol
	prev  []int32  // for mergeLong, the index of the symbol before
	heap  []uint64 // for mergeLong, rank<<32 | index of a pair's first symbol
}

func (s *bpeScratch) add(id int32, from, to int) {
	s.ids = append(s.ids, id)
	s.spans = append(s.spans, span{int32(from), int32(to)})
}

// minHeapSymbols is the number of symbols from which a heap finds the next pair: the time
// of scans grows with the square of the symbols.
const minHeapSymbols = 64

// encode looks up the whole word if merges may be ignored, or else splits it into symbols and merges them.
func (m *bpe) encode(w *scratch, word []byte) error {
	if m.ignoreMerges {
		ids := m.ids
		if m.byteLevel {
			ids = m.byteWords
		}
		if id, ok := ids[string(word)]; ok {
			w.appendWordToken(id, 0, len(word))
			return nil
		}
	}
	s := &w.bpe
	s.ids, s.spans = s.ids[:0], s.spans[:0]
	m.splitSymbols(s, word)
	if len(s.ids) < minHeapSymbols {
		m.mergeShort(s)
	} else {
		m.mergeLong(s)
	}
	for i, id := range s.ids {
		w.appendWordToken(id, int(s.spans[i].start), int(s.spans[i].end))
	}
	return nil
}

// splitSymbols splits a word into its initial symbols: characters or bytes.
func (m *bpe) splitSymbols(s *bpeScratch, word []byte) {
	pending, hasPending := span{}, false // an unknown symbol that is not yet added, since it may be fused
	for i := 0; i < len(word); {
		n := 1
		if !m.byteLevel && word[i] >= utf8.RuneSelf {
			_, n = utf8.DecodeRune(word[i:])
		}
		id := m.symbolID(word, i, n)
		switch {
		case id >= 0:
			if hasPending {
				s.add(m.unknown, int(pending.start), int(pending.end))
				hasPending = false
			}
			s.add(id, i, i+n)
		case m.fallback != nil && m.addBytes(s, word, i, n):
		case m.unknown >= 0:
			if hasPending && m.fuseUnknown {
				pending.end = int32(i + n)
				break
			}
			if hasPending {
				s.add(m.unknown, int(pending.start), int(pending.end))
			}
			pending, hasPending = span{int32(i), int32(i + n)}, true
		}
		i += n
	}
	if hasPending {
		s.add(m.unknown, int(pending.start), int(pending.end))
	}
}

// symbolID returns the id of the n bytes at i, or -1.
func (m *bpe) symbolID(word []byte, i, n int) int32 {
	switch {
	case m.byteLevel:
		return m.byteSymbols[affixIndex(i == 0, i+n == len(word))][word[i]]
	case m.decorated:
		if id, ok := m.ids[m.spelling(word, i, n)]; ok {
			return id
		}
	default:
		if id, ok := m.ids[string(word[i:i+n])]; ok {
			return id
		}
	}
	return -1
}

// affixIndex returns the index in bpe.byteSymbols of a symbol that is the first or last of its word.
func affixIndex(first, last bool) int {
	p := 0
	if first {
		p = 1
	}
	if last {
		p += 2
	}
	return p
}

// spelling returns the n bytes at i as a symbol is spelled in the vocabulary.
func (m *bpe) spelling(word []byte, i, n int) string {
	s := string(word[i : i+n])
	if m.byteLevel {
		s = string(byteRune(word[i]))
	}
	return m.decorate(s, i == 0, i+n == len(word))
}

// decorate adds the prefix and suffix that a symbol has at its position in a word.
func (m *bpe) decorate(s string, first, last bool) string {
	if !first {
		s = m.prefix + s
	}
	if last {
		s += m.suffix
	}
	return s
}

// addBytes adds a symbol for each byte, and reports whether all bytes have one. If not, it adds none.
func (m *bpe) addBytes(s *bpeScratch, word []byte, i, n int) bool {
	spelled := []byte(m.spelling(word, i, n))
	if slices.ContainsFunc(spelled, func(b byte) bool { return m.fallback[b] < 0 }) {
		return false
	}
	for _, b := range spelled {
		s.add(m.fallback[b], i, i+n)
	}
	return true
}

// mergeShort merges the symbols of a short word: it scans all pairs for each merge.
func (m *bpe) mergeShort(s *bpeScratch) {
	s.ranks = s.ranks[:0]
	for i := 1; i < len(s.ids); i++ {
		s.ranks = append(s.ranks, m.merges.findRank(s.ids[i-1], s.ids[i]))
	}
	for {
		lowest, i := uint32(noRank), 0
		for j, r := range s.ranks {
			if r < lowest {
				lowest, i = r, j
			}
		}
		if lowest == noRank {
			return
		}
		s.ids[i] = m.merges.findSlot(s.ids[i], s.ids[i+1]).id
		s.spans[i].end = s.spans[i+1].end
		s.ids = slices.Delete(s.ids, i+1, i+2)
		s.spans = slices.Delete(s.spans, i+1, i+2)
		s.ranks = slices.Delete(s.ranks, i, i+1)
		if i > 0 {
			s.ranks[i-1] = m.merges.findRank(s.ids[i-1], s.ids[i])
		}
		if i < len(s.ranks) {
			s.ranks[i] = m.merges.findRank(s.ids[i], s.ids[i+1])
		}
	}
}

// mergeLong is mergeShort with a linked list of symbols and a heap of pairs.
func (m *bpe) mergeLong(s *bpeScratch) {
	// Link all symbols, and put all pairs into the heap.
	n := len(s.ids)
	s.ranks, s.next, s.prev, s.heap = s.ranks[:0], s.next[:0], s.prev[:0], s.heap[:0]
	for i := range n {
		rank := uint32(noRank)
		if i+1 < n {
			rank = m.merges.findRank(s.ids[i], s.ids[i+1])
		}
		s.ranks = append(s.ranks, rank)
		s.next, s.prev = append(s.next, int32(i+1)), append(s.prev, int32(i-1))
		s.pushPair(i)
	}
	// Merge the pair of the lowest rank.
	for len(s.heap) > 0 {
		top := s.popPair()
		i := int(uint32(top))
		if s.ranks[i] != uint32(top>>32) {
			continue // one of its symbols was merged since
		}
		j := s.next[i]
		s.ids[i] = m.merges.findSlot(s.ids[i], s.ids[j]).id
		s.spans[i].end = s.spans[j].end
		s.ids[j], s.ranks[j] = -1, noRank
		s.next[i] = s.next[j]
		s.ranks[i] = noRank
		if k := int(s.next[i]); k < n {
			s.prev[k] = int32(i)
			s.ranks[i] = m.merges.findRank(s.ids[i], s.ids[k])
			s.pushPair(i)
		}
		if k := int(s.prev[i]); k >= 0 {
			s.ranks[k] = m.merges.findRank(s.ids[k], s.ids[i])
			s.pushPair(k)
		}
	}
	// Collect the symbols that are still linked.
	merged := 0
	for i := 0; i < n; i = int(s.next[i]) {
		s.ids[merged], s.spans[merged] = s.ids[i], s.spans[i]
		merged++
	}
	s.ids, s.spans = s.ids[:merged], s.spans[:merged]
}

// pushPair adds the pair at i to the heap, if it merges.
func (s *bpeScratch) pushPair(i int) {
	if s.ranks[i] == noRank {
		return
	}
	s.heap = append(s.heap, uint64(s.ranks[i])<<32|uint64(i))
	h := s.heap
	for c := len(h) - 1; c > 0; {
		p := (c - 1) / 2
		if h[p] <= h[c] {
			break
		}
		h[p], h[c] = h[c], h[p]
		c = p
	}
}

// popPair removes the pair with the lowest rank, the leftmost of equal ones, from the heap.
func (s *bpeScratch) popPair() uint64 {
	h := s.heap
	top := h[0]
	h[0] = h[len(h)-1]
	h = h[:len(h)-1]
	for p := 0; ; {
		c := 2*p + 1
		if c >= len(h) {
			break
		}
		if c+1 < len(h) && h[c+1] < h[c] {
			c++
		}
		if h[p] <= h[c] {
			break
		}
		h[p], h[c] = h[c], h[p]
		p = c
	}
	s.heap = h
	return top
}

// byteRune returns the printable character that spells a byte in a byte-level
// vocabulary: printable Latin-1 characters stay, and the other bytes follow in order from U+0100 on.
func byteRune(b byte) rune {
	switch {
	case b >= '!' && b <= '~', b >= 0xA1 && b <= 0xAC, b >= 0xAE:
		return rune(b)
	case b <= ' ':
		return 0x100 + rune(b)
	case b == 0xAD:
		return 0x143
	}
	return 0x121 + rune(b) - 0x7F // 0x7F to 0xA0 follow the 0x21 bytes up to the blank
}
