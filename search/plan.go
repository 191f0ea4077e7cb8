package search

// Plan is how a query is answered.
type Plan int

const (
	// PlanProbe: probe, prune, rerank.
	PlanProbe Plan = iota
	// PlanScan: approximate scores of all allowed documents, no probing. For
	// collections and filters so small that probing would reach most of them.
	PlanScan
	// PlanExact: exact scores of all allowed documents.
	PlanExact
)

var planNames = map[Plan]string{PlanProbe: "probe", PlanScan: "scan", PlanExact: "exact"}

func (p Plan) String() string { return planNames[p] }

const (
	defaultK = 10
	// scanTokens is how many tokens are scored by centroids in less time than
	// probing and gathering postings takes.
	scanTokens = 1 << 17
)

// choose settles plan and budgets of a query. allowed is how many documents
// may be returned, docs and tokens the size of the collection, lists the
// number of centroids.
//
// Probes follow measurements on seven collections (docs/search-quality.md): four a
// query token reach 99.5 % of the top 10. Eight reach 99 % of the top 100 but in
// CoSQA, whose documents are short; twelve do there too. Exact stays 0 where the
// query itself is to decide, see [run.rerank].
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
	if o.Approx == 0 {
		o.Approx = max(1<<16, 64*o.K)
	}
	o.Approx = max(o.Approx, exact)
	probesGiven := o.Probes > 0
	if !probesGiven {
		switch {
		case o.K <= 10:
			o.Probes = 4
		case o.K <= 100:
			o.Probes = 12
		default:
			o.Probes = 16
		}
	}
	o.Probes = min(o.Probes, lists)
	if allowed <= exact {
		return PlanExact
	}
	// A scan gives every allowed document an approximate score, and probing all
	// lists finds them all.
	if allowed > o.Approx {
		return PlanProbe
	}
	if probesGiven {
		if o.Probes == lists {
			return PlanScan
		}
		return PlanProbe
	}
	// A posting list has about tokens/lists/2 documents, since a document has
	// most of its centroids twice; and a document is in several of the lists, so
	// that twice as many entries as documents still leave half of them out.
	mean := float64(tokens) / float64(max(docs, 1))
	reached := float64(queryTokens*o.Probes) * float64(tokens) / float64(lists) / 2
	if float64(allowed)*mean <= scanTokens || reached >= 2*float64(allowed) || 4*reached*float64(allowed) <= float64(exact)*float64(docs) {
		return PlanScan
	}
	return PlanProbe
}
