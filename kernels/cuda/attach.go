package cuda

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/driver"
)

const (
	// pieceBytes is the size of a piece on its way to the device; documents that
	// are larger go alone.
	pieceBytes = 32 << 20
	// memoryReserve stays free where no limit is given.
	memoryReserve = 256 << 20
	// mostGroups bounds the groups of query tokens of one batch.
	mostGroups = 512
	// workspaceShare of the memory limit is for batches.
	workspaceShare = 4
)

// attachment is an index on the device. What is not guarded by mu belongs to
// the device's goroutine.
type attachment struct {
	dev     *Device
	limit   int64
	piece   int64 // bytes
	stream  bool  // though it may fit
	bounded bool  // no scan_f*
	shape   *shape
	codec   driver.Mem
	at      codecArrays

	lineage   uint64
	chunks    int
	firstTile []uint32 // of each document, and the number of tiles
	tokens    int64
	maxTiles  int64   // of a document
	maxTokens int64   // of a document
	whole     *packed // nil: streamed
	part      *packed // of streaming: the piece at hand
	live      driver.Mem
	liveOf    *uint64 // the set that live is a copy of
	maxGroups int
	freed     bool

	mu   sync.Mutex
	plan kernels.MemoryPlan
}

// Attach uploads an index; see [kernels.Device].
func (d *Device) Attach(ctx context.Context, c kernels.Corpus, o kernels.AttachOptions) (kernels.Attachment, error) {
	a, err := d.attach(ctx, c, o, pieceBytes, false)
	if err != nil {
		return nil, err
	}
	return a, nil
}

// attach is Attach with pieces of some size, streaming even what would fit if
// asked to.
func (d *Device) attach(ctx context.Context, c kernels.Corpus, o kernels.AttachOptions, piece int64, stream bool) (*attachment, error) {
	a := &attachment{dev: d, piece: piece, stream: stream, bounded: o.Bounded}
	err := d.call(ctx, func() (err error) {
		d.attachments[a] = true
		defer func() {
			if err != nil {
				a.free()
			}
		}()
		if a.limit = o.Memory; a.limit == 0 {
			free, _, err := d.ctx.MemInfo()
			if err != nil {
				return err
			}
			a.limit = int64(free) - memoryReserve
		}
		return a.ensure(ctx, c, o.Progress)
	})
	if err != nil {
		return nil, err
	}
	return a, nil
}

// Plan says what memory is used for.
func (a *attachment) Plan() kernels.MemoryPlan {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.plan
}

// Close frees the index on the device.
func (a *attachment) Close() error {
	err := a.dev.call(context.Background(), func() error {
		a.free()
		return nil
	})
	if errors.Is(err, kernels.ErrDeviceClosed) || errors.Is(err, driver.ErrDeviceLost) {
		return nil // freed with the device
	}
	return err
}

func (a *attachment) free() {
	d := a.dev
	a.drop()
	a.freed = true
	delete(d.attachments, a)
	if len(d.attachments) == 0 {
		d.work.release(d.ctx)
		d.asm.free(d.ctx)
	}
}

// drop frees the index but not the attachment.
func (a *attachment) drop() {
	c := a.dev.ctx
	for _, p := range []**packed{&a.whole, &a.part} {
		if *p != nil {
			(*p).free(c)
			*p = nil
		}
	}
	_ = c.Free(a.codec)
	_ = c.Free(a.live)
	a.codec, a.live, a.liveOf = driver.Mem{}, driver.Mem{}, nil
	a.shape, a.chunks, a.firstTile, a.tokens, a.maxTiles, a.maxTokens = nil, 0, nil, 0, 0, 0
}

// array is the address of an array of the codec, 0 if it has none.
func (a *attachment) array(offset int64) driver.Ptr {
	if offset < 0 {
		return 0
	}
	return a.codec.At(offset)
}

