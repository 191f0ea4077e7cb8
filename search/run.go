package search

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/internal/topk"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
)

// run answers one query at a time. The next query uses its buffers again.
type run struct {
	ctx        context.Context
	call       *call
	queryIndex int // of the query in the call
	request    request
	group      shardGroup // the shards that are searched now, numbered together
	table      table      // the rows and tops of S that have been computed
	fixedPlan  *plan      // overrides the plan computed from the request. nil means none
	plan       plan
	bound      kernels.Bound
	threads    int // limit
	stats      Stats
	trace      *trace // nil means that no document of the group is traced

	scorer  kernels.Scorer
	query   kernels.Query
	workers workers
	bytes   int64 // about the memory of the buffers

	// Buffers.
	prober      prober
	allowedBits []uint64      // allowed documents as a set, if they are a list
	docs        []uint32      // numbers of documents in the stage that runs
	scores      []float32     // scores of these documents
	shardDocs   []uint32      // ordinals of documents in one shard
	reached     []candidate   // candidates of probing
	approx      []topk.Scored // approximate scores
	nextApprox  []topk.Scored // approximate scores of candidates that follow
	leaders     []topk.Scored // exact scores of documents that decide how many more are scored
	exact       []topk.Scored // exact scores of the others
	merged      []topk.Scored // leaders and exact
	doubtful    []topk.Scored // documents of exact that get fine scores next
	fine        []topk.Scored // their fine scores
	refined     []topk.Scored // fine scores of all rounds
	jobs        []job
	maxima      []float64 // [pieces, query tokens], of long documents
}

// job is a run of listed documents of one chunk, or a piece of one long document.
type job struct {
	shard      *shard
	chunk      int
	first, end int // in the list of documents: [first, end)
	tokens     int
	tokenRange [2]int // [first, end) in the chunk if it is a piece of a document; otherwise both are 0
	maximaSlot int    // the row of run.maxima for the piece
}

// loadChunk returns the chunk with these arrays of the documents that the job scores.
func (j *job) loadChunk(docs []uint32, arrays storage.Arrays) (*kernels.Chunk, error) {
	return j.shard.snap.ChunkFor(j.chunk, arrays, docs[j.first:j.end]...)
}

// isPiece reports whether the job is a piece of one long document.
func (j *job) isPiece() bool { return j.tokenRange[0] < j.tokenRange[1] }

// maximaOf returns the part of a query's maxima, n for each piece, that belongs to the piece.
func (j *job) maximaOf(maxima []float64, n int) []float64 {
	return maxima[j.maximaSlot*n : (j.maximaSlot+1)*n]
}

// kernel scores documents of a chunk. A kernel with maxima and total can also score a document in
// pieces: maxima of each piece, and total of the merged maxima.
type kernel struct {
	rows   bool // needs float32 rows of S
	docs   func(dst []float32, ch *kernels.Chunk, docs []uint32)
	maxima func(dst []float64, ch *kernels.Chunk, lo, hi int)
	total  func(maxima []float64) float32
}

// approxJob and the others are the tokens that one job scores, except where noted. A job takes well
// below a millisecond, so that cancelling is prompt and cores stay busy to the end.
const (
	approxJob       = 1 << 16
	exactJob        = 1 << 12
	rowsJob         = 1 << 14 // centroids × query tokens
	maxRows         = 1 << 18 // the same, up to 32 centroids: more no longer fit the processor's caches
	screenJob       = 1 << 12 // centroids
	fillJob         = 1 << 12 // centroids; a multiple of 64
	jobPairs        = 1 << 23 // document tokens × query tokens; a search notices its end between jobs
	exactJobDivisor = 8       // of jobPairs for exact scores, which take that much longer
)

