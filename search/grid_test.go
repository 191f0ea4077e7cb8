package search

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors/pool"
)

// The scores of cells are the products with the tokens that stand for them, and the best of
// all is what the match says.
func TestExplainTellsOfCells(t *testing.T) {
	const dim, rows, columns, first, behind = 16, 5, 4, 2, 3
	m := newMaker(3, dim, 20)
	docs := m.Docs("p", 30, first+rows*columns+behind)
	for i := range docs {
		docs[i].Tokens = m.Tokens(first + rows*columns + behind)
		docs[i].Payload = fmt.Appendf(nil, `{"image": "%d.png", "grid": [%d, %d, %d]}`, i, rows, columns, first)
	}
	docs[1].Payload = []byte(`{"image": "https://example.org/1.png"}`)
	docs[2].Payload = []byte(`{"title": "no page"}`)
	for _, o := range []index.BuildOptions{{}, {Pool: 4, PoolBy: pool.Tiles}, {Pool: 3, PoolBy: pool.Neighbours}, {Pool: 2}} {
		some := docs
		if o.PoolBy.OfPages() {
			some = docs[3:]
		}
		ix := searchtest.Build(t, dim, some, &o)
		e := on(t, ix, 1)
		q := m.query(6)
		q.Mask = []bool{true, false, true, true, true, true}
		if !o.PoolBy.OfPages() {
			x := explain(t, e, q, "p1", Options{})
			require.Equal(t, "https://example.org/1.png", x.Image)
			require.Nil(t, x.Grid)
			require.Empty(t, x.NoGrid)
			require.Empty(t, explain(t, e, q, "p2", Options{}).Image)
		}
		x := explain(t, e, q, "p7", Options{})
		require.Equal(t, "7.png", x.Image)
		if o.Pool > 1 && o.PoolBy != pool.Tiles {
			require.Nil(t, x.Grid)
			require.NotEmpty(t, x.NoGrid)
			continue
		}
		side := max(1, pool.Side(max(o.Pool, 1)))
		stored := (columns + side - 1) / side
		require.Equal(t, []int{rows, columns, first + behind}, []int{x.Grid.Rows, x.Grid.Columns, x.Grid.Special})
		require.Len(t, x.Grid.Scores, 5, "what is masked takes no part")
		snap := searchtest.Snapshot(t, ix)
		chunk, doc, _ := snap.Locate(x.Ordinal)
		ch, err := snap.Chunk(chunk, storage.All)
		require.NoError(t, err)
		vectors, _, err := q.Tokens(snap)
		require.NoError(t, err)
		product := func(query, token int) (sum float64) {
			for j, v := range kernels.OracleDecode(snap.Codec(), ch, int(ch.Offsets[doc])+token) {
				sum += v * float64(vectors[query*dim+j])
			}
			return sum
		}
		for i, s := range x.Grid.Scores {
			match := x.Matches[i]
			require.Equal(t, match.QueryToken, s.QueryToken)
			require.Len(t, s.Cells, rows*columns)
			require.Len(t, s.Special, first+behind)
			best := float32(-2)
			for cell, score := range s.Cells {
				token := first + cell/columns/side*stored + cell%columns/side
				require.InDelta(t, product(i, token), score, 1e-4, "cell %d of %v", cell, o.PoolBy)
				best = max(best, score)
			}
			for j, score := range s.Special {
				token := j
				if j >= first {
					token = x.Tokens - (first + behind) + j
				}
				require.InDelta(t, product(i, token), score, 1e-4)
				best = max(best, score)
			}
			require.InDelta(t, match.Score, best, 1e-4)
		}
	}
}