// ensure brings the documents of a snapshot to the device that are not there:
// all of them, or the chunks that were added since.
func (a *attachment) ensure(ctx context.Context, c kernels.Corpus, progress func(done, total int64)) (err error) {
	if a.freed {
		return kernels.ErrDeviceClosed
	}
	if a.shape != nil && a.lineage == c.Lineage() && a.chunks >= c.Chunks() {
		return nil
	}
	defer func() {
		if err != nil { // half an index is of no use; the next search begins anew
			_ = a.dev.ctx.Sync(a.dev.work.copy)
			_ = a.dev.ctx.Sync(a.dev.work.stream)
			a.drop()
		}
	}()
	if a.shape == nil || a.lineage != c.Lineage() {
		a.drop()
		if err := a.codecUp(c); err != nil {
			return err
		}
		a.lineage = c.Lineage()
		a.firstTile = []uint32{0}
	}
	if err := a.measure(c); err != nil {
		return err
	}
	from := a.chunks
	a.chunks = c.Chunks()
	docs, tiles := a.total()
	plan := a.newPlan(docs, tiles)
	if !plan.Resident {
		if a.whole != nil {
			a.whole.free(a.dev.ctx)
			a.whole = nil
		}
		err = a.prepareStreaming(&plan)
	} else {
		from, err = a.room(c, from, docs, tiles)
		if err == nil {
			err = a.upload(ctx, c, from, progress)
		}
	}
	if err != nil {
		return err
	}
	a.mu.Lock()
	a.plan = plan
	a.mu.Unlock()
	return nil
}

func (a *attachment) total() (docs, tiles int64) {
	n := len(a.firstTile) - 1
	return int64(n), int64(a.firstTile[n])
}

// measure extends the table of tiles by the chunks that are not in it.
func (a *attachment) measure(c kernels.Corpus) error {
	for i := a.chunks; i < c.Chunks(); i++ {
		_, off := c.ChunkDocs(i)
		tile := uint64(a.firstTile[len(a.firstTile)-1])
		for d := range len(off) - 1 {
			n := int64(off[d+1] - off[d])
			a.maxTokens = max(a.maxTokens, n)
			a.maxTiles = max(a.maxTiles, ceilDiv(n, tileTokens))
			a.tokens += n
			tile += uint64(ceilDiv(n, tileTokens))
			if tile > 1<<32-1-spareTiles || len(a.firstTile) > maxDocs {
				return fmt.Errorf("%w: more than %d tokens or %d documents", driver.ErrUnsupported, uint64(1)<<32*tileTokens, maxDocs)
			}
			a.firstTile = append(a.firstTile, uint32(tile))
		}
	}
	return nil
}

// codecUp uploads the arrays of the codec.
func (a *attachment) codecUp(c kernels.Corpus) (err error) {
	err = c.Guard(func() (err error) {
		a.shape, err = newShape(c.Codec(), a.dev.kernels.half && !a.bounded)
		return err
	})
	if err != nil {
		a.shape = nil
		return err
	}
	d := a.dev
	a.at = a.shape.arrays(c.Codec())
	host := make([]byte, a.at.size)
	err = c.Guard(func() error {
		a.shape.fill(host, a.at, c.Codec())
		return nil
	})
	if err != nil {
		return err
	}
	if a.codec, err = d.ctx.Alloc(a.at.size); err != nil {
		return fmt.Errorf("codec: %w", err)
	}
	if err := d.ctx.ToDevice(a.codec.Ptr, host, d.work.stream); err != nil {
		return err
	}
	return d.ctx.Sync(d.work.stream)
}

