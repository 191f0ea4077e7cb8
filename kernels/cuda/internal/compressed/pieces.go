package compressed

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
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

// cut appends a document of n tokens. Its neighbour in the same chunk extends
// the span.
func (c *cutter) cut(chunk, doc int, n int64) {
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
	p.tiles += runtime.CeilDiv(n, tileTokens)
}

// docs adds the documents of a corpus from an ordinal on.
func (c *cutter) docs(from kernels.Corpus, ordinal int64) {
	for i := range from.Chunks() {
		first, off := from.ChunkDocs(i)
		for d := int(max(ordinal-int64(first), 0)); d < len(off)-1; d++ {
			c.cut(i, d, int64(off[d+1]-off[d]))
		}
	}
}

// stageLayout says where the arrays of a piece are in its staging memory.
type stageLayout struct {
	offsets, firstTile, ids, codes, factors, residuals, size int64
}

func (s *shape) stageLayout(docs, tokens int64) stageLayout {
	var a runtime.Arena
	return stageLayout{
		offsets: a.Take(4 * (docs + 1)), firstTile: a.Take(4 * (docs + 1)), ids: a.Take(4 * docs),
		codes: a.Take(tokens * int64(s.codeBytes)), factors: a.Take(2 * tokens), residuals: a.Take(tokens * int64(s.rowBytes)),
		size: a.Size,
	}
}

// copyThreads copy a piece out of mapped pages at once: one alone is slower
// than the bus.
const copyThreads = 8

// fillStage writes a piece into staging memory. Tile numbers start at tile.
func (s *shape) fillStage(dst []byte, at stageLayout, p *piece, from kernels.Corpus, tile uint32) error {
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
			tile += runtime.CeilDiv(n, tileTokens)
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
	return parallel.Do(context.Background(), len(parts), copyThreads, func(i int) error { return arrays(parts[i]) })
}
