package cpu

import "github.com/plaid-ir/plaid/kernels/maxsim"

// grouped are the pairs of a call by query or by document.
type grouped struct {
	pairs  *maxsim.Pairs
	work   maxsim.Work
	byDoc  bool
	order  []int32 // the pairs of item i, in their order: order[starts[i]] and on
	starts []int32
}

// reset groups pairs. Where all meet all there is nothing to do.
func (g *grouped) reset(pairs *maxsim.Pairs, w maxsim.Work, byDoc bool) {
	g.pairs, g.work, g.byDoc = pairs, w, byDoc
	if pairs.Kind == maxsim.AllPairs {
		return
	}
	items := w.Q.Len()
	if byDoc {
		items = w.D.Len()
	}
	g.order = resize(g.order, w.Pairs)
	g.starts = resize(g.starts, items+2)
	clear(g.starts)
	starts := g.starts[1:] // one ahead, until all have been put down
	for p := range w.Pairs {
		starts[g.item(p)+1]++
	}
	for i := range items {
		starts[i+1] += starts[i]
	}
	for p := range w.Pairs {
		i := g.item(p)
		g.order[starts[i]] = int32(p)
		starts[i]++
	}
}

func (g *grouped) item(pair int) int {
	q, d := g.pairs.At(pair, g.work.D.Len())
	if g.byDoc {
		return d
	}
	return q
}

// count is how many pairs an item has; pair is one of them.
func (g *grouped) count(item int) int {
	if g.pairs.Kind != maxsim.AllPairs {
		return int(g.starts[item+1] - g.starts[item])
	}
	n := g.work.Pairs / max(g.work.Q.Len(), 1)
	if !g.byDoc {
		return n
	}
	if item < g.pairs.First || item >= g.pairs.First+n {
		return 0
	}
	return g.work.Q.Len()
}

func (g *grouped) pair(item, i int) int {
	if g.pairs.Kind != maxsim.AllPairs {
		return int(g.order[int(g.starts[item])+i])
	}
	n := g.work.Pairs / g.work.Q.Len()
	if g.byDoc {
		return i*n + item - g.pairs.First
	}
	return item*n + i
}
