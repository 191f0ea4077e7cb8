package index

import (
	"context"
	"fmt"
	"iter"
	"sync"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
	"github.com/plaid-ir/plaid/vectors/pool"
)

// pooling describes how the tokens of documents are pooled: factor similar tokens become one. The
// factor 1 means no pooling.
type pooling struct {
	factor int
	method pool.Method
}

// poolingFromBuild returns the pooling that the header of an index records.
func poolingFromBuild(b storage.Build) pooling {
	p := pooling{max(b.Pool, 1), pool.Similar}
	if m := pool.Method(b.PoolBy); m.NeedsPage() {
		p.method = m
	}
	return p
}

// checkPage checks a payload with a page whose document is stored with the given number of tokens.
// Other payloads pass.
func (p pooling) checkPage(payload []byte, tokens int) error {
	page, err := vectors.PageFromPayload(payload)
	if err != nil || page == nil || page.Grid == nil {
		return err
	}
	if stored, side := p.method.Grid(page.Grid, p.factor); side > 0 { // the pooled tokens form a grid
		return stored.CheckTokens(tokens)
	}
	return nil
}

// checkNewPage checks a payload of a document that will be added with the given number of tokens,
// before pooling.
func (p pooling) checkNewPage(payload []byte, tokens int) error {
	if p.factor == 1 || !p.method.NeedsPage() {
		return p.checkPage(payload, tokens)
	}
	page, err := vectors.PageFromPayload(payload)
	if err != nil {
		return err
	}
	return p.method.CheckPage(page, tokens)
}

// CheckPage returns the error with which [Index.Add] would refuse a document with this payload and
// number of tokens: because it is a page whose grid does not fit, or because it is not a page and
// the index needs one.
func (s *Snapshot) CheckPage(payload []byte, tokens int) error {
	return poolingFromBuild(s.Header().Build).checkNewPage(payload, tokens)
}

// StoredGrid returns the grid in which the cells of a page are stored, which may be coarser: each
// stored cell stands for a square of side × side cells of the page. side is 0 if tokens were pooled
// in a way that leaves no grid. The error is [vectors.ErrShape] if a document with this number of
// tokens has too few for the grid.
func (s *Snapshot) StoredGrid(page *vectors.Page, tokens int) (stored *vectors.Grid, side int, err error) {
	p := poolingFromBuild(s.Header().Build)
	if stored, side = p.method.Grid(page.Grid, p.factor); side > 0 {
		err = stored.CheckTokens(tokens)
	}
	return stored, side, err
}

// pooledSource pools the tokens of the documents of a source.
type pooledSource struct {
	vectors.Source
	pooling
	threads   int
	normalize bool
	memory    int64
	// fallbackPayload, if not nil, returns the payload of a document that comes without one.
	fallbackPayload func(id string) ([]byte, error)

	grids   []vectors.Grid // of all documents, for the methods that need one
	poolers sync.Pool      // of type *pool.Pooler
}

// newPooledSource prepares the pooling, or returns the source itself if there is nothing to pool.
// For methods that need grids it reads all documents once.
func newPooledSource(ctx context.Context, p *pooledSource) (vectors.Source, error) {
	if p.factor < 2 {
		return p.Source, nil
	}
	p.poolers.New = func() any { return new(pool.Pooler) }
	if p.method.NeedsPage() {
		if err := p.readGrids(ctx); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// readGrids reads the grids of all documents from their payloads.
func (p *pooledSource) readGrids(ctx context.Context) error {
	p.grids = make([]vectors.Grid, 0, p.Source.Len())
	for d, err := range p.Source.Docs(ctx, 0, p.Source.Len()) {
		i := len(p.grids)
		if err == nil {
			err = checkDocument(p.Source, i, p.Dim(), d)
		}
		if err != nil {
			return err
		}
		payload := d.Payload
		if len(payload) == 0 && p.fallbackPayload != nil {
			if payload, err = p.fallbackPayload(d.ID); err != nil {
				return err
			}
		}
		page, err := vectors.PageFromPayload(payload)
		if err == nil {
			err = p.method.CheckPage(page, p.Source.Rows(i))
		}
		if err != nil {
			return documentError(i, d.ID, err)
		}
		p.grids = append(p.grids, *page.Grid)
	}
	if len(p.grids) != p.Source.Len() {
		return fmt.Errorf("%w: the source ended after %d of %d documents",
			vectors.ErrShape, len(p.grids), p.Source.Len())
	}
	return nil
}

// Rows implements [vectors.Source].
func (p *pooledSource) Rows(i int) int {
	rows := p.Source.Rows(i)
	if p.grids != nil {
		return pool.PooledPageRows(rows, p.factor, p.method, &p.grids[i])
	}
	return pool.PooledRows(rows, p.factor)
}

// Docs implements [vectors.Source]. It pools a batch of documents at a time.
func (p *pooledSource) Docs(ctx context.Context, from, to int) iter.Seq2[vectors.Document, error] {
	return func(yield func(vectors.Document, error) bool) {
		pending := newBatch(p.Dim(), p.memory)
		pending.firstDoc = from
		var pooled []vectors.Document
		flush := func() bool {
			pooled = p.poolBatch(ctx, pooled, pending)
			for _, d := range pooled {
				if !yield(d, ctx.Err()) || ctx.Err() != nil {
					return false
				}
			}
			pending.firstDoc += len(pending.ids)
			pending.reset()
			return true
		}
		row := from
		for d, err := range p.Source.Docs(ctx, from, to) {
			if err == nil {
				err = checkDocument(p.Source, row, pending.dim, d)
			}
			if err == nil {
				err = checkFinite(row, pending.dim, d.ID, d.Tokens)
			}
			if err != nil {
				yield(vectors.Document{}, err)
				return
			}
			row++
			if pending.addDocument(d, len(d.Tokens)/pending.dim); pending.isFull() && !flush() {
				return
			}
		}
		flush()
	}
}

// poolBatch returns the pooled documents of a batch. It reuses the memory of docs.
func (p *pooledSource) poolBatch(ctx context.Context, docs []vectors.Document, b *batch) []vectors.Document {
	if p.normalize {
		codec.NormalizeParallel(b.tokens, b.dim, p.threads)
	}
	old := docs[:cap(docs)]
	docs = make([]vectors.Document, len(b.ids))
	copy(docs, old) // with their slices of tokens, which are overwritten
	_ = parallel.Do(ctx, len(docs), max(p.threads, 1), func(i int) error {
		pooler := p.poolers.Get().(*pool.Pooler)
		defer p.poolers.Put(pooler)
		lo, hi := b.tokenRange(i)
		d, tokens := &docs[i], b.tokens[lo*b.dim:hi*b.dim]
		d.ID, d.Payload = b.ids[i], b.payloads[i]
		if p.grids != nil {
			d.Tokens = pooler.Page(d.Tokens[:0], tokens, b.dim, p.factor, p.method, &p.grids[b.firstDoc+i])
		} else {
			d.Tokens = pooler.Pool(d.Tokens[:0], tokens, b.dim, p.factor)
		}
		return nil
	}) // the caller checks the context
	return docs
}
