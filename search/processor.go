package search

import (
	"context"
	"sync"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
)

// processor answers queries with the kernels of the processor.
type processor struct {
	bound kernels.Bound
	pool  sync.Pool // of *run, up to the size that the scheduler keeps
}

func (p *processor) describe(*Description) {}
func (p *processor) close() error          { return nil }

// answer divides the threads of the call among its queries.
func (p *processor) answer(ctx context.Context, c *call) ([]Result, error) {
	results := make([]Result, len(c.queries))
	queryThreads := max(c.threads/len(c.queries), 1) // threads of each query
	err := parallel.Do(ctx, len(c.queries), c.threads, func(i int) error {
		if err := p.answerQuery(ctx, c, i, queryThreads, nil, nil, &results[i]); err != nil {
			return &QueryError{Index: i, Err: err}
		}
		return nil
	})
	return results, err
}

func (p *processor) traceDocument(ctx context.Context, c *call, t *trace) error {
	var res Result
	return p.answerQuery(ctx, c, 0, c.threads, nil, t, &res)
}

// answerQuery answers query i when it has a slot. A nil fixedPlan means that the request decides the
// plan, and a nil tr that no document is traced.
func (p *processor) answerQuery(
	ctx context.Context, c *call, i, threads int, fixedPlan *plan, tr *trace, res *Result,
) (err error) {
	n, err := c.queries[i].countTokens(c.coll)
	if err != nil {
		return err
	}
	need := runBytes(c.coll, n, c.requestFor(i))
	waited, err := c.slots.acquire(ctx, need)
	if err != nil {
		return err
	}
	defer c.slots.release(need)
	defer storage.Guard(c.coll.firstSnapshot().Path(), &err)()
	vectors, weights, err := c.queries[i].tokens(c.coll, nil)
	if err != nil {
		return err
	}
	r := p.acquireRun(c.coll.firstSnapshot().Scorer())
	r.ctx, r.call, r.queryIndex, r.threads = ctx, c, i, threads
	r.bound, r.fixedPlan, r.table = p.bound, fixedPlan, table{}
	r.stats = Stats{Queries: 1, QueryTokens: len(vectors) / c.coll.firstSnapshot().Dim()}
	r.stats.Times.Wait = waited
	*res, err = r.answerQuery(vectors, weights, tr)
	if err == nil {
		err = ctx.Err() // stages may have stopped early without an error
	}
	r.ctx, r.call, r.group, r.fixedPlan, r.trace = nil, nil, nil, nil, nil
	clear(r.jobs[:cap(r.jobs)]) // they hold on to memory of the snapshots
	if r.bytes = max(r.bytes, need); r.bytes <= c.slots.scheduler.maxKeptBytes() {
		p.pool.Put(r)
	}
	return err
}

// acquireRun returns a run, with the buffers of an earlier one if possible. A run that panicked is
// not reused.
func (p *processor) acquireRun(s kernels.Scorer) *run {
	r, _ := p.pool.Get().(*run)
	if r == nil || r.scorer != s {
		r = &run{scorer: s, query: s.NewQuery()}
		if q, ok := r.query.(kernels.EarlyEnder); ok {
			q.EndWith(func() bool { return r.ctx.Err() != nil })
		}
	}
	return r
}

// runBytes estimates the memory that a query of n tokens uses.
func runBytes(c *collection, n int, q *request) int64 {
	docs, _ := c.countLive()
	perDoc := int64(8) // candidates with their gains
	documents := int64(q.k)
	if q.group != "" {
		_, laterRound := q.roundSizes(int(docs))
		documents = int64(laterRound)
	}
	if q.mode != Pruned || documents > docs/16 || int64(q.approxBudget) > docs/4 {
		perDoc = 24 // number and score, twice, if few documents are pruned
	}
	// S has 4 bytes an entry, in groups of 32 tokens. Kernels derive 3 more bytes from each, and the
	// best centroids of the tokens fit the eighth.
	table := int64(c.sharedCodec().Centroids.K) * int64((n+31)&^31) * 8
	return table + docs*perDoc + docBlock*8 + q.groupBytes(int(docs))
}

// workers runs the jobs of a stage on several goroutines.
type workers struct {
	pool   parallel.Pool
	path   string // of the first shard, for errors
	runJob func(i int) error
	// yieldWorker is called before each job of a background search. It is nil in the foreground.
	yieldWorker func() error
}

// forEach calls runJob for 0 to n−1, on the caller's goroutine, which storage.Guard protects, and on
// idle workers of the scheduler, at most threads in all.
func (w *workers) forEach(ctx context.Context, c *call, threads, n int, runJob func(i int) error) error {
	extra := c.slots.borrowWorkers(min(threads, n) - 1)
	defer c.slots.returnWorkers(extra)
	w.path, w.runJob = c.coll.firstSnapshot().Path(), runJob
	if c.slots.background {
		w.yieldWorker = func() error { return c.slots.yieldWorker(ctx) }
	}
	defer func() { w.runJob, w.yieldWorker = nil, nil }()
	return w.pool.Run(ctx, n, 1+extra, w)
}

// Run implements [parallel.Runner].
func (w *workers) Run(worker, i int) error {
	if w.yieldWorker != nil {
		if err := w.yieldWorker(); err != nil {
			return err
		}
	}
	if worker == 0 { // the caller's goroutine, which is guarded already
		return w.runJob(i)
	}
	return w.runGuarded(i)
}

// runGuarded runs a job, and converts faults of mapped files and panics to errors.
func (w *workers) runGuarded(i int) (err error) {
	defer storage.Guard(w.path, &err)()
	return w.runJob(i)
}
