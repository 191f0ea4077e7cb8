package tokenizer

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/encode/tokenizer/internal/chars"
)

// charsmap is a precompiled map of SentencePiece: a double array of keys, and
// what they become. It is used as the Python package does: a grapheme cluster
// below six bytes that begins with a key becomes what the shortest such key
// does, and the rest of the cluster is dropped; of other clusters each
// character is looked up by itself.
type charsmap struct {
	units []uint32
	texts []byte // each ended by NUL
	ascii [utf8.RuneSelf]bool
}

// clusterBytes is the length from which a cluster is not looked up whole.
const clusterBytes = 6

func newCharsmap(o object) (*charsmap, error) {
	v := o.get("precompiled_charsmap")
	s, err := v.str()
	if err != nil {
		return nil, err
	}
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return nil, v.faultf("%w", err)
	}
	if len(b) < 4 {
		return nil, v.faultf("has %d bytes", len(b))
	}
	size := binary.LittleEndian.Uint32(b)
	if b = b[4:]; size == 0 || size%4 != 0 || uint64(size) > uint64(len(b)) {
		return nil, v.faultf("its trie says %d bytes, %d are there", size, len(b))
	}
	n := &charsmap{units: make([]uint32, size/4), texts: b[size:]}
	for i := range n.units {
		n.units[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	if !utf8.Valid(n.texts) || len(n.texts) > 0 && n.texts[len(n.texts)-1] != 0 {
		return nil, v.faultf("its texts are damaged")
	}
	if err := n.check(); err != "" {
		return nil, v.faultf("its trie is damaged: %s", err)
	}
	for c := range n.ascii {
		_, n.ascii[c] = n.shortest([]byte{byte(c)})
	}
	return n, nil
}

// A unit has its label in the low byte, whether a value follows in bit 8, and
// where its children are in the others, by bit 9 in steps of one or of 256.
func childrenOf(unit uint32) uint32 { return unit >> 10 << (unit & (1 << 9) >> 6) }

// check finds references out of the map.
func (n *charsmap) check() string {
	for i, u := range n.units {
		if u>>31 != 0 {
			continue // a value, or a free unit
		}
		if u&(1<<8) == 0 {
			continue
		}
		at := uint32(i) ^ childrenOf(u)
		if at >= uint32(len(n.units)) {
			return "a value lies outside"
		}
		if text := n.units[at] &^ (1 << 31); text >= uint32(len(n.texts)) {
			return "a text lies outside"
		} else if !utf8.RuneStart(n.texts[text]) {
			return "a text begins within a character"
		}
	}
	return ""
}

// shortest is what the shortest key that the text begins with becomes.
func (n *charsmap) shortest(text []byte) ([]byte, bool) {
	at := childrenOf(n.units[0])
	for _, c := range text {
		if at ^= uint32(c); c == 0 || at >= uint32(len(n.units)) {
			return nil, false
		}
		u := n.units[at]
		if u&(1<<31|0xFF) != uint32(c) {
			return nil, false
		}
		at ^= childrenOf(u)
		if u&(1<<8) != 0 {
			rest := n.texts[n.units[at]&^(1<<31):]
			return rest[:bytes.IndexByte(rest, 0)], true
		}
	}
	return nil, false
}

func (n *charsmap) normalize(w *work) {
	in, out := w.cur, w.rewrite(&w.norm)
	for i := 0; i < len(in.text) && len(out.text) <= w.most; {
		c := in.text[i]
		if c < utf8.RuneSelf && c != '\r' && (i+1 == len(in.text) || in.text[i+1] < utf8.RuneSelf) {
			if n.ascii[c] {
				n.lookUp(in, out, i, i+1)
			} else {
				out.copy(in, i, i+1)
			}
			i++
			continue
		}
		end := chars.ClusterEnd(in.text, i)
		if end-i < clusterBytes && n.lookUp(in, out, i, end) {
			i = end
			continue
		}
		for i < end {
			_, size := utf8.DecodeRune(in.text[i:])
			if !n.lookUp(in, out, i, i+size) {
				out.copy(in, i, i+size)
			}
			i += size
		}
	}
	// Where characters before the first were dropped, the first counts as
	// standing there: so it does in the Python package, and [first] asks.
	if out.track && len(out.text) > 0 {
		_, n := utf8.DecodeRune(out.text)
		for i := range n {
			out.src[i].start = in.src[0].start
		}
	}
	w.cur = out
}

// lookUp appends what a range becomes, if its beginning is a key.
func (n *charsmap) lookUp(in, out *buffer, from, to int) bool {
	text, ok := n.shortest(in.text[from:to])
	if ok {
		out.bytes(text, in.placeOf(from, to))
	}
	return ok
}
