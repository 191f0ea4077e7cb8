package search

import "math"

// hidden is the chance that a share of a collection has more of the K best documents than
// [Keep] says.
const hidden = 1e-4

// Keep is how many of the k best documents of a collection a share of it has at most, but for
// a chance of 10⁻⁴: documents being spread at random, their number is binomial. Of k = 100 a
// fourth has 25, give or take 4.3, and Keep is 42.
func Keep(k int, share float64) int {
	if share >= 1 || share <= 0 || k <= 1 {
		return k
	}
	if k > manyKept { // 10⁻⁴ of a normal distribution is beyond 3.72 deviations
		return min(k, int(math.Ceil(float64(float64(k)*share)+4*math.Sqrt(float64(k)*share*(1-share)))))
	}
	// log of the chance that it has n: from one n to the next by a factor.
	log, odds := float64(k)*math.Log1p(-share), math.Log(share)-math.Log1p(-share)
	sum := 0.0
	for n := range k {
		if sum += math.Exp(log); 1-sum <= hidden {
			return max(n, 1)
		}
		log += odds + math.Log(float64(k-n)/float64(n+1))
	}
	return k
}

// manyKept is from where on Keep approximates.
const manyKept = 1 << 14

// within is a request to a share of a collection, of the K best documents of all of it: so many
// are looked for as the share may have of them, and budgets are the share's.
func (q *request) within(share float64) {
	q.k = Keep(q.k, share)
	if q.approx > 0 {
		q.approx = Keep(q.approx, share)
	}
	if q.exact > 0 {
		q.exact = Keep(q.exact, share)
	}
}

// expected is how many of the best documents of the collection are in the share, and one
// deviation more. What a share has beyond that another one lacks: to score for more of them
// makes the merged result no better than that of one index.
func (p *plan) expected() int {
	if p.share >= 1 {
		return p.k
	}
	mean := float64(p.of) * p.share
	return max(min(p.k, int(math.Ceil(mean+math.Sqrt(mean*(1-p.share))))), 1)
}

// shareOf is the share of a number, and at least 1.
func shareOf(n int, share float64) int {
	return max(int(math.Ceil(float64(float64(n)*share))), 1)
}
