package search

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
)

// deviceCost has the times of a device in nanoseconds: scan to score a token in order, scanFound
// to score a token of a document that probing found, look to read a token's centroid, rank to rank
// a centroid for a query token, and probe for the fixed cost of probing. They are those of an H200
// (docs/lab/kernels.md); other devices are slower in about the same proportions. It is a variable
// so that tests can probe small collections.
var deviceCost = struct{ scan, scanFound, look, rank, probe float64 }{0.0165, 0.017, 0.0008, 0.001, 70e3}

// probeGain is how much faster than scoring all documents probing must be, since it may lose some.
const probeGain = 1.5

// sentAsListShare is the number of live documents for each allowed one above which the device gets
// a list of the allowed documents.
const sentAsListShare = 16

// onDevice answers queries on a device.
type onDevice struct {
	name       string
	attachment kernels.Attachment
	host       *processor // traces documents
	pool       sync.Pool  // of *[]float32: vectors of the queries of a call
}

// attachSnapshot copies a snapshot to a device.
func attachSnapshot(
	ctx context.Context, host *processor, snap *index.Snapshot, d kernels.Device, o kernels.AttachOptions,
) (*onDevice, error) {
	a, err := d.Attach(ctx, corpus{snap}, o)
	if err != nil {
		return nil, fmt.Errorf("%s on %s: %w", snap.Path(), d.Info().Name, err)
	}
	return &onDevice{name: d.Info().Name, attachment: a, host: host}, nil
}

// describe sets the fields of a description that are about the device.
func (d *onDevice) describe(description *Description) {
	p := d.attachment.Plan()
	description.Device, description.Memory = d.name, &p
}

func (d *onDevice) close() error { return d.attachment.Close() }

// corpus is a snapshot as devices read it. Within a lineage of an index ordinals never change,
// while additions merge segments, and with them chunks, and deleted documents lose their tokens.
type corpus struct{ snap *index.Snapshot }

func (c corpus) Codec() *kernels.Codec              { return c.snap.Codec() }
func (c corpus) Lineage() uint64                    { return c.snap.Lineage() }
func (c corpus) Chunks() int                        { return c.snap.Chunks() }
func (c corpus) ChunkDocs(i int) (uint32, []uint32) { return c.snap.ChunkDocs(i) }
func (c corpus) LiveSet() ([]uint64, int)           { return c.snap.LiveSet() }
func (c corpus) Load(i int) (ch *kernels.Chunk, err error) {
	defer storage.Guard(c.snap.Path(), &err)()
	return c.snap.Chunk(i, storage.All)
}

func (c corpus) Guard(read func() error) (err error) {
	defer storage.Guard(c.snap.Path(), &err)()
	return read()
}

// deviceQueries are the queries of a call in the form that the device takes.
type deviceQueries struct {
	sent        []kernels.DeviceQuery
	sentIndexes []int // the queries that sent has; the filters of the others allow no document
	results     []Result

	vectors      *[]float32 // memory of the vectors of sent
	vectorStarts []int      // where those of each query begin in it
}

// answer answers the queries of a call together: it prepares them on the processor, searches on the
// device, and looks up the hits on the processor.
func (d *onDevice) answer(ctx context.Context, c *call) ([]Result, error) {
	start := time.Now()
	var q deviceQueries
	q.vectors, _ = d.pool.Get().(*[]float32)
	wait, err := c.slots.withSlot(ctx, 0, func() error { return q.prepare(ctx, c) })
	if err != nil {
		return nil, err
	}
	var answers []kernels.DeviceAnswer
	if len(q.sent) > 0 {
		if answers, err = d.searchDevice(ctx, c, q.sent); err != nil {
			return nil, err
		}
	}
	if int64(4*cap(*q.vectors)) <= c.slots.scheduler.maxKeptBytes() {
		d.pool.Put(q.vectors)
	}
	finishWait, err := c.slots.withSlot(ctx, 0, func() error { return q.finish(ctx, c, answers) })
	// Queries of a call are answered together: each gets an equal share of the time.
	queries := time.Duration(max(len(q.results), 1))
	wait += finishWait
	for i := range q.results {
		t := &q.results[i].Stats.Times
		t.Wait, t.Total = wait/queries, (time.Since(start)-wait)/queries
	}
	return q.results, err
}

