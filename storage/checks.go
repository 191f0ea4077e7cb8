package storage

import (
	"sync"
	"sync/atomic"

	bolt "go.etcd.io/bbolt"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage/internal/layout"
)

// A reader verifies the documents of a chunk and the posting blocks of a segment that it reads: each
// has its own checksum. Those that have passed are remembered for all snapshots while the file is
// open, since committed chunks and segments do not change.

// passedRegistry records which documents and posting blocks have passed.
type passedRegistry struct {
	mu   sync.Mutex
	bits map[passedKey]*passedBits
}

// passedKey identifies a chunk or the postings of a segment.
type passedKey struct {
	generation uint64
	segment    bool // the postings of a segment; otherwise a chunk
	number     uint32
}

// passedBits has a bit for each document of a chunk, or block of a segment, that has passed.
type passedBits struct {
	codesOrBlocks []atomic.Uint64 // a bit per document for its codes, or a bit per posting block
	rows          []atomic.Uint64 // a bit per document for its factors and residuals
}

// hasBit reports whether bit i is set.
func hasBit(words []atomic.Uint64, i uint32) bool { return words[i/64].Load()>>(i%64)&1 == 1 }

// setBit sets bit i.
func setBit(words []atomic.Uint64, i uint32) { words[i/64].Or(1 << (i % 64)) }

// bitsFor returns the bits of a chunk of n documents, or of a segment of n posting blocks.
func (c *passedRegistry) bitsFor(k passedKey, n int) *passedBits {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.bits[k]
	if p == nil {
		words := (n + 63) / 64
		p = &passedBits{codesOrBlocks: make([]atomic.Uint64, words)}
		if !k.segment {
			p.rows = make([]atomic.Uint64, words)
		}
		if c.bits == nil {
			c.bits = map[passedKey]*passedBits{}
		}
		c.bits[k] = p
	}
	return p
}

// removeUnused removes the records of chunks and segments that v does not have, once those may be
// half of all. Older snapshots keep theirs.
func (c *passedRegistry) removeUnused(v *Snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.bits) <= 2*(len(v.chunks)+len(v.postings)) {
		return
	}
	used := make(map[*passedBits]bool, len(c.bits))
	for _, ch := range v.chunks {
		used[ch.checked] = true
	}
	for _, p := range v.postings {
		used[p.checked] = true
	}
	for k, p := range c.bits {
		if !used[p] {
			delete(c.bits, k)
		}
	}
}

// Arrays selects arrays of a chunk.
type Arrays int

const (
	// Codes selects the codes, which suffice for approximate scores.
	Codes Arrays = iota
	// All selects codes, residuals and factors.
	All
)

// passedDocs returns a bit per document of a chunk: whether the selected arrays have passed.
func (c *chunkView) passedDocs(arrays Arrays) []atomic.Uint64 {
	if arrays == All {
		return c.checked.rows
	}
	return c.checked.codesOrBlocks
}

// Chunk returns the arrays of chunk i for readers of all of its documents.
func (v *Snapshot) Chunk(i int, arrays Arrays) (*kernels.Chunk, error) {
	c := v.chunks[i]
	if arrays == All {
		if err := v.fetchArrays(c); err != nil {
			return nil, err
		}
	}
	passed := c.passedDocs(arrays)
	prefetched := false
	for doc := uint32(0); doc < uint32(c.Table.Count); doc++ {
		if doc%64 == 0 && passed[doc/64].Load() == ^uint64(0) { // all 64 documents of the word
			doc += 63
			continue
		}
		if !hasBit(passed, doc) {
			if !prefetched {
				prefetched = true
				v.adviseArrays(c, arrays)
			}
			if err := v.verifyDoc(c, doc, arrays); err != nil {
				return nil, err
			}
		}
	}
	return &c.Chunk.Chunk, nil
}

// adviseArrays begins to read arrays of a chunk.
func (v *Snapshot) adviseArrays(c *chunkView, arrays Arrays) {
	switch {
	case v.IsPartial():
	case arrays == All:
		adviseValues(c.Codes, c.Factors, c.Residuals)
	default:
		adviseValues(c.Codes)
	}
}

// ChunkFor returns the arrays of chunk i for readers of some of its documents, which are indexes in
// the chunk. Other documents are not verified, and while the file is being fetched, their factors and
// residuals may be missing.
func (v *Snapshot) ChunkFor(i int, arrays Arrays, docs ...uint32) (*kernels.Chunk, error) {
	c := v.chunks[i]
	passed, fetched := c.passedDocs(arrays), false
	for n, doc := range docs {
		if hasBit(passed, doc) {
			continue
		}
		if arrays == All && !fetched && v.IsPartial() {
			if err := v.fetchRows(c, docs[n:]); err != nil {
				return nil, err
			}
			fetched = true
		}
		if err := v.verifyDoc(c, doc, arrays); err != nil {
			return nil, err
		}
	}
	return &c.Chunk.Chunk, nil
}

// verifyDoc verifies the selected arrays of a document, unless they have passed before. Several readers
// may do so at once.
func (v *Snapshot) verifyDoc(c *chunkView, doc uint32, arrays Arrays) error {
	if !hasBit(c.checked.codesOrBlocks, doc) {
		err := c.CheckCodes(int(doc))
		if err == nil {
			err = c.ValidateCodes(&v.codec.codec, int(c.Offsets[doc]), int(c.Offsets[doc+1]))
		}
		if err != nil {
			return v.corruptError(err, "codes of document %d, in chunk %d", c.Table.First+doc, c.number)
		}
		setBit(c.checked.codesOrBlocks, doc)
	}
	if arrays == All && !hasBit(c.checked.rows, doc) {
		if err := c.CheckRows(int(doc)); err != nil {
			return v.corruptError(err, "factors and residuals of document %d, in chunk %d", c.Table.First+doc, c.number)
		}
		setBit(c.checked.rows, doc)
	}
	return nil
}

// checkValue calls report with each fault of a value. path is that of its bucket b below the
// generation. The checksums of documents cover factors and residuals together, so that factors are
// checked with the residuals only.
func (v *Snapshot) checkValue(b *bolt.Bucket, path [][]byte, k, value []byte, report func(error)) {
	name := func() string { return layout.ValueName(append(path[:len(path):len(path)], k)) }
	if !isArray(path, k) {
		if _, ok := layout.Unseal(checksumKeyOf(path, k), value); !ok {
			report(v.corruptError(layout.ErrChecksum, "%s", name()))
		}
		return
	}
	if string(k) == string(layout.KeyFactors) {
		return
	}
	c, err := layout.OpenChunk(layout.NumberFromKey(path[1]), b.Get)
	if err != nil {
		report(v.corruptError(err, "%s", name()))
		return
	}
	tail, rowsTail := c.CheckTails()
	check := c.CheckCodes
	if string(k) == string(layout.KeyResiduals) {
		check, tail = c.CheckRows, rowsTail
	}
	for doc := range c.Table.Count {
		if err := check(doc); err != nil {
			report(v.corruptError(err, "%s of document %d", name(), c.Table.First+uint32(doc)))
		}
	}
	if tail != nil {
		report(v.corruptError(tail, "%s", name()))
	}
}

// isArray reports whether a value is one of the arrays of a chunk.
func isArray(path [][]byte, k []byte) bool {
	if len(path) != 2 || string(path[0]) != string(layout.BucketChunks) || len(path[1]) != 4 {
		return false
	}
	switch string(k) {
	case string(layout.KeyCodes), string(layout.KeyFactors), string(layout.KeyResiduals):
		return true
	}
	return false
}