// newPlan decides whether an index of so many documents and tiles stays on the
// device.
func (a *attachment) newPlan(docs, tiles int64) kernels.MemoryPlan {
	s := a.shape
	bytes := s.packedBytes(docs, tiles)
	stage := 2 * a.stageBytes()
	p := kernels.MemoryPlan{
		Tokens: a.tokens, Slots: tiles * tileTokens, Codec: a.at.size, Words: bytes[0], Residuals: bytes[1],
		Tables: bytes[2] + bytes[3] + docs/8, Staging: stage, Query: s.groupBytes(docs), Limit: a.limit, Resident: true, Pieces: 1,
	}
	if a.stream || p.Index()+stage+2*p.Query > a.limit {
		p.Resident = false
		cut := cutter{limit: a.pieceTokens()}
		p.Pieces = int(ceilDiv(max(a.tokens, 1), cut.limit))
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
	return 4*int64(s.fragStride) + columns*(16+8+4*int64(s.dim16)+4*int64(s.dim)) + 64*int64(s.k) + 4*docs + 1<<20
}

// room makes the resident arrays large enough. Where they are too small, what
// they hold is copied on the device if both fit, else uploaded again. It
// returns the first chunk to upload.
func (a *attachment) room(c kernels.Corpus, from int, docs, tiles int64) (int, error) {
	d := a.dev
	if a.whole != nil && a.whole.tileCap >= tiles && a.whole.docCap >= docs {
		return from, nil
	}
	docCap, tileCap := docs, tiles
	if from > 0 { // an index that grows will grow again
		docCap, tileCap = docs+docs/8, min(tiles+tiles/8, 1<<32-1-spareTiles)
	}
	old := a.whole
	fresh, err := a.shape.newPacked(d.ctx, docCap, tileCap)
	if err != nil && old != nil && errors.Is(err, driver.ErrOutOfMemory) {
		old.free(d.ctx)
		a.whole, old, from = nil, nil, 0
		fresh, err = a.shape.newPacked(d.ctx, docs, tiles)
	}
	if err != nil {
		return 0, fmt.Errorf("index of %d documents: %w", docs, err)
	}
	a.whole = fresh
	if old == nil {
		return 0, d.ctx.Set(fresh.firstTile.Ptr, 0, 4, d.work.stream)
	}
	defer old.free(d.ctx)
	bytes := a.shape.packedBytes(old.docs, old.tiles-spareTiles) // the spare tiles are written anew
	for i, m := range []struct{ dst, src driver.Mem }{
		{fresh.words, old.words}, {fresh.rows, old.rows}, {fresh.tileDoc, old.tileDoc}, {fresh.firstTile, old.firstTile},
	} {
		if err := d.ctx.OnDevice(m.dst.Ptr, m.src.Ptr, bytes[i], d.work.stream); err != nil {
			return 0, err
		}
	}
	fresh.docs, fresh.tiles = old.docs, old.tiles
	return from, d.ctx.Sync(d.work.stream)
}

// upload packs the chunks from number from on behind what is there.
func (a *attachment) upload(ctx context.Context, c kernels.Corpus, from int, progress func(done, total int64)) error {
	d := a.dev
	cut := cutter{limit: a.pieceTokens()}
	cut.chunks(c, from, c.Chunks())
	total, done := int64(0), int64(0)
	for i := range cut.pieces {
		total += cut.pieces[i].tokens
	}
	if err := d.asm.reserve(d.ctx, min(a.stageBytes(), a.largestStage(cut.pieces))); err != nil {
		return err
	}
	for i := range cut.pieces {
		if err := ctx.Err(); err != nil {
			return err
		}
		p := &cut.pieces[i]
		st, err := d.stage(a.shape, c, p, uint32(a.whole.tiles))
		if err != nil {
			return err
		}
		if err := d.pack(a, st, p, a.whole); err != nil {
			return err
		}
		if err := d.release(st); err != nil {
			return err
		}
		done += p.tokens
		if progress != nil {
			progress(done, total)
		}
	}
	if len(cut.pieces) == 0 {
		if err := a.shape.clearSpare(d.ctx, a.whole, d.work.stream); err != nil {
			return err
		}
	}
	return d.ctx.Sync(d.work.stream)
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
	d := a.dev
	stage := a.stageBytes()
	docs, tiles := a.pieceSize()
	bytes := a.shape.packedBytes(docs, tiles)
	need := p.Codec + 2*stage + bytes[0] + bytes[1] + bytes[2] + bytes[3] + a.shape.groupBytes(docs)
	if need > a.limit {
		return fmt.Errorf("%w: streaming needs %d bytes, the limit is %d", driver.ErrOutOfMemory, need, a.limit)
	}
	if a.part != nil && (a.part.tileCap < tiles || a.part.docCap < docs) {
		a.part.free(d.ctx)
		a.part = nil
	}
	if a.part == nil {
		part, err := a.shape.newPacked(d.ctx, docs, tiles)
		if err != nil {
			return fmt.Errorf("streaming: %w", err)
		}
		a.part = part
	}
	return d.asm.reserve(d.ctx, stage)
}

// pieceSize bounds documents and tiles of a piece.
func (a *attachment) pieceSize() (docs, tiles int64) {
	n, all := a.total()
	tokens := max(a.pieceTokens(), a.maxTokens)
	docs = min(n, a.pieceTokens(), pieceDocs)
	return docs, min(all, ceilDiv(tokens, tileTokens)+docs)
}
