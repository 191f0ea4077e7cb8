package tokenizer

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
)

// newBPE reads the part "model" of the file.
func newBPE(o object, v *vocabulary) (*bpe, error) {
	m := &bpe{unknown: -1}
	if d := o.read("dropout"); !d.absent() && d.abbreviated() != "0" && d.abbreviated() != "0.0" {
		return nil, d.errorf("is %s: ids would depend on chance", d.abbreviated())
	}
	if err := v.readMap(o.read("vocab")); err != nil {
		return nil, err
	}
	m.ids = v.ids
	var err error
	if u := o.read("unk_token"); !u.absent() {
		name, err := u.stringValue()
		if err != nil {
			return nil, err
		}
		id, ok := v.ids[name]
		if !ok {
			return nil, u.errorf("%q is not in the vocabulary", name)
		}
		m.unknown = id
	}
	for _, s := range []struct {
		key    string
		target *string
	}{{"continuing_subword_prefix", &m.prefix}, {"end_of_word_suffix", &m.suffix}} {
		if *s.target, err = o.read(s.key).stringOr(""); err != nil {
			return nil, err
		}
	}
	m.decorated = m.prefix != "" || m.suffix != ""
	byteFallback := false
	for _, b := range []struct {
		key    string
		target *bool
	}{{"fuse_unk", &m.fuseUnknown}, {"byte_fallback", &byteFallback}, {"ignore_merges", &m.ignoreMerges}} {
		if *b.target, err = o.read(b.key).boolOr(false); err != nil {
			return nil, err
		}
	}
	if byteFallback {
		m.fallback = v.bytePieces()
	}
	return m, m.readMerges(o.read("merges"))
}

// setByteLevel makes bytes the symbols, with the vocabulary's spellings of bytes.
func (m *bpe) setByteLevel() {
	m.byteLevel = true
	for b := range 256 {
		for _, first := range []bool{false, true} {
			for _, last := range []bool{false, true} {
				id, ok := m.ids[m.decorate(string(byteRune(byte(b))), first, last)]
				if !ok {
					id = -1
				}
				m.byteSymbols[affixIndex(first, last)][b] = id
			}
		}
	}
	if !m.ignoreMerges {
		return
	}
	// Spell the words of the vocabulary as bytes, for words that are not merged.
	byteOf := map[rune]byte{}
	for b := range 256 {
		byteOf[byteRune(byte(b))] = byte(b)
	}
	m.byteWords = make(map[string]int32, len(m.ids))
pieces:
	for piece, id := range m.ids {
		word := make([]byte, 0, len(piece))
		for _, r := range piece {
			b, ok := byteOf[r]
			if !ok {
				continue pieces
			}
			word = append(word, b)
		}
		m.byteWords[string(word)] = id
	}
}

// cutsAtMarks reports whether cutting a word before each run of marks does not change its tokens: the
// mark is a symbol, and no merge joins a mark to another character before it.
func (m *bpe) cutsAtMarks(v *vocabulary) bool {
	if _, ok := m.ids[blankMark]; !ok || m.byteLevel || m.decorated || m.ignoreMerges {
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

// readMerges reads the merges, each written as "a b" or ["a", "b"].
func (m *bpe) readMerges(list value) error {
	const want = "a list of strings or of pairs of strings"
	var lines []string
	var split [][]string
	// The first element tells the form of all.
	inner, _ := bytes.CutPrefix(bytes.TrimSpace(list.raw), []byte("["))
	if bytes.HasPrefix(bytes.TrimSpace(inner), []byte(`"`)) {
		if err := list.decode(&lines, want); err != nil {
			return err
		}
		split = make([][]string, 0, len(lines))
		for i, l := range lines {
			if strings.HasPrefix(l, "#version") {
				continue
			}
			p := strings.Split(l, " ")
			if len(p) != 2 {
				return errorf(fmt.Sprintf("%s[%d]", list.field, i), "%q is not two pieces", l)
			}
			split = append(split, p)
		}
	} else if err := list.decode(&split, want); err != nil {
		return err
	}
	m.merges = newMergeTable(len(split))
	h := sha256.New()
	for rank, p := range split {
		field := fmt.Sprintf("%s[%d]", list.field, rank)
		if len(p) != 2 {
			return errorf(field, "has %d pieces, want 2", len(p))
		}
		if len(p[1]) < len(m.prefix) {
			return errorf(field, "%q is shorter than the prefix of pieces within a word", p[1])
		}
		joined := p[0] + p[1][len(m.prefix):]
		var id [3]int32
		for i, piece := range []string{p[0], p[1], joined} {
			var ok bool
			if id[i], ok = m.ids[piece]; !ok {
				return errorf(field, "%q is not in the vocabulary", piece)
			}
		}
		m.merges.setRank(id[0], id[1], uint32(rank), id[2])
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(id[0])<<32|uint64(id[1])))
	}
	h.Sum(m.mergesHash[:0])
	return nil
}
