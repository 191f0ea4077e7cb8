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
	defer timed(&r.stats.Times.Approx)()
	r.stats.ApproxDocs += int64(len(docs))
	dst, tokens, err := r.score(dst, docs, approxJob, storage.Codes, kernel{docs: func(dst []float32, ch *kernels.Chunk, docs []uint32) {
		r.query.Approx(dst, ch, docs)
	}})
	r.stats.ApproxTokens += tokens
	return dst, err
}

// approximateMore adds to approx, which has the scores of the best candidates by their gains,
// those of as many again, and so on, until few of the last ones score so much that they may be
// among the K best.
func (r *run) approximateMore(approx []topk.Scored, limit, even float64) ([]topk.Scored, error) {
	p, last := &r.prober, approx
	level := even - float64((even-limit)*unlikely)
	for p.kept < min(p.found, r.plan.approx) && scoreAbove(last, level) > max(r.plan.expected()/20, 1) {
		stop := timed(&r.stats.Times.Probe)
		docs := r.cutReached(min(2*p.kept, p.found, r.plan.approx))
		stop()
		r.tally(docs, func(p *PartStats) *int64 { return &p.Candidates })
		var err error
		if last, err = r.approximate(r.more, docs); err != nil {
			return nil, err
		}
		r.more, approx = last, append(approx, last...)
	}
	r.approx = approx
	return approx, nil
}

// unlikely is how far below the score of a document as good as the K-th best, as a part of
// what exact scores take, documents are few enough to stop (docs/lab/search-quality.md).
const unlikely = 2.0 / 3

// scoreAbove counts the documents whose scores exceed a level.
func scoreAbove(s []topk.Scored, level float64) int {
	n := 0
	for i := range s {
		if float64(s[i].Score) > level {
			n++
		}
	}
	return n
}

// leading is how many documents, best by centroids, are scored before the query
// decides how many more to score, and at most how many before it decides again.
func leading(k int, share float64) int { return k + k/4 + shareOf(32, share) }

// mostExact bounds how many documents a query may decide to score.
func mostExact(k int, share float64) int { return 32*k + shareOf(512, share) }

// confidence is how many standard deviations a document may lie below the k-th
// best and still be scored. What a miss costs falls with k: one of ten is 10 %
// of recall, one of a hundred 1 %. Each doubling of effort adds half a deviation.
func confidence(k int, effort float64) float64 {
	of := 3.5 - float64(1.25*min(max(math.Log10(float64(k)/10), 0), 1))
	return max(of+float64(math.Log2(effort)/2), 0.5)
}

// rerank scores the best of approx exactly and returns the K best in order.
//
// How many are enough differs between queries and with the number of centroids
// by a factor of ten, so the query is asked: the leading documents show by how
// much exact scores exceed approximate ones, and how much that varies. Beyond
// them a document is scored if its approximate score, plus the mean of that, plus
// some standard deviations, exceeds the K-th best score so far.
//
// By the first limit it is also decided how many of the candidates that have no approximate
// score yet get one.
//
// The limit is found twice: the documents that the first limit lets through are many, and the
// best of them become leading documents too, by which a second limit, mostly a higher one, is
// found for the rest.
func (r *run) rerank(approx []topk.Scored) ([]topk.Scored, error) {
	k := r.plan.k
	if n := r.plan.exact; n > 0 {
		docs := r.list(topk.Best(approx, n))
		if r.trace != nil {
			r.trace.ranked(approx, StagePruned, n)
		}
		return r.rank(docs, nil, kernels.Fast)
	}
	pool := topk.Best(approx, mostExact(k, r.plan.share))
	r.leaders = r.leaders[:0]
	n, limit, even := 0, math.Inf(-1), math.Inf(-1)
	for round := range 2 {
		next := topk.Best(pool[n:], min(leading(k, r.plan.share), len(pool)-n))
		n += above(next, limit)
		if err := r.lead(pool[len(r.leaders):n]); err != nil {
			return nil, err
		}
		limit, even = floor(pool[:n], r.leaders, r.plan.expected(), r.plan.confidence)
		if round == 0 && r.prober.kept < r.prober.found {
			var err error
			if approx, err = r.approximateMore(approx, limit, even); err != nil {
				return nil, err
			}
			pool = approx[:n+len(topk.Best(approx[n:], mostExact(k, r.plan.share)-n))]
		}
	}
	even -= r.query.Shortfall(r.bound).Of(r.call.coll.codec().FactorMax)
	rest := pool[n:]
	rest = rest[:above(rest, limit)]
	doubtful := 0
	for _, s := range rest {
		if float64(s.Score) > even {
			doubtful++
		}
	}
	level := kernels.Fast
	if doubtful > len(rest)*doubtfulShare/100 {
		level = kernels.Fine
	}
	if r.trace != nil {
		r.trace.ranked(approx, StagePruned, n+len(rest))
		r.trace.ranked(r.leaders, StageOutranked, k)
	}
	return r.rank(r.list(rest), r.leaders, level)
}

