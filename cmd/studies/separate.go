package main

import (
	"cmp"
	"math"
	"slices"
)

// bound is what is known of a sum.
type bound struct{ low, mid, high float64 }

// separate sees cells until the k documents that seem best are at least as good as all
// others by their bounds. It is LUCB (Kalyanakrishnan et al., 2012): of the least sure of
// the best and the most promising of the others, the one that is known less is looked at.
func separate(c *cells, r *reveals, k int, seen []int, see func(i, n int), bounds func(i, n int) bound) []int {
	k = min(k, c.len())
	known, mids := make([]bound, c.len()), make([]float64, c.len())
	for i := range known {
		known[i] = bounds(i, seen[i])
		mids[i] = known[i].mid
	}
	inside, worst, weakest := make([]bool, c.len()), newLargest(c.len()), newLargest(c.len())
	next, strongest := newLargest(c.len()), newLargest(c.len())
	place := func(i int) {
		none, b := math.Inf(-1), known[i]
		if inside[i] {
			worst.set(i, -b.mid)
			weakest.set(i, -b.low)
			next.set(i, none)
			strongest.set(i, none)
		} else {
			worst.set(i, none)
			weakest.set(i, none)
			next.set(i, b.mid)
			strongest.set(i, b.high)
		}
	}
	for _, i := range best(mids, k) {
		inside[i] = true
	}
	for i := range known {
		place(i)
	}
	for k < c.len() {
		if in, out := worst.at(), next.at(); known[out].mid > known[in].mid {
			inside[in], inside[out] = false, true
			place(in)
			place(out)
			continue
		}
		in, out := weakest.at(), strongest.at()
		if known[in].low >= known[out].high {
			break
		}
		i := in
		if known[out].high-known[out].low > known[in].high-known[in].low {
			i = out
		}
		r.touched[i] = true
		r.steps++
		for range min(r.step, c.width-seen[i]) {
			see(i, seen[i])
			seen[i]++
		}
		known[i] = bounds(i, seen[i])
		place(i)
	}
	var found []int
	for i, in := range inside {
		if in {
			found = append(found, i)
		}
	}
	return found
}

// largest finds the largest of numbers that change.
type largest struct {
	half   int
	values []float64 // a binary tree, of which each node is the larger below it
}

func newLargest(n int) *largest {
	l := &largest{half: 1}
	for l.half < n {
		l.half *= 2
	}
	l.values = make([]float64, 2*l.half)
	for i := range l.values {
		l.values[i] = math.Inf(-1)
	}
	return l
}

func (l *largest) set(i int, v float64) {
	at := l.half + i
	l.values[at] = v
	for at /= 2; at > 0; at /= 2 {
		l.values[at] = max(l.values[2*at], l.values[2*at+1])
	}
}

// at is where it is.
func (l *largest) at() int {
	at := 1
	for at < l.half {
		if at *= 2; l.values[at] < l.values[at+1] {
			at++
		}
	}
	return at - l.half
}

// best are the k largest.
func best(scores []float64, k int) []int {
	order := make([]int, len(scores))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(scores[b], scores[a]), a-b) })
	return order[:min(k, len(order))]
}

// spread is of numbers that are added.
type spread struct{ n, sum, square float64 }

func (s *spread) add(x float64) { s.n++; s.sum += x; s.square += x * x }

func (s *spread) mean() float64 { return s.sum / s.n }

func (s *spread) deviation() float64 { return math.Sqrt(max(s.square/s.n-s.mean()*s.mean(), 0)) }
