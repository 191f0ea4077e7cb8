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

// piece is a set of whole documents that is copied to the device at once, some megabytes.
type piece struct {
	spans  []span
	docs   int64
	tokens int64
	tiles  int64
}

// maxPieceDocs bounds the documents of a piece. It matters for documents with few tokens only.
const maxPieceDocs = 1 << 20

// pieceCutter gathers documents into pieces of at most limit tokens, and as many
// documents. A longer document is a piece of its own.
type pieceCutter struct {
	limit  int64
	pieces []piece
}

// addDocument appends a document of n tokens. Its neighbour in the same chunk extends
// the span.
func (c *pieceCutter) addDocument(chunk, doc int, n int64) {
	last := len(c.pieces) - 1
	full := last >= 0 && (c.pieces[last].tokens+n > c.limit && c.pieces[last].docs > 0 ||
		c.pieces[last].docs >= min(c.limit, maxPieceDocs))
	if last < 0 || full {
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

// addCorpus adds the documents of a corpus from an ordinal on.
func (c *pieceCutter) addCorpus(from kernels.Corpus, ordinal int64) {
	for i := range from.Chunks() {
		first, off := from.ChunkDocs(i)
		for d := int(max(ordinal-int64(first), 0)); d < len(off)-1; d++ {
			c.addDocument(i, d, int64(off[d+1]-off[d]))
		}
	}
}

// stageLayout has the offsets of the arrays of a piece in its staging memory.
type stageLayout struct {
	offsets, firstTile, ids, codes, factors, residuals, size int64
}

// stageLayout lays out the staging memory of a piece of a number of documents and tokens.
func (s *shape) stageLayout(docs, tokens int64) stageLayout {
	var a runtime.Arena
	return stageLayout{
		offsets:   a.Append(4 * (docs + 1)),
		firstTile: a.Append(4 * (docs + 1)),
		ids:       a.Append(4 * docs),
		codes:     a.Append(tokens * int64(s.codeBytes)),
		factors:   a.Append(2 * tokens),
		residuals: a.Append(tokens * int64(s.rowBytes)),
		size:      a.Size,
	}
}

// copyThreads is the number of goroutines that copy a piece from mapped pages: a single one is
// slower than the bus.
const copyThreads = 8

// fillStage writes a piece of the corpus into staging memory. Tile numbers start at tile.
func (s *shape) fillStage(dst []byte, offsets stageLayout, p *piece, from kernels.Corpus, tile uint32) error {
	le := binary.LittleEndian
	type copyJob struct {
		chunk       *kernels.Chunk
		token, from int64 // of the piece, of the chunk
		n           int64
	}
	var jobs []copyJob
	doc, token := int64(0), int64(0)
	writeOffsets := func() {
		le.PutUint32(dst[offsets.offsets+4*doc:], uint32(token))
		le.PutUint32(dst[offsets.firstTile+4*doc:], tile)
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
			writeOffsets()
			le.PutUint32(dst[offsets.ids+4*doc:], first+uint32(d))
			n := off[d+1] - off[d]
			token += int64(n)
			tile += runtime.CeilDiv(n, tileTokens)
			doc++
		}
	}
	writeOffsets()

	copyArrays := func(j copyJob) error {
		return from.Guard(func() error {
			copyRange := func(to int64, src []byte, width int64) {
				copy(dst[to+j.token*width:to+(j.token+j.n)*width], src[j.from*width:(j.from+j.n)*width])
			}
			copyRange(offsets.codes, j.chunk.Codes, int64(s.codeBytes))
			copyRange(offsets.factors, j.chunk.Factors, 2)
			copyRange(offsets.residuals, j.chunk.Residuals, int64(s.rowBytes))
			return nil
		})
	}
	// Jobs of about a megabyte, so that one large chunk keeps all threads busy.
	jobTokens := max(int64(1<<20)/int64(s.rowBytes+8), 1)
	var parts []copyJob
	for _, j := range jobs {
		for ; j.n > jobTokens; j.n -= jobTokens {
			parts = append(parts, copyJob{j.chunk, j.token, j.from, jobTokens})
			j.token += jobTokens
			j.from += jobTokens
		}
		parts = append(parts, j)
	}
	return parallel.Do(context.Background(), len(parts), copyThreads, func(i int) error { return copyArrays(parts[i]) })
}