// searchDevice sends queries to the device. It stops waiting when the engine ends.
func (d *onDevice) searchDevice(
	ctx context.Context, c *call, qs []kernels.DeviceQuery,
) ([]kernels.DeviceAnswer, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.slots.lifetime, cancel)()
	answers, err := d.attachment.Search(ctx, corpus{c.coll.firstSnapshot()}, qs)
	switch {
	case err == nil:
		return answers, nil
	case c.slots.lifetime.Err() != nil:
		return nil, ErrClosed
	}
	return nil, fmt.Errorf("%s: %w", d.name, err)
}

// devicePlan returns how a device answers a query with this many tokens: the plan, the number of
// centroids that a query token probes, and how many of the documents that probing finds get a
// score. 0 means all.
func devicePlan(c *call, allowed *selection, queryTokens int) (p Plan, probes, maxCandidates int) {
	req, snap := &c.request, c.coll.firstSnapshot()
	if req.mode != Pruned || sentAsList(snap, allowed) {
		return PlanDevice, 0, 0
	}
	if req.probes > 0 {
		if req.approxBudget > 0 {
			maxCandidates = max(req.approxBudget, req.k)
		}
		return PlanDeviceProbe, req.probes, maxCandidates
	}
	probes, maxCandidates = deviceProbes(req.collectionK)
	state, lists := snap.State(), c.coll.sharedCodec().Centroids.K
	tokens, docs := float64(state.LiveTokens), float64(state.Live)
	if !probingPays(tokens, docs, float64(lists), float64(queryTokens), float64(probes), float64(maxCandidates)) {
		return PlanDevice, 0, 0
	}
	return PlanDeviceProbe, probes, maxCandidates
}

// probingPays reports whether probing is faster than scanning all tokens by probeGain. Probing
// scans the tokens of the documents that it finds, whose number is estimated as in
// [request.choosePlan].
func probingPays(tokens, docs, centroids, queryTokens, probes, maxCandidates float64) bool {
	if docs == 0 || probes >= centroids {
		return false
	}
	entries := queryTokens * probes * tokens / centroids / 2
	foundShare := -math.Expm1(-0.6 * entries / docs)
	if maxCandidates > 0 {
		foundShare = min(foundShare, maxCandidates/docs)
	}
	c := &deviceCost
	probingTime := c.probe + c.rank*centroids*queryTokens + c.look*tokens + c.scanFound*foundShare*tokens
	return probingTime*probeGain < c.scan*tokens
}

// sentAsList reports whether the device gets a list of the allowed documents, because they are few.
func sentAsList(snap *index.Snapshot, allowed *selection) bool {
	_, live := snap.LiveSet()
	return allowed.count*sentAsListShare < live
}

