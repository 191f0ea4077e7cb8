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

// approximateMore appends to approx, which has the scores of the best candidates by gain, the
// scores of as many again, and so on, until few of the last ones exceed limit and so may be among
// the K best.
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

// leaderCount is how many documents, the best by centroids, are scored before the query decides how
// many more to score.
func leaderCount(k int, share float64) int {
	return k + shareOfCount(8, share)
}

// sampleSize is about how many of the other documents, of all ranks, are scored then.
func sampleSize(share float64) int { return max(shareOfCount(48, share), 12) }

// minLineDocs is how many documents determine a slope well enough.
const minLineDocs = 32

// firstBatchSize is how many documents are scored before the limit is raised for the others. Each
// later batch is twice as large.
func firstBatchSize(k int, share float64) int { return k + shareOfCount(32, share) }

// maxExactDocs limits how many documents a query may decide to score.
func maxExactDocs(k int, share float64) int { return 64*k + shareOfCount(1024, share) }

// neededDeviations returns how many standard deviations a document may lie below the k-th best and
// still be scored. With more documents, more lie near the limit: each doubling adds a tenth of a
// deviation for the best ten, a fifth for a hundred (docs/lab/search-quality.md). Each doubling of
// effort adds half a deviation.
func neededDeviations(k int, docs, effort float64) float64 {
	doublings := math.Log2(max(docs/5000, 1))
	deviations := deviationsFor(k, 3.5+float64(doublings*0.11), 2.25+float64(doublings*0.18))
	return max(deviations+float64(math.Log2(effort)/2), 0.5)
}

// deviationsFor interpolates between few, for k up to 10, and many, for k from 100 on: missing one
// of ten costs 10 % of recall, one of a hundred 1 %.
func deviationsFor(k int, few, many float64) float64 {
	return few - float64((few-many)*min(max(math.Log10(float64(k)/10), 0), 1))
}

// rerank scores the best of approx exactly and returns the K best in order.
//
// How many are enough differs by a factor of ten between queries and numbers of centroids, so each
// query measures it: some documents show by how much exact scores exceed approximate ones, and how
// much that varies. Another document is scored if its approximate score, plus the expected excess,
// plus some standard deviations, exceeds the K-th best score so far.
func (r *run) rerank(approx []topk.Scored) ([]topk.Scored, error) {
	k := r.plan.k
	if n := r.plan.exactBudget; n > 0 {
		docs := r.sortedNumbers(topk.Best(approx, n))
		if r.trace != nil {
			r.trace.recordRanking(approx, StagePruned, n)
		}
		return r.scoreAndRank(docs, nil, kernels.Fast)
	}
	// Score the leading documents, which give a first limit.
	pool := topk.Best(approx, maxExactDocs(k, r.plan.share))
	r.leaders = r.leaders[:0]
	n := bestWithTies(pool, leaderCount(k, r.plan.share))
	if err := r.scoreLeaders(pool[:n]); err != nil {
		return nil, err
	}
	const withSlope = false // the leading documents have about the same approximate score
	fit := measureGaps(pool[:n], r.leaders, withSlope)
	limit := fit.worthScoring(r.leaders, &r.plan)
	// That limit decides how many more candidates get an approximate score.
	if r.prober.kept < r.prober.total {
		var err error
		if approx, err = r.approximateMore(approx, limit); err != nil {
			return nil, err
		}
		pool = approx[:n+len(topk.Best(approx[n:], maxExactDocs(k, r.plan.share)-n))]
	}
	// Score a sample of the documents above the limit: the leading ones alone may be copies of each
	// other, and exceed their approximate scores by more than others do.
	sample := sampleAbove(pool[n:], limit, sampleSize(r.plan.share))
	n += len(sample)
	if err := r.scoreLeaders(sample); err != nil {
		return nil, err
	}
	fit = measureGaps(pool[:n], r.leaders, n >= minLineDocs)
	limit = fit.worthScoring(r.leaders, &r.plan)
	remaining := pool[n:]
	remaining = remaining[:partitionAbove(remaining, limit)]
	if r.trace != nil {
		r.trace.recordRanking(approx, StagePruned, n+len(remaining))
		r.trace.recordRanking(r.leaders, StageOutranked, k)
	}
	// Score the remaining documents in batches, the best first. The K-th best score rises, and the
	// limit with it.
	for size := firstBatchSize(k, r.plan.share); len(remaining) > 2*size && limit > math.Inf(-1); size *= 2 {
		size := bestWithTies(remaining, size)
		next := remaining[:size]
		remaining = remaining[size:]
		best, err := r.scoreAndRank(r.sortedNumbers(next), r.leaders, r.rerankLevel(next, fit))
		if err != nil {
			return nil, err
		}
		r.leaders = append(r.leaders[:0], best...)
		n += size
		limit = fit.worthScoring(r.leaders, &r.plan)
		remaining = remaining[:partitionAbove(remaining, limit)]
		if r.trace != nil && r.trace.stage == StagePruned {
			r.trace.recordRanking(approx, StagePruned, n+len(remaining))
		}
	}
	return r.scoreAndRank(r.sortedNumbers(remaining), r.leaders, r.rerankLevel(remaining, fit))
}

