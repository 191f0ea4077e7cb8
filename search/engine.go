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
	// Threads limits the goroutines of one call. 0 means one a processor.
	Threads int
	// Device, where set, is the device that the engine searches on. New copies the index to it,
	// Close frees it there, and documents added or deleted meanwhile are copied by the first
	// search that sees them. An index that does not fit is streamed; see [kernels.DeviceStats].
	// After a device is lost, or a panic has ended it ([kernels.PanicError]), all searches fail;
	// searches do not fall back to the processor. The caller closes the device.
	//
	// On a device, mode Pruned scores all documents if that takes no longer than pruning; Approx
	// and Exact are ignored then.
	Device kernels.Device
	// Attach has the options for copying the index to the device; Bound replaces its Bound.
	Attach kernels.AttachOptions
	// Bound selects the error of coarse scores that searches allow for, on the processor and on
	// a device; the default is the probable one.
	Bound kernels.Bound
	// Scheduler decides when the engine's queries run. nil means the one that all such engines
	// of the process share.
	Scheduler *Scheduler
	// Logger receives panics of this program, with their stacks; the caller of the search gets
	// an error. nil means no log.
	Logger *slog.Logger
}

// Engine answers queries from an index in this process. It is a [Searcher].
type Engine struct{ searcher }

// searcher holds the methods that an [Engine] and a [Multi] share.
type searcher struct {
	*core
	open source
}

// source opens the collection to search. The caller calls done to release it.
type source func() (c *collection, done func(), err error)

// pinnedSource returns a source of snapshots that the caller closes.
func pinnedSource(snaps ...*index.Snapshot) source {
	return func() (*collection, func(), error) { return newCollection(snaps...), func() {}, nil }
}

// core is the state that engines on the same device share.
type core struct {
	threads            int
	scheduler          *Scheduler
	log                *slog.Logger
	stages             stages
	host               *processor // answers queries that devices cannot
	usesStoredDefaults bool       // false on devices: stored parameters were measured on the processor
	multi              bool       // several indexes are searched as one

	mu       sync.Mutex
	closed   bool
	running  sync.WaitGroup  // calls
	lifetime context.Context // ends with Close
	close    func() error
}

// stages answers the queries of a call on the processor or on devices.
type stages interface {
	// answer answers all queries. The error of one of them is a *QueryError.
	answer(ctx context.Context, c *call) ([]Result, error)
	// traceDocument answers the first query and records in t where a document left the stages.
	traceDocument(ctx context.Context, c *call, t *trace) error
	// describe adds the device to d.
	describe(d *Description)
	close() error
}

// call is one call of a searcher's methods, as its stages see it.
type call struct {
	coll    *collection
	queries []Query
	request request
	// filtered is the request for queries that have their own filter.
	filtered request
	threads  int                               // limit for the whole call
	allowed  func(i int) (*allowedDocs, error) // returns the documents that query i may return
	slots    callSlots
}

// New returns an engine for an index. Each search uses the newest snapshot when it begins. The
// context limits the wait for the device, if there is one.
func New(ctx context.Context, ix *index.Index, o *EngineOptions) (*Engine, error) {
	return newEngine(ctx, o, func() (*collection, func(), error) {
		snap, err := ix.Snapshot()
		if err != nil {
			return nil, nil, err
		}
		return newCollection(snap), func() { _ = snap.Close() }, nil
	})
}

// NewAt returns an engine for one snapshot. The caller closes the snapshot after the engine.
func NewAt(ctx context.Context, snap *index.Snapshot, o *EngineOptions) (*Engine, error) {
	return newEngine(ctx, o, pinnedSource(snap))
}

// newEngine returns an engine. It calls open for each search, and once for the device; the collection
// that open returns is one snapshot of an index.
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

