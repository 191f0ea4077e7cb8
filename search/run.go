package search

import (
	"context"
	"slices"
	"time"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/internal/topk"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
)

// run answers one query at a time; its buffers are used again by the next.
type run struct {
	ctx     context.Context
	call    *call
	at      int             // of the query in the call
	snap    *index.Snapshot // of the call
	fixed   *plan           // in place of what follows from the options
	plan    plan
	threads int // at most
	stats   Stats
	trace   *trace // nil: no document is followed

	scorer  kernels.Scorer
	query   kernels.Query
	workers workers
	bytes   int64 // about what the buffers take

	// Buffers, each for what its name says.
	prober  prober
	set     []uint64      // allowed documents, if they are a list; candidates that are kept
	docs    []uint32      // of the stage that runs
	scores  []float32     // of the same
	reached []topk.Scored // candidates, by what probing knows of them
	approx  []topk.Scored // by centroids
	leaders []topk.Scored // scored before the query decides how many more are
	exact   []topk.Scored // the others
	merged  []topk.Scored // both
	jobs    []job
	maxima  []float64 // [parts, query tokens], of long documents
}

// job is a run of listed documents of one chunk, or a part of one that is long.
type job struct {
	chunk  int
	lo, hi int // of the list
	tokens int
	part   [2]int // tokens of the chunk, if it is a part
	slot   int    // of the part in run.maxima
}

// kernel scores documents of a chunk and, where it has the two others, parts of
// a document, of whose maxima it makes the score.
type kernel struct {
	docs   func(dst []float32, ch *kernels.Chunk, docs []uint32)
	maxima func(dst []float64, ch *kernels.Chunk, lo, hi int)
	total  func(maxima []float64) float32
}

// Tokens that one job scores, at the speed of its stage well below a
// millisecond, so that cancelling is prompt and cores stay busy to the end.
const (
	approxJob = 1 << 16
	exactJob  = 1 << 12
	rowsJob   = 1 << 14 // centroids × query tokens
)

// answer takes the query from its vectors to its hits.
func (r *run) answer(vectors, weights []float32) (Result, error) {
	start := time.Now()
	allowed, err := r.call.allowed(r.at)
	if err != nil {
		return Result{}, err
	}
	r.stats.Allowed, r.stats.FilterMissing = int64(allowed.count), int64(allowed.missing)
	if r.trace != nil {
		r.trace.begin(r.snap, allowed)
	}
	var top []topk.Scored
	if allowed.count > 0 {
		if top, err = r.search(vectors, weights, allowed); err != nil {
			return Result{}, err
		}
	}
	res := Result{Hits: make([]Hit, len(top))}
	for i, s := range top {
		if res.Hits[i], err = hit(r.snap, s.Doc, s.Score, r.call.requestOf(r.at).payload); err != nil {
			return Result{}, err
		}
	}
	r.stats.Times.Total = time.Since(start)
	res.Stats = r.stats
	return res, nil
}

func hit(snap *index.Snapshot, doc uint32, score float32, payload bool) (h Hit, err error) {
	h = Hit{ID: snap.ID(doc), Ordinal: doc, Score: score}
	if payload {
		h.Payload, err = snap.Payload(doc)
	}
	return h, err
}

// search goes through the stages of the plan: vectors → centroid scores →
// candidates → approximate scores → exact scores → the K best.
func (r *run) search(vectors, weights []float32, allowed *selection) ([]topk.Scored, error) {
	if r.fixed != nil {
		r.plan = *r.fixed
	} else {
		state := r.snap.State()
		r.plan = r.call.requestOf(r.at).plan(allowed.count, int(state.Live), int64(state.LiveTokens), r.stats.QueryTokens, r.snap.Header().Centroids)
	}
	r.stats.Plans = map[string]int{r.plan.how.String(): 1}
	if err := r.prepare(vectors, weights); err != nil {
		return nil, err
	}
	docs, err := r.candidates(weights, allowed)
	if err != nil {
		return nil, err
	}
	if r.trace != nil {
		r.trace.plan = r.plan.how.String()
	}
	if r.plan.how == PlanExact {
		return r.rank(docs, nil, kernels.Fast)
	}
	approx, err := r.approximate(docs)
	if err != nil {
		return nil, err
	}
	return r.rerank(approx)
}

// prepare computes S and what the kernels derive from it.
func (r *run) prepare(vectors, weights []float32) error {
	defer timed(&r.stats.Times.Centroids)()
	if err := r.query.Reset(vectors, weights); err != nil {
		return err
	}
	k := r.snap.Header().Centroids
	rows := max(rowsJob/r.query.Len(), 32)
	err := r.each(parallel.Blocks(k, rows), func(i int) error {
		lo, hi := parallel.Block(i, k, rows)
		r.query.CentroidScores(lo, hi)
		return nil
	})
	if err != nil {
		return err
	}
	r.query.Seal()
	return nil
}

