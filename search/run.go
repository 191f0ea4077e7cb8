package search

import (
	"context"
	"math/bits"
	"slices"
	"time"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
)

// run is one search at a time; its buffers are used again by the next.
type run struct {
	ctx     context.Context
	snap    *index.Snapshot
	scorer  kernels.Scorer
	query   kernels.Query
	o       Options
	threads int
	stats   Stats
	trace   *trace

	allowed []uint64 // one bit an ordinal
	set     []uint64 // candidates
	prober  prober
	docs    []uint32
	scores  []float32
	ranked  []scored // what the last stage scored
	approx  []scored // by centroids
	leaders []scored // with their final scores
	merged  []scored
	jobs    []job
	maxima  []float64 // [parts, query tokens], of long documents
}

// job is a run of listed documents of one chunk, or a part of one that is long.
type job struct {
	chunk  int
	lo, hi int // of run.docs
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

func (r *run) do(vectors, weights []float32) (*Result, error) {
	start := time.Now()
	r.stats.QueryTokens = len(vectors) / r.snap.Dim()
	count, err := r.resolve()
	if err != nil {
		return nil, err
	}
	r.stats.Allowed = int64(count)
	if r.trace != nil {
		r.trace.begin(r)
	}
	var top []scored
	if count > 0 {
		if top, err = r.stages(vectors, weights, count); err != nil {
			return nil, err
		}
	}
	res := &Result{Hits: make([]Hit, len(top))}
	for i, s := range top {
		res.Hits[i] = Hit{ID: r.snap.ID(s.doc), Ordinal: s.doc, Score: s.score}
		if r.o.Payload {
			if res.Hits[i].Payload, err = r.snap.Payload(s.doc); err != nil {
				return nil, err
			}
		}
	}
	r.stats.Times.Total = time.Since(start)
	res.Stats = r.stats
	return res, nil
}

// resolve fills allowed with the documents that may be returned.
func (r *run) resolve() (count int, err error) {
	live, n := r.snap.LiveSet()
	if r.o.Filter == nil && r.o.Mode != Candidates {
		r.allowed = append(r.allowed[:0], live...)
		return n, nil
	}
	r.allowed = append(r.allowed[:0], live...)
	for _, restrict := range []struct {
		on  bool
		set func([]uint64) (int, error)
	}{
		{r.o.Filter != nil, func(s []uint64) (int, error) { return r.o.allow(r.snap, s) }},
		{r.o.Mode == Candidates, func(s []uint64) (int, error) {
			return resolveIDs(r.snap, r.o.Candidates, r.o.AllowMissing, "candidates", s)
		}},
	} {
		if !restrict.on {
			continue
		}
		r.set = zeroed(r.set, len(live))
		missing, err := restrict.set(r.set)
		if err != nil {
			return 0, err
		}
		r.stats.FilterMissing += int64(missing)
		for i, w := range r.set {
			r.allowed[i] &= w
		}
	}
	return population(r.allowed), nil
}

func (r *run) stages(vectors, weights []float32, count int) ([]scored, error) {
	state := r.snap.State()
	plan := r.o.choose(count, int(state.Live), int64(state.LiveTokens), r.stats.QueryTokens, r.snap.Header().Centroids)
	r.stats.Plans = map[string]int{plan.String(): 1}
	if err := r.prepare(vectors, weights); err != nil {
		return nil, err
	}
	from := r.allowed
	r.stats.Candidates = int64(count)
	if plan == PlanProbe {
		n, err := r.probe(weights)
		if err != nil {
			return nil, err
		}
		from = r.set
		if n < min(r.o.K, count) { // too few for an answer: every allowed document is one
			from = r.allowed
			r.stats.Candidates = int64(count)
			r.stats.Widened++
		}
	}
	r.listDocs(from)
	if r.trace != nil {
		r.trace.probed(r, plan)
	}
	if plan == PlanExact {
		return r.exact(nil, kernels.Fast)
	}
	if err := r.approximate(); err != nil {
		return nil, err
	}
	return r.rerank()
}

// prepare computes S and what the kernels derive from it.
func (r *run) prepare(vectors, weights []float32) error {
	defer timed(&r.stats.Times.Centroids)()
	if err := r.query.Reset(vectors, weights); err != nil {
		return err
	}
	k := r.snap.Header().Centroids
	rows := max(rowsJob/r.query.Len(), 32)
	err := parallel(r.ctx, r.snap.Path(), r.threads, (k+rows-1)/rows, func(i int) error {
		r.query.CentroidScores(i*rows, min((i+1)*rows, k))
		return nil
	})
	if err != nil {
		return err
	}
	r.query.Seal()
	return nil
}

// listDocs turns a bitmap into the ascending list of run.docs.
func (r *run) listDocs(set []uint64) {
	r.docs = r.docs[:0]
	for w, v := range set {
		for ; v != 0; v &= v - 1 {
			r.docs = append(r.docs, uint32(w*64+bits.TrailingZeros64(v)))
		}
	}
}

// split cuts run.docs, which is ascending, into jobs of about limit tokens,
// none of which crosses a chunk, and makes the ordinals relative to the chunk.
// With cut, documents of twice the limit and more are cut into parts where there
// are other threads to help.
func (r *run) split(limit int, cut bool) (tokens int64, parts int) {
	r.jobs = r.jobs[:0]
	chunk, end := -1, uint32(0)
	var first uint32
	var offsets []uint32
	size := 0
	for i, d := range r.docs {
		if chunk < 0 || d >= end {
			chunk, _, _ = r.snap.Locate(d)
			first, offsets = r.snap.ChunkDocs(chunk)
			end = first + uint32(len(offsets)-1)
			size = limit
		}
		r.docs[i] = d - first
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

// score splits run.docs into jobs, runs a kernel over them, and leaves one
// scored document each in run.ranked, in ascending order of ordinals.
func (r *run) score(limit int, part storage.Part, k kernel) (docs, tokens int64, err error) {
	tokens, parts := r.split(limit, k.maxima != nil)
	n := r.query.Len()
	r.maxima = slices.Grow(r.maxima[:0], parts*n)[:parts*n]
	r.scores = slices.Grow(r.scores[:0], len(r.docs))[:len(r.docs)]
	r.ranked = slices.Grow(r.ranked[:0], len(r.docs))[:len(r.docs)]
	err = parallel(r.ctx, r.snap.Path(), r.threads, len(r.jobs), func(i int) error {
		j := r.jobs[i]
		ch, err := r.snap.Chunk(j.chunk, part)
		if err != nil {
			return err
		}
		if j.part[0] < j.part[1] {
			k.maxima(r.maxima[j.slot*n:(j.slot+1)*n], ch, j.part[0], j.part[1])
			return nil
		}
		k.docs(r.scores[j.lo:j.hi], ch, r.docs[j.lo:j.hi])
		first, _ := r.snap.ChunkDocs(j.chunk)
		for d := j.lo; d < j.hi; d++ {
			r.ranked[d] = scored{doc: first + r.docs[d], score: r.scores[d]}
		}
		return nil
	})
	if parts > 0 && err == nil {
		r.join(k, n)
	}
	return int64(len(r.docs)), tokens, err
}

// join makes scores of the maxima of parts.
func (r *run) join(k kernel, n int) {
	whole := map[int][]float64{} // by document
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
		r.ranked[j.lo].doc = first + r.docs[j.lo]
	}
	for d, maxima := range whole {
		r.ranked[d].score = k.total(maxima)
	}
}

// timed adds the time until the returned function is called.
func timed(d *time.Duration) func() {
	start := time.Now()
	return func() { *d += time.Since(start) }
}

func zeroed(s []uint64, n int) []uint64 {
	s = slices.Grow(s[:0], n)[:n]
	clear(s)
	return s
}

func population(set []uint64) int {
	n := 0
	for _, w := range set {
		n += bits.OnesCount64(w)
	}
	return n
}
