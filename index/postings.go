package index

import (
	"context"
	"slices"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/storage"
)

// pairBytes is the memory of one (centroid, document) pair while postings are gathered: 8 bytes in
// codes and docs, 4 in the sorted lists, and 8 for the slack of growing slices.
const pairBytes = 20

// postings gathers the pairs of centroids and documents, by ascending document, each pair once.
type postings struct {
	codes   []uint32
	docs    []uint32
	lastDoc []uint32 // by centroid: 1 + the last document with it
}

func newPostings(centroids int) *postings { return &postings{lastDoc: make([]uint32, centroids)} }

// addPair adds a pair unless it was added before. Documents must come in ascending order.
func (p *postings) addPair(code, doc uint32) {
	if p.lastDoc[code] == doc+1 {
		return
	}
	p.lastDoc[code] = doc + 1
	if len(p.codes) == cap(p.codes) { // doubling copies less often than append does
		grow := max(len(p.codes), 1024)
		p.codes, p.docs = slices.Grow(p.codes, grow), slices.Grow(p.docs, grow)
	}
	p.codes = append(p.codes, code)
	p.docs = append(p.docs, doc)
}

func (p *postings) memoryBytes() int64 { return pairBytes * int64(len(p.codes)) }

func (p *postings) reset() {
	p.codes, p.docs = p.codes[:0], p.docs[:0]
	clear(p.lastDoc)
}

// encodeBlocks yields the encoded posting blocks that are not empty, in order. It sorts by counting
// centroids, which keeps documents ascending. maxSegmentBytes bounds the pairs, so 32 bits can count
// them.
func (p *postings) encodeBlocks(yield func(block uint32, data []byte) error) error {
	k := len(p.lastDoc)
	// Sort the documents by centroid: those of centroid c are sorted[starts[c]:starts[c+1]].
	starts := make([]uint32, k+1)
	for _, c := range p.codes {
		starts[c+1]++
	}
	for c := range k {
		starts[c+1] += starts[c]
	}
	sorted := make([]uint32, len(p.docs))
	next := slices.Clone(starts[:k])
	for i, c := range p.codes {
		sorted[next[c]] = p.docs[i]
		next[c]++
	}
	// Encode 64 blocks at a time, on all processors.
	const blocksPerRound = 64
	encoded := make([][]byte, blocksPerRound)
	for first := 0; first < parallel.Blocks(k, storage.PostingBlock); first += blocksPerRound {
		blocks := min(blocksPerRound, parallel.Blocks(k, storage.PostingBlock)-first)
		err := parallel.Do(context.Background(), blocks, 0, func(i int) (err error) {
			lo, hi := parallel.Block(first+i, k, storage.PostingBlock)
			if encoded[i] = nil; starts[lo] == starts[hi] {
				return nil
			}
			lists := make([][]uint32, 0, storage.PostingBlock)
			for c := lo; c < hi; c++ {
				lists = append(lists, sorted[starts[c]:starts[c+1]])
			}
			encoded[i], err = storage.AppendPostings(nil, lists)
			return err
		})
		if err != nil {
			return err
		}
		for i, data := range encoded[:blocks] {
			if data == nil {
				continue
			}
			if err := yield(uint32(first+i), data); err != nil {
				return err
			}
		}
	}
	return nil
}
