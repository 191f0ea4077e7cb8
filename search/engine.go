package search

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
)

// EngineOptions of an [Engine]. The zero value, or nil, searches on all processors.
type EngineOptions struct {
	// Threads bounds the goroutines of one call; 0: one a processor.
	Threads int
	// Device, where set, is where the engine searches: the index is put on it when
	// the engine is made, and taken off when it is closed. Documents added or
	// deleted meanwhile follow with the first search that sees them. An index that
	// does not fit is streamed; see [kernels.DeviceStats]. A device that is lost, or
	// that a panic has ended ([kernels.PanicError]), fails all later searches; there
	// is no fallback to the processor. The device stays the caller's.
	//
	// Mode Pruned scores all documents on a device where that takes no longer than
	// pruning; Approx and Exact have no meaning then.
	Device kernels.Device
	// Attach says how the index is put on the device; its Bound is that below.
	Attach kernels.AttachOptions
	// Bound says which errors of coarse scores searches allow for, on the
	// processor and on a device; by default a probable one.
	Bound kernels.Bound
	// Scheduler decides when the engine's queries run; nil: that of all engines of
	// the process that are not given one.
	Scheduler *Scheduler
	// Logger hears of faults of this program, with their stacks, which are errors
	// of a search to its caller; nil: nobody does.
	Logger *slog.Logger
}

// Engine answers queries from an index in this process. It is a [Searcher].
type Engine struct{ searcher }

// searcher is what an [Engine] and a [Multi] have in common.
type searcher struct {
	*core
	open source
}

// source gives what is to be searched, until done.
type source func() (c *collection, done func(), err error)

// pinnedSource gives snapshots that somebody else closes.
func pinnedSource(snaps ...*index.Snapshot) source {
	return func() (*collection, func(), error) { return newCollection(snaps...), func() {}, nil }
}

// core is what engines on the same device share.
type core struct {
	threads            int
	scheduler          *Scheduler
	log                *slog.Logger
	stages             stages
	host               *processor // answers what devices cannot
	usesStoredDefaults bool       // what the index has stored counts: it was found on the processor
	multi              bool       // indexes are searched as one

	mu       sync.Mutex
	closed   bool
	running  sync.WaitGroup  // calls
	lifetime context.Context // ends with Close
	close    func() error
}

// stages answer the queries of a call where the engine searches: on the processor
// or on a device.
type stages interface {
	// answer answers all queries. The error of one of them is a *QueryError.
	answer(ctx context.Context, c *call) ([]Result, error)
	// follow answers the first query and traces a document through the stages.
	traceDocument(ctx context.Context, c *call, t *trace) error
	describe(d *Description)
	close() error
}

// call is one call of a searcher's methods, as its stages see it.
type call struct {
	coll    *collection
	queries []Query
	request request
	// filtered is the request of queries that have a filter of their own.
	filtered request
	threads  int                               // of the whole call
	allowed  func(i int) (*allowedDocs, error) // for when query i runs
	slots    callSlots
}

// New returns an engine for an index. Each search sees the index as it is when
// the search begins. The context ends waiting for the device, if there is one.
func New(ctx context.Context, ix *index.Index, o *EngineOptions) (*Engine, error) {
	return newEngine(ctx, o, func() (*collection, func(), error) {
		snap, err := ix.Snapshot()
		if err != nil {
			return nil, nil, err
		}
		return newCollection(snap), func() { _ = snap.Close() }, nil
	})
}

// NewAt returns an engine for one snapshot, which the caller closes after the
// engine.
func NewAt(ctx context.Context, snap *index.Snapshot, o *EngineOptions) (*Engine, error) {
	return newEngine(ctx, o, pinnedSource(snap))
}

func newEngine(ctx context.Context, o *EngineOptions, open source) (*Engine, error) {
	if o == nil {
		o = &EngineOptions{}
	}
	c, err := newCore(o)
	if err != nil {
		return nil, err
	}
	if o.Device != nil {
		coll, done, err := open()
		if err != nil {
			return nil, err
		}
		defer done()
		attachOptions := o.Attach
		attachOptions.Bound = o.Bound
		if c.stages, err = attachSnapshot(ctx, c.host, coll.firstSnapshot(), o.Device, attachOptions); err != nil {
			return nil, err
		}
		c.usesStoredDefaults = false
	}
	return &Engine{searcher{c, open}}, nil
}

