package cuda

import (
	"encoding/binary"
	"fmt"
	"sync"
	"unsafe"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/driver"
)

// span is the documents lo to hi (exclusive) of a chunk.
type span struct{ chunk, lo, hi int }

// piece is what goes to the device at once: whole documents, some megabytes.
type piece struct {
	spans  []span
	docs   int64
	tokens int64
	tiles  int64
}

// pieceDocs bounds the documents of a piece; a document takes little else than
// its tokens.
const pieceDocs = 1 << 20

// cutter gathers documents into pieces of at most limit tokens, and as many
// documents. A longer document is a piece of its own.
type cutter struct {
	limit  int64
	pieces []piece
}

// add appends a document of n tokens. Its neighbour in the same chunk extends
// the span.
func (c *cutter) add(chunk, doc int, n int64) {
	last := len(c.pieces) - 1
	if last < 0 || c.pieces[last].tokens+n > c.limit && c.pieces[last].docs > 0 || c.pieces[last].docs >= min(c.limit, pieceDocs) {
		c.pieces = append(c.pieces, piece{})
		last++
	}
	p := &c.pieces[last]
	if s := len(p.spans) - 1; s >= 0 && p.spans[s].chunk == chunk && p.spans[s].hi == doc {
		p.spans[s].hi++
	} else {
		p.spans = append(p.spans, span{chunk, doc, doc + 1})
	}
	p.docs++
	p.tokens += n
	p.tiles += ceilDiv(n, tileTokens)
}

// chunks adds the chunks from lo to hi (exclusive) of a corpus.
func (c *cutter) chunks(from kernels.Corpus, lo, hi int) {
	for i := lo; i < hi; i++ {
		_, off := from.ChunkDocs(i)
		for d := range len(off) - 1 {
			c.add(i, d, int64(off[d+1]-off[d]))
		}
	}
}

// stageLayout says where the arrays of a piece are in its staging memory.
type stageLayout struct {
	offsets, firstTile, ids, codes, factors, residuals, size int64
}

func (s *shape) stageLayout(docs, tokens int64) stageLayout {
	var a arena
	return stageLayout{
		offsets: a.take(4 * (docs + 1)), firstTile: a.take(4 * (docs + 1)), ids: a.take(4 * docs),
		codes: a.take(tokens * int64(s.codeBytes)), factors: a.take(2 * tokens), residuals: a.take(tokens * int64(s.rowBytes)),
		size: a.size,
	}
}

// copyThreads copy a piece out of mapped pages at once: one alone is slower
// than the bus.
const copyThreads = 8

// stage writes a piece into staging memory. Tile numbers start at tile.
func (s *shape) stage(dst []byte, at stageLayout, p *piece, from kernels.Corpus, tile uint32) error {
	le := binary.LittleEndian
	type copyJob struct {
		chunk       *kernels.Chunk
		token, from int64 // of the piece, of the chunk
		n           int64
	}
	var jobs []copyJob
	doc, token := int64(0), int64(0)
	put := func() {
		le.PutUint32(dst[at.offsets+4*doc:], uint32(token))
		le.PutUint32(dst[at.firstTile+4*doc:], tile)
	}
	for _, sp := range p.spans {
		ch, err := from.Load(sp.chunk)
		if err != nil {
			return err
		}
		if ch.CodeBytes != s.codeBytes {
			return fmt.Errorf("%w: codes of %d bytes, %d expected", kernels.ErrShape, ch.CodeBytes, s.codeBytes)
		}
		first, off := from.ChunkDocs(sp.chunk)
		jobs = append(jobs, copyJob{ch, token, int64(off[sp.lo]), int64(off[sp.hi] - off[sp.lo])})
		for d := sp.lo; d < sp.hi; d++ {
			put()
			le.PutUint32(dst[at.ids+4*doc:], first+uint32(d))
			n := off[d+1] - off[d]
			token += int64(n)
			tile += ceilDiv(n, tileTokens)
			doc++
		}
	}
	put()

	arrays := func(j copyJob) error {
		return from.Guard(func() error {
			move := func(to int64, src []byte, width int64) {
				copy(dst[to+j.token*width:to+(j.token+j.n)*width], src[j.from*width:(j.from+j.n)*width])
			}
			move(at.codes, j.chunk.Codes, int64(s.codeBytes))
			move(at.factors, j.chunk.Factors, 2)
			move(at.residuals, j.chunk.Residuals, int64(s.rowBytes))
			return nil
		})
	}
	// Parts of about a megabyte, so that one large chunk keeps all threads busy.
	share := max(int64(1<<20)/int64(s.rowBytes+8), 1)
	var parts []copyJob
	for _, j := range jobs {
		for ; j.n > share; j.n -= share {
			parts = append(parts, copyJob{j.chunk, j.token, j.from, share})
			j.token += share
			j.from += share
		}
		parts = append(parts, j)
	}
	if len(parts) == 1 {
		return arrays(parts[0])
	}
	var wg sync.WaitGroup
	errs := make([]error, min(copyThreads, len(parts)))
	for w := range errs {
		wg.Go(func() {
			for i := w; i < len(parts) && errs[w] == nil; i += len(errs) {
				errs[w] = arrays(parts[i])
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// packed is documents in the layout of the scans: a resident index, or a piece.
type packed struct {
	words, rows, tileDoc, firstTile driver.Mem
	tileCap, docCap                 int64
	docs, tiles                     int64
}

// packedBytes is the memory of the arrays, in the order of the fields.
func (s *shape) packedBytes(docs, tiles int64) [4]int64 {
	slots := tiles + spareTiles
	return [4]int64{8 * tileTokens * slots, tileTokens * s.rowStride() * slots, 4 * slots, 4 * (docs + 1)}
}

func (s *shape) newPacked(c *driver.Context, docs, tiles int64) (p *packed, err error) {
	p = &packed{tileCap: tiles, docCap: docs}
	bytes := s.packedBytes(docs, tiles)
	for i, m := range []*driver.Mem{&p.words, &p.rows, &p.tileDoc, &p.firstTile} {
		if *m, err = c.Alloc(bytes[i]); err != nil {
			p.free(c)
			return nil, err
		}
	}
	return p, nil
}

func (p *packed) free(c *driver.Context) {
	for _, m := range []*driver.Mem{&p.words, &p.rows, &p.tileDoc, &p.firstTile} {
		_ = c.Free(*m) // of a lost device; the memory went with it
		*m = driver.Mem{}
	}
}

// clearSpare zeroes the tiles that scans read ahead.
func (s *shape) clearSpare(c *driver.Context, p *packed, st driver.Stream) error {
	for _, a := range []struct {
		m     driver.Mem
		width int64 // of a tile
	}{{p.words, 8 * tileTokens}, {p.rows, tileTokens * s.rowStride()}, {p.tileDoc, 4}} {
		if err := c.Set(a.m.At(p.tiles*a.width), 0, spareTiles*a.width, st); err != nil {
			return err
		}
	}
	return nil
}

// uint32Bytes is the memory of s, as the device wants it: both are little-endian.
func uint32Bytes(s []uint32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), 4*len(s))
}

func uint64Bytes(s []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), 8*len(s))
}

func float32Bytes(s []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), 4*len(s))
}
