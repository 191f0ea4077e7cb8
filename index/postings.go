package index

import (
	"slices"

	"github.com/plaid-ir/plaid/storage"
)

// pairBytes is what one (centroid, document) pair takes while postings are
// gathered: 8 bytes here, 4 in the sorted lists, and the slack of growing.
const pairBytes = 20

// postings gathers which documents have which centroid, document by document
// in ascending order, each pair once.
type postings struct {
	codes []uint32
	docs  []uint32
	last  []uint32 // by centroid: 1 + the last document that has it
}

func newPostings(centroids int) *postings { return &postings{last: make([]uint32, centroids)} }

func (p *postings) note(code, doc uint32) {
	if p.last[code] == doc+1 {
		return
	}
	p.last[code] = doc + 1
	p.codes = append(p.codes, code)
	p.docs = append(p.docs, doc)
}

func (p *postings) bytes() int64 { return pairBytes * int64(len(p.codes)) }

func (p *postings) reset() {
	p.codes, p.docs = p.codes[:0], p.docs[:0]
	clear(p.last)
}

// blocks yields the encoded posting blocks that are not empty, in order. It is
// a counting sort by centroid, which keeps documents ascending. See maxSegmentBytes for
// how many pairs there may be.
func (p *postings) blocks(yield func(block uint32, data []byte) error) error {
	k := len(p.last)
	ends := make([]uint32, k+1)
	for _, c := range p.codes {
		ends[c+1]++
	}
	for c := range k {
		ends[c+1] += ends[c]
	}
	sorted := make([]uint32, len(p.docs))
	next := slices.Clone(ends[:k])
	for i, c := range p.codes {
		sorted[next[c]] = p.docs[i]
		next[c]++
	}
	var lists [storage.PostingBlock][]uint32
	for lo := 0; lo < k; lo += storage.PostingBlock {
		hi := min(lo+storage.PostingBlock, k)
		if ends[lo] == ends[hi] {
			continue
		}
		for c := lo; c < hi; c++ {
			lists[c-lo] = sorted[ends[c]:ends[c+1]]
		}
		data, err := storage.AppendPostings(nil, lists[:hi-lo])
		if err != nil {
			return err
		}
		if err := yield(uint32(lo/storage.PostingBlock), data); err != nil {
			return err
		}
	}
	return nil
}
