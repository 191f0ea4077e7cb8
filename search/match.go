package search

import (
	"slices"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
)

// matchHits tells which tokens of hits matched, given where they are and the query.
func (r *run) matchHits(hits []Hit, at []located, vectors, weights []float32) error {
	q := &r.call.queries[r.at]
	return r.forEach(len(hits), func(i int) (err error) {
		defer at[i].part.guard(r.call, &err)()
		if err := r.ctx.Err(); err != nil {
			return err
		}
		snap := at[i].part.snap
		chunk, doc, _ := snap.Locate(at[i].ordinal)
		ch, err := snap.Chunk(chunk, storage.All)
		if err != nil {
			return err
		}
		hits[i].Tokens = int(ch.Offsets[doc+1] - ch.Offsets[doc])
		hits[i].Matches = matches(q, snap.Codec(), ch, doc, vectors, weights, r.bestTokens(ch, doc))
		return nil
	})
}

// bestTokens is for each query token the token of a document, which is not empty, that
// scores highest, the first of several.
func (r *run) bestTokens(ch *kernels.Chunk, doc int) []int {
	n, first := r.query.Len(), int(ch.Offsets[doc])
	best, products, top := make([]int, n), make([]float64, n), make([]float64, n)
	for t := first; t < int(ch.Offsets[doc+1]); t++ {
		r.query.Maxima(products, ch, t, t+1, kernels.Fine)
		if t == first {
			copy(top, products)
			continue
		}
		for i, x := range products {
			if x > top[i] {
				top[i], best[i] = x, t-first
			}
		}
	}
	return slices.Clip(best)
}