// prepare checks the queries and completes them.
func (q *deviceQueries) prepare(ctx context.Context, c *call) error {
	n := len(c.queries)
	q.growVectors(c.queries)
	prepared := make([]kernels.DeviceQuery, n)
	q.results = make([]Result, n)
	var w workers
	err := w.forEach(ctx, c, c.threads, n, func(i int) (err error) {
		if err = q.prepareQuery(c, i, &prepared[i]); err != nil {
			return &QueryError{Index: i, Err: err}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i := range prepared {
		if prepared[i].K > 0 {
			q.sent, q.sentIndexes = append(q.sent, prepared[i]), append(q.sentIndexes, i)
		}
	}
	return nil
}

// growVectors allocates memory for the vectors of queries, unless there is enough.
func (q *deviceQueries) growVectors(queries []Query) {
	total := 0
	q.vectorStarts = make([]int, len(queries)+1)
	for i := range queries {
		total += len(queries[i].Vectors)
		q.vectorStarts[i+1] = total
	}
	if q.vectors == nil {
		q.vectors = new([]float32)
	}
	if cap(*q.vectors) < total {
		*q.vectors = make([]float32, total)
	}
}

// prepareQuery completes query i, and begins its result. K of the query stays 0 if no document is allowed.
func (q *deviceQueries) prepareQuery(c *call, i int, query *kernels.DeviceQuery) error {
	allowedDocs, err := c.allowed(i)
	if err != nil {
		return err
	}
	allowed, snap := allowedDocs.shards[0], c.coll.firstSnapshot()
	start, end := q.vectorStarts[i], q.vectorStarts[i+1]
	if query.Vectors, query.Weights, err = c.queries[i].tokens(c.coll, (*q.vectors)[start:end:end]); err != nil {
		return err
	}
	live, liveCount := snap.LiveSet()
	query.K = min(c.request.k, allowed.count)
	kind, probes, maxCandidates := devicePlan(c, allowed, len(query.Vectors)/snap.Dim())
	query.Probes, query.MaxCandidates = probes, maxCandidates
	switch {
	case sentAsList(c.coll.firstSnapshot(), allowed):
		query.Docs = allowed.ordinals()
	case allowed.count < liveCount:
		query.Allowed = allowed.bitset(nil, len(live))
	}
	q.results[i].Hits, q.results[i].K, q.results[i].Coverage = []Hit{}, c.request.k, c.coll.coverage()
	q.results[i].Stats = Stats{
		Queries:       1,
		QueryTokens:   len(query.Vectors) / snap.Dim(),
		Allowed:       int64(allowed.count),
		FilterMissing: int64(allowedDocs.missingIDs),
		Candidates:    int64(allowed.count),
	}
	if query.K > 0 {
		q.results[i].Stats.Plans = map[string]int{kind.String(): 1}
	}
	return nil
}

// finish converts the answers of the device to results.
func (q *deviceQueries) finish(ctx context.Context, c *call, answers []kernels.DeviceAnswer) error {
	var w workers
	return w.forEach(ctx, c, c.threads, len(answers), func(j int) error {
		i := q.sentIndexes[j]
		if err := fillResult(&q.results[i], c.coll, &answers[j], c.request.payload); err != nil {
			return &QueryError{Index: i, Err: err}
		}
		return nil
	})
}

// fillResult fills a result with the answer of a device.
func fillResult(res *Result, c *collection, a *kernels.DeviceAnswer, payload bool) (err error) {
	sh := &c.shards[0]
	locate := func(i int) located { return located{sh, a.Docs[i], a.Scores[i]} }
	if res.Hits, err = newHits(len(a.Docs), locate, payload); err != nil {
		return err
	}
	st := &res.Stats
	if a.Stats.Candidates > 0 {
		st.Candidates = a.Stats.Candidates
	}
	st.ExactDocs = st.Candidates
	if a.Stats.ScanDocs > 0 {
		st.ExactDocs = a.Stats.ScanDocs
	}
	st.Widened, st.RefinedDocs, st.BoundShare = a.Stats.Widened, a.Stats.RefinedDocs, a.Stats.BoundShare
	st.Device = &a.Stats
	t := &a.Stats.Times
	st.Times = Times{Centroids: t.Centroids, Probe: t.Probe, Exact: t.Scan + t.TopK, Refine: t.Fine}
	return nil
}

// deviceProbes returns how many centroids a query token probes on a device, and how many of the
// documents that have them get an exact score. 0 means all (docs/lab/kernels.md).
func deviceProbes(k int) (probes, maxCandidates int) {
	switch {
	case k <= 10:
		return 8, 8192
	case k <= 100:
		return 8, 0
	}
	return 16, 0
}

// traceDocument repeats the search on the processor, with a plan that drops a document at the stage
// where the device does.
func (d *onDevice) traceDocument(ctx context.Context, c *call, t *trace) error {
	var kind Plan
	p := plan{kind: PlanExact, k: c.request.k, collectionK: c.request.collectionK, share: c.request.share}
	_, err := c.slots.withSlot(ctx, 0, func() error {
		allowed, err := c.allowed(0)
		if err != nil {
			return err
		}
		tokens, _, err := c.queries[0].tokens(c.coll, nil) // as the device gets them, without those that are masked
		if err != nil {
			return err
		}
		n := len(tokens) / c.coll.firstSnapshot().Dim()
		var maxCandidates int
		if kind, p.probes, maxCandidates = devicePlan(c, allowed.shards[0], n); kind == PlanDeviceProbe {
			p.kind, p.approxBudget, p.firstApprox, p.exactBudget = PlanProbe, math.MaxInt, math.MaxInt, math.MaxInt
			if maxCandidates > 0 {
				p.approxBudget = maxCandidates
			}
			p.probes = min(p.probes, c.coll.sharedCodec().Centroids.K)
		}
		return nil
	})
	if err != nil {
		return err
	}
	var res Result
	if err := d.host.answerQuery(ctx, c, 0, c.threads, &p, t, &res); err != nil {
		return err
	}
	if t.plan != "" { // names the plan of the repeated search
		t.plan = kind.String()
	}
	return nil
}
