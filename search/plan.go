package search

import (
	"math"
)

// Plan is how a query is answered. The keys of Stats.Plans are the names of plans.
type Plan int

const (
	// PlanProbe probes, prunes and reranks.
	PlanProbe Plan = iota
	// PlanScan computes approximate scores of all allowed documents, without probing. It costs
	// less for small collections and narrow filters.
	PlanScan
	// PlanExact computes exact scores of all allowed documents.
	PlanExact
	// PlanDevice computes exact scores of all allowed documents on a device.
	PlanDevice
	// PlanDeviceProbe computes exact scores on a device: of the documents that have a token in a
	// probed centroid, or only of those with the highest scores by such centroids.
	PlanDeviceProbe
)

var planNames = map[Plan]string{
	PlanProbe: "probe", PlanScan: "scan", PlanExact: "exact", PlanDevice: "device", PlanDeviceProbe: "device probe",
}

func (p Plan) String() string { return planNames[p] }

// request is the options of a call, checked and completed.
type request struct {
	mode                              Mode
	k                                 int
	collectionK                       int     // the k of the options, before it is scaled to the share
	share                             float64 // of the collection. 1 means all of it
	probes, approxBudget, exactBudget int     // 0 means that the number is derived
	effort                            float64 // multiplies derived numbers
	payload                           bool
	group                             Grouping
	passages                          int
	matches                           bool
}

