package storage

import (
	"context"
	"encoding/binary"

	bolt "go.etcd.io/bbolt"
)

func (v *View) loadSegments(ctx context.Context, chunks, postings *bolt.Bucket, older *View) error {
	next := uint32(0)
	total := 0
	for _, seg := range v.state.Segments {
		total += len(seg.Chunks)
	}
	v.chunks = make([]*chunkView, 0, total)
	for s := range v.state.Segments {
		seg := &v.state.Segments[s]
		for _, number := range seg.Chunks {
			b := chunks.Bucket(key32(number))
			if b == nil {
				return v.bad(nil, "chunk %d is missing", number)
			}
			c := older.sharedChunk(len(v.chunks), b, number, s, next)
			if c == nil {
				if err := ctx.Err(); err != nil {
					return err
				}
				c = &chunkView{number: number, segment: s, root: pageOf(b)}
				if err := v.loadChunk(b, c, next); err != nil {
					return err
				}
			}
			v.chunks = append(v.chunks, c)
			next += uint32(c.docs.count)
		}
		if next != seg.FirstDoc+seg.Docs {
			return v.bad(nil, "segment %d ends at document %d, not %d", seg.ID, next, seg.FirstDoc+seg.Docs)
		}
		pb := postings.Bucket(key32(seg.ID))
		p := older.sharedPostings(s, pb, seg.ID)
		if p == nil {
			p = loadPostings(pb, seg.ID, (v.header.Centroids+PostingBlock-1)/PostingBlock)
		}
		if p.found != seg.Blocks {
			return v.bad(nil, "%d posting blocks of segment %d, %d expected", p.found, seg.ID, seg.Blocks)
		}
		v.postings = append(v.postings, p)
	}
	v.lineage = v.h.lineage.of(v.generation)
	return nil
}

// loadPostings finds the posting blocks of a segment, which may have none.
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
		p.found++
	}
	return p
}

func (v *View) loadChunk(b *bolt.Bucket, c *chunkView, first uint32) error {
	table, ok := unseal(keyIn(c.number, keyDocs), b.Get(keyDocs))
	if !ok {
		return v.bad(errChecksum, "document table of chunk %d", c.number)
	}
	var err error
	if c.docs, err = parseDocTable(table); err != nil {
		return v.bad(err, "chunk %d", c.number)
	}
	if c.docs.first != first {
		return v.bad(nil, "chunk %d begins at document %d, not %d", c.number, c.docs.first, first)
	}
	if c.chunk.Offsets, err = c.docs.offsets(); err != nil {
		return v.bad(err, "chunk %d", c.number)
	}
	c.codes, c.factors, c.residuals = b.Get(keyCodes), b.Get(keyFactors), b.Get(keyResiduals)
	tokens := c.chunk.Tokens()
	c.chunk.CodeBytes = CodeBytes(v.header.Centroids)
	for _, a := range []struct {
		name   []byte
		sealed []byte
		n      int
		dst    *[]byte
	}{
		{keyCodes, c.codes, tokens * c.chunk.CodeBytes, &c.chunk.Codes},
		{keyFactors, c.factors, tokens * 2, &c.chunk.Factors},
		{keyResiduals, c.residuals, tokens * v.codec.codec.RowBytes(), &c.chunk.Residuals},
	} {
		if len(a.sealed) != a.n+tailBytes+crcSize {
			return v.bad(nil, "%s of chunk %d: %d bytes for %d tokens", a.name, c.number, len(a.sealed), tokens)
		}
		*a.dst = a.sealed[:a.n]
	}
	return nil
}