// rerankLevel returns Fast, or Fine if the error of Fast probably leaves many of the documents in
// doubt, judged by their approximate scores.
func (r *run) rerankLevel(docs []topk.Scored, g gaps) kernels.Level {
	maxError := r.query.Shortfall(r.bound).ForFactor(r.call.coll.sharedCodec().FactorMax)
	minDoubtful := g.breakEven(r.leaders, &r.plan) - maxError
	doubtful := 0
	for _, s := range docs {
		if float64(s.Score) > minDoubtful {
			doubtful++
		}
	}
	if doubtful > len(docs)*doubtfulPercent/100 {
		return kernels.Fine
	}
	return kernels.Fast
}

// bestWithTies moves the n best documents to the front, and behind them all others with the score
// of the last, unless these are more than n. It returns how many it moved. Approximate scores are
// sums of small integers with many ties, and numbering must not decide which documents are scored.
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

// partitionAbove moves the documents whose scores exceed limit to the front, and returns their
// number.
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

// scoreLeaders appends documents to the leaders with their exact scores. It sorts both lists by
// document, so that approx and the appended leaders correspond.
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

// doubtfulPercent is the percentage of documents in doubt after level Fast from which on Fast costs
// more than it saves.
const doubtfulPercent = 40

// sampleAbove moves about n documents to the front, and returns them: if more than n scores exceed
// limit, documents of all these ranks; otherwise the n best. Approximate scores are sums of small
// integers with many ties: tied documents are drawn together or not at all, so that numbering does
// not matter.
func sampleAbove(s []topk.Scored, limit float64, n int) []topk.Scored {
	above := partitionAbove(s, limit)
	if above <= n {
		return s[:bestWithTies(s, n)]
	}
	ranked := make([]uint64, above) // score in the upper half, index in s in the lower
	for i, d := range s[:above] {
		h := math.Float32bits(d.Score)
		h ^= uint32(int32(h)>>31) | 1<<31 // orders as the floats do
		ranked[i] = uint64(h)<<32 | uint64(i)
	}
	slices.Sort(ranked)
	due := 0.0 // documents that drawing one by one would have drawn so far, minus those drawn
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

// gaps describes by how much exact scores exceed approximate ones: a regression line around middle,
// and the standard deviation from it.
type gaps struct{ mean, slope, middle, deviation float64 }

// measureGaps fits gaps to documents with both scores, in the same order. Without withSlope the
// slope is 0. Products are rounded, not fused, so that every processor gets the same result.
func measureGaps(approx, exact []topk.Scored, withSlope bool) (g gaps) {
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
	if withSlope && products > 0 {
		g.slope = products / squares
	}
	g.deviation = math.Sqrt(max(gapSquares-float64(g.slope*products), 0) / n)
	return g
}

// breakEven returns the approximate score with which a document is expected to equal the worst of
// the best exact ones that the plan needs.
func (g gaps) breakEven(exact []topk.Scored, p *plan) float64 { return g.approxScoreFor(exact, p, 0) }

// worthScoring returns the approximate score that a document must exceed to be scored.
func (g gaps) worthScoring(exact []topk.Scored, p *plan) float64 {
	return g.approxScoreFor(exact, p, p.deviations)
}

// approxScoreFor returns the approximate score with which a document, this many deviations above
// its expected exact score, would equal the worst of the best exact ones.
func (g gaps) approxScoreFor(exact []topk.Scored, p *plan, deviations float64) float64 {
	if len(exact) < p.expectedInShare() {
		return math.Inf(-1)
	}
	worst := lowestScore(topk.Best(slices.Clone(exact), p.expectedInShare()))
	// Solves exact = approx + mean + slope·(approx − middle) + deviations·deviation for approx.
	return (worst - g.mean + float64(g.slope*g.middle) - float64(deviations*g.deviation)) / (1 + g.slope)
}

// lowestScore returns the score of the last of s in the order of results.
func lowestScore(s []topk.Scored) float64 {
	worst := s[0]
	for _, d := range s[1:] {
		if worst.Before(d) {
			worst = d
		}
	}
	return float64(worst.Score)
}

// scoreAndRank scores documents and returns the K best of them and of leaders, whose scores are
// exact, in order. After level Fast it scores documents again in float precision if the error
// leaves their rank open.
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

// refine returns those of exact that may be among the K best, with scores of level Fine in place of
// coarse ones, those of level Fast. First it scores the K best of leaders and exact: the lowest of
// these K fine scores is a limit that every document of the result reaches. Then it scores all
// documents whose coarse score is below the limit by no more than its error bound. If errors came
// near the probable bound, it repeats that with the worst bound.
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
		r.stats.WorstBound++
	}
	return r.refined, err
}

