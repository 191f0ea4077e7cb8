package compressed

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

// The points of a batch at which the device records its clock: the starts of the stages,
// and the end of the last one.
const (
	clockStart = iota
	clockPrepared
	clockCentroids
	clockProbed
	clockScanned
	clockPicked
	clockEnd
	clockPoints
)

// clockAt returns the address for the time of a point. It is 0, so that nothing is recorded, in
// streamed batches, and at the points that the other queries of a probed batch record.
func (b *batch) clockAt(point int) driver.Ptr {
	switch {
	case b.attachment.resident == nil:
		return 0
	case b.notFirst && point == clockProbed,
		b.probedTogether && point == clockScanned,
		b.notLast && point == clockPicked:
		return 0
	}
	return b.outputPtr(b.out.clock + 8*int64(point))
}

// fetchAnswers copies the output to the host, up to an offset.
func (b *batch) fetchAnswers(size int64) error {
	w := &b.rt.Work
	return b.rt.Driver.ToHost(w.HostOut[:size], w.Out.Ptr, b.rt.Stream)
}

// pickResult returns the results of pick for a query: how many documents n belong on the list,
// which may have room for fewer, the threshold of their scores, and the largest error seen as
// a share of the bound.
func (b *batch) pickResult(query int) (n int, limit, share float32) {
	row := b.rt.Work.HostOut[b.out.found+16*int64(query):]
	word := func(i int) uint32 { return binary.LittleEndian.Uint32(row[4*i:]) }
	return int(word(0)), math.Float32frombits(word(1)), math.Float32frombits(word(3))
}

// copyAnswers copies n values of an array of a query from the output.
func copyAnswers[T uint32 | float32](b *batch, array int64, query, n int) []T {
	out := make([]T, n)
	copy(runtime.Bytes(out), b.rt.Work.HostOut[array+4*int64(query*b.capacity):])
	return out
}

// deliverAnswers copies the results of the batch, which began at start, to its requests.
func (b *batch) deliverAnswers(t target, start time.Time) {
	times := b.stageTimes(time.Since(start))
	for i, q := range b.requests {
		n := 0
		q.listedDocs, q.threshold, q.boundShare = b.pickResult(i)
		n = min(q.listedDocs, b.capacity)
		q.ids, q.fine = copyAnswers[uint32](b, b.out.ids, i, n), copyAnswers[float32](b, b.out.fine, i, n)
		q.stats.ScanTokens = t.tiles * tileTokens
		if q.query.Probes > 0 {
			count := func(offset int64) int64 {
				return int64(binary.LittleEndian.Uint32(b.rt.Work.HostOut[offset+4*int64(i):]))
			}
			q.stats.Candidates, q.stats.ScanDocs = count(b.out.candidates), count(b.out.candidates)
			q.stats.ScanTokens = tileTokens * count(b.out.tiles)
			if b.keptDocs(t.docs) > 0 {
				q.stats.ScanDocs = count(b.out.kept)
			}
		}
		wait := q.stats.Times.Wait
		q.stats.Times = times
		q.stats.Times.Wait = wait
	}
}

// stageTimes returns the share of one search in the times of the batch. took is the time that the host
// has measured.
func (b *batch) stageTimes(took time.Duration) (t kernels.DeviceTimes) {
	var clock [clockPoints]uint64
	copy(runtime.Bytes(clock[:]), b.rt.Work.HostOut[b.out.clock:])
	n := time.Duration(b.queries)
	last := clock[clockEnd]
	for _, s := range []struct {
		dst   *time.Duration
		point int
	}{
		{&t.Fine, clockPicked},
		{&t.TopK, clockScanned},
		{&t.Scan, clockProbed},
		{&t.Probe, clockCentroids},
		{&t.Centroids, clockStart},
	} {
		if clock[s.point] == 0 { // no such stage
			continue
		}
		if last > clock[s.point] {
			*s.dst = time.Duration(last-clock[s.point]) / n
		}
		last = clock[s.point]
	}
	busy := time.Duration(0)
	if clock[clockStart] > 0 && clock[clockEnd] > clock[clockStart] {
		busy = time.Duration(clock[clockEnd] - clock[clockStart])
	}
	t.Transfer = max(took-busy, 0) / n
	return t
}

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
		t.query.Probes == o.query.Probes && t.query.Keep == o.query.Keep && t.query.K <= maxTopK && o.query.K <= maxTopK &&
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