// above moves the documents whose scores exceed limit to the front, and returns
// how many they are.
func above(s []topk.Scored, limit float64) int {
	n := 0
	for i := range s {
		if float64(s[i].Score) > limit {
			s[n], s[i] = s[i], s[n]
			n++
		}
	}
	return n
}

// lead adds documents to the leaders, with their final scores. Their approximate
// ones are put in the same order, that of documents.
func (r *run) lead(approx []topk.Scored) error {
	if len(approx) == 0 {
		return nil
	}
	defer timed(&r.stats.Times.Exact)()
	var tokens int64
	var err error
	list := r.list(approx)
	r.tally(list, func(p *PartStats) *int64 { return &p.ExactDocs })
	r.exact, tokens, err = r.score(r.exact, list, exactJob, storage.All, r.maxSim(kernels.Fine))
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

// doubtfulShare is the percentage of documents that the error of level Fast is
// expected to leave in doubt from which on it costs more than it saves.
const doubtfulShare = 40

// floor is the approximate score at or below which a document is not worth
// scoring, given the approximate and exact scores of the same documents, and
// that of a document that may be expected to be as good as the k-th best.
func floor(approx, exact []topk.Scored, k int, confidence float64) (limit, even float64) {
	if len(exact) < k {
		return math.Inf(-1), math.Inf(-1)
	}
	var sum, square float64
	for i, s := range exact {
		gap := float64(s.Score) - float64(approx[i].Score)
		sum += gap
		square += float64(gap * gap) // rounded, not fused: the same on every processor
	}
	n := float64(len(exact))
	mean := sum / n
	deviation := math.Sqrt(max(square/n-float64(mean*mean), 0))
	even = lowest(topk.Best(slices.Clone(exact), k)) - mean
	return even - float64(confidence*deviation), even
}

// lowest is the score of the last of s in order.
func lowest(s []topk.Scored) float64 {
	worst := s[0]
	for _, d := range s[1:] {
		if worst.Before(d) {
			worst = d
		}
	}
	return float64(worst.Score)
}

// rank scores documents and returns the K best of them and of leaders, which have
// their final scores, in order. Of level Fast, documents whose place its error
// leaves open are scored again in float precision.
func (r *run) rank(docs []uint32, leaders []topk.Scored, level kernels.Level) ([]topk.Scored, error) {
	r.tally(docs, func(p *PartStats) *int64 { return &p.ExactDocs })
	stop := timed(&r.stats.Times.Exact)
	var tokens int64
	var err error
	r.exact, tokens, err = r.score(r.exact, docs, exactJob, storage.All, r.maxSim(level))
	stop()
	if err != nil {
		return nil, err
	}
	r.stats.ExactDocs += int64(len(docs))
	r.stats.ExactTokens += tokens
	defer timed(&r.stats.Times.Refine)()
	final := r.exact
	if level == kernels.Fast {
		if final, err = r.refine(r.exact, leaders); err != nil {
			return nil, err
		}
	} else {
		r.stats.RefinedDocs += int64(len(docs))
	}
	all := r.merge(leaders, final)
	top := topk.Best(all, r.plan.k)
	slices.SortFunc(top, topk.Order)
	return top, nil
}

// refine returns those of exact that may be among the K best, with scores of level
// Fine in place of Fast. First the best of them get theirs: with the leaders they
// are K documents with fine scores, and the lowest of the K best of these is one
// that no document of the result is below. Then those do whose coarse scores are
// no further below it than errors may have brought them.
func (r *run) refine(exact, leaders []topk.Scored) ([]topk.Scored, error) {
	all := r.merge(leaders, exact)
	limit := math.Inf(-1)
	if k := r.plan.k; k < len(all) {
		limit = lowest(topk.Best(all, k))
	}
	r.refined = r.refined[:0]
	rest, err := r.refineAbove(exact, limit, kernels.Shortfall{})
	bound := r.bound
	for err == nil && len(rest) > 0 {
		kth := lowest(topk.Best(append(append(r.merged[:0], leaders...), r.refined...), r.plan.k))
		rest, err = r.refineAbove(rest, kth, r.query.Shortfall(bound))
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
func (r *run) refineAbove(coarse []topk.Scored, limit float64, short kernels.Shortfall) (rest []topk.Scored, err error) {
	factorMax := r.call.coll.codec().FactorMax
	most := limit - short.Of(factorMax) // of any document
	r.again, rest = r.again[:0], coarse[:0]
	for _, s := range coarse {
		doubtful := float64(s.Score) >= most
		if doubtful && float64(s.Score) < limit {
			factor, err := r.largestFactor(s.Doc)
			if err != nil {
				return nil, err
			}
			doubtful = float64(s.Score) >= limit-short.Of(factor)
		}
		if doubtful {
			r.again = append(r.again, s)
		} else {
			rest = append(rest, s)
		}
	}
	r.stats.RefinedDocs += int64(len(r.again))
	r.fine, _, err = r.score(r.fine, r.list(r.again), exactJob, storage.All, r.maxSim(kernels.Fine))
	if err != nil {
		return nil, err
	}
	r.refined = append(r.refined, r.fine...)
	return rest, r.compare(r.again, r.fine)
}

// compare notes how much of the bound of their errors coarse scores use up, given
// the fine ones of the same documents, both ascending by document.
func (r *run) compare(coarse, fine []topk.Scored) error {
	short := r.query.Shortfall(r.bound)
	for i, s := range fine {
		below := float64(s.Score) - float64(coarse[i].Score)
		if below <= 0 {
			continue
		}
		factor, err := r.largestFactor(s.Doc)
		if err != nil {
			return err
		}
		share := min(below/short.Of(factor), math.MaxFloat64)
		r.stats.BoundShare = max(r.stats.BoundShare, share)
	}
	return nil
}

// largestFactor is that of a document's tokens.
func (r *run) largestFactor(doc uint32) (float32, error) {
	p := r.group.partOf(doc)
	ch, i, err := chunkOf(p.snap, doc-p.base)
	if err != nil {
		return 0, err
	}
	return p.snap.Codec().LargestFactor(ch, uint32(i)), nil
}

// merge is leaders and other documents with exact scores.
func (r *run) merge(leaders, exact []topk.Scored) []topk.Scored {
	r.merged = append(append(r.merged[:0], leaders...), exact...)
	if r.trace != nil {
		r.trace.ranked(r.merged, StageOutranked, r.plan.k)
	}
	return r.merged
}

// list is the documents of s in ascending order.
func (r *run) list(s []topk.Scored) []uint32 {
	r.docs = r.docs[:0]
	for _, d := range s {
		r.docs = append(r.docs, d.Doc)
	}
	slices.Sort(r.docs)
	return r.docs
}

func (r *run) maxSim(level kernels.Level) kernel {
	return kernel{
		docs: func(dst []float32, ch *kernels.Chunk, docs []uint32) {
			r.query.MaxSim(dst, ch, docs, level)
		},
		maxima: func(dst []float64, ch *kernels.Chunk, lo, hi int) {
			r.query.Maxima(dst, ch, lo, hi, level)
		},
		total: func(maxima []float64) float32 { return r.query.Total(maxima, level) },
	}
}