// newCore makes one that searches on the processor.
func newCore(o *EngineOptions) (*core, error) {
	if o.Threads < 0 {
		return nil, fmt.Errorf("%w: %d threads", ErrOption, o.Threads)
	}
	if o.Bound != kernels.Probable && o.Bound != kernels.Worst {
		return nil, fmt.Errorf("%w: %v", ErrOption, o.Bound)
	}
	host := &processor{bound: o.Bound}
	c := &core{threads: o.Threads, scheduler: o.Scheduler, log: o.Logger, stages: host, host: host, usesStoredDefaults: true}
	if c.threads == 0 {
		c.threads = parallel.Processors()
	}
	if c.scheduler == nil {
		c.scheduler = processScheduler()
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	var cancel context.CancelFunc
	c.lifetime, cancel = context.WithCancel(context.Background())
	c.close = sync.OnceValue(func() error {
		c.mu.Lock()
		c.closed = true
		c.mu.Unlock()
		cancel()
		c.running.Wait()
		return c.stages.close()
	})
	return c, nil
}

// At returns an engine that answers from one snapshot where this one searches,
// with the same device and scheduler. The two end together, when either is closed;
// the snapshot stays open until then.
func (e *Engine) At(snap *index.Snapshot) *Engine {
	return &Engine{searcher{e.core, pinnedSource(snap)}}
}

// Close implements [Searcher]. It takes the index, or each of several, off its device, if it is on
// one, and leaves it open. Other calls wait for the first.
func (s *searcher) Close() error { return s.close() }

// acquireCollection takes what a call searches, which Close waits for until done.
func (s *searcher) acquireCollection() (coll *collection, done func(), err error) {
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.running.Add(1)
	}
	s.mu.Unlock()
	if closed {
		return nil, nil, ErrClosed
	}
	coll, release, err := s.open()
	if err != nil {
		s.running.Done()
		return nil, nil, err
	}
	return coll, func() { release(); s.running.Done() }, nil
}

// searchContext is the context of a call: it has ended when the caller's has, or the
// engine. Whoever waits must wait for the end of both.
type searchContext struct {
	context.Context
	lifetime context.Context
}

func (s *searchContext) Err() error {
	if s.lifetime.Err() != nil {
		return ErrClosed
	}
	return s.Context.Err()
}

// newCall prepares the stages for queries with the same options.
func (c *core) newCall(ctx context.Context, coll *collection, qs []Query, o *Options) (*call, error) {
	unfiltered, err := o.toRequest(coll, c.usesStoredDefaults, false)
	if err != nil {
		return nil, err
	}
	filtered, err := o.toRequest(coll, c.usesStoredDefaults, true)
	if err != nil {
		return nil, err
	}
	call := &call{
		coll: coll, queries: qs, request: unfiltered, filtered: filtered, threads: c.threads, allowed: o.allowedByQuery(ctx, coll, qs),
		slots: c.newSlots(ctx),
	}
	if call.slots.background {
		call.threads = 1
	}
	return call, nil
}

// newSlots returns the turn of a call.
func (c *core) newSlots(ctx context.Context) callSlots {
	return callSlots{scheduler: c.scheduler, lifetime: c.lifetime, background: ctx.Value(backgroundKey{}) != nil}
}

// requestFor is what query i asks for.
func (c *call) requestFor(i int) *request {
	if c.queries[i].Filter != nil {
		return &c.filtered
	}
	return &c.request
}

// Search answers one query.
//
// Errors: [ErrQuery], [ErrOption], [ErrUnknownID], [ErrClosed],
// [storage.ErrCorrupt], and those of the context and of the device.
func (s *searcher) Search(ctx context.Context, q Query, o Options) (*Result, error) {
	results, err := s.SearchBatch(ctx, []Query{q}, o)
	if err != nil {
		return nil, singleQueryError(err)
	}
	return &results[0], nil
}

// SearchBatch implements [Searcher].
func (s *searcher) SearchBatch(ctx context.Context, qs []Query, o Options) ([]Result, error) {
	coll, done, err := s.acquireCollection()
	if err != nil {
		return nil, err
	}
	defer done()
	if len(qs) == 0 {
		return []Result{}, ctx.Err()
	}
	searchCtx := &searchContext{ctx, s.lifetime}
	var results []Result
	err = searchCtx.Err()
	if err == nil {
		results, err = s.answer(searchCtx, coll, qs, &o)
	}
	if err != nil {
		return nil, s.batchError(ctx, err)
	}
	return results, nil
}

func (c *core) answer(ctx context.Context, coll *collection, qs []Query, o *Options) (results []Result, err error) {
	defer storage.Guard(coll.firstSnapshot().Path(), &err)()
	call, err := c.newCall(ctx, coll, qs, o)
	if err != nil {
		return nil, err
	}
	if o.Feedback != nil {
		return c.answerWithFeedback(ctx, coll, qs, o)
	}
	if !o.InBlocks() {
		return c.rankFromStart(ctx, call)
	}
	return Paged(*o, func(o Options) ([]Result, error) {
		call, err := c.newCall(ctx, coll, qs, &o)
		if err != nil {
			return nil, err
		}
		return c.rankFromStart(ctx, call)
	})
}

