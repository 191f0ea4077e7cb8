package search

import (
	"cmp"
	"math"
	"slices"

	"github.com/plaid-ir/plaid/internal/topk"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
)

// approximate returns the scores of documents by centroids alone, in dst.
func (r *run) approximate(dst []topk.Scored, docs []uint32) ([]topk.Scored, error) {
	defer addElapsed(&r.stats.Times.Approx)()
	r.stats.ApproxDocs += int64(len(docs))
	dst, tokens, err := r.scoreWith(dst, docs, approxJob, storage.Codes, kernel{docs: r.query.Approx})
	r.stats.ApproxTokens += tokens
	return dst, err
}

// approximateMore adds to approx, which has the scores of the best candidates by their gains,
// those of as many again, and so on, until few of the last ones score so much that they may be
// among the K best.
func (r *run) approximateMore(approx []topk.Scored, limit float64) ([]topk.Scored, error) {
	p, added := &r.prober, approx
	for p.kept < min(p.total, r.plan.approxBudget) && countAbove(added, limit) > max(r.plan.expectedInShare()/20, 1) {
		stop := addElapsed(&r.stats.Times.Probe)
		docs := r.selectReached(min(2*p.kept, p.total, r.plan.approxBudget))
		stop()
		r.countByShard(docs, func(p *ShardStats) *int64 { return &p.Candidates })
		var err error
		if added, err = r.approximate(r.nextApprox, docs); err != nil {
			return nil, err
		}
		r.nextApprox, approx = added, append(approx, added...)
	}
	r.approx = approx
	return approx, nil
}

// countAbove counts the documents whose scores exceed a level.
func countAbove(s []topk.Scored, level float64) int {
	n := 0
	for i := range s {
		if float64(s[i].Score) > level {
			n++
		}
	}
	return n
}

// leaderCount is how many documents, best by centroids, are scored before the query
// decides how many more to score.
func leaderCount(k int, share float64) int {
	return k + shareOfCount(8, share)
}

// sampleSize is about how many of the others are scored then, of all ranks.
func sampleSize(share float64) int { return max(shareOfCount(48, share), 12) }

// minLineDocs is of how many documents a slope is known well enough.
const minLineDocs = 32

// firstBatchSize is how many documents are scored before the limit is raised for the others; each
// time it is, that doubles.
func firstBatchSize(k int, share float64) int { return k + shareOfCount(32, share) }

// maxExactDocs bounds how many documents a query may decide to score.
func maxExactDocs(k int, share float64) int { return 64*k + shareOfCount(1024, share) }

// neededDeviations is how many standard deviations a document may lie below the k-th best and still
// be scored. The more documents there are, the more lie near a limit: a doubling adds a tenth
// of a deviation for the best ten, a fifth for a hundred (docs/lab/search-quality.md). A
// doubling of effort adds half a one.
func neededDeviations(k int, docs, effort float64) float64 {
	doublings := math.Log2(max(docs/5000, 1))
	of := deviationsFor(k, 3.5+float64(doublings*0.11), 2.25+float64(doublings*0.18))
	return max(of+float64(math.Log2(effort)/2), 0.5)
}

// deviationsFor falls from those for few documents, up to ten, to those for many, from a hundred
// on: a miss of one of ten is 10 % of recall, of one of a hundred 1 %.
func deviationsFor(k int, few, many float64) float64 {
	return few - float64((few-many)*min(max(math.Log10(float64(k)/10), 0), 1))
}

