package index

import (
	"context"
	"iter"
	"sync"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/vectors"
	"github.com/plaid-ir/plaid/vectors/pool"
)

// pooledSource is a source of which the tokens of each document are pooled, one
// for n; see pool.Pooler.
type pooledSource struct {
	vectors.Source
	n         int
	threads   int
	normalize bool
	memory    int64
	pools     sync.Pool // of *pool.Pooler
}

// pooled wraps a source; with n below 2 it is the source itself.
func pooled(src vectors.Source, n, threads int, normalize bool, memory int64) vectors.Source {
	if n < 2 {
		return src
	}
	p := &pooledSource{Source: src, n: n, threads: threads, normalize: normalize, memory: memory}
	p.pools.New = func() any { return new(pool.Pooler) }
	return p
}

// Rows implements [vectors.Source].
func (p *pooledSource) Rows(i int) int { return pool.Rows(p.Source.Rows(i), p.n) }

// Docs implements [vectors.Source]. Documents are pooled many at a time.
func (p *pooledSource) Docs(ctx context.Context, from, to int) iter.Seq2[vectors.Document, error] {
	return func(yield func(vectors.Document, error) bool) {
		b := newBatch(p.Dim(), p.memory)
		var out []vectors.Document
		flush := func() bool {
			out = p.pool(ctx, out, b)
			for _, d := range out {
				if !yield(d, ctx.Err()) || ctx.Err() != nil {
					return false
				}
			}
			b.reset()
			return true
		}
		row := from
		for d, err := range p.Source.Docs(ctx, from, to) {
			if err == nil {
				err = checkDocument(p.Source, row, b.dim, d)
			}
			if err == nil {
				err = checkValues(row, b.dim, d.ID, d.Tokens)
			}
			if err != nil {
				yield(vectors.Document{}, err)
				return
			}
			row++
			if b.addDocument(d); b.full() && !flush() {
				return
			}
		}
		flush()
	}
}

// pool gives the pooled documents of a batch, in memory that out had before.
func (p *pooledSource) pool(ctx context.Context, out []vectors.Document, b *batch) []vectors.Document {
	if p.normalize {
		codec.NormalizeWide(b.tokens, b.dim, p.threads)
	}
	old := out[:cap(out)]
	out = make([]vectors.Document, len(b.ids))
	copy(out, old)
	_ = parallel.Do(ctx, len(out), max(p.threads, 1), func(i int) error {
		pooler := p.pools.Get().(*pool.Pooler)
		defer p.pools.Put(pooler)
		lo := 0
		if i > 0 {
			lo = b.ends[i-1]
		}
		d := &out[i]
		d.ID, d.Payload = b.ids[i], b.payloads[i]
		d.Tokens = pooler.Pool(d.Tokens[:0], b.tokens[lo*b.dim:b.ends[i]*b.dim], b.dim, p.n)
		return nil
	}) // the caller looks at the context
	return out
}
