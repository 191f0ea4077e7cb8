package tokenizer

// trie finds the pieces that a text begins with. Its edges are in one hash
// table, which is built in linear time.
type trie struct {
	edges        []edge // open addressing
	shift        uint8
	ids          []int32 // by node, the id of the piece that ends there, or -1
	rootChildren []int32 // the children of the root by byte, or 0
}

// edge leads from a node by a byte, node<<8 | byte, to the node next. A free edge has the next node 0,
// the root, which no edge leads to.
type edge struct{ key, next uint32 }

// maxNodes is the number of nodes that an edge's key can name, with a byte in 32 bits.
const maxNodes = 1 << 24

// newTrie returns a trie with a root, node 0, for pieces of a total of bytes.
func newTrie(bytes int) *trie {
	t := &trie{
		ids:          []int32{-1},
		rootChildren: make([]int32, 256),
		shift:        28, // 32 bits of a hash without the 4 of an index
	}
	size := 1 << 4
	for size < 2*min(bytes, maxNodes) {
		size <<= 1
		t.shift--
	}
	t.edges = make([]edge, size)
	return t
}

// findSlot returns the edge of a byte, or the free edge where it belongs.
func (t *trie) findSlot(node uint32, b byte) *edge {
	key := node<<8 | uint32(b)
	for h := key * 0x9E3779B1 >> t.shift; ; h++ {
		e := &t.edges[h&uint32(len(t.edges)-1)]
		if e.next == 0 || e.key == key {
			return e
		}
	}
}

// insert adds a piece below a node; the last of equal pieces counts. It reports
// whether the trie has room for it.
func (t *trie) insert(root uint32, piece string, id int32) bool {
	node := root
	for i := range len(piece) {
		e := t.findSlot(node, piece[i])
		if e.next == 0 {
			if len(t.ids) >= maxNodes || 2*len(t.ids) > len(t.edges) {
				return false
			}
			*e = edge{node<<8 | uint32(piece[i]), uint32(len(t.ids))}
			if node == 0 {
				t.rootChildren[piece[i]] = int32(e.next)
			}
			t.ids = append(t.ids, -1)
		}
		node = e.next
	}
	t.ids[node] = id
	return true
}

// child returns the node that the edge of a byte leads to. 0 means that the edge does not exist.
func (t *trie) child(node uint32, b byte) uint32 {
	if node == 0 {
		return uint32(t.rootChildren[b])
	}
	key := node<<8 | uint32(b)
	for h := key * 0x9E3779B1 >> t.shift; ; h++ {
		e := t.edges[h&uint32(len(t.edges)-1)]
		if e.key == key || e.next == 0 {
			return e.next
		}
	}
}

// find returns the id of a piece below a node.
func (t *trie) find(node uint32, piece []byte) (int32, bool) {
	for _, b := range piece {
		if node = t.child(node, b); node == 0 {
			return -1, false
		}
	}
	return t.ids[node], t.ids[node] >= 0
}

// longestPrefix returns the longest piece below a node that the text begins with, and its
// length in bytes. Length 0 means that it begins with no piece.
func (t *trie) longestPrefix(node uint32, text []byte) (id int32, n int) {
	for i, b := range text {
		if node = t.child(node, b); node == 0 {
			break
		}
		if t.ids[node] >= 0 {
			id, n = t.ids[node], i+1
		}
	}
	return id, n
}