// rerank scores the best of approx exactly and returns the K best in order.
//
// How many are enough differs between queries and with the number of centroids
// by a factor of ten, so the query is asked: some documents show by how much exact
// scores exceed approximate ones, and how much that varies. Beyond them a document is
// scored if its approximate score, plus what it is expected to gain, plus some standard
// deviations, exceeds the K-th best score so far.
//
// These are the leading documents, by which a first limit is found, and a sample of those
// that it lets through: the leading ones alone may be copies of each other, and gain more
// than others do. Where those that are left are many, the K-th best score rises as they are
// scored, the best of them first, and the limit with it.
//
// By the first limit it is also decided how many of the candidates that have no approximate
// score yet get one.
func (r *run) rerank(approx []topk.Scored) ([]topk.Scored, error) {
	k := r.plan.k
	if n := r.plan.exactBudget; n > 0 {
		docs := r.sortedNumbers(topk.Best(approx, n))
		if r.trace != nil {
			r.trace.recordRanking(approx, StagePruned, n)
		}
		return r.scoreAndRank(docs, nil, kernels.Fast)
	}
	pool := topk.Best(approx, maxExactDocs(k, r.plan.share))
	r.leaders = r.leaders[:0]
	n := bestWithTies(pool, leaderCount(k, r.plan.share))
	if err := r.scoreLeaders(pool[:n]); err != nil {
		return nil, err
	}
	line := measureGaps(pool[:n], r.leaders, false)
	limit := line.worthScoring(r.leaders, &r.plan)
	if r.prober.kept < r.prober.total {
		var err error
		if approx, err = r.approximateMore(approx, limit); err != nil {
			return nil, err
		}
		pool = approx[:n+len(topk.Best(approx[n:], maxExactDocs(k, r.plan.share)-n))]
	}
	sample := sampleAbove(pool[n:], limit, sampleSize(r.plan.share))
	n += len(sample)
	if err := r.scoreLeaders(sample); err != nil {
		return nil, err
	}
	line = measureGaps(pool[:n], r.leaders, n >= minLineDocs)
	limit = line.worthScoring(r.leaders, &r.plan)
	remaining := pool[n:]
	remaining = remaining[:partitionAbove(remaining, limit)]
	if r.trace != nil {
		r.trace.recordRanking(approx, StagePruned, n+len(remaining))
		r.trace.recordRanking(r.leaders, StageOutranked, k)
	}
	for size := firstBatchSize(k, r.plan.share); len(remaining) > 2*size && limit > math.Inf(-1); size *= 2 {
		size := bestWithTies(remaining, size)
		next := remaining[:size]
		remaining = remaining[size:]
		best, err := r.scoreAndRank(r.sortedNumbers(next), r.leaders, r.rerankLevel(next, line))
		if err != nil {
			return nil, err
		}
		r.leaders = append(r.leaders[:0], best...)
		n += size
		limit = line.worthScoring(r.leaders, &r.plan)
		remaining = remaining[:partitionAbove(remaining, limit)]
		if r.trace != nil && r.trace.stage == StagePruned {
			r.trace.recordRanking(approx, StagePruned, n+len(remaining))
		}
	}
	return r.scoreAndRank(r.sortedNumbers(remaining), r.leaders, r.rerankLevel(remaining, line))
}

// rerankLevel is Fast, unless its error is expected to leave many of the documents in doubt, given
// their approximate scores.
func (r *run) rerankLevel(docs []topk.Scored, g gaps) kernels.Level {
	breakEven := g.breakEven(r.leaders, &r.plan) - r.query.Shortfall(r.bound).Of(r.call.coll.sharedCodec().FactorMax)
	doubtful := 0
	for _, s := range docs {
		if float64(s.Score) > breakEven {
			doubtful++
		}
	}
	if doubtful > len(docs)*doubtfulPercent/100 {
		return kernels.Fine
	}
	return kernels.Fast
}

// bestWithTies moves the n best documents to the front, with those that score the same as the
// last of them, unless these are more than n. Approximate scores are sums of small integers,
// and many the same: which documents are scored must not depend on how they are numbered.
func bestWithTies(s []topk.Scored, n int) int {
	if n >= len(s) {
		return len(s)
	}
	lastScore := lowestScore(topk.Best(s, n))
	others := s[n:]
	ties := 0
	for i := range others {
		if float64(others[i].Score) == lastScore {
			others[ties], others[i] = others[i], others[ties]
			ties++
		}
	}
	if ties > n {
		ties = 0
	}
	return n + ties
}

// partitionAbove moves the documents whose scores exceed limit to the front, and returns
// how many they are.
func partitionAbove(s []topk.Scored, limit float64) int {
	n := 0
	for i := range s {
		if float64(s[i].Score) > limit {
			s[n], s[i] = s[i], s[n]
			n++
		}
	}
	return n
}

// scoreLeaders adds documents to the leaders, with their final scores. Their approximate
// ones are put in the same order, that of documents.
func (r *run) scoreLeaders(approx []topk.Scored) error {
	if len(approx) == 0 {
		return nil
	}
	defer addElapsed(&r.stats.Times.Exact)()
	var tokens int64
	var err error
	list := r.sortedNumbers(approx)
	r.countByShard(list, func(p *ShardStats) *int64 { return &p.ExactDocs })
	r.exact, tokens, err = r.scoreWith(r.exact, list, exactJob, storage.All, r.maxSim(kernels.Fine))
	if err != nil {
		return err
	}
	docs := int64(len(approx))
	r.stats.ExactDocs += docs
	r.stats.ExactTokens += tokens
	r.stats.RefinedDocs += docs
	r.leaders = append(r.leaders, r.exact...)
	slices.SortFunc(approx, func(a, b topk.Scored) int { return cmp.Compare(a.Doc, b.Doc) })
	return nil
}

// doubtfulPercent is the percentage of documents that the error of level Fast is
// expected to leave in doubt from which on it costs more than it saves.
const doubtfulPercent = 40