// candidates are the documents that get a score, in ascending order: those that
// probing finds, or all that are allowed, where the plan does not probe or too few
// are found.
func (r *run) candidates(weights []float32, allowed *selection) ([]uint32, error) {
	if r.plan.how == PlanProbe {
		docs, err := r.probe(weights, allowed)
		if err != nil || len(docs) >= min(r.plan.k, allowed.count) {
			return docs, err
		}
		r.stats.Widened++
	}
	r.stats.Candidates = int64(allowed.count)
	r.docs = allowed.docs(r.docs[:0])
	return r.docs, nil
}

func (r *run) each(n int, fn func(i int) error) error {
	return r.workers.each(r.ctx, r.call, r.threads, n, fn)
}

// split cuts an ascending list of documents into jobs of about limit tokens, none
// of which crosses a chunk, and makes the ordinals relative to the chunk. With cut,
// documents of twice the limit and more are cut into parts where there are other
// threads to help.
func (r *run) split(docs []uint32, limit int, cut bool) (tokens int64, parts int) {
	r.jobs = r.jobs[:0]
	chunk, end := -1, uint32(0)
	var first uint32
	var offsets []uint32
	size := 0
	for i, d := range docs {
		if chunk < 0 || d >= end {
			chunk, _, _ = r.snap.Locate(d)
			first, offsets = r.snap.ChunkDocs(chunk)
			end = first + uint32(len(offsets)-1)
			size = limit
		}
		docs[i] = d - first
		lo, hi := int(offsets[d-first]), int(offsets[d-first+1])
		tokens += int64(hi - lo)
		if cut && r.threads > 1 && hi-lo >= 2*limit {
			for ; lo < hi; lo += limit {
				n := min(limit, hi-lo)
				r.jobs = append(r.jobs, job{chunk: chunk, lo: i, hi: i + 1, tokens: n, part: [2]int{lo, lo + n}, slot: parts})
				parts++
			}
			size = limit
			continue
		}
		if size >= limit {
			r.jobs = append(r.jobs, job{chunk: chunk, lo: i})
			size = 0
		}
		size += hi - lo
		last := &r.jobs[len(r.jobs)-1]
		last.hi = i + 1
		last.tokens = size
	}
	// Long documents first, so that none is left when the others are done.
	slices.SortStableFunc(r.jobs, func(a, b job) int { return b.tokens/(2*limit) - a.tokens/(2*limit) })
	return tokens, parts
}

// score splits an ascending list of documents, which it spoils, into jobs and runs
// a kernel over them. It returns their scores in dst, in the same order, and how
// many tokens they have.
func (r *run) score(dst []topk.Scored, docs []uint32, limit int, part storage.Part, k kernel) (scored []topk.Scored, tokens int64, err error) {
	tokens, parts := r.split(docs, limit, k.maxima != nil)
	n := r.query.Len()
	r.maxima = slices.Grow(r.maxima[:0], parts*n)[:parts*n]
	r.scores = slices.Grow(r.scores[:0], len(docs))[:len(docs)]
	scored = slices.Grow(dst[:0], len(docs))[:len(docs)]
	err = r.each(len(r.jobs), func(i int) error {
		j := r.jobs[i]
		ch, err := r.snap.Chunk(j.chunk, part)
		if err != nil {
			return err
		}
		if j.part[0] < j.part[1] {
			k.maxima(r.maxima[j.slot*n:(j.slot+1)*n], ch, j.part[0], j.part[1])
			return nil
		}
		k.docs(r.scores[j.lo:j.hi], ch, docs[j.lo:j.hi])
		first, _ := r.snap.ChunkDocs(j.chunk)
		for d := j.lo; d < j.hi; d++ {
			scored[d] = topk.Scored{Doc: first + docs[d], Score: r.scores[d]}
		}
		return nil
	})
	if parts > 0 && err == nil {
		r.join(scored, docs, k, n)
	}
	return scored, tokens, err
}

// join makes scores of the maxima of parts.
func (r *run) join(scored []topk.Scored, docs []uint32, k kernel, n int) {
	whole := map[int][]float64{} // by place in the list
	for _, j := range r.jobs {
		if j.part[0] == j.part[1] {
			continue
		}
		maxima := r.maxima[j.slot*n : (j.slot+1)*n]
		if so := whole[j.lo]; so != nil {
			kernels.MergeMaxima(so, maxima)
			continue
		}
		whole[j.lo] = maxima
		first, _ := r.snap.ChunkDocs(j.chunk)
		scored[j.lo].Doc = first + docs[j.lo]
	}
	for d, maxima := range whole {
		scored[d].Score = k.total(maxima)
	}
}
