package pool

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/vectors"
)

// partsOf joins cells that touch.
func partsOf(x []float32, dim, keep int, g *vectors.Grid) [][]int {
	return wardPools(x, dim, keep, func(a, b []int) bool {
		for _, i := range a {
			for _, j := range b {
				rows, columns := i/g.Columns-j/g.Columns, i%g.Columns-j%g.Columns
				if rows*rows+columns*columns == 1 {
					return true
				}
			}
		}
		return false
	})
}

func tilesOf(side int, g *vectors.Grid) (parts [][]int) {
	across := (g.Columns + side - 1) / side
	parts = make([][]int, across*((g.Rows+side-1)/side))
	for i := range g.Cells() {
		tile := i/g.Columns/side*across + i%g.Columns/side
		parts[tile] = append(parts[tile], i)
	}
	return parts
}

func TestPagesArePooledByTheirGrids(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p Pooler
		dim := rapid.IntRange(2, 8).Draw(t, "dim")
		g := &vectors.Grid{Rows: rapid.IntRange(1, 5).Draw(t, "rows"), Columns: rapid.IntRange(1, 5).Draw(t, "columns"), First: rapid.IntRange(0, 3).Draw(t, "first")}
		rows := g.End() + rapid.IntRange(0, 3).Draw(t, "behind")
		x := clustered(rows, dim, 1+rows/3, 0.6, rapid.Uint64().Draw(t, "seed"))
		before := slices.Clone(x)
		cells := x[g.First*dim : g.End()*dim]
		for _, c := range []struct {
			n     int
			by    Method
			parts [][]int
		}{
			{4, Tiles, tilesOf(2, g)}, {9, Tiles, tilesOf(3, g)},
			{2, Neighbours, partsOf(cells, dim, PooledRows(g.Cells(), 2), g)}, {5, Neighbours, partsOf(cells, dim, PooledRows(g.Cells(), 5), g)},
		} {
			got := p.Page([]float32{7}, x, dim, c.n, c.by, g)[1:]
			require.Equal(t, before, x, "input was changed")
			require.Len(t, got, PooledPageRows(rows, c.n, c.by, g)*dim)
			require.Equal(t, x[:g.First*dim], got[:g.First*dim], "special tokens stay")
			require.Equal(t, x[g.End()*dim:], got[len(got)-(rows-g.End())*dim:])
			for i, part := range c.parts {
				mean := make([]float32, dim)
				for _, cell := range part {
					for j, v := range cells[cell*dim : (cell+1)*dim] {
						mean[j] += v
					}
				}
				normalizeRow(mean)
				at := (g.First + i) * dim
				require.InDeltaSlice(t, mean, got[at:at+dim], 1e-5, "%s %d: part %d of %v", c.by, c.n, i, c.parts)
			}
		}
	})
}

func TestPageEdges(t *testing.T) {
	var p Pooler
	g := &vectors.Grid{Rows: 1, Columns: 3}
	nan := float32(math.NaN())
	require.Len(t, p.Page(nil, []float32{nan, 1, nan}, 1, 2, Neighbours, g), 2, "what was refused elsewhere does no harm")
	require.Equal(t, []float32{0, 0}, p.Page(nil, []float32{1, 0, -1, 0}, 2, 4, Tiles, &vectors.Grid{Rows: 2, Columns: 1}), "no direction together")
	require.Len(t, p.Page(nil, make([]float32, 6), 2, 3, Neighbours, g), 2)
	require.NoError(t, Method("").Check(3))
	require.NoError(t, Tiles.Check(16))
	require.NoError(t, Neighbours.Check(3))
	for _, c := range []struct {
		by Method
		n  int
	}{{"squares", 4}, {Tiles, 3}, {Tiles, 1}, {Neighbours, 0}} {
		require.Error(t, c.by.Check(c.n), "%v", c)
	}
}
