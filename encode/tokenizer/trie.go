package tokenizer

// trie finds the pieces that a text begins with. Its edges are in one hash
// table, which is built in linear time whatever the pieces.
type trie struct {
	edges  []edge // open addressing; next 0: free, for no edge leads to the root
	shift  uint8
	ids    []int32 // by node: the id of the piece that ends there, or -1
	lowest []int32 // children of the root by byte, 0: none
}

type edge struct{ key, next uint32 }

// maxNodes is what a key has room for beside a byte.
const maxNodes = 1 << 24

// newTrie is a trie with a root, node 0, whose pieces have so many bytes.
func newTrie(bytes int) *trie {
	t := &trie{ids: []int32{-1}, lowest: make([]int32, 256), shift: 28}
	size := 1 << 4
	for size < 2*min(bytes, maxNodes) {
		size <<= 1
		t.shift--
	}
	t.edges = make([]edge, size)
	return t
}

func (t *trie) slot(node uint32, b byte) *edge {
	key := node<<8 | uint32(b)
	for h := key * 0x9E3779B1 >> t.shift; ; h++ {
		e := &t.edges[h&uint32(len(t.edges)-1)]
		if e.next == 0 || e.key == key {
			return e
		}
	}
}

// insert adds a piece below a node; of equal ones the last counts. It says
// whether there was room.
func (t *trie) insert(root uint32, piece string, id int32) bool {
	node := root
	for i := range len(piece) {
		e := t.slot(node, piece[i])
		if e.next == 0 {
			if len(t.ids) >= maxNodes || 2*len(t.ids) > len(t.edges) {
				return false
			}
			*e = edge{node<<8 | uint32(piece[i]), uint32(len(t.ids))}
			if node == 0 {
				t.lowest[piece[i]] = int32(e.next)
			}
			t.ids = append(t.ids, -1)
		}
		node = e.next
	}
	t.ids[node] = id
	return true
}

// step follows the edge of a byte; 0: there is none.
func (t *trie) step(node uint32, b byte) uint32 {
	if node == 0 {
		return uint32(t.lowest[b])
	}
	key := node<<8 | uint32(b)
	for h := key * 0x9E3779B1 >> t.shift; ; h++ {
		e := t.edges[h&uint32(len(t.edges)-1)]
		if e.key == key || e.next == 0 {
			return e.next
		}
	}
}

// get is the id of a whole piece below a node.
func (t *trie) get(node uint32, piece []byte) (int32, bool) {
	for _, b := range piece {
		if node = t.step(node, b); node == 0 {
			return -1, false
		}
	}
	return t.ids[node], t.ids[node] >= 0
}

// longest is the longest piece below a node that the text begins with, and its
// length in bytes; 0 if there is none.
func (t *trie) longest(node uint32, text []byte) (id int32, n int) {
	for i, b := range text {
		if node = t.step(node, b); node == 0 {
			break
		}
		if t.ids[node] >= 0 {
			id, n = t.ids[node], i+1
		}
	}
	return id, n
}
