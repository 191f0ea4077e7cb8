package storage

import (
	"slices"

	bolt "go.etcd.io/bbolt"
)

// A snapshot shares unchanged content with an older one:
//
//  1. A bucket that was not written since the older snapshot was opened has the same root page.
//  2. bbolt does not reuse a page that the transaction of an open snapshot reaches.
//  3. So while the older snapshot is open, the same root page means the same bucket, pages and
//     values, at the same addresses: bbolt would have to wait for that snapshot to remap the file.
//  4. The transaction of the newer snapshot reaches those pages, too, so that they stay valid after
//     the older one is closed.
//
// The content of a committed segment never changes, so that the equal first segments of two states
// are shared without a look-up.
//
// A small bucket has no page of its own. It lies in that of its parent bucket, which is written
// whenever a neighbour is, and so it is read again.

// pageOf returns the root page of a bucket, 0 if it lies in the page of its parent.
func pageOf(b *bolt.Bucket) uint64 { return uint64(b.Root()) }

// samePage reports whether a bucket is the one that has this root page in an open snapshot.
func samePage(b *bolt.Bucket, root uint64) bool { return root != 0 && pageOf(b) == root }

// sharedSegments takes over chunks and postings of the first segments from an older snapshot, as far
// as they are equal and have their own pages. It returns the number of these segments.
func (v *Snapshot) sharedSegments(older *Snapshot) (segments int) {
	if older == nil {
		return 0
	}
	chunks := 0
	for s := range min(len(v.state.Segments), len(older.state.Segments)) {
		newSegment, oldSegment := &v.state.Segments[s], &older.state.Segments[s]
		p := older.postings[s]
		equal := newSegment.ID == oldSegment.ID && newSegment.FirstDoc == oldSegment.FirstDoc &&
			newSegment.Docs == oldSegment.Docs && newSegment.Blocks == oldSegment.Blocks &&
			slices.Equal(newSegment.Chunks, oldSegment.Chunks)
		if !equal || p.root == 0 && p.blockCount > 0 {
			break
		}
		end := chunks + len(oldSegment.Chunks)
		if slices.ContainsFunc(older.chunks[chunks:end], func(c *chunkView) bool { return c.root == 0 }) {
			break
		}
		chunks, segments = end, s+1
	}
	v.chunks = older.chunks[:chunks:chunks]
	v.postings = older.postings[:segments:segments]
	return segments
}

// SharedChunks returns the number of first chunks that are shared with another snapshot.
func (v *Snapshot) SharedChunks(other *Snapshot) int {
	n := min(len(v.chunks), len(other.chunks))
	for i := range n {
		if v.chunks[i] != other.chunks[i] {
			return i
		}
	}
	return n
}

// VerifyUnshared verifies the chunks and postings that are not shared with an older snapshot of the
// same file. Without this call, searches do so when they first read them.
func (v *Snapshot) VerifyUnshared(older *Snapshot) (err error) {
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
