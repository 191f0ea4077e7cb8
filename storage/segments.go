package storage

import (
	"context"
	"encoding/binary"

	bolt "go.etcd.io/bbolt"

	"github.com/plaid-ir/plaid/storage/internal/layout"
)

// loadSegments finds the chunks and postings of the state. The first segments are shared with an
// older snapshot as far as they are the same; only the others are looked up in the file.
func (v *Snapshot) loadSegments(ctx context.Context, chunks, postings *bolt.Bucket, older *Snapshot) error {
	shared := v.sharedSegments(older)
	next := uint32(0) // the first ordinal of the next chunk
	if shared > 0 {
		next = v.state.Segments[shared-1].FirstDoc + v.state.Segments[shared-1].Docs
	}
	for s := shared; s < len(v.state.Segments); s++ {
		seg := &v.state.Segments[s]
		for _, number := range seg.Chunks {
			b := chunks.Bucket(layout.NumberKey(number))
			if b == nil {
				return v.corruptError(nil, "chunk %d is missing", number)
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			c := &chunkView{number: number, segment: s, root: pageOf(b)}
			if err := v.loadChunk(b, c, next); err != nil {
				return err
			}
			v.chunks = append(v.chunks, c)
			next += uint32(c.Table.Count)
		}
		if next != seg.FirstDoc+seg.Docs {
			return v.corruptError(nil, "segment %d ends at document %d, not %d", seg.ID, next, seg.FirstDoc+seg.Docs)
		}
		blocks := (v.header.Centroids + PostingBlock - 1) / PostingBlock
		p := loadPostings(postings.Bucket(layout.NumberKey(seg.ID)), seg.ID, blocks)
		key := passedKey{generation: v.generation, segment: true, number: seg.ID}
		p.checked = v.handle.passed.bitsFor(key, len(p.blocks))
		if p.blockCount != seg.Blocks {
			return v.corruptError(nil, "%d posting blocks of segment %d, %d expected", p.blockCount, seg.ID, seg.Blocks)
		}
		v.postings = append(v.postings, p)
	}
	return nil
}

// loadPostings finds the posting blocks of a segment. b is nil if it has none.
func loadPostings(b *bolt.Bucket, segment uint32, blocks int) *postingsView {
	p := &postingsView{segment: segment, blocks: make([][]byte, blocks)}
	if b == nil {
		return p
	}
	p.root = pageOf(b)
	c := b.Cursor()
	for k, val := c.First(); k != nil; k, val = c.Next() {
		if val == nil || len(k) != 4 || int64(binary.BigEndian.Uint32(k)) >= int64(blocks) {
			continue
		}
		p.blocks[binary.BigEndian.Uint32(k)] = val
		p.blockCount++
	}
	return p
}

// loadChunk opens a chunk in its bucket. first is the expected ordinal of its first document.
func (v *Snapshot) loadChunk(b *bolt.Bucket, c *chunkView, first uint32) (err error) {
	if v.handle.partial.isComplete() {
		adviseValues(b.Get(layout.KeyDocs))
	}
	c.Chunk, err = layout.OpenChunk(c.number, b.Get)
	if err == nil {
		err = c.CheckWidths(CodeBytes(v.header.Centroids), v.codec.codec.RowBytes())
	}
	if err != nil {
		return v.corruptError(err, "chunk %d", c.number)
	}
	if c.Table.First != first {
		return v.corruptError(nil, "chunk %d begins at document %d, not %d", c.number, c.Table.First, first)
	}
	c.checked = v.handle.passed.bitsFor(passedKey{generation: v.generation, number: c.number}, c.Table.Count)
	return nil
}

// DocTable lists the documents of a chunk: ordinals First to First+len(IDs)−1. A document that was
// deleted and then removed by compaction stays as a hole of length 0 with an empty id.
type DocTable struct {
	First   uint32
	Lengths []uint32
	IDs     []string
}

// MaxTokens is the largest length of a document.
const MaxTokens = 1<<31 - 1

// appendDocTable appends the encoded table. All numbers are little-endian u32: the number of
// documents, the first ordinal, the length of each document, the end of each id, two checksums for
// each document; then the bytes of the ids.
func appendDocTable(dst []byte, t *DocTable, sums []uint32) []byte {
	le := binary.LittleEndian
	dst = le.AppendUint32(dst, uint32(len(t.Lengths)))
	dst = le.AppendUint32(dst, t.First)
	for _, n := range t.Lengths {
		dst = le.AppendUint32(dst, n)
	}
	end := uint32(0)
	for _, id := range t.IDs {
		end += uint32(len(id))
		dst = le.AppendUint32(dst, end)
	}
	for _, sum := range sums {
		dst = le.AppendUint32(dst, sum)
	}
	for _, id := range t.IDs {
		dst = append(dst, id...)
	}
	return dst
}
