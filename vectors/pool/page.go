package pool

import (
	"cmp"
	"container/heap"
	"fmt"
	"math"
	"slices"

	"github.com/plaid-ir/plaid/vectors"
)

// Method selects the tokens that are pooled.
type Method string

// The methods.
const (
	// Similar pools similar tokens of a document at any positions ([Pooler.Pool]).
	Similar Method = "similar"
	// Tiles pools squares of cells of a page: for n = 4 two rows by two columns.
	Tiles Method = "tiles"
	// Neighbours pools similar cells of a page that share an edge.
	Neighbours Method = "neighbours"
)

// Methods returns all methods.
func Methods() []Method { return []Method{Similar, Tiles, Neighbours} }

// NeedsPage reports whether the method needs the grid of a page.
func (m Method) NeedsPage() bool { return m == Tiles || m == Neighbours }

// Check checks that the method can pool to one vector in n. "" means [Similar].
func (m Method) Check(n int) error {
	switch {
	case m != "" && !slices.Contains(Methods(), m):
		return fmt.Errorf("pooling by %q; there are %v", m, Methods())
	case m == Tiles && n > 1 && Side(n) == 0:
		return fmt.Errorf("tiles of %d cells; they are squares: 4, 9, 16 and so on are possible", n)
	case m.NeedsPage() && n < 2:
		return fmt.Errorf("pooling by %s, one vector for %d; 2 or more are possible", m, n)
	}
	return nil
}

// CheckPage checks that a document is a page that can be pooled. A nil page means that it is not a page.
func (m Method) CheckPage(page *vectors.Page, tokens int) error {
	if page == nil || page.Grid == nil {
		return fmt.Errorf("%w: pooling by %s needs pages: the fields %s and %s", vectors.ErrFormat, m,
			vectors.ImageField, vectors.GridField)
	}
	return page.Grid.CheckTokens(tokens)
}

// Grid returns the grid of a page after pooling to one vector in n, and the number of rows and columns of
// g that each of its cells covers. If the pools are not a grid, it returns nil and 0.
func (m Method) Grid(g *vectors.Grid, n int) (pooled *vectors.Grid, side int) {
	switch {
	case n < 2:
		return g, 1
	case m == Tiles:
		side = Side(n)
		return g.Tiles(side), side
	}
	return nil, 0
}

// Side returns the number of rows and of columns of a tile of n cells, or 0 if n is not a square.
func Side(n int) int {
	side := int(math.Sqrt(float64(n)) + 0.5)
	if side*side != n {
		return 0
	}
	return side
}

// PooledPageRows returns the number of vectors to which Page reduces a page of this many rows.
func PooledPageRows(rows, n int, by Method, g *vectors.Grid) int {
	cells := PooledRows(g.Cells(), n)
	if by == Tiles {
		cells = g.Tiles(Side(n)).Cells()
	}
	return rows - g.Cells() + cells
}

// Page appends to dst the vectors of a page, of unit length. It replaces n cells, selected by the method,
// by their mean, scaled to unit length. Special tokens before and after the cells stay.
//
// [Neighbours] joins two touching regions at a time, those whose union adds least to the sum of squares
// (Ward's criterion), until one in n remains. Regions are in the order of their first cells. The time is
// about O(L·log L·dim).
func (p *Pooler) Page(dst, x []float32, dim, n int, by Method, g *vectors.Grid) []float32 {
	lo, hi := g.First*dim, g.End()*dim
	dst = append(dst, x[:lo]...)
	if by == Tiles {
		dst = poolTiles(dst, x[lo:hi], dim, Side(n), g)
	} else {
		dst = p.poolNeighbours(dst, x[lo:hi], dim, PooledRows(g.Cells(), n), g)
	}
	return append(dst, x[hi:]...)
}

// poolTiles appends the mean of each square of side × side cells.
func poolTiles(dst, x []float32, dim, side int, g *vectors.Grid) []float32 {
	sum := make([]float64, dim)
	for r := 0; r < g.Rows; r += side {
		for c := 0; c < g.Columns; c += side {
			clear(sum)
			for i := r; i < min(r+side, g.Rows); i++ {
				for j := c; j < min(c+side, g.Columns); j++ {
					cell := (i*g.Columns + j) * dim
					addVector(sum, x[cell:cell+dim])
				}
			}
			dst = appendUnit(dst, sum)
		}
	}
	return dst
}

// addVector adds x to sum.
func addVector(sum []float64, x []float32) {
	for j, v := range x {
		sum[j] += float64(v)
	}
}