// sampleAbove moves about n documents to the front, and returns them: of those whose scores exceed
// limit some of all ranks, or if these are fewer the n best. Approximate scores are sums of
// small integers, and many the same: such documents are drawn together or not at all, so that
// it does not matter how they are numbered.
func sampleAbove(s []topk.Scored, limit float64, n int) []topk.Scored {
	above := partitionAbove(s, limit)
	if above <= n {
		return s[:bestWithTies(s, n)]
	}
	ranked := make([]uint64, above) // scores, and places
	for i, d := range s[:above] {
		h := math.Float32bits(d.Score)
		h ^= uint32(int32(h)>>31) | 1<<31 // in the order of the floats
		ranked[i] = uint64(h)<<32 | uint64(i)
	}
	slices.Sort(ranked)
	due := 0.0 // documents that would have been drawn by now one by one, less those that are
	chosen := make([]int, 0, 2*n)
	for lo, hi := 0, 0; lo < above; lo = hi {
		for hi = lo; hi < above && ranked[hi]>>32 == ranked[lo]>>32; hi++ {
		}
		ties := float64(hi - lo)
		if due += float64(ties * float64(n) / float64(above)); 2*due >= ties {
			due -= ties
			for _, r := range ranked[lo:hi] {
				chosen = append(chosen, int(uint32(r)))
			}
		}
	}
	slices.Sort(chosen)
	for i, p := range chosen {
		s[i], s[p] = s[p], s[i]
	}
	return s[:len(chosen)]
}

// gaps is by how much exact scores exceed approximate ones: by a line, and a deviation
// from it.
type gaps struct{ mean, slope, middle, deviation float64 }

// measureGaps are those of documents, in the same order. Of leading documents alone, which have
// about the same approximate score, there is no line. Products are rounded, not fused: the
// same on every processor.
func measureGaps(approx, exact []topk.Scored, line bool) (g gaps) {
	n := float64(max(len(exact), 1))
	for i, s := range exact {
		g.mean += float64(s.Score) - float64(approx[i].Score)
		g.middle += float64(approx[i].Score)
	}
	g.mean, g.middle = g.mean/n, g.middle/n
	var squares, products, gapSquares float64
	for i, s := range exact {
		x := float64(approx[i].Score) - g.middle
		y := float64(s.Score) - float64(approx[i].Score) - g.mean
		squares, products, gapSquares = squares+float64(x*x), products+float64(x*y), gapSquares+float64(y*y)
	}
	if line && products > 0 {
		g.slope = products / squares
	}
	g.deviation = math.Sqrt(max(gapSquares-float64(g.slope*products), 0) / n)
	return g
}

// breakEven is the approximate score of a document that may be expected to be as good as the worst
// of the best exact ones that the plan wants.
func (g gaps) breakEven(exact []topk.Scored, p *plan) float64 { return g.approxScoreFor(exact, p, 0) }

// worthScoring is the approximate score at or below which a document is not worth scoring.
func (g gaps) worthScoring(exact []topk.Scored, p *plan) float64 {
	return g.approxScoreFor(exact, p, p.deviations)
}

// approxScoreFor is the approximate score of a document that would be as good with so many deviations
// above what is expected of it.
func (g gaps) approxScoreFor(exact []topk.Scored, p *plan, deviations float64) float64 {
	if len(exact) < p.expectedInShare() {
		return math.Inf(-1)
	}
	worst := lowestScore(topk.Best(slices.Clone(exact), p.expectedInShare()))
	return (worst - g.mean + float64(g.slope*g.middle) - float64(deviations*g.deviation)) / (1 + g.slope)
}

// lowestScore is the score of the last of s in order.
func lowestScore(s []topk.Scored) float64 {
	worst := s[0]
	for _, d := range s[1:] {
		if worst.Before(d) {
			worst = d
		}
	}
	return float64(worst.Score)
}

// scoreAndRank scores documents and returns the K best of them and of leaders, which have
// their final scores, in order. Of level Fast, documents whose place its error
// leaves open are scored again in float precision.
func (r *run) scoreAndRank(docs []uint32, leaders []topk.Scored, level kernels.Level) ([]topk.Scored, error) {
	r.countByShard(docs, func(p *ShardStats) *int64 { return &p.ExactDocs })
	stop := addElapsed(&r.stats.Times.Exact)
	var tokens int64
	var err error
	r.exact, tokens, err = r.scoreWith(r.exact, docs, exactJob, storage.All, r.maxSim(level))
	stop()
	if err != nil {
		return nil, err
	}
	r.stats.ExactDocs += int64(len(docs))
	r.stats.ExactTokens += tokens
	defer addElapsed(&r.stats.Times.Refine)()
	final := r.exact
	if level == kernels.Fast {
		if final, err = r.refine(r.exact, leaders); err != nil {
			return nil, err
		}
	} else {
		r.stats.RefinedDocs += int64(len(docs))
	}
	scored := r.mergeScored(leaders, final)
	top := topk.Best(scored, r.plan.k)
	slices.SortFunc(top, topk.Order)
	return top, nil
}

