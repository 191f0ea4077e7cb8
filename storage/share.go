package storage

import (
	"slices"

	bolt "go.etcd.io/bbolt"
)

// Views share what has not changed between them. A bucket that no transaction has
// written to since an older view was taken has the root page that it had, and a page
// that the transaction of an open view reaches is not written again. So while the
// older view is open, the same page means the same bucket, pages and values, in the
// same place: to map the file anew bbolt would have to wait for that view. The newer
// view's own transaction reaches those pages too, so they stay when the older one is
// closed.
//
// What a committed segment has never changes, so that the first segments of two states
// that are the same need not even be looked up.
//
// A small bucket has no page of its own. It lies in that of the bucket above, which
// is written whenever a neighbour is, and so it is read again.

// pageOf is the root page of a bucket, 0 if it has none of its own.
func pageOf(b *bolt.Bucket) uint64 { return uint64(b.Root()) }

// samePage tells whether a bucket is the one that had this page in an open view.
func samePage(b *bolt.Bucket, root uint64) bool { return root != 0 && pageOf(b) == root }

// sharedSegments takes chunks and postings of the first segments from an older view, as
// far as they are the same and have pages of their own, and returns how many these are.
func (v *Snapshot) sharedSegments(older *Snapshot) (segments int) {
	if older == nil {
		return 0
	}
	chunks := 0
	for s := range min(len(v.state.Segments), len(older.state.Segments)) {
		now, was := &v.state.Segments[s], &older.state.Segments[s]
		p := older.postings[s]
		if now.ID != was.ID || now.FirstDoc != was.FirstDoc || now.Docs != was.Docs || now.Blocks != was.Blocks ||
			!slices.Equal(now.Chunks, was.Chunks) || p.root == 0 && p.found > 0 {
			break
		}
		end := chunks + len(was.Chunks)
		if slices.ContainsFunc(older.chunks[chunks:end], func(c *chunkView) bool { return c.root == 0 }) {
			break
		}
		chunks, segments = end, s+1
	}
	v.chunks = older.chunks[:chunks:chunks]
	v.postings = older.postings[:segments:segments]
	return segments
}

// SharedChunks is how many chunks, from the first on, are shared with another view.
func (v *Snapshot) SharedChunks(other *Snapshot) int {
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
func (v *Snapshot) CheckNew(older *Snapshot) (err error) {
	if older.handle != v.handle {
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
