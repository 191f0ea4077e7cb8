package tokenizer

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// bpe joins the symbols of a word pair by pair, the pair of the lowest rank
// first and the leftmost of equal ones.
type bpe struct {
	ids        map[string]int32
	merges     *pairs
	byteLevel  bool          // words are bytes, symbols are their stand-ins
	bytes      [4][256]int32 // byteLevel: the symbol of a byte, by position; -1: none
	decorated  bool          // prefix or suffix is set
	prefix     string        // of symbols but a word's first
	suffix     string        // of a word's last symbol
	unknown    int32         // -1: what has no symbol is dropped
	fuse       bool          // unknown symbols side by side are one
	fallback   *[256]int32   // of [vocabulary.bytePieces]; nil: not used
	whole      bool          // a word in the vocabulary is not merged
	wholeBytes map[string]int32
	sum        [32]byte // of the merges in order
}

// noRank is that of a pair that does not merge.
const noRank = math.MaxUint32

// pairs is the merges in an open hash table.
type pairs struct {
	slots []pairSlot
	shift uint8
}

type pairSlot struct {
	key  uint64 // 0: free; else the pair + 1
	rank uint32
	id   int32
}

func newPairs(n int) *pairs {
	p := &pairs{shift: 60}
	size := 1 << 4
	for size < 2*n {
		size <<= 1
		p.shift--
	}
	p.slots = make([]pairSlot, size)
	return p
}

func pairKey(a, b int32) uint64 { return (uint64(uint32(a))<<32 | uint64(uint32(b))) + 1 }

func (p *pairs) slot(a, b int32) *pairSlot {
	key := pairKey(a, b)
	for h := key * 0x9E3779B97F4A7C15 >> p.shift; ; h++ {
		s := &p.slots[h&uint64(len(p.slots)-1)]
		if s.key == 0 || s.key == key {
			return s
		}
	}
}

// put sets the rank of a pair; the last one counts.
func (p *pairs) put(a, b int32, rank uint32, id int32) {
	*p.slot(a, b) = pairSlot{pairKey(a, b), rank, id}
}

func (p *pairs) rank(a, b int32) uint32 {
	if s := p.slot(a, b); s.key != 0 {
		return s.rank
	}
	return noRank
}

// bpeScratch is the symbols of a word under way.
type bpeScratch struct {
	ids   []int32
	at    []place
	ranks []uint32 // of the pair of a symbol and the next
	next  []int32
	prev  []int32
	heap  []uint64
}

func (s *bpeScratch) add(id int32, from, to int) {
	s.ids = append(s.ids, id)
	s.at = append(s.at, place{int32(from), int32(to)})
}

// longWord is the number of symbols from which a heap finds the next pair: a
// scan would take time that grows with the square.
const longWord = 64

func (m *bpe) encode(w *work, word []byte) error {
	if m.whole {
		ids := m.ids
		if m.byteLevel {
			ids = m.wholeBytes
		}
		if id, ok := ids[string(word)]; ok {
			w.emit(id, 0, len(word))
			return nil
		}
	}
	s := &w.bpe
	s.ids, s.at = s.ids[:0], s.at[:0]
	m.symbols(s, word)
	if len(s.ids) < longWord {
		m.merge(s)
	} else {
		m.mergeLong(s)
	}
	for i, id := range s.ids {
		w.emit(id, int(s.at[i].start), int(s.at[i].end))
	}
	return nil
}

// symbols splits a word into its first symbols: characters, or bytes.
func (m *bpe) symbols(s *bpeScratch, word []byte) {
	wait, waiting := place{}, false // an unknown symbol that is not yet added
	for i := 0; i < len(word); {
		n := 1
		if !m.byteLevel && word[i] >= utf8.RuneSelf {
			_, n = utf8.DecodeRune(word[i:])
		}
		id := m.symbol(word, i, n)
		switch {
		case id >= 0:
			if waiting {
				s.add(m.unknown, int(wait.start), int(wait.end))
				waiting = false
			}
			s.add(id, i, i+n)
		case m.fallback != nil && m.fallBack(s, word, i, n):
		case m.unknown >= 0:
			if waiting && m.fuse {
				wait.end = int32(i + n)
				break
			}
			if waiting {
				s.add(m.unknown, int(wait.start), int(wait.end))
			}
			wait, waiting = place{int32(i), int32(i + n)}, true
		}
		i += n
	}
	if waiting {
		s.add(m.unknown, int(wait.start), int(wait.end))
	}
}

