package search

import (
	"math"
	"slices"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/vectors"
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
		ch, doc, err := chunkOf(snap, at[i].ordinal)
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

// GridScores say where in a picture the tokens of a query are.
type GridScores struct {
	// Rows and Columns are those of [vectors.Grid], also where tiles of cells were pooled.
	Rows    int `json:"rows"`
	Columns int `json:"columns"`
	// Special is how many tokens of the document are no cells.
	Special int `json:"special"`
	// Scores has an entry for each of [Explanation].Matches, in the same order.
	Scores []CellScores `json:"scores"`
}

// CellScores are the inner products of a query token with the tokens of a page, rounded to
// four decimals, without the token's weight.
type CellScores struct {
	QueryToken int `json:"query_token"` // its number in the query, from 0
	// Cells are in order row after row, from the top left. The cells of a pooled tile have
	// what the tile has.
	Cells []float32 `json:"cells"`
	// Special are those of tokens that are no cells, in their order.
	Special []float32 `json:"special"`
}

// picture adds to an explanation what its document is as a page.
func (x *Explanation) picture(snap *index.Snapshot, query []float32, of []int, ch *kernels.Chunk, doc int) error {
	payload, err := snap.Payload(x.Ordinal)
	if err != nil {
		return err
	}
	page, err := vectors.PageOf(payload)
	if page == nil {
		if err != nil {
			x.NoGrid = err.Error() // another program has stored it
		}
		return nil
	}
	x.Image = page.Image
	if page.Grid == nil {
		return nil
	}
	stored, side, err := snap.Grid(page, x.Tokens)
	switch {
	case err != nil:
		x.NoGrid = err.Error()
		return nil
	case side == 0:
		x.NoGrid = "tokens were pooled, and not as tiles: which cells they stand for is not known"
		return nil
	}
	g := &GridScores{Rows: page.Grid.Rows, Columns: page.Grid.Columns, Special: x.Tokens - stored.Cells(), Scores: make([]CellScores, len(x.Matches))}
	dim, first := snap.Dim(), int(ch.Offsets[doc])
	products := make([][]float32, len(x.Matches))
	for i := range products {
		products[i] = make([]float32, x.Tokens)
	}
	for t := range x.Tokens {
		token := kernels.OracleDecode(snap.Codec(), ch, first+t)
		for i := range products {
			sum := 0.0
			for j, v := range query[of[i]*dim : (of[i]+1)*dim] {
				sum += float64(float64(v) * token[j])
			}
			products[i][t] = float32(math.Round(sum*1e4) / 1e4)
		}
	}
	for i, p := range products {
		s := CellScores{QueryToken: x.Matches[i].QueryToken, Cells: make([]float32, 0, page.Grid.Cells()), Special: make([]float32, 0, g.Special)}
		for cell := range page.Grid.Cells() {
			row, column := cell/g.Columns/side, cell%g.Columns/side
			s.Cells = append(s.Cells, p[stored.First+row*stored.Columns+column])
		}
		s.Special = append(append(s.Special, p[:stored.First]...), p[stored.End():]...)
		g.Scores[i] = s
	}
	x.Grid = g
	return nil
}
