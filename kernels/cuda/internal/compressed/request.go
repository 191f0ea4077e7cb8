package compressed

import (
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

// request is a query on its way through the device: its scores by the scan,
// and the fine scores of the best of them.
type request struct {
	runtime.Ticket
	at     *attachment
	corpus kernels.Corpus
	q      *kernels.DeviceQuery
	groups int
	want   int // documents that get a fine score
	docs   int // of the corpus
	// Also of the corpus, which is not asked while the queue is locked.
	lineage uint64
	live    []uint64

	// Filled by the device: the best by the scan, in order.
	ids    []uint32
	coarse []float32
	fine   []float32
	bound  float32 // of the error of coarse
	stats  kernels.DeviceStats
}

func newRequest(at *attachment, c kernels.Corpus, q *kernels.DeviceQuery, groups, want int) *request {
	t := &request{at: at, corpus: c, q: q, groups: groups, want: want, docs: corpusDocs(c), lineage: c.Lineage()}
	t.live, _ = c.LiveSet()
	return t
}

// Joins reports whether two searches can share launches: those of one snapshot,
// which has one live set, with the same restriction, which is all documents, or
// one and the same filter or list. Probed searches run by themselves.
func (t *request) Joins(other runtime.Request) bool {
	o, ok := other.(*request)
	return ok && t.at == o.at && t.docs == o.docs && t.lineage == o.lineage && same(t.live, o.live) &&
		t.q.Probes == 0 && o.q.Probes == 0 && t.want <= maxTopK && o.want <= maxTopK &&
		same(t.q.Docs, o.q.Docs) && same(t.q.Allowed, o.q.Allowed)
}

// Size counts groups of query tokens.
func (t *request) Size() int { return t.groups }

// Room is how many groups fit into the workspace.
func (t *request) Room() int { return t.at.maxGroups }

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
	if t.q.Allowed != nil {
		return t.q.Allowed
	}
	return t.live
}

// same reports whether two slices are one.
func same[T any](a, b []T) bool {
	return len(a) == len(b) && (a == nil) == (b == nil) && (len(a) == 0 || &a[0] == &b[0])
}
