package storage

import bolt "go.etcd.io/bbolt"

// Views share what has not changed between them. A bucket that no transaction has
// written to since an older view was taken has the root page that it had, and a page
// that the transaction of an open view reaches is not written again. So while the
// older view is open, the same page means the same bucket, pages and values, in the
// same place: to map the file anew bbolt would have to wait for that view. The newer
// view's own transaction reaches those pages too, so they stay when the older one is
// closed.
//
// A small bucket has no page of its own. It lies in that of the bucket above, which
// is written whenever a neighbour is, and so it is read again.

// pageOf is the root page of a bucket, 0 if it has none of its own.
func pageOf(b *bolt.Bucket) uint64 { return uint64(b.Root()) }

// samePage tells whether a bucket is the one that had this page in an open view.
func samePage(b *bolt.Bucket, root uint64) bool { return root != 0 && pageOf(b) == root }

// sharedChunk is the chunk of bucket b where the view has it, as the i-th of its chunks
// and at the same documents and segment; nil if it has not. The view may be nil.
func (v *View) sharedChunk(i int, b *bolt.Bucket, number uint32, segment int, first uint32) *chunkView {
	if v == nil || i >= len(v.chunks) {
		return nil
	}
	c := v.chunks[i]
	if c.number != number || c.segment != segment || c.docs.first != first || !samePage(b, c.root) {
		return nil
	}
	return c
}

// sharedPostings is the same for the postings of the i-th segment.
func (v *View) sharedPostings(i int, b *bolt.Bucket, segment uint32) *postingsView {
	if v == nil || b == nil || i >= len(v.postings) {
		return nil
	}
	p := v.postings[i]
	if p.segment != segment || !samePage(b, p.root) {
		return nil
	}
	return p
}

// SharedChunks is how many chunks, from the first on, are shared with another view.
func (v *View) SharedChunks(other *View) int {
	n := min(len(v.chunks), len(other.chunks))
	for i := range n {
		if v.chunks[i] != other.chunks[i] {
			return i
		}
	}
	return n
}

// CheckNew checks the chunks and postings that are not shared with an older view of
// the same file, which searches would otherwise do when they first read them.
func (v *View) CheckNew(older *View) (err error) {
	if older.h != v.h {
		return nil
	}
	defer Guard(v.file.path, &err)()
	for i := v.SharedChunks(older); i < len(v.chunks); i++ {
		if _, err := v.Chunk(i, All); err != nil {
			return err
		}
	}
	for s, p := range v.postings {
		if s < len(older.postings) && older.postings[s] == p {
			continue
		}
		for block := range p.blocks {
			if _, err := v.Postings(s, uint32(block)*PostingBlock); err != nil {
				return err
			}
		}
	}
	return nil
}