// answerQuery answers the query, from its vectors to its hits. tr, where set, traces a document.
func (r *run) answerQuery(vectors, weights []float32, tr *trace) (Result, error) {
	start := time.Now()
	c := r.call.coll
	allowed, err := r.call.allowed(r.queryIndex)
	if err != nil {
		return Result{}, err
	}
	r.stats.Allowed, r.stats.FilterMissing = int64(allowed.count), int64(allowed.missingIDs)
	if tr != nil {
		tr.recordFilter(allowed)
	}
	if len(c.shards) > 1 {
		r.stats.Shards = make([]ShardStats, len(c.shards))
		for i, s := range allowed.shards {
			r.stats.Shards[i] = ShardStats{Shard: i, Allowed: int64(s.count)}
		}
	}
	r.request = *r.call.requestFor(r.queryIndex)
	res := Result{K: r.request.k, Coverage: c.coverage()}
	// A grouped search has its own stages.
	if r.request.group != "" {
		if res.Hits, err = r.groupedHits(vectors, weights, allowed); err != nil {
			return Result{}, err
		}
		r.stats.Times.Total = time.Since(start)
		res.Stats = r.stats
		return res, nil
	}
	// Find the best documents, and then read their ids, metadata and matches.
	top, err := r.bestDocuments(vectors, weights, allowed, tr)
	if err != nil {
		return Result{}, err
	}
	if r.request.payload {
		if err := r.fetchPayloads(1, func(int) []located { return top }); err != nil {
			return Result{}, err
		}
	}
	if res.Hits, err = newHits(len(top), func(i int) located { return top[i] }, r.request.payload); err != nil {
		return Result{}, err
	}
	if r.request.matches {
		if err := r.addMatches(res.Hits, top, vectors, weights); err != nil {
			return Result{}, err
		}
	}
	if r.stats.Shards != nil {
		for i := range top {
			r.stats.Shards[top[i].shard.index].Hits++
		}
	}
	tr.recordResult(top)
	r.stats.Times.Total = time.Since(start)
	res.Stats = r.stats
	return res, nil
}

// bestDocuments returns the K best documents of all shards in order.
func (r *run) bestDocuments(vectors, weights []float32, allowed *allowedDocs, tr *trace) (top []located, err error) {
	c := r.call.coll
	r.group = nil
	for first := 0; first < len(c.shards); first += len(r.group) {
		if r.group = c.groupFrom(first); allowed.countIn(r.group) == 0 {
			continue
		}
		if r.trace = nil; tr.isInGroup(r.group) {
			r.trace = tr
		}
		best, err := r.search(vectors, weights, allowed)
		if err != nil {
			return nil, err
		}
		for _, s := range best {
			sh := r.group.shardByNumber(s.Doc)
			top = append(top, located{sh, s.Doc - sh.base, s.Score})
		}
	}
	if len(r.group) < len(c.shards) {
		slices.SortStableFunc(top, func(a, b located) int { return cmp.Compare(b.score, a.score) })
		top = top[:min(len(top), r.request.k)]
	}
	return top, nil
}

// located is a document with a score.
type located struct {
	shard   *shard
	ordinal uint32
	score   float32
}

// idBlock is how many hits share one string for their ids. The string lives as long as any of them.
const idBlock = 128

// newHits returns the hits of n located documents.
func newHits(n int, locate func(i int) located, payload bool) (hits []Hit, err error) {
	hits = make([]Hit, n)
	var buffer [32 * idBlock]byte
	var ends [idBlock]int
	for lo := 0; lo < n; lo += idBlock {
		block, ids := hits[lo:min(lo+idBlock, n)], buffer[:0]
		for i := range block {
			l, h := locate(lo+i), &block[i]
			h.Shard, h.Ordinal, h.Score = l.shard.index, l.ordinal, l.score
			ids = append(ids, l.shard.snap.IDBytes(l.ordinal)...)
			ends[i] = len(ids)
			if !payload {
				continue
			}
			if h.Payload, err = l.shard.snap.Payload(l.ordinal); err != nil {
				return nil, err
			}
		}
		joined, start := string(ids), 0
		for i := range block {
			block[i].ID, start = joined[start:ends[i]], ends[i]
		}
	}
	return hits, nil
}