// refineAbove adds fine scores of documents to r.refined if their coarse score is below limit by no
// more than its error, and returns the others.
func (r *run) refineAbove(
	coarse []topk.Scored, limit float64, shortfall kernels.Shortfall,
) (below []topk.Scored, err error) {
	factorMax := r.call.coll.sharedCodec().FactorMax
	lowestDoubtful := limit - shortfall.ForFactor(factorMax) // with the largest factor of all documents
	r.doubtful, below = r.doubtful[:0], coarse[:0]
	for _, s := range coarse {
		doubtful := float64(s.Score) >= lowestDoubtful
		if doubtful && float64(s.Score) < limit {
			factor, err := r.largestFactor(s.Doc)
			if err != nil {
				return nil, err
			}
			doubtful = float64(s.Score) >= limit-shortfall.ForFactor(factor)
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

// recordBoundShare records which share of their error bound coarse scores used up, given the fine
// scores of the same documents. Both lists ascend by document.
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
		share := min(below/shortfall.ForFactor(factor), math.MaxFloat64)
		r.stats.BoundShare = max(r.stats.BoundShare, share)
	}
	return nil
}

// largestFactor returns the largest factor of a document's tokens, on which the error of its coarse
// score depends.
func (r *run) largestFactor(doc uint32) (float32, error) {
	sh := r.group.shardByNumber(doc)
	ch, i, err := documentChunk(sh.snap, doc-sh.base)
	if err != nil {
		return 0, err
	}
	return sh.snap.Codec().LargestFactor(ch, uint32(i)), nil
}

// mergeScored returns leaders and exact in one list.
func (r *run) mergeScored(leaders, exact []topk.Scored) []topk.Scored {
	r.merged = append(append(r.merged[:0], leaders...), exact...)
	if r.trace != nil {
		r.trace.recordRanking(r.merged, StageOutranked, r.plan.k)
	}
	return r.merged
}

// sortedNumbers returns the documents of s in ascending order.
func (r *run) sortedNumbers(s []topk.Scored) []uint32 {
	r.docs = r.docs[:0]
	for _, d := range s {
		r.docs = append(r.docs, d.Doc)
	}
	slices.Sort(r.docs)
	return r.docs
}

// maxSim returns the kernel for exact scores at a level.
func (r *run) maxSim(level kernels.Level) kernel {
	return kernel{
		rows: level == kernels.Fine,
		docs: func(dst []float32, ch *kernels.Chunk, docs []uint32) {
			r.query.MaxSim(dst, ch, docs, level)
		},
		maxima: func(dst []float64, ch *kernels.Chunk, lo, hi int) {
			r.query.Maxima(dst, ch, lo, hi, level)
		},
		total: func(maxima []float64) float32 { return r.query.TotalScore(maxima, level) },
	}
}