// newCore returns a core that searches on the processor.
func newCore(o *EngineOptions) (*core, error) {
	if o.Threads < 0 {
		return nil, fmt.Errorf("%w: %d threads", ErrOption, o.Threads)
	}
	if o.Bound != kernels.Probable && o.Bound != kernels.Worst {
		return nil, fmt.Errorf("%w: %v", ErrOption, o.Bound)
	}
	host := &processor{bound: o.Bound}
	c := &core{
		threads:            o.Threads,
		scheduler:          o.Scheduler,
		log:                o.Logger,
		stages:             host,
		host:               host,
		usesStoredDefaults: true,
	}
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

// At returns an engine for one snapshot that shares the device and scheduler of e. Closing either
// engine closes both. The caller closes the snapshot after them.
func (e *Engine) At(snap *index.Snapshot) *Engine {
	return &Engine{searcher{e.core, pinnedSource(snap)}}
}

// Close implements [Searcher]. It frees each index on its device, if there is one, and leaves the
// index open. Concurrent calls wait for the first.
func (s *searcher) Close() error { return s.close() }

// acquireCollection opens the collection for one call. Close waits until the call has called done.
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

// searchContext is the context of a call. Err reports the end of the caller's context or of the
// engine; Done is that of the caller alone, so code that blocks must wait for lifetime, too.
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

// newCall checks the options and prepares queries that share them.
func (c *core) newCall(ctx context.Context, coll *collection, qs []Query, o *Options) (*call, error) {
	const withoutFilters, withFilters = false, true // of the queries
	unfiltered, err := o.toRequest(coll, c.usesStoredDefaults, withoutFilters)
	if err != nil {
		return nil, err
	}
	filtered, err := o.toRequest(coll, c.usesStoredDefaults, withFilters)
	if err != nil {
		return nil, err
	}
	call := &call{
		coll:     coll,
		queries:  qs,
		request:  unfiltered,
		filtered: filtered,
		threads:  c.threads,
		allowed:  o.allowedByQuery(ctx, coll, qs),
		slots:    c.newSlots(ctx),
	}
	if call.slots.background {
		call.threads = 1
	}
	return call, nil
}

// newSlots returns the slots of a new call.
func (c *core) newSlots(ctx context.Context) callSlots {
	return callSlots{scheduler: c.scheduler, lifetime: c.lifetime, background: ctx.Value(backgroundKey{}) != nil}
}

// requestFor returns the request of query i.
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

// answer answers queries with all options: feedback, pages and groups.
func (c *core) answer(ctx context.Context, coll *collection, qs []Query, o *Options) (results []Result, err error) {
	defer storage.Guard(coll.firstSnapshot().Path(), &err)()
	call, err := c.newCall(ctx, coll, qs, o)
	if err != nil {
		return nil, err
	}
	if o.Feedback != nil {
		return c.answerWithFeedback(ctx, coll, qs, o)
	}
	if !o.NeedsPaging() {
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

// rankFromStart answers queries from the best document on, without pages. Queries that group are
// answered by the processor if any document has passages; otherwise each hit is its own passage.
func (c *core) rankFromStart(ctx context.Context, call *call) (results []Result, err error) {
	grouped := call.request.group != ""
	if grouped {
		if call.coll.hasPassages() {
			return c.host.answer(ctx, call)
		}
		call.request.group, call.filtered.group = "", "" // every hit is a whole document
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

// searchUngrouped answers queries without groups. Devices do not return matches, so if they are
// wanted the processor scores the hits of the device again.
func (engine *core) searchUngrouped(ctx context.Context, c *call) ([]Result, error) {
	if !c.request.matches || engine.stages == stages(engine.host) {
		return engine.stages.answer(ctx, c)
	}
	c = withCachedAllowed(c)
	results, err := engine.stages.answer(ctx, c)
	if err != nil {
		return nil, err
	}
	rescoring := *c // scores the hits alone, all of them
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
		rescoredHits := map[Location]*Hit{}
		for j := range rescored[i].Hits {
			h := &rescored[i].Hits[j]
			rescoredHits[Location{h.Shard, h.Ordinal}] = h
		}
		for j := range results[i].Hits {
			h := &results[i].Hits[j]
			if t := rescoredHits[Location{h.Shard, h.Ordinal}]; t != nil {
				h.Matches, h.Tokens = t.Matches, t.Tokens
			}
		}
	}
	return results, nil
}

// batchError returns the error of a batch and logs panics. An error that names no query becomes a
// [*QueryError] of the first, unless the context or the engine has ended.
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

// singleQueryError returns the cause of a [*QueryError]: a query that is searched alone needs no
// number.
func singleQueryError(err error) error {
	var queryErr *QueryError
	if errors.As(err, &queryErr) {
		return queryErr.Err
	}
	return err
}

// Describe implements [Searcher]. For several indexes Generation is the sum of theirs.
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
		Dim:        h.Dim,
		Centroids:  h.Centroids,
		Nbits:      snap.Codec().Codebook.Nbits,
		Model:      h.Model,
		Generation: snap.Generation(),
		Lineage:    snap.Lineage(),
		Backend:    snap.Backend(),
		Threads:    s.threads,
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
