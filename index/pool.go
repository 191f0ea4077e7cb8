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

// pooling is how the tokens of documents become fewer: one for n, n = 1 for all.
type pooling struct {
	factor int
	method pool.Method
}

// poolingFromBuild is what an index says of it.
func poolingFromBuild(b storage.Build) pooling {
	p := pooling{max(b.Pool, 1), pool.Similar}
	if m := pool.Method(b.PoolBy); m.OfPages() {
		p.method = m
	}
	return p
}

// checkPage finds what is wrong with a payload of a document of which so many tokens are
// stored, if that is a page.
func (p pooling) checkPage(payload []byte, tokens int) error {
	page, err := vectors.PageOf(payload)
	if err != nil || page == nil || page.Grid == nil {
		return err
	}
	if stored, side := p.method.Grid(page.Grid, p.factor); side > 0 {
		return stored.Check(tokens)
	}
	return nil
}

// checkNewPage finds what is wrong with a payload of a document with so many tokens that is to be added.
func (p pooling) checkNewPage(payload []byte, tokens int) error {
	if p.factor == 1 || !p.method.OfPages() {
		return p.checkPage(payload, tokens)
	}
	page, err := vectors.PageOf(payload)
	if err != nil {
		return err
	}
	return p.method.CheckPage(page, tokens)
}

// CheckPage returns the error with which [Index.Add] would refuse a document, given its payload and number of tokens,
// because it is a page that does not fit or no page where the index needs one.
func (s *Snapshot) CheckPage(payload []byte, tokens int) error {
	return poolingFromBuild(s.Header().Build).checkNewPage(payload, tokens)
}

// Grid says how the cells of a page are stored: as the cells of a grid that may be coarser,
// each of which stands for side rows and columns of the page's own. side is 0 where tokens
// were pooled in a way that leaves none, and the error [vectors.ErrShape] where a document
// of so many tokens has too few.
func (s *Snapshot) Grid(page *vectors.Page, tokens int) (stored *vectors.Grid, side int, err error) {
	p := poolingFromBuild(s.Header().Build)
	if stored, side = p.method.Grid(page.Grid, p.factor); side > 0 {
		err = stored.Check(tokens)
	}
	return stored, side, err
}

// pooledSource is a source of which the tokens of each document are pooled.
type pooledSource struct {
	vectors.Source
	pooling
	threads   int
	normalize bool
	memory    int64
	// payload is that of a document which comes without; nil: it has none.
	fallbackPayload func(id string) ([]byte, error)

	grids   []vectors.Grid // of all documents, by the methods that need one
	poolers sync.Pool      // of *pool.Pooler
}

// newPooledSource begins to pool; where there is nothing to pool it is the source itself. For methods
// that need grids all documents are read once.
func newPooledSource(ctx context.Context, p *pooledSource) (vectors.Source, error) {
	if p.factor < 2 {
		return p.Source, nil
	}
	p.poolers.New = func() any { return new(pool.Pooler) }
	if p.method.OfPages() {
		if err := p.readGrids(ctx); err != nil {
			return nil, err
		}
	}
	return p, nil
}

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
		page, err := vectors.PageOf(payload)
		if err == nil {
			err = p.method.CheckPage(page, p.Source.Rows(i))
		}
		if err != nil {
			return documentError(i, d.ID, err)
		}
		p.grids = append(p.grids, *page.Grid)
	}
	if len(p.grids) != p.Source.Len() {
		return fmt.Errorf("%w: the source ended after %d of %d documents", vectors.ErrShape, len(p.grids), p.Source.Len())
	}
	return nil
}

// Rows implements [vectors.Source].
func (p *pooledSource) Rows(i int) int {
	rows := p.Source.Rows(i)
	if p.grids != nil {
		return pool.PageRows(rows, p.factor, p.method, &p.grids[i])
	}
	return pool.Rows(rows, p.factor)
}

// Docs implements [vectors.Source]. Documents are pooled many at a time.
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

// poolBatch gives the pooled documents of a batch, in memory that out had before.
func (p *pooledSource) poolBatch(ctx context.Context, docs []vectors.Document, b *batch) []vectors.Document {
	if p.normalize {
		codec.NormalizeWide(b.tokens, b.dim, p.threads)
	}
	old := docs[:cap(docs)]
	docs = make([]vectors.Document, len(b.ids))
	copy(docs, old)
	_ = parallel.Do(ctx, len(docs), max(p.threads, 1), func(i int) error {
		pooler := p.poolers.Get().(*pool.Pooler)
		defer p.poolers.Put(pooler)
		lo, hi := b.tokenRange(i)
		d, x := &docs[i], b.tokens[lo*b.dim:hi*b.dim]
		d.ID, d.Payload = b.ids[i], b.payloads[i]
		if p.grids != nil {
			d.Tokens = pooler.Page(d.Tokens[:0], x, b.dim, p.factor, p.method, &p.grids[b.firstDoc+i])
		} else {
			d.Tokens = pooler.Pool(d.Tokens[:0], x, b.dim, p.factor)
		}
		return nil
	}) // the caller looks at the context
	return docs
}
