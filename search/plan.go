package search

import (
	"math"
)

// Plan is how a query is answered; the keys of Stats.Plans are their names.
type Plan int

const (
	// PlanProbe: probe, prune, rerank.
	PlanProbe Plan = iota
	// PlanScan: approximate scores of all allowed documents, no probing. For
	// collections and filters so small that it costs less.
	PlanScan
	// PlanExact: exact scores of all allowed documents.
	PlanExact
	// PlanDevice: exact scores of all allowed documents, on a device.
	PlanDevice
	// PlanDeviceProbe: exact scores of the documents that have a token in a probed
	// centroid, or only of those that gain most by such centroids, on a device.
	PlanDeviceProbe
)

var planNames = map[Plan]string{
	PlanProbe: "probe", PlanScan: "scan", PlanExact: "exact", PlanDevice: "device", PlanDeviceProbe: "device probe",
}

func (p Plan) String() string { return planNames[p] }

// request is what the options of a call ask for.
type request struct {
	mode                              Mode
	k                                 int
	collectionK                       int     // k of the collection, of which a share is searched; k without one
	share                             float64 // 1: all of it
	probes, approxBudget, exactBudget int     // 0: derived
	effort                            float64 // by which that is multiplied
	payload                           bool
	group                             Grouping
	passages                          int
	matches                           bool
}

// toRequest checks the options and completes them. With tuned, what the index has
// stored for searches of this k stands in for parameters if the search names none.
// Parameters were found on searches of the whole index, so those of a filter, which
// leaves another number of documents, are derived; an effort multiplies these too.
func (o *Options) toRequest(c *collection, tuned, filtered bool) (q request, err error) {
	q = request{mode: o.Mode, k: o.K, share: 1, probes: o.Probes, approxBudget: o.Approx, exactBudget: o.Exact, effort: o.Effort, payload: o.Payload, group: o.Group, passages: max(o.Passages, 1), matches: o.Matches}
	if q.k == 0 {
		q.k = defaultK
	}
	q.collectionK = q.k
	if q.effort == 0 {
		q.effort = 1
	}
	if err := o.Check(); err != nil {
		return q, err
	}
	if o.Share > 0 && o.Group == "" {
		q.share = o.Share
		defer func() { q.scaleToShare(o.Share) }()
	}
	if !tuned || o.Mode != Pruned || o.Derive || o.Effort != 0 || o.Probes != 0 || o.Approx != 0 || o.Exact != 0 {
		return q, nil
	}
	d, ok, err := c.storedDefaults(q.k)
	if !ok {
		return q, err
	}
	if d.Effort > 0 {
		q.effort = min(max(d.Effort, LeastEffort), MostEffort)
	}
	if filtered || o.Filter != nil {
		return q, err
	}
	q.probes, q.approxBudget, q.exactBudget = d.Probes, d.Approx, d.Exact
	if d.Scan {
		q.probes = AllProbes
	}
	return q, err
}

// plan is how the processor answers one query.
type plan struct {
	kind                              Plan
	k                                 int
	collectionK                       int     // as in request
	share                             float64 // as in request
	probes, approxBudget, exactBudget int     // exact 0: the query itself decides, see [run.rerank]
	deviations                        float64 // in which case this is how many deviations it takes
	firstApprox                       int     // of approx, before the query decides how many more
}

// firstApproxFactor is how many times as many documents as leading ones get a score by centroids
// before the query decides how many others do (docs/lab/search-quality.md).
const firstApproxFactor = 8

// What probing costs, in tokens scored by centroids.
const listCost, entryCost = 400, 10

// derivedBudgets is the number of probes, and about how many tokens get a score by
// centroids if probing finds as many and K does not ask for more: a million
// takes 0.8 ms of one core. Lists are cheap to read, and the more of them are
// read, the better is the order that they give.
//
// More effort is spent on tokens first, and on lists by its root, as far as the best of
// many centroids are found fast.
func derivedBudgets(k int, effort float64) (probes int, approxTokens float64) {
	switch {
	case k <= 10:
		probes, approxTokens = 8, 1<<20
	case k <= 100:
		probes, approxTokens = 24, 2<<20
	default:
		probes, approxTokens = maxInsertProbes, 2<<20
	}
	probes = min(max(int(math.Round(float64(probes)*math.Sqrt(effort))), 1), maxInsertProbes)
	return probes, float64(approxTokens * effort)
}