// fetchPayloads fetches, in one request for each shard, the payloads of n lists of documents from
// files that are still being fetched. list returns list i.
func (r *run) fetchPayloads(n int, list func(i int) []located) error {
	var missing map[*shard][]uint32
	for i := range n {
		for _, l := range list(i) {
			if l.shard.snap.IsPartial() {
				if missing == nil {
					missing = map[*shard][]uint32{}
				}
				missing[l.shard] = append(missing[l.shard], l.ordinal)
			}
		}
	}
	for sh, ordinals := range missing {
		if err := sh.snap.FetchPayloads(r.ctx, ordinals); err != nil {
			return err
		}
	}
	return nil
}

// search runs the stages of the plan over a group: vectors → centroid scores → candidates →
// approximate scores → exact scores → the K best.
func (r *run) search(vectors, weights []float32, allowed *allowedDocs) ([]topk.Scored, error) {
	if err := r.prepareGroup(r.group, allowed.countIn(r.group), vectors, weights); err != nil {
		return nil, err
	}
	candidates, err := r.findCandidates(weights, allowed)
	if err != nil {
		return nil, err
	}
	if r.trace != nil {
		r.trace.plan = r.plan.kind.String()
	}
	r.countByShard(candidates, func(p *ShardStats) *int64 { return &p.Candidates })
	if r.plan.kind == PlanExact {
		level := kernels.Fast
		if r.table.rowsOnly() {
			level = kernels.Fine
		}
		return r.scoreAndRank(candidates, nil, level)
	}
	r.approx, err = r.approximate(r.approx, candidates)
	if err != nil {
		return nil, err
	}
	return r.rerank(r.approx)
}

// prepareGroup plans the search of n documents of a group, and prepares the query for it.
func (r *run) prepareGroup(g shardGroup, n int, vectors, weights []float32) error {
	docs, tokens := (&collection{g}).countLive()
	centroids := r.call.coll.sharedCodec().Centroids.K
	if r.fixedPlan != nil {
		r.plan = *r.fixedPlan
	} else {
		r.plan = r.request.choosePlan(n, int(docs), int64(tokens), r.stats.QueryTokens, centroids)
	}
	if r.stats.Plans == nil {
		r.stats.Plans = map[string]int{r.plan.kind.String(): 1}
	}
	return r.prepare(vectors, weights, r.plan.neededTable(n, float64(tokens)/float64(max(docs, 1)), centroids))
}

// countByShard adds the documents of each shard to a counter of its statistics, where there are
// several shards.
func (r *run) countByShard(docs []uint32, counter func(*ShardStats) *int64) {
	if r.stats.Shards == nil {
		return
	}
	r.group.countByShard(docs, func(sh *shard, n int) { *counter(&r.stats.Shards[sh.index]) += int64(n) })
}

// table describes the part of S that is computed: nothing, all of it, or the result of Screen.
// Screen computes the rows that documents need and, if bestCentroids is above 0, that many best
// centroids of each token together with all that Approx and level Fast read.
type table struct {
	complete      bool
	screened      bool
	bestCentroids int
}

// rowsOnly reports whether S has only the rows that level Fine needs.
func (t table) rowsOnly() bool { return t.screened && t.bestCentroids == 0 }

// covers reports whether t has all that other has.
func (t table) covers(other table) bool {
	return t.complete || other.screened && t.screened && t.bestCentroids >= other.bestCentroids
}

// neededTable returns the part of S that the plan needs, where n documents with the given mean
// number of tokens are allowed. Few documents have few centroids: then their rows suffice. If the
// documents that get a fine score have about as many tokens as there are centroids, most rows are
// needed, and computing all of S at once is faster.
func (p *plan) neededTable(n int, tokens float64, centroids int) table {
	if p.kind == PlanExact && float64(n)*tokens < float64(centroids)/4 {
		return table{screened: true}
	}
	fineDocs, bestCentroids := p.k+p.k/4, 1
	if p.kind != PlanExact && p.exactBudget == 0 {
		fineDocs = leaderCount(p.k, p.share) + sampleSize(p.share)
	}
	if p.kind == PlanProbe {
		bestCentroids = min(p.probes+1, centroids)
	}
	if p.kind == PlanProbe && p.probes > maxInsertProbes || float64(min(fineDocs, n))*tokens > float64(centroids) {
		return table{complete: true}
	}
	return table{screened: true, bestCentroids: bestCentroids}
}