// toRequest checks the options and completes them. With useStored, a search that sets no parameter
// uses those that the index stores for this k. They were measured on searches of the whole index, so
// searches with a filter, of the options or of the query (queryFiltered), derive their own numbers,
// multiplied by the stored effort.
func (o *Options) toRequest(c *collection, useStored, queryFiltered bool) (q request, err error) {
	q = request{
		mode:         o.Mode,
		k:            o.K,
		share:        1,
		probes:       o.Probes,
		approxBudget: o.Approx,
		exactBudget:  o.Exact,
		effort:       o.Effort,
		payload:      o.Payload,
		group:        o.Group,
		passages:     max(o.Passages, 1),
		matches:      o.Matches,
	}
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
	setsParameter := o.Effort != 0 || o.Probes != 0 || o.Approx != 0 || o.Exact != 0
	if !useStored || o.Mode != Pruned || o.Derive || setsParameter {
		return q, nil
	}
	d, ok, err := c.storedDefaults(q.k)
	if !ok {
		return q, err
	}
	if d.Effort > 0 {
		q.effort = min(max(d.Effort, MinEffort), MaxEffort)
	}
	if queryFiltered || o.Filter != nil {
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
	probes, approxBudget, exactBudget int     // an exactBudget of 0 lets the query decide, see [run.rerank]
	deviations                        float64 // how many the query uses to decide
	firstApprox                       int     // of approxBudget, scored before the query decides how many more
}

// firstApproxFactor is how many documents first get an approximate score for each leading document,
// before the query decides how many others get one (docs/lab/search-quality.md).
const firstApproxFactor = 8

// listCost and entryCost are the costs of reading a posting list and an entry of one, in tokens
// scored by centroids.
const listCost, entryCost = 400, 10

// derivedBudgets returns the number of probes, and about how many tokens get an approximate score
// if probing finds as many and K does not ask for more. A million tokens take 0.8 ms of one core.
// Lists are cheap to read, and reading more of them orders candidates better.
//
// More effort goes to tokens first; the number of lists grows with its square root, up to the
// number for which the best centroids are found fast.
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

// choosePlan decides how a query is answered, and its budgets. allowed is how many documents may be
// returned, docs and tokens are the size of the collection. The numbers follow measurements
// (docs/lab/search-quality.md).
//
// For example, of a million documents of 100 tokens, with 131,072 centroids, k = 10 and 32 query
// tokens, probing costs 1.08 million for 256 lists and 1.05 million for approximate scores; a scan
// costs 100 million. If a filter lets 11,000 documents through, probing costs 1.14 million and a
// scan 1.10 million: the documents are scanned.
func (q *request) choosePlan(allowed, docs int, tokens int64, queryTokens, centroids int) plan {
	p := plan{kind: PlanExact, k: q.k, collectionK: q.collectionK, share: q.share}
	if p.share >= 1 {
		p.collectionK = p.k // groups search for more passages than the k of the options
	}
	if q.mode != Pruned || centroids == 1 { // one centroid tells no document from another
		return p
	}
	p.probes, p.approxBudget, p.exactBudget = q.probes, q.approxBudget, q.exactBudget
	if p.exactBudget > 0 {
		p.exactBudget = max(p.exactBudget, p.k)
	}
	exactDocs := p.exactBudget // or about how many the query will score
	if exactDocs == 0 {
		exactDocs = max(4*p.k+shareOfCount(100, p.share), p.k) // a huge K overflows
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
	// A posting list has about tokens/centroids/2 documents, since a document has most of its
	// centroids twice. A document is in several of the lists: the entries have as many documents
	// as 0.6 times as many random draws.
	listsRead := float64(queryTokens * p.probes)
	entries := listsRead * float64(tokens) / float64(centroids) / 2
	candidates := float64(allowed) * -math.Expm1(-0.6*entries/float64(max(docs, 1)))
	approxCost := float64(meanTokens * min(candidates, float64(p.approxBudget)))
	probingCost := float64(listCost*listsRead) + float64(entryCost*entries) + approxCost
	if p.probes == centroids || meanTokens*float64(allowed) <= probingCost { // all lists would find them all
		p.kind, p.approxBudget = PlanScan, max(p.approxBudget, allowed)
	}
	return p
}

// shareMissChance is the chance that a share of a collection has more of its K best documents than
// [KForShare] returns.
const shareMissChance = 1e-4

// KForShare returns how many of the k best documents of a collection a share of it has at most, except
// with a chance of 10⁻⁴: documents are spread at random, so their number is binomial. Of k = 100 a
// share of a quarter has 25 ± 4.3, and KForShare returns 42.
func KForShare(k int, share float64) int {
	if share >= 1 || share <= 0 || k <= 1 {
		return k
	}
	if k > normalFromK { // a normal distribution has 10⁻⁴ beyond 3.72 deviations
		return min(k, int(math.Ceil(float64(float64(k)*share)+4*math.Sqrt(float64(k)*share*(1-share)))))
	}
	// The logarithm of the chance that the share has n of the k follows from that for n−1.
	logChance, logOdds := float64(k)*math.Log1p(-share), math.Log(share)-math.Log1p(-share)
	sum := 0.0
	for n := range k {
		if sum += math.Exp(logChance); 1-sum <= shareMissChance {
			return max(n, 1)
		}
		logChance += logOdds + math.Log(float64(k-n)/float64(n+1))
	}
	return k
}

// normalFromK is the k beyond which KForShare uses the normal approximation.
const normalFromK = 1 << 14

// scaleToShare turns a request for the K best documents of a collection into one to a share of it:
// K becomes the number that the share may have of them, and the budgets shrink with the share.
func (q *request) scaleToShare(share float64) {
	q.k = KForShare(q.k, share)
	if q.approxBudget > 0 {
		q.approxBudget = KForShare(q.approxBudget, share)
	}
	if q.exactBudget > 0 {
		q.exactBudget = KForShare(q.exactBudget, share)
	}
}

// expectedInShare returns how many of the best documents of the collection the share probably has:
// the mean plus one standard deviation. If this share has more, another has fewer, so scoring more
// documents for them would not improve the merged result over that of one index.
func (p *plan) expectedInShare() int {
	if p.share >= 1 {
		return p.k
	}
	mean := float64(p.collectionK) * p.share
	return max(min(p.k, int(math.Ceil(mean+math.Sqrt(mean*(1-p.share))))), 1)
}

// shareOfCount returns the share of n, at least 1.
func shareOfCount(n int, share float64) int {
	return max(int(math.Ceil(float64(float64(n)*share))), 1)
}
