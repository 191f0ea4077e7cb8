package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
)

// cellRule chooses what is computed exactly.
type cellRule struct {
	name string
	step int     // query tokens that are scored together
	unit float64 // between two relaxations that are tried
	// find returns k candidates, and notes what it looked at.
	find func(c *cells, r *reveals, k int, relax float64) []int
}

// rules: that of the engine, which scores whole documents; Col-Bandit's
// (arXiv 2602.02827) with what it knows of a document from its own cells; and its order
// of looking with what the engine knows, approximate scores and leading documents.
var rules = []cellRule{
	{"budget", 32, 0.125, budgetRule},
	{"Col-Bandit", 1, 0.005, banditRule},
	{"cells after leaders", 1, 0.125, afterLeaders},
	{"8 cells after leaders", 8, 0.125, afterLeaders},
	{"documents after leaders", 32, 0.125, afterLeaders},
}

// reveals counts what a rule looked at.
type reveals struct {
	step         int
	whole, steps int    // documents that are scored at once, and steps of others
	touched      []bool // of which something was looked at
}

// report looks for the least relaxation that finds enough, and prints its line.
func (s *cellStudy) report(w io.Writer, r cellRule, k int, wanted float64) {
	const tried = 64
	var line string
	sort.Search(tried, func(n int) bool {
		recall, figures := s.apply(r, k, r.unit*float64(n))
		if recall >= wanted {
			line = figures
		}
		return recall >= wanted
	})
	fmt.Fprint(w, line)
}

// apply is the recall of a rule, and what it looks at.
func (s *cellStudy) apply(r cellRule, k int, relax float64) (recall float64, line string) {
	var candidates, seen, cellsAll, touched, hits, want, ms float64
	for _, c := range s.all {
		got := reveals{step: r.step, touched: make([]bool, c.len())}
		for _, i := range r.find(c, &got, k, relax) {
			if c.wanted[i] {
				hits++
			}
		}
		for _, t := range got.touched {
			if t {
				touched++
			}
		}
		want += float64(c.relevant)
		candidates += float64(c.len())
		seen += float64(got.whole*c.width + got.steps*r.step)
		cellsAll += float64(c.len() * c.width)
		mean := float64(c.tokens) / float64(c.len())
		ms += mean * (float64(got.whole)*s.cost[32].mean() + float64(got.steps)*s.cost[r.step].mean()) / 1e6
	}
	n := float64(len(s.all))
	return hits / want, fmt.Sprintf("| %d | %s | %.3g | %.4f | %.0f | %.0f | %.1f | %.2f |\n", k, r.name, relax, hits/want, candidates/n, touched/n, 100*seen/cellsAll, ms/n)
}

// total is the sum of a candidate's cells, of the query tokens that are listed.
func (c *cells) total(of []float32, i int) (sum float64) {
	for _, v := range of[i*c.width:][:c.width] {
		sum += float64(v)
	}
	return sum
}

// leading is how many documents the engine scores first.
func leading(k int) int { return k + k/4 + 32 }

// budgetRule is that of the engine (search/rerank.go) with so many deviations.
func budgetRule(c *cells, r *reveals, k int, deviations float64) []int {
	n, limit := 0, math.Inf(-1)
	var exact []float64
	for round := range 3 {
		upTo := min(n+leading(k), c.len())
		if round == 2 {
			upTo = c.len()
		}
		for ; n < upTo && c.total(c.approx, n) > limit; n++ {
			exact = append(exact, c.total(c.exact, n))
			r.touched[n] = true
			r.whole++
		}
		var gaps spread
		for i, score := range exact {
			gaps.add(score - c.total(c.approx, i))
		}
		sorted := slices.Sorted(slices.Values(exact))
		if n < k {
			continue
		}
		limit = sorted[n-k] - gaps.mean() - deviations*gaps.deviation()
	}
	return best(exact, k)
}

// banditStart is how many cells of each document Col-Bandit sees at first; two are the
// least that vary.
const banditStart = 2

// banditRule sees query tokens in an order by lot. The sum of a document's cells lies
// between 0 and 1 a cell that is not seen, and within the empirical radius of Bernstein and
// Serfling for draws without replacement (Bardenet and Maillard, 2015), times alpha.
func banditRule(c *cells, r *reveals, k int, alpha float64) []int {
	doubt := math.Log(5 / 0.01) // one bound in a hundred fails
	order := rand.New(rand.NewPCG(1, uint64(c.len()))).Perm(c.width)
	of, total := make([]spread, c.len()), float64(c.width)
	see := func(i, n int) { of[i].add(float64(c.exact[i*c.width+order[n]])) }
	for i := range of {
		for n := range banditStart {
			see(i, n)
		}
		r.steps += banditStart
		r.touched[i] = true
	}
	return separate(c, r, k, slices.Repeat([]int{banditStart}, c.len()), see, func(i, n int) bound {
		s, seen := of[i], float64(n)
		rho := 1 - (seen-1)/total
		if 2*n > c.width {
			rho = (1 - seen/total) * (1 + 1/seen)
		}
		radius := alpha * total * (s.deviation()*math.Sqrt(2*rho*doubt/seen) + (7.0/3+3/math.Sqrt2)*doubt/seen)
		mid := total * s.mean()
		return bound{max(s.sum, mid-radius), mid, min(s.sum+total-seen, mid+radius)}
	})
}

// afterLeaders scores leading documents whole. By how much their cells exceed approximate
// ones, and how much that varies, stands for cells of others that are not seen. Query
// tokens that vary most are seen first.
func afterLeaders(c *cells, r *reveals, k int, deviations float64) []int {
	lead := min(leading(k), c.len())
	order, vary := make([]int, c.width), make([]float64, c.width)
	excess := func(i, t int) float64 { return float64(c.exact[i*c.width+t] - c.approx[i*c.width+t]) }
	for t := range order {
		var s spread
		for i := range lead {
			s.add(excess(i, t))
		}
		order[t], vary[t] = t, s.deviation()
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(vary[b], vary[a]) })
	rest := make([]spread, c.width+1) // of the cells from so many on
	sums, seen := make([]float64, c.len()), make([]int, c.len())
	for i := range sums {
		if sums[i] = c.total(c.approx, i); i >= lead {
			continue
		}
		sums[i], seen[i] = c.total(c.exact, i), c.width
		r.touched[i] = true
		r.whole++
		var left float64
		for n := c.width; n > 0; n-- {
			rest[n].add(left)
			left += excess(i, order[n-1])
		}
		rest[0].add(left)
	}
	see := func(i, n int) { sums[i] += excess(i, order[n]) }
	return separate(c, r, k, seen, see, func(i, n int) bound {
		mid, radius := sums[i]+rest[n].mean(), deviations*rest[n].deviation()
		return bound{mid - radius, mid, mid + radius}
	})
}
