package search

import "math"

// Plan is how a query is answered.
type Plan int

const (
	// PlanProbe: probe, prune, rerank.
	PlanProbe Plan = iota
	// PlanScan: approximate scores of all allowed documents, no probing. For
	// collections and filters so small that it costs less.
	PlanScan
	// PlanExact: exact scores of all allowed documents.
	PlanExact
)

var planNames = map[Plan]string{PlanProbe: "probe", PlanScan: "scan", PlanExact: "exact"}

func (p Plan) String() string { return planNames[p] }

const (
	defaultK = 10
	// What probing costs, in tokens scored by centroids.
	listCost, entryCost = 400, 10
)

// derived is the number of probes, and about how many tokens get a score by
// centroids if probing finds as many and K does not ask for more: a million
// takes 0.8 ms of one core. Lists are cheap to read, and the more of them are
// read, the better is the order that they give.
func derived(k int) (probes int, approxTokens float64) {
	switch {
	case k <= 10:
		return 8, 1 << 20
	case k <= 100:
		return 24, 2 << 20
	}
	return 32, 2 << 20
}

// choose settles plan and budgets of a query. allowed is how many documents
// may be returned, docs and tokens the size of the collection, lists the
// number of centroids.
//
// The numbers follow measurements (docs/search-quality.md). Exact stays 0 where
// the query itself is to decide, see [run.rerank].
func (o *Options) choose(allowed, docs int, tokens int64, queryTokens, lists int) Plan {
	if o.Mode != Pruned {
		return PlanExact
	}
	if o.Exact > 0 {
		o.Exact = max(o.Exact, o.K)
	}
	exact := o.Exact // or about what a query will take
	if exact == 0 {
		exact = max(4*o.K+100, o.K) // of a huge K, which overflows
	}
	mean := max(float64(tokens)/float64(max(docs, 1)), 1)
	probesGiven, approxGiven := o.Probes > 0, o.Approx > 0
	probes, approxTokens := derived(o.K)
	if !approxGiven {
		o.Approx = max(2*mostExact(o.K), int(approxTokens/mean))
	}
	o.Approx = max(o.Approx, exact)
	if !probesGiven {
		o.Probes = probes
	}
	o.Probes = min(o.Probes, lists)
	if allowed <= exact {
		return PlanExact
	}
	// A scan gives every allowed document an approximate score.
	if approxGiven && allowed > o.Approx {
		return PlanProbe
	}
	if probesGiven && o.Probes < lists {
		return PlanProbe
	}
	// A posting list has about tokens/lists/2 documents, since a document has
	// most of its centroids twice; and a document is in several of the lists.
	read := float64(queryTokens * o.Probes)
	entries := read * float64(tokens) / float64(lists) / 2
	found := float64(allowed) * -math.Expm1(-0.6*entries/float64(max(docs, 1)))
	probing := float64(listCost*read) + float64(entryCost*entries) + float64(mean*min(found, float64(o.Approx)))
	if o.Probes == lists || mean*float64(allowed) <= probing { // all lists would find them all
		o.Approx = max(o.Approx, allowed)
		return PlanScan
	}
	return PlanProbe
}
