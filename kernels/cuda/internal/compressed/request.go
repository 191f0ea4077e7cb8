package compressed

import (
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

// request is a query for the device, which scans the documents, lists those that may be among
// the best, and computes the fine scores of the listed ones.
type request struct {
	runtime.Ticket
	attachment *attachment
	corpus     kernels.Corpus
	query      *kernels.DeviceQuery
	groups     int
	capacity   int     // documents that may be listed
	slack      float32 // see PickParams
	worstBound bool    // the bound of the scan is the worst
	docs       int     // of the corpus
	// The output of writeAlike for a shape, computed before the request is queued.
	alike      []byte
	alikeShape *shape
	// Copied from the corpus, since no method of it may be called while the queue is locked.
	lineage uint64
	live    []uint64

	// Results of the device.
	ids        []uint32  // of the listed documents, in no order
	fine       []float32 // their scores
	listedDocs int       // documents that belong on the list; more than ids if it was too short
	threshold  float32   // fine scores of documents that do not belong on the list are below
	boundShare float32   // largest observed error of the scan, divided by its bound
	stats      kernels.DeviceStats
}

// newRequest returns a request for a validated query with a number of groups of query tokens.
func newRequest(a *attachment, c kernels.Corpus, q *kernels.DeviceQuery, groups, capacity int, slack float32) *request {
	t := &request{
		attachment: a,
		corpus:     c,
		query:      q,
		groups:     groups,
		slack:      slack,
		docs:       documentCount(c),
		lineage:    c.Lineage(),
	}
	t.capacity = max(min(capacity, t.docs), 1)
	t.live, _ = c.LiveSet()
	return t
}

// countAlike counts the query tokens that are alike, for the codec of the last upload.
func (t *request) countAlike() {
	if s := t.attachment.latestShape.Load(); s != nil && s.dim == t.corpus.Codec().Dim() {
		t.alike, t.alikeShape = make([]byte, 4*t.groups*columns), s
		s.writeAlike(t.alike, t.query.Vectors, t.groups)
	}
}

// Joins reports whether two searches can share launches: they are on the same snapshot, whose
// live set is the same slice, have the same filter or list of documents or none, and
// probe the same number of centroids.
func (t *request) Joins(other runtime.Request) bool {
	o, ok := other.(*request)
	return ok && t.attachment == o.attachment && t.docs == o.docs && t.lineage == o.lineage && sameSlice(t.live,
		o.live) &&
		t.query.Probes == o.query.Probes && t.query.MaxCandidates == o.query.MaxCandidates &&
		t.query.K <= maxTopK && o.query.K <= maxTopK &&
		sameSlice(t.query.Docs, o.query.Docs) && sameSlice(t.query.Allowed, o.query.Allowed)
}

// BatchShare returns the number of groups of query tokens.
func (t *request) BatchShare() int { return t.groups }

// BatchLimit returns how many groups fit into the workspace.
func (t *request) BatchLimit() int {
	if t.query.Probes > 0 {
		return min(t.attachment.maxGroups, maxProbedQueries)
	}
	return t.attachment.maxGroups
}

// Run answers a batch.
func (t *request) Run(rt *runtime.Runtime, batch []runtime.Request) error {
	requests := make([]*request, len(batch))
	for i, r := range batch {
		requests[i] = r.(*request)
	}
	return runBatch(rt, requests)
}

// restriction returns the set of documents that may be returned, as bits.
func (t *request) restriction() []uint64 {
	if t.query.Allowed != nil {
		return t.query.Allowed
	}
	return t.live
}

// sameSlice reports whether two slices have the same memory and length.
func sameSlice[T any](a, b []T) bool {
	return len(a) == len(b) && (a == nil) == (b == nil) && (len(a) == 0 || &a[0] == &b[0])
}