// symbol is the id of the n bytes at i, or -1.
func (m *bpe) symbol(word []byte, i, n int) int32 {
	switch {
	case m.byteLevel:
		return m.bytes[position(i == 0, i+n == len(word))][word[i]]
	case m.decorated:
		if id, ok := m.ids[m.spelled(word, i, n)]; ok {
			return id
		}
	default:
		if id, ok := m.ids[string(word[i:i+n])]; ok {
			return id
		}
	}
	return -1
}

func position(first, last bool) int {
	p := 0
	if first {
		p = 1
	}
	if last {
		p += 2
	}
	return p
}

// spelled is the symbol of the n bytes at i as the vocabulary would have it.
func (m *bpe) spelled(word []byte, i, n int) string {
	s := string(word[i : i+n])
	if m.byteLevel {
		s = string(byteRune(word[i]))
	}
	return m.decorate(s, i == 0, i+n == len(word))
}

func (m *bpe) decorate(s string, first, last bool) string {
	if !first {
		s = m.prefix + s
	}
	if last {
		s += m.suffix
	}
	return s
}

// fallBack adds a symbol for each byte, if there is one for all.
func (m *bpe) fallBack(s *bpeScratch, word []byte, i, n int) bool {
	spelled := []byte(m.spelled(word, i, n))
	if slices.ContainsFunc(spelled, func(b byte) bool { return m.fallback[b] < 0 }) {
		return false
	}
	for _, b := range spelled {
		s.add(m.fallback[b], i, i+n)
	}
	return true
}

func (m *bpe) merge(s *bpeScratch) {
	s.ranks = s.ranks[:0]
	for i := 1; i < len(s.ids); i++ {
		s.ranks = append(s.ranks, m.merges.rank(s.ids[i-1], s.ids[i]))
	}
	for {
		best, at := uint32(noRank), 0
		for i, r := range s.ranks {
			if r < best {
				best, at = r, i
			}
		}
		if best == noRank {
			return
		}
		s.ids[at] = m.merges.slot(s.ids[at], s.ids[at+1]).id
		s.at[at].end = s.at[at+1].end
		s.ids, s.at, s.ranks = slices.Delete(s.ids, at+1, at+2), slices.Delete(s.at, at+1, at+2), slices.Delete(s.ranks, at, at+1)
		if at > 0 {
			s.ranks[at-1] = m.merges.rank(s.ids[at-1], s.ids[at])
		}
		if at < len(s.ranks) {
			s.ranks[at] = m.merges.rank(s.ids[at], s.ids[at+1])
		}
	}
}

// mergeLong is merge with a list of symbols and a heap of pairs.
func (m *bpe) mergeLong(s *bpeScratch) {
	n := len(s.ids)
	s.ranks, s.next, s.prev, s.heap = s.ranks[:0], s.next[:0], s.prev[:0], s.heap[:0]
	for i := range n {
		rank := uint32(noRank)
		if i+1 < n {
			rank = m.merges.rank(s.ids[i], s.ids[i+1])
		}
		s.ranks = append(s.ranks, rank)
		s.next, s.prev = append(s.next, int32(i+1)), append(s.prev, int32(i-1))
		s.push(i)
	}
	for len(s.heap) > 0 {
		top := s.pop()
		i := int(uint32(top))
		if s.ranks[i] != uint32(top>>32) {
			continue // merged meanwhile
		}
		j := s.next[i]
		s.ids[i] = m.merges.slot(s.ids[i], s.ids[j]).id
		s.at[i].end = s.at[j].end
		s.ids[j], s.ranks[j] = -1, noRank
		s.next[i] = s.next[j]
		s.ranks[i] = noRank
		if k := int(s.next[i]); k < n {
			s.prev[k] = int32(i)
			s.ranks[i] = m.merges.rank(s.ids[i], s.ids[k])
			s.push(i)
		}
		if k := int(s.prev[i]); k >= 0 {
			s.ranks[k] = m.merges.rank(s.ids[k], s.ids[i])
			s.push(k)
		}
	}
	left := 0
	for i := 0; i < n; i = int(s.next[i]) {
		s.ids[left], s.at[left] = s.ids[i], s.at[i]
		left++
	}
	s.ids, s.at = s.ids[:left], s.at[:left]
}

