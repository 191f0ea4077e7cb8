package pool

import (
	"cmp"
	"container/heap"
	"fmt"
	"math"
	"slices"

	"github.com/plaid-ir/plaid/vectors"
)

// Method says which tokens become one.
type Method string

// The methods.
const (
	// Similar pools similar tokens of a document, wherever they are ([Pooler.Pool]).
	Similar Method = "similar"
	// Tiles pools squares of cells of a page: with n = 4 two rows by two columns.
	Tiles Method = "tiles"
	// Neighbours pools similar cells of a page that touch, over an edge.
	Neighbours Method = "neighbours"
)

// Methods are all that there are.
func Methods() []Method { return []Method{Similar, Tiles, Neighbours} }

// OfPages tells whether the method needs the grid of a page.
func (m Method) OfPages() bool { return m == Tiles || m == Neighbours }

// Check finds what is wrong with a method for one vector in n; "" is [Similar].
func (m Method) Check(n int) error {
	switch {
	case m != "" && !slices.Contains(Methods(), m):
		return fmt.Errorf("pooling by %q; there are %v", m, Methods())
	case m == Tiles && n > 1 && Side(n) == 0:
		return fmt.Errorf("tiles of %d cells; they are squares: 4, 9, 16 and so on are possible", n)
	case m.OfPages() && n < 2:
		return fmt.Errorf("pooling by %s, one vector for %d; 2 or more are possible", m, n)
	}
	return nil
}

// CheckPage refuses a document that cannot be pooled as pages are. A nil page means that the document is not one.
func (m Method) CheckPage(page *vectors.Page, tokens int) error {
	if page == nil || page.Grid == nil {
		return fmt.Errorf("%w: pooling by %s needs pages: the fields %s and %s", vectors.ErrFormat, m,
			vectors.ImageField, vectors.GridField)
	}
	return page.Grid.Check(tokens)
}

// Grid returns the grid of a page of which one vector in n is left, and how many rows and columns of the page's
// own grid each cell stands for. After pooling that leaves no grid it is nil, and side 0.
func (m Method) Grid(g *vectors.Grid, n int) (left *vectors.Grid, side int) {
	switch {
	case n < 2:
		return g, 1
	case m == Tiles:
		side = Side(n)
		return g.Tiles(side), side
	}
	return nil, 0
}

// Side is how many rows and columns a tile of n cells has; 0: it is no square.
func Side(n int) int {
	side := int(math.Sqrt(float64(n)) + 0.5)
	if side*side != n {
		return 0
	}
	return side
}

// PageRows is the number of vectors that Page makes of a page of so many.
func PageRows(rows, n int, by Method, g *vectors.Grid) int {
	cells := Rows(g.Cells(), n)
	if by == Tiles {
		cells = g.Tiles(Side(n)).Cells()
	}
	return rows - g.Cells() + cells
}

// Page appends to dst the vectors of a page, of unit length, with one for n of its cells, as
// the method has it: their mean, scaled to unit length. Special tokens stay as they are,
// before and after the cells. By [Neighbours] two parts of the picture that touch are joined
// at a time, those whose union adds least to the sum of squares (Ward's criterion), until one
// in n is left; they come in the order of their first cells. The time is about
// O(L·log L·dim).
func (p *Pooler) Page(dst, x []float32, dim, n int, by Method, g *vectors.Grid) []float32 {
	lo, hi := g.First*dim, g.End()*dim
	dst = append(dst, x[:lo]...)
	if by == Tiles {
		dst = tiles(dst, x[lo:hi], dim, Side(n), g)
	} else {
		dst = p.neighbours(dst, x[lo:hi], dim, Rows(g.Cells(), n), g)
	}
	return append(dst, x[hi:]...)
}

func tiles(dst, x []float32, dim, side int, g *vectors.Grid) []float32 {
	sum := make([]float64, dim)
	for r := 0; r < g.Rows; r += side {
		for c := 0; c < g.Columns; c += side {
			clear(sum)
			for i := r; i < min(r+side, g.Rows); i++ {
				for j := c; j < min(c+side, g.Columns); j++ {
					at := (i*g.Columns + j) * dim
					add(sum, x[at:at+dim])
				}
			}
			dst = unit(dst, sum)
		}
	}
	return dst
}

