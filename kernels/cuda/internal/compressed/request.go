package compressed

import (
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

// request is a query on its way through the device, which lists the documents
// that can be among the best by the scan, and gives those their fine scores.
type request struct {
	runtime.Ticket
	attachment *attachment
	corpus     kernels.Corpus
	query      *kernels.DeviceQuery
	groups     int
	room       int     // documents that may be listed
	slack      float32 // see PickParams
	worst      bool    // the bound of the scan is the worst
	docs       int     // of the corpus
	// Also of the corpus, which is not asked while the queue is locked.
	lineage uint64
	live    []uint64

	// Filled by the device.
	ids   []uint32  // of the listed documents, in no order
	fine  []float32 // their scores
	found int       // documents to be listed; more than ids where there was no room
	limit float32   // no document that was not to be listed has this fine score
	share float32   // largest error of the scan that was seen, of its bound
	stats kernels.DeviceStats
}

func newRequest(at *attachment, c kernels.Corpus, q *kernels.DeviceQuery, groups, room int, slack float32) *request {
	t := &request{attachment: at, corpus: c, query: q, groups: groups, slack: slack, docs: corpusDocs(c), lineage: c.Lineage()}
	t.room = max(min(room, t.docs), 1)
	t.live, _ = c.LiveSet()
	return t
}

// Joins reports whether two searches can share launches: those of one snapshot,
// which has one live set, with the same restriction, which is all documents, or
// one and the same filter or list, and as many probes.
func (t *request) Joins(other runtime.Request) bool {
	o, ok := other.(*request)
	return ok && t.attachment == o.attachment && t.docs == o.docs && t.lineage == o.lineage && same(t.live, o.live) &&
		t.query.Probes == o.query.Probes && t.query.K <= maxTopK && o.query.K <= maxTopK &&
		same(t.query.Docs, o.query.Docs) && same(t.query.Allowed, o.query.Allowed)
}

// Size counts groups of query tokens.
func (t *request) Size() int { return t.groups }

// Room is how many groups fit into the workspace.
func (t *request) Room() int {
	if t.query.Probes > 0 {
		return min(t.attachment.maxGroups, mostProbed)
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

// restriction is the set of documents that may be returned.
func (t *request) restriction() []uint64 {
	if t.query.Allowed != nil {
		return t.query.Allowed
	}
	return t.live
}

// same reports whether two slices are one.
func same[T any](a, b []T) bool {
	return len(a) == len(b) && (a == nil) == (b == nil) && (len(a) == 0 || &a[0] == &b[0])
}