// appendUnit appends a vector, scaled to unit length. A zero vector stays zero.
func appendUnit(dst []float32, sum []float64) []float32 {
	var square float64
	for _, v := range sum {
		square += float64(v * v)
	}
	inv := 0.0
	if square > 0 {
		inv = 1 / math.Sqrt(square)
	}
	for _, v := range sum {
		dst = append(dst, float32(v*inv))
	}
	return dst
}

// region is a connected region of cells of an image. Its number is that of its first cell.
type region struct {
	size       float64   // number of cells
	sum        []float64 // of their vectors
	neighbours []int32   // touching regions
	version    int       // number of regions that it absorbed; −1 means that another one absorbed it
}

// union is a candidate for joining two regions. It is outdated once one of them has changed.
type union struct {
	cost               float64 // increase of the sum of squares
	a, b               int32
	versionA, versionB int // the versions of a and b when the cost was computed
}

// unions is a priority queue by ascending cost.
type unions []union

// Len, Swap, Push, Less and Pop implement heap.Interface.
func (u unions) Len() int           { return len(u) }
func (u unions) Swap(i, j int)      { u[i], u[j] = u[j], u[i] }
func (u *unions) Push(x any)        { *u = append(*u, x.(union)) }
func (u unions) Less(i, j int) bool { return compareUnions(&u[i], &u[j]) < 0 }

// Pop implements heap.Interface.
func (u *unions) Pop() any {
	last := (*u)[len(*u)-1]
	*u = (*u)[:len(*u)-1]
	return last
}

// compareUnions compares two unions by cost, and then by the numbers of their regions.
func compareUnions(x, y *union) int {
	return cmp.Or(cmp.Compare(x.cost, y.cost), cmp.Compare(x.a, y.a), cmp.Compare(x.b, y.b))
}

// poolNeighbours joins touching regions until keep remain, and appends their means.
func (p *Pooler) poolNeighbours(dst, x []float32, dim, keep int, g *vectors.Grid) []float32 {
	// Each cell is a region at first.
	regions := make([]region, g.Cells())
	sums := make([]float64, len(x))
	for i := range regions {
		q := &regions[i]
		q.size, q.sum = 1, sums[i*dim:(i+1)*dim]
		addVector(q.sum, x[i*dim:(i+1)*dim])
		row, column := i/g.Columns, i%g.Columns
		if row > 0 {
			q.neighbours = append(q.neighbours, int32(i-g.Columns))
		}
		if column > 0 {
			q.neighbours = append(q.neighbours, int32(i-1))
		}
		if column < g.Columns-1 {
			q.neighbours = append(q.neighbours, int32(i+1))
		}
		if row < g.Rows-1 {
			q.neighbours = append(q.neighbours, int32(i+g.Columns))
		}
	}
	// Queue all pairs of touching cells.
	var queue unions
	enqueue := func(a, b int32) {
		a, b = min(a, b), max(a, b)
		queue = append(queue, union{
			cost:     unionCost(&regions[a], &regions[b]),
			a:        a,
			b:        b,
			versionA: regions[a].version,
			versionB: regions[b].version,
		})
	}
	for i := range regions {
		for _, n := range regions[i].neighbours {
			if n > int32(i) {
				enqueue(int32(i), n)
			}
		}
	}
	heap.Init(&queue)
	// Join the cheapest pair.
	for remaining := len(regions); remaining > keep; {
		u := heap.Pop(&queue).(union)
		a, b := &regions[u.a], &regions[u.b]
		if a.version != u.versionA || b.version != u.versionB {
			continue // outdated
		}
		remaining--
		a.size += b.size
		for j, v := range b.sum {
			a.sum[j] += v
		}
		a.version++
		b.version = -1
		for _, n := range b.neighbours { // regions that touched b touch a now
			q := &regions[n]
			q.neighbours = slices.DeleteFunc(q.neighbours, func(m int32) bool { return m == u.b })
			if n != u.a && !slices.Contains(a.neighbours, n) {
				a.neighbours, q.neighbours = append(a.neighbours, n), append(q.neighbours, u.a)
			}
		}
		for _, n := range a.neighbours {
			enqueue(u.a, n)
			heap.Fix(&queue, len(queue)-1)
		}
	}
	for i := range regions {
		if regions[i].version >= 0 {
			dst = appendUnit(dst, regions[i].sum)
		}
	}
	return dst
}

// unionCost returns the increase of the sum of squares if two regions are joined, and the maximum for values
// that are not finite.
func unionCost(a, b *region) float64 {
	var square float64
	for j, v := range a.sum {
		d := float64(v/a.size) - float64(b.sum[j]/b.size)
		square += float64(d * d)
	}
	if square-square != 0 { // NaN or infinite
		return math.MaxFloat64
	}
	return square * (a.size * b.size / (a.size + b.size))
}
