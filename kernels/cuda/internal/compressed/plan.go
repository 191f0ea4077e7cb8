package compressed

import (
	"fmt"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

// newPlan decides whether an index of so many documents and tiles stays on the
// device.
func (a *attachment) newPlan(docs, tiles int64) kernels.MemoryPlan {
	s := a.shape
	bytes := s.packedBytes(docs, tiles)
	stage := 2 * a.stageBytes()
	p := kernels.MemoryPlan{
		Tokens: a.tokens, Slots: tiles * tileTokens, Codec: a.at.size, Words: bytes[0], Residuals: bytes[1],
		Tables: bytes[2] + bytes[3] + bytes[4] + docs/8, Staging: stage, Query: s.groupBytes(docs), Limit: a.limit, Resident: true, Pieces: 1,
	}
	if a.stream || p.Index()+stage+2*p.Query > a.limit {
		p.Resident = false
		cut := cutter{limit: a.pieceTokens()}
		p.Pieces = int(runtime.CeilDiv(max(a.tokens, 1), cut.limit))
	}
	if !p.Resident {
		perPiece, _ := a.pieceSize()
		p.Query = s.groupBytes(perPiece)
	}
	space := min(a.limit/workspaceShare, a.limit-p.Staging-p.Codec)
	if p.Resident {
		space = min(space, a.limit-p.Index()-p.Staging)
	}
	a.maxGroups = int(min(max(space/p.Query, 1), mostGroups))
	return p
}

// pieceTokens is how many tokens a piece has at most, but for a longer
// document; stageBytes what its staging takes.
func (a *attachment) pieceTokens() int64 {
	return max(min(a.piece, a.limit/16)/int64(a.shape.codeBytes+2+a.shape.rowBytes+2), 1)
}

func (a *attachment) stageBytes() int64 {
	tokens := min(max(a.pieceTokens(), a.maxTokens), max(a.tokens, 1))
	docs := min(int64(len(a.firstTile)-1), a.pieceTokens(), pieceDocs)
	return a.shape.stageLayout(docs, tokens).size
}

// groupBytes is the workspace of one group of query tokens over so many
// documents, but for what depends on the number of results.
func (s *shape) groupBytes(docs int64) int64 {
	return 4*int64(s.fragStride) + s.partsBytes() + columns*(16+16+16+8+4*int64(s.dim)) + 64*int64(s.k) + 4*docs + 1<<20
}

func (a *attachment) largestStage(pieces []piece) (bytes int64) {
	for i := range pieces {
		bytes = max(bytes, a.shape.stageLayout(pieces[i].docs, pieces[i].tokens).size)
	}
	return bytes
}

// prepareStreaming reserves what streaming needs: two pieces as they are stored
// and one in the layout of the scans.
func (a *attachment) prepareStreaming(p *kernels.MemoryPlan) error {
	stage := a.stageBytes()
	docs, tiles := a.pieceSize()
	bytes := a.shape.packedBytes(docs, tiles)
	need := p.Codec + 2*stage + bytes[0] + bytes[1] + bytes[2] + bytes[3] + bytes[4] + a.shape.groupBytes(docs)
	if need > a.limit {
		return fmt.Errorf("%w: streaming needs %d bytes, the limit is %d", driver.ErrOutOfMemory, need, a.limit)
	}
	if a.part != nil && (a.part.tileCap < tiles || a.part.docCap < docs) {
		a.part.free(a.rt.Driver)
		a.part = nil
	}
	if a.part == nil {
		part, err := a.shape.newPacked(a.rt.Driver, docs, tiles)
		if err != nil {
			return fmt.Errorf("streaming: %w", err)
		}
		a.part = part
	}
	return a.rt.ReserveStaging(stage)
}

// pieceSize bounds documents and tiles of a piece.
func (a *attachment) pieceSize() (docs, tiles int64) {
	n, all := a.total()
	tokens := max(a.pieceTokens(), a.maxTokens)
	docs = min(n, a.pieceTokens(), pieceDocs)
	return docs, min(all, runtime.CeilDiv(tokens, tileTokens)+docs)
}
