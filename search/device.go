package search

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
)

// Plans of searches on a device.
const (
	// planDevice: every allowed document is scored exactly.
	planDevice = "device"
	// planDeviceProbe: those that have a token in a probed centroid are.
	planDeviceProbe = "device probe"
)

const (
	// deviceScanTokens is how many tokens a device scores in less time than
	// pruning them would save. Below it mode Pruned scores everything.
	deviceScanTokens = 1 << 26
	// listShare: restrictions to less than one of so many documents are given to
	// the device as a list.
	listShare = 16
)

// onDevice is an index on a device, as part of an engine.
type onDevice struct {
	name       string
	threads    int
	attachment kernels.Attachment
}

// UseDevice puts the index on a device, where this engine's searches run from
// then on, until [Engine.Close]. Documents added or deleted later follow with
// the first search that sees them. An index that does not fit is streamed; see
// [kernels.DeviceStats]. It must not be called beside searches.
//
// Mode Pruned scores all documents where that takes no longer than pruning;
// Approx and Exact have no meaning then. Explain describes the search of the
// processor.
func (e *Engine) UseDevice(ctx context.Context, d kernels.Device, o kernels.AttachOptions) error {
	snap, done, err := e.snapshot()
	if err != nil {
		return err
	}
	defer done()
	a, err := d.Attach(ctx, corpus{snap}, o)
	if err != nil {
		return fmt.Errorf("%s on %s: %w", snap.Path(), d.Info().Name, err)
	}
	if err := e.Close(); err != nil {
		return err
	}
	e.device = &onDevice{name: d.Info().Name, threads: e.threads, attachment: a}
	return nil
}

// DevicePlan says what memory of the device the index takes; ok is false
// without a device.
func (e *Engine) DevicePlan() (p kernels.MemoryPlan, ok bool) {
	if e.device == nil {
		return p, false
	}
	return e.device.attachment.Plan(), true
}

// Close takes the index off the device, if it is on one. The engine can go on
// without.
func (e *Engine) Close() error {
	if e.device == nil {
		return nil
	}
	err := e.device.attachment.Close()
	e.device = nil
	return err
}

// corpus is a snapshot as devices see it.
type corpus struct{ snap *index.Snapshot }

func (c corpus) Codec() *kernels.Codec              { return c.snap.Codec() }
func (c corpus) Lineage() uint64                    { return c.snap.Generation() }
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

// search answers queries on the device, together.
func (d *onDevice) search(ctx context.Context, snap *index.Snapshot, qs []Query, o Options) ([]Result, error) {
	start := time.Now()
	if o.K == 0 {
		o.K = defaultK
	}
	if err := o.validate(); err != nil {
		return nil, err
	}
	r := &run{ctx: ctx, snap: snap, o: o}
	count, err := r.resolve()
	if err != nil {
		return nil, err
	}
	_, live := snap.LiveSet()
	restriction := kernels.DeviceQuery{K: min(o.K, count)}
	plan := planDevice
	switch {
	case count*listShare < live:
		r.listDocs(r.allowed)
		restriction.Docs = slices.Clone(r.docs)
	case count < live:
		restriction.Allowed = r.allowed
	}
	if o.Mode == Pruned && restriction.Docs == nil {
		if restriction.Probes = o.Probes; o.Probes == 0 && int64(snap.State().LiveTokens) > deviceScanTokens {
			restriction.Probes = deviceProbes(o.K)
		}
		if restriction.Probes > 0 {
			plan = planDeviceProbe
		}
	}
	results := make([]Result, len(qs))
	asked := make([]kernels.DeviceQuery, len(qs))
	err = parallel(ctx, snap.Path(), d.threads, len(qs), func(i int) error {
		vectors, weights, err := qs[i].tokens(snap)
		if err != nil {
			return &QueryError{Index: i, Err: err}
		}
		asked[i] = restriction
		asked[i].Vectors, asked[i].Weights = vectors, weights
		st := &results[i].Stats
		*st = r.stats
		st.Queries, st.QueryTokens = 1, len(vectors)/snap.Dim()
		st.Allowed, st.Candidates = int64(count), int64(count)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if count == 0 {
		for i := range results {
			results[i].Hits = []Hit{}
			results[i].Stats.Times.Total = time.Since(start)
		}
		return results, nil
	}
	answers, err := d.attachment.Search(ctx, corpus{snap}, asked)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.name, err)
	}
	err = parallel(ctx, snap.Path(), d.threads, len(qs), func(i int) error {
		if err := hits(&results[i], snap, &answers[i], o.Payload); err != nil {
			return &QueryError{Index: i, Err: err}
		}
		st := &results[i].Stats
		st.Plans = map[string]int{plan: 1}
		st.Times.Total = time.Since(start)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// hits turns the answer of a device into a result.
func hits(res *Result, snap *index.Snapshot, a *kernels.DeviceAnswer, payload bool) (err error) {
	res.Hits = make([]Hit, len(a.Docs))
	for j, doc := range a.Docs {
		res.Hits[j] = Hit{ID: snap.ID(doc), Ordinal: doc, Score: a.Scores[j]}
		if payload {
			if res.Hits[j].Payload, err = snap.Payload(doc); err != nil {
				return err
			}
		}
	}
	st := &res.Stats
	if a.Stats.Candidates > 0 {
		st.Candidates = a.Stats.Candidates
	}
	st.Widened, st.RefinedDocs = a.Stats.Widened, a.Stats.RefinedDocs
	st.ExactDocs = st.Candidates
	st.Device = &a.Stats
	t := &a.Stats.Times
	st.Times = Times{Centroids: t.Centroids, Probe: t.Probe, Exact: t.Scan + t.TopK, Refine: t.Fine}
	return nil
}

// deviceProbes is how many centroids a query token probes on a device, where
// all their documents are scored.
func deviceProbes(k int) int {
	switch {
	case k <= 10:
		return 4
	case k <= 100:
		return 8
	}
	return 16
}

// addDevice adds the figures of a device.
func (s *Stats) addDevice(o *kernels.DeviceStats) {
	if o == nil {
		return
	}
	if s.Device == nil {
		s.Device = new(kernels.DeviceStats)
	}
	s.Device.Add(*o)
}

// answer is search; it turns faults in mapped pages into an error.
func (d *onDevice) answer(ctx context.Context, snap *index.Snapshot, qs []Query, o Options) (res []Result, err error) {
	defer storage.Guard(snap.Path(), &err)()
	return d.search(ctx, snap, qs, o)
}

func (d *onDevice) one(ctx context.Context, snap *index.Snapshot, q Query, o Options) (*Result, error) {
	res, err := d.answer(ctx, snap, []Query{q}, o)
	var failed *QueryError
	if errors.As(err, &failed) {
		return nil, failed.Err
	}
	if err != nil {
		return nil, err
	}
	return &res[0], nil
}
