package tokenizer

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/encode/tokenizer/internal/chars"
)

// charsmap is a precompiled map of SentencePiece: a double-array trie of keys, and
// their replacements. It is applied as in the Python package: a grapheme cluster
// of less than six bytes that begins with a key is replaced as a whole by the replacement of the
// shortest such key. In other clusters, each character is looked up by itself.
type charsmap struct {
	units []uint32
	texts []byte              // the replacements, each ended by NUL
	ascii [utf8.RuneSelf]bool // the ASCII characters that are keys
}

// clusterBytes is the length from which a cluster is not looked up as a whole.
const clusterBytes = 6

// newCharsmap reads a normalizer of the type Precompiled.
func newCharsmap(o object) (*charsmap, error) {
	v := o.read("precompiled_charsmap")
	s, err := v.stringValue()
	if err != nil {
		return nil, err
	}
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return nil, v.errorf("%w", err)
	}
	if len(b) < 4 {
		return nil, v.errorf("has %d bytes", len(b))
	}
	size := binary.LittleEndian.Uint32(b)
	if b = b[4:]; size == 0 || size%4 != 0 || uint64(size) > uint64(len(b)) {
		return nil, v.errorf("its trie says %d bytes, %d are there", size, len(b))
	}
	n := &charsmap{units: make([]uint32, size/4), texts: b[size:]}
	for i := range n.units {
		n.units[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	if !utf8.Valid(n.texts) || len(n.texts) > 0 && n.texts[len(n.texts)-1] != 0 {
		return nil, v.errorf("its texts are damaged")
	}
	if err := n.checkReferences(); err != nil {
		return nil, v.errorf("its trie is damaged: %w", err)
	}
	for c := range n.ascii {
		_, n.ascii[c] = n.replacement([]byte{byte(c)})
	}
	return n, nil
}

// childrenOf returns the number that, combined by XOR with a unit's index and then a label, is the
// index of the child with that label. A unit has its label in the low byte; bit 8 means that a value
// follows. The bits from 10 on are the number, in steps of 256 if bit 9 is set and of 1 otherwise: bit
// 9 shifted right by 6 is 8, the shift for 256.
func childrenOf(unit uint32) uint32 { return unit >> 10 << (unit & (1 << 9) >> 6) }

// checkReferences returns an error if a value or text lies outside the map, so that lookups need no
// checks.
func (n *charsmap) checkReferences() error {
	for i, u := range n.units {
		if u>>31 != 0 {
			continue // the unit is a value, or is not in use
		}
		if u&(1<<8) == 0 {
			continue // no key ends here
		}
		// The value is the child with the label 0: the offset of a text, with bit 31 set.
		valueIndex := uint32(i) ^ childrenOf(u)
		if valueIndex >= uint32(len(n.units)) {
			return errors.New("a value lies outside")
		}
		if text := n.units[valueIndex] &^ (1 << 31); text >= uint32(len(n.texts)) {
			return errors.New("a text lies outside")
		} else if !utf8.RuneStart(n.texts[text]) {
			return errors.New("a text begins within a character")
		}
	}
	return nil
}

// replacement returns the replacement of the shortest key that the text begins with.
func (n *charsmap) replacement(text []byte) ([]byte, bool) {
	node := childrenOf(n.units[0])
	for _, c := range text {
		if node ^= uint32(c); c == 0 || node >= uint32(len(n.units)) {
			return nil, false
		}
		u := n.units[node]
		if u&(1<<31|0xFF) != uint32(c) { // a value, or a unit of another label
			return nil, false
		}
		node ^= childrenOf(u)
		if u&(1<<8) != 0 {
			replacement := n.texts[n.units[node]&^(1<<31):]
			return replacement[:bytes.IndexByte(replacement, 0)], true
		}
	}
	return nil, false
}

func (n *charsmap) normalize(w *scratch) {
	in, out := w.cur, w.rewrite(&w.normBuffers)
	for i := 0; i < len(in.text) && len(out.text) <= w.maxBytes; {
		c := in.text[i]
		if c < utf8.RuneSelf && c != '\r' && (i+1 == len(in.text) || in.text[i+1] < utf8.RuneSelf) {
			if n.ascii[c] {
				n.appendReplacement(in, out, i, i+1)
			} else {
				out.appendRange(in, i, i+1)
			}
			i++
			continue
		}
		end := chars.ClusterEnd(in.text, i)
		if end-i < clusterBytes && n.appendReplacement(in, out, i, end) {
			i = end
			continue
		}
		for i < end {
			_, size := utf8.DecodeRune(in.text[i:])
			if !n.appendReplacement(in, out, i, i+size) {
				out.appendRange(in, i, i+size)
			}
			i += size
		}
	}
	// If characters before the first one were dropped, it counts as if it began where they did, as
	// in the Python package. The scheme [prependFirst] depends on that.
	if out.track && len(out.text) > 0 {
		_, n := utf8.DecodeRune(out.text)
		for i := range n {
			out.sources[i].start = in.sources[0].start
		}
	}
	w.cur = out
}

// appendReplacement appends the replacement of a range, and reports whether its beginning is a key.
func (n *charsmap) appendReplacement(in, out *buffer, from, to int) bool {
	text, ok := n.replacement(in.text[from:to])
	if ok {
		out.appendBytes(text, in.sourceOf(from, to))
	}
	return ok
}