func add(sum []float64, x []float32) {
	for j, v := range x {
		sum[j] += float64(v)
	}
}

// unit appends a vector, scaled to unit length; zero stays zero.
func unit(dst []float32, sum []float64) []float32 {
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

// part of a picture: cells that hang together. It has the number of its first cell.
type part struct {
	size  float64
	sum   []float64
	next  []int32 // parts that it touches
	joins int     // how often it has changed; −1: it is in another one
}

// union is what joining two parts adds to the sum of squares, as they were when it was
// worked out.
type union struct {
	cost           float64
	a, b           int32
	joinsA, joinsB int
}

type unions []union

// Len and what follows implement heap.Interface.
func (u unions) Len() int           { return len(u) }
func (u unions) Swap(i, j int)      { u[i], u[j] = u[j], u[i] }
func (u *unions) Push(x any)        { *u = append(*u, x.(union)) }
func (u unions) Less(i, j int) bool { return order(&u[i], &u[j]) < 0 }

// Pop implements heap.Interface.
func (u *unions) Pop() any {
	last := (*u)[len(*u)-1]
	*u = (*u)[:len(*u)-1]
	return last
}

func order(x, y *union) int {
	return cmp.Or(cmp.Compare(x.cost, y.cost), cmp.Compare(x.a, y.a), cmp.Compare(x.b, y.b))
}

func (p *Pooler) neighbours(dst, x []float32, dim, keep int, g *vectors.Grid) []float32 {
	parts := make([]part, g.Cells())
	sums := make([]float64, len(x))
	for i := range parts {
		q := &parts[i]
		q.size, q.sum = 1, sums[i*dim:(i+1)*dim]
		add(q.sum, x[i*dim:(i+1)*dim])
		row, column := i/g.Columns, i%g.Columns
		for _, n := range []struct {
			is bool
			at int
		}{{row > 0, i - g.Columns}, {column > 0, i - 1}, {column < g.Columns-1, i + 1}, {row < g.Rows-1, i + g.Columns}} {
			if n.is {
				q.next = append(q.next, int32(n.at))
			}
		}
	}
	var queue unions
	consider := func(a, b int32) {
		a, b = min(a, b), max(a, b)
		queue = append(queue, union{cost(&parts[a], &parts[b]), a, b, parts[a].joins, parts[b].joins})
	}
	for i := range parts {
		for _, n := range parts[i].next {
			if n > int32(i) {
				consider(int32(i), n)
			}
		}
	}
	heap.Init(&queue)
	for left := len(parts); left > keep; {
		u := heap.Pop(&queue).(union)
		a, b := &parts[u.a], &parts[u.b]
		if a.joins != u.joinsA || b.joins != u.joinsB {
			continue // one of them is not what it was
		}
		left--
		a.size += b.size
		for j, v := range b.sum {
			a.sum[j] += v
		}
		a.joins++
		b.joins = -1
		for _, n := range b.next { // what touched b touches a
			q := &parts[n]
			q.next = slices.DeleteFunc(q.next, func(m int32) bool { return m == u.b })
			if n != u.a && !slices.Contains(a.next, n) {
				a.next, q.next = append(a.next, n), append(q.next, u.a)
			}
		}
		for _, n := range a.next {
			consider(u.a, n)
			heap.Fix(&queue, len(queue)-1)
		}
	}
	for i := range parts {
		if parts[i].joins >= 0 {
			dst = unit(dst, parts[i].sum)
		}
	}
	return dst
}

// cost is what the union of two parts adds to the sum of squares. What is no number is as
// far as can be.
func cost(a, b *part) float64 {
	var square float64
	for j, v := range a.sum {
		d := float64(v/a.size) - float64(b.sum[j]/b.size)
		square += float64(d * d)
	}
	if square-square != 0 {
		return math.MaxFloat64
	}
	return square * (a.size * b.size / (a.size + b.size))
}