// choosePlan settles how a query is answered, and its budgets. allowed is how many
// documents may be returned, docs and tokens the size of the collection, lists the
// number of centroids. The numbers follow measurements (docs/lab/search-quality.md).
//
// For example of a million documents of 100 tokens, 131,072 centroids, k = 10 and 32 query tokens
// probing costs 1.08 million for 256 lists and 1.05 million for approximate scores, a scan 100
// million. If a filter lets 11,000 documents through it is 1.14 against 1.10: it is scanned.
func (q *request) choosePlan(allowed, docs int, tokens int64, queryTokens, centroids int) plan {
	p := plan{kind: PlanExact, k: q.k, collectionK: q.collectionK, share: q.share}
	if p.share >= 1 {
		p.collectionK = p.k // which grows where documents are made of passages
	}
	if q.mode != Pruned || centroids == 1 { // one centroid tells no document from another
		return p
	}
	p.probes, p.approxBudget, p.exactBudget = q.probes, q.approxBudget, q.exactBudget
	if p.exactBudget > 0 {
		p.exactBudget = max(p.exactBudget, p.k)
	}
	exactDocs := p.exactBudget // or about what a query will take
	if exactDocs == 0 {
		exactDocs = max(4*p.k+shareOfCount(100, p.share), p.k) // of a huge K, which overflows
	}
	meanTokens := max(float64(tokens)/float64(max(docs, 1)), 1)
	probes, approxTokens := derivedBudgets(p.collectionK, q.effort)
	p.deviations = neededDeviations(p.collectionK, float64(float64(allowed)/p.share), q.effort)
	if q.approxBudget == 0 {
		p.approxBudget = max(maxExactDocs(p.k, p.share), int(float64(approxTokens*p.share)/meanTokens))
	}
	p.approxBudget = max(p.approxBudget, exactDocs)
	if p.firstApprox = p.approxBudget; p.exactBudget == 0 {
		p.firstApprox = min(p.approxBudget, firstApproxFactor*leaderCount(min(p.k, 1<<40), p.share))
	}
	if q.probes == 0 {
		p.probes = probes
	}
	p.probes = min(p.probes, centroids)
	if allowed <= exactDocs {
		return p
	}
	p.kind = PlanProbe
	// A scan gives every allowed document an approximate score.
	if q.approxBudget > 0 && allowed > p.approxBudget || q.probes > 0 && p.probes < centroids {
		return p
	}
	// A posting list has about tokens/lists/2 documents, since a document has
	// most of its centroids twice; and a document is in several of the lists.
	listsRead := float64(queryTokens * p.probes)
	entries := listsRead * float64(tokens) / float64(centroids) / 2
	candidates := float64(allowed) * -math.Expm1(-0.6*entries/float64(max(docs, 1)))
	probingCost := float64(listCost*listsRead) + float64(entryCost*entries) + float64(meanTokens*min(candidates, float64(p.approxBudget)))
	if p.probes == centroids || meanTokens*float64(allowed) <= probingCost { // all lists would find them all
		p.kind, p.approxBudget = PlanScan, max(p.approxBudget, allowed)
	}
	return p
}

// shareMissChance is the chance that a share of a collection has more of the K best documents than
// [Keep] says.
const shareMissChance = 1e-4

// Keep is how many of the k best documents of a collection a share of it has at most, but for
// a chance of 10⁻⁴: documents being spread at random, their number is binomial. Of k = 100 a
// fourth has 25, give or take 4.3, and Keep is 42.
func Keep(k int, share float64) int {
	if share >= 1 || share <= 0 || k <= 1 {
		return k
	}
	if k > normalFromK { // 10⁻⁴ of a normal distribution is beyond 3.72 deviations
		return min(k, int(math.Ceil(float64(float64(k)*share)+4*math.Sqrt(float64(k)*share*(1-share)))))
	}
	// log of the chance that it has n: from one n to the next by a factor.
	log, odds := float64(k)*math.Log1p(-share), math.Log(share)-math.Log1p(-share)
	sum := 0.0
	for n := range k {
		if sum += math.Exp(log); 1-sum <= shareMissChance {
			return max(n, 1)
		}
		log += odds + math.Log(float64(k-n)/float64(n+1))
	}
	return k
}

// normalFromK is from where on Keep approximates.
const normalFromK = 1 << 14

// scaleToShare is a request to a share of a collection, of the K best documents of all of it: so many
// are looked for as the share may have of them, and budgets are the share's.
func (q *request) scaleToShare(share float64) {
	q.k = Keep(q.k, share)
	if q.approxBudget > 0 {
		q.approxBudget = Keep(q.approxBudget, share)
	}
	if q.exactBudget > 0 {
		q.exactBudget = Keep(q.exactBudget, share)
	}
}

// expectedInShare is how many of the best documents of the collection are in the share, and one
// deviation more. What a share has beyond that another one lacks: to score for more of them
// makes the merged result no better than that of one index.
func (p *plan) expectedInShare() int {
	if p.share >= 1 {
		return p.k
	}
	mean := float64(p.collectionK) * p.share
	return max(min(p.k, int(math.Ceil(mean+math.Sqrt(mean*(1-p.share))))), 1)
}

// shareOfCount is the share of a number, and at least 1.
func shareOfCount(n int, share float64) int {
	return max(int(math.Ceil(float64(float64(n)*share))), 1)
}