// refine returns those of exact that may be among the K best, with scores of level
// Fine in place of Fast. First the best of them get theirs: with the leaders they
// are K documents with fine scores, and the lowest of the K best of these is one
// that no document of the result is below. Then those do whose coarse scores are
// no further below it than errors may have brought them.
func (r *run) refine(exact, leaders []topk.Scored) ([]topk.Scored, error) {
	scored := r.mergeScored(leaders, exact)
	limit := math.Inf(-1)
	if k := r.plan.k; k < len(scored) {
		limit = lowestScore(topk.Best(scored, k))
	}
	r.refined = r.refined[:0]
	coarse, err := r.refineAbove(exact, limit, kernels.Shortfall{})
	bound := r.bound
	for err == nil && len(coarse) > 0 {
		kth := lowestScore(topk.Best(append(append(r.merged[:0], leaders...), r.refined...), r.plan.k))
		coarse, err = r.refineAbove(coarse, kth, r.query.Shortfall(bound))
		if bound == kernels.Worst || r.stats.BoundShare <= kernels.NearBound {
			break
		}
		bound = kernels.Worst
		r.stats.Worst++
	}
	return r.refined, err
}

// refineAbove gives documents fine scores whose coarse ones are no further below a
// limit than their errors may be, and returns the others.
func (r *run) refineAbove(coarse []topk.Scored, limit float64, shortfall kernels.Shortfall) (below []topk.Scored, err error) {
	factorMax := r.call.coll.sharedCodec().FactorMax
	lowestDoubtful := limit - shortfall.Of(factorMax) // of any document
	r.doubtful, below = r.doubtful[:0], coarse[:0]
	for _, s := range coarse {
		doubtful := float64(s.Score) >= lowestDoubtful
		if doubtful && float64(s.Score) < limit {
			factor, err := r.largestFactor(s.Doc)
			if err != nil {
				return nil, err
			}
			doubtful = float64(s.Score) >= limit-shortfall.Of(factor)
		}
		if doubtful {
			r.doubtful = append(r.doubtful, s)
		} else {
			below = append(below, s)
		}
	}
	r.stats.RefinedDocs += int64(len(r.doubtful))
	r.fine, _, err = r.scoreWith(r.fine, r.sortedNumbers(r.doubtful), exactJob, storage.All, r.maxSim(kernels.Fine))
	if err != nil {
		return nil, err
	}
	r.refined = append(r.refined, r.fine...)
	return below, r.recordBoundShare(r.doubtful, r.fine)
}

// recordBoundShare notes how much of the bound of their errors coarse scores use up, given
// the fine ones of the same documents, both ascending by document.
func (r *run) recordBoundShare(coarse, fine []topk.Scored) error {
	shortfall := r.query.Shortfall(r.bound)
	for i, s := range fine {
		below := float64(s.Score) - float64(coarse[i].Score)
		if below <= 0 {
			continue
		}
		factor, err := r.largestFactor(s.Doc)
		if err != nil {
			return err
		}
		share := min(below/shortfall.Of(factor), math.MaxFloat64)
		r.stats.BoundShare = max(r.stats.BoundShare, share)
	}
	return nil
}

// largestFactor is that of a document's tokens.
func (r *run) largestFactor(doc uint32) (float32, error) {
	p := r.group.shardByNumber(doc)
	ch, i, err := documentChunk(p.snap, doc-p.base)
	if err != nil {
		return 0, err
	}
	return p.snap.Codec().LargestFactor(ch, uint32(i)), nil
}

// mergeScored is leaders and other documents with exact scores.
func (r *run) mergeScored(leaders, exact []topk.Scored) []topk.Scored {
	r.merged = append(append(r.merged[:0], leaders...), exact...)
	if r.trace != nil {
		r.trace.recordRanking(r.merged, StageOutranked, r.plan.k)
	}
	return r.merged
}

// sortedNumbers is the documents of s in ascending order.
func (r *run) sortedNumbers(s []topk.Scored) []uint32 {
	r.docs = r.docs[:0]
	for _, d := range s {
		r.docs = append(r.docs, d.Doc)
	}
	slices.Sort(r.docs)
	return r.docs
}

func (r *run) maxSim(level kernels.Level) kernel {
	return kernel{
		rows: level == kernels.Fine,
		docs: func(dst []float32, ch *kernels.Chunk, docs []uint32) {
			r.query.MaxSim(dst, ch, docs, level)
		},
		maxima: func(dst []float64, ch *kernels.Chunk, lo, hi int) {
			r.query.Maxima(dst, ch, lo, hi, level)
		},
		total: func(maxima []float64) float32 { return r.query.Total(maxima, level) },
	}
}