// push puts the pair at i into the heap, if it merges.
func (s *bpeScratch) push(i int) {
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

func (s *bpeScratch) pop() uint64 {
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

// byteRune is the printable character that stands for a byte in a byte-level
// vocabulary.
func byteRune(b byte) rune {
	switch {
	case b >= '!' && b <= '~', b >= 0xA1 && b <= 0xAC, b >= 0xAE:
		return rune(b)
	case b <= ' ':
		return 0x100 + rune(b)
	case b == 0xAD:
		return 0x143
	}
	return 0x121 + rune(b) - 0x7F
}

// newBPE reads the part "model" of the file.
func newBPE(o object, v *vocabulary) (*bpe, error) {
	m := &bpe{unknown: -1}
	if d := o.get("dropout"); !d.absent() && d.shown() != "0" && d.shown() != "0.0" {
		return nil, d.faultf("is %s: ids would depend on chance", d.shown())
	}
	if err := v.readMap(o.get("vocab")); err != nil {
		return nil, err
	}
	m.ids = v.ids
	var err error
	if u := o.get("unk_token"); !u.absent() {
		name, err := u.str()
		if err != nil {
			return nil, err
		}
		id, ok := v.ids[name]
		if !ok {
			return nil, u.faultf("%q is not in the vocabulary", name)
		}
		m.unknown = id
	}
	for _, s := range []struct {
		key string
		to  *string
	}{{"continuing_subword_prefix", &m.prefix}, {"end_of_word_suffix", &m.suffix}} {
		if *s.to, err = o.get(s.key).strOr(""); err != nil {
			return nil, err
		}
	}
	m.decorated = m.prefix != "" || m.suffix != ""
	fall := false
	for _, b := range []struct {
		key string
		to  *bool
	}{{"fuse_unk", &m.fuse}, {"byte_fallback", &fall}, {"ignore_merges", &m.whole}} {
		if *b.to, err = o.get(b.key).boolOr(false); err != nil {
			return nil, err
		}
	}
	if fall {
		m.fallback = v.bytePieces()
	}
	return m, m.readMerges(o.get("merges"))
}

// setByteLevel makes words bytes.
func (m *bpe) setByteLevel() {
	m.byteLevel = true
	for b := range 256 {
		for _, first := range []bool{false, true} {
			for _, last := range []bool{false, true} {
				id, ok := m.ids[m.decorate(string(byteRune(byte(b))), first, last)]
				if !ok {
					id = -1
				}
				m.bytes[position(first, last)][b] = id
			}
		}
	}
	if !m.whole {
		return
	}
	of := map[rune]byte{}
	for b := range 256 {
		of[byteRune(byte(b))] = byte(b)
	}
	m.wholeBytes = make(map[string]int32, len(m.ids))
pieces:
	for piece, id := range m.ids {
		word := make([]byte, 0, len(piece))
		for _, r := range piece {
			b, ok := of[r]
			if !ok {
				continue pieces
			}
			word = append(word, b)
		}
		m.wholeBytes[string(word)] = id
	}
}

// cutsAtMarks reports whether a word has the tokens of its parts if it is cut before each run of
// marks: no merge joins a mark to another character before it, and the mark is a symbol.
func (m *bpe) cutsAtMarks(v *vocabulary) bool {
	if _, ok := m.ids[blankMark]; !ok || m.byteLevel || m.decorated || m.whole {
		return false
	}
	for _, s := range m.merges.slots {
		if s.key == 0 {
			continue
		}
		if strings.Contains(strings.TrimLeft(v.pieces[s.id], blankMark), blankMark) {
			return false
		}
	}
	return true
}

// readMerges reads the merges, each "a b" or ["a", "b"].
func (m *bpe) readMerges(list value) error {
	const want = "a list of strings or of pairs of strings"
	var lines []string
	var split [][]string
	inner, _ := bytes.CutPrefix(bytes.TrimSpace(list.raw), []byte("["))
	if bytes.HasPrefix(bytes.TrimSpace(inner), []byte(`"`)) {
		if err := list.into(&lines, want); err != nil {
			return err
		}
		split = make([][]string, 0, len(lines))
		for i, l := range lines {
			if strings.HasPrefix(l, "#version") {
				continue
			}
			p := strings.Split(l, " ")
			if len(p) != 2 {
				return faultf(fmt.Sprintf("%s[%d]", list.field, i), "%q is not two pieces", l)
			}
			split = append(split, p)
		}
	} else if err := list.into(&split, want); err != nil {
		return err
	}
	m.merges = newPairs(len(split))
	h := sha256.New()
	for rank, p := range split {
		field := fmt.Sprintf("%s[%d]", list.field, rank)
		if len(p) != 2 {
			return faultf(field, "has %d pieces, want 2", len(p))
		}
		if len(p[1]) < len(m.prefix) {
			return faultf(field, "%q is shorter than the prefix of pieces within a word", p[1])
		}
		joined := p[0] + p[1][len(m.prefix):]
		var id [3]int32
		for i, piece := range []string{p[0], p[1], joined} {
			var ok bool
			if id[i], ok = m.ids[piece]; !ok {
				return faultf(field, "%q is not in the vocabulary", piece)
			}
		}
		m.merges.put(id[0], id[1], uint32(rank), id[2])
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(id[0])<<32|uint64(id[1])))
	}
	h.Sum(m.sum[:0])
	return nil
}