// rankFromStart answers queries from the best document on.
func (c *core) rankFromStart(ctx context.Context, call *call) (results []Result, err error) {
	grouped := call.request.group != ""
	if grouped {
		if call.coll.hasPassages() {
			return c.host.answer(ctx, call)
		}
		call.request.group, call.filtered.group = "", "" // documents are what is found anyway
	}
	if results, err = c.searchUngrouped(ctx, call); err != nil || !grouped {
		return results, err
	}
	for i := range results {
		for j := range results[i].Hits {
			h := &results[i].Hits[j]
			h.Passages = []Hit{*h}
			h.Matches, h.Tokens = nil, 0
		}
	}
	return results, nil
}

// searchUngrouped are results without groups. A device tells no matches: the processor does, of what the
// device has found.
func (engine *core) searchUngrouped(ctx context.Context, c *call) ([]Result, error) {
	if !c.request.matches || engine.stages == stages(engine.host) {
		return engine.stages.answer(ctx, c)
	}
	c = withCachedAllowed(c)
	results, err := engine.stages.answer(ctx, c)
	if err != nil {
		return nil, err
	}
	rescoring := *c
	rescoring.slots = c.slots.newSlots()
	for _, r := range []*request{&rescoring.request, &rescoring.filtered} {
		r.mode, r.k, r.payload, r.share = Exhaustive, 1, false, 1
		for i := range results {
			r.k = max(r.k, len(results[i].Hits))
		}
	}
	rescoring.allowed = func(i int) (*allowedDocs, error) { return allowHits(c.coll, results[i].Hits), nil }
	rescored, err := engine.host.answer(ctx, &rescoring)
	if err != nil {
		return nil, err
	}
	for i := range results {
		rescoredHits := map[Place]*Hit{}
		for j := range rescored[i].Hits {
			h := &rescored[i].Hits[j]
			rescoredHits[Place{h.Shard, h.Ordinal}] = h
		}
		for j := range results[i].Hits {
			h := &results[i].Hits[j]
			if t := rescoredHits[Place{h.Shard, h.Ordinal}]; t != nil {
				h.Matches, h.Tokens = t.Matches, t.Tokens
			}
		}
	}
	return results, nil
}

// batchError is the error of a batch: of its first query, if it has no number, unless
// the context or the engine has ended.
func (c *core) batchError(ctx context.Context, err error) error {
	var searchPanic *storage.PanicError
	var devicePanic *kernels.PanicError
	switch {
	case errors.As(err, &searchPanic):
		c.log.Error("a search panicked", "error", err, "stack", string(searchPanic.Stack))
	case errors.As(err, &devicePanic):
		c.log.Error("a device panicked", "error", err, "stack", string(devicePanic.Stack))
	}
	if errors.Is(err, ErrClosed) {
		return ErrClosed
	}
	var queryErr *QueryError
	if errors.As(err, &queryErr) || ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return err
	}
	return &QueryError{Err: err}
}

// singleQueryError is the error of a query that was searched alone, which needs no number.
func singleQueryError(err error) error {
	var queryErr *QueryError
	if errors.As(err, &queryErr) {
		return queryErr.Err
	}
	return err
}

// Describe implements [Searcher]. Of several indexes Generation is the sum of theirs.
func (s *searcher) Describe(ctx context.Context) (d Description, err error) {
	coll, done, err := s.acquireCollection()
	if err != nil {
		return d, err
	}
	defer done()
	if err := ctx.Err(); err != nil {
		return d, err
	}
	snap := coll.firstSnapshot()
	defer storage.Guard(snap.Path(), &err)()
	h := snap.Header()
	d = Description{
		Dim: h.Dim, Centroids: h.Centroids, Nbits: snap.Codec().Codebook.Nbits, Model: h.Model,
		Generation: snap.Generation(), Lineage: snap.Lineage(), Backend: snap.Backend(), Threads: s.threads,
	}
	for i := range coll.shards {
		st := coll.shards[i].snap.State()
		d.Docs += int64(st.Documents())
		d.Passages += int64(st.Passages)
		d.Tokens += st.LiveTokens
		if n := coll.shards[i].snap.Header().Build.Pool; n > 1 {
			d.Pool = max(d.Pool, n)
		}
	}
	if s.multi {
		coll.describeShards(&d)
	}
	s.stages.describe(&d)
	return d, nil
}