// prepare computes S, or the needed part of it, and the values that kernels derive from it.
func (r *run) prepare(vectors, weights []float32, needed table) error {
	if r.table.covers(needed) {
		return nil
	}
	defer addElapsed(&r.stats.Times.Centroids)()
	if err := r.query.Reset(vectors, weights); err != nil {
		return err
	}
	k := r.call.coll.sharedCodec().Centroids.K
	rows := max(rowsJob/r.query.Len(), min(32, max(maxRows/r.query.Len(), 1)))
	if needed.screened && r.query.Screen(needed.bestCentroids) {
		rows = screenJob
	} else {
		needed = table{complete: true}
	}
	r.table = needed
	err := r.forEach(parallel.Blocks(k, rows), func(i int) error {
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

// findCandidates returns the documents that get a score, in ascending order: those that probing
// finds, or all allowed ones if the plan does not probe or probing finds fewer than K.
func (r *run) findCandidates(weights []float32, allowed *allowedDocs) ([]uint32, error) {
	n := allowed.countIn(r.group)
	before := r.stats.Candidates
	if r.plan.kind == PlanProbe {
		docs, err := r.probeCentroids(weights, allowed)
		if err != nil || len(docs) >= min(r.plan.k, n) {
			return docs, err
		}
		r.stats.Widened++
	}
	r.prober.kept, r.prober.total = 0, 0
	r.stats.Candidates = before + int64(n)
	r.docs = allowed.appendNumbers(r.docs[:0], r.group)
	return r.docs, nil
}

// forEach calls runJob for 0 to n−1 on the goroutines of this query.
func (r *run) forEach(n int, runJob func(i int) error) error {
	return r.workers.forEach(r.ctx, r.call, r.threads, n, runJob)
}

// splitJobs cuts an ascending list of documents into jobs of about limit tokens, fewer for a query
// with many tokens. No job crosses a chunk. It replaces the numbers in docs by indexes in the chunk.
// With cut, documents of at least twice the limit are cut into pieces if other threads can help.
func (r *run) splitJobs(docs []uint32, limit int, cut bool) (tokens int64, pieces int) {
	r.jobs = r.jobs[:0]
	var sh *shard
	var chunk int
	var chunkFirst, chunkEnd uint32 // numbers of its documents
	var offsets []uint32
	pairs := jobPairs
	if limit == exactJob {
		pairs /= exactJobDivisor
	}
	jobTokens := min(limit, max(pairs/max(r.query.Len(), 1), 1))
	size := 0 // tokens of the last job; from jobTokens on the next document starts another
	for i, d := range docs {
		if sh == nil || d >= chunkEnd {
			sh = r.group.shardByNumber(d)
			chunk, _, _ = sh.snap.Locate(d - sh.base)
			chunkFirst, offsets = sh.snap.ChunkDocs(chunk)
			chunkFirst += sh.base
			chunkEnd = chunkFirst + uint32(len(offsets)-1)
			size = jobTokens
		}
		docs[i] = d - chunkFirst
		lo, hi := int(offsets[docs[i]]), int(offsets[docs[i]+1])
		tokens += int64(hi - lo)
		if cut && r.threads > 1 && hi-lo >= 2*limit {
			for ; lo < hi; lo += limit {
				n := min(limit, hi-lo)
				r.jobs = append(r.jobs, job{
					shard:      sh,
					chunk:      chunk,
					first:      i,
					end:        i + 1,
					tokens:     n,
					tokenRange: [2]int{lo, lo + n},
					maximaSlot: pieces,
				})
				pieces++
			}
			size = jobTokens
			continue
		}
		if size >= jobTokens {
			r.jobs = append(r.jobs, job{shard: sh, chunk: chunk, first: i})
			size = 0
		}
		size += hi - lo
		last := &r.jobs[len(r.jobs)-1]
		last.end = i + 1
		last.tokens = size
	}
	// Long jobs run first, so that none is left over when the others have finished.
	slices.SortStableFunc(r.jobs, func(a, b job) int { return b.tokens/(2*limit) - a.tokens/(2*limit) })
	return tokens, pieces
}
