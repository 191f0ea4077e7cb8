package index

import (
	"context"
	"iter"

	"github.com/plaid-ir/plaid/vectors"
)

// picked are some documents of a source, in ascending order.
type picked struct {
	vectors.Source
	docs []int
}

func (p *picked) Len() int        { return len(p.docs) }
func (p *picked) Rows(i int) int  { return p.Source.Rows(p.docs[i]) }
func (p *picked) ID(i int) string { return p.Source.ID(p.docs[i]) }
func (p *picked) Close() error    { return nil }

// Docs reads runs of neighbours at once.
func (p *picked) Docs(ctx context.Context, from, to int) iter.Seq2[vectors.Document, error] {
	return func(yield func(vectors.Document, error) bool) {
		for docs := p.docs[from:to]; len(docs) > 0; {
			n := 1
			for n < len(docs) && docs[n] == docs[n-1]+1 {
				n++
			}
			for d, err := range p.Source.Docs(ctx, docs[0], docs[0]+n) {
				if !yield(d, err) || err != nil {
					return
				}
			}
			docs = docs[n:]
		}
	}
}
