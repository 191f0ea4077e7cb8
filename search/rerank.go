package search

import (
	"cmp"
	"math"
	"slices"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
)

// approximate leaves the centroid-only scores of run.docs in run.approx.
func (r *run) approximate() error {
	defer timed(&r.stats.Times.Approx)()
	docs, tokens, err := r.score(approxJob, storage.Codes, kernel{docs: func(dst []float32, ch *kernels.Chunk, docs []uint32) {
		r.scorer.Approx(dst, r.query, ch, docs)
	}})
	if err != nil {
		return err
	}
	r.stats.ApproxDocs, r.stats.ApproxTokens = docs, tokens
	r.approx, r.ranked = r.ranked, r.approx
	return nil
}

// leading is how many documents, best by centroids, are scored before the query
// decides how many more to score, and at most how many before it decides again.
func leading(k int) int { return k + k/4 + 32 }

// mostExact bounds how many documents a query may decide to score.
func mostExact(k int) int { return 32*k + 512 }

// confidence is how many standard deviations a document may lie below the k-th
// best and still be scored. What a miss costs falls with k: one of ten is 10 %
// of recall, one of a hundred 1 %.
func confidence(k int) float64 {
	return 3.5 - float64(1.25*min(max(math.Log10(float64(k)/10), 0), 1))
}

// rerank scores the best of run.approx exactly and returns the K best in order.
//
// How many are enough differs between queries and with the number of centroids
// by a factor of ten, so the query is asked: the leading documents show by how
// much exact scores exceed approximate ones, and how much that varies. Beyond
// them a document is scored if its approximate score, plus the mean of that, plus
// some standard deviations, exceeds the K-th best score so far. The first of
// those are leading documents too: with them the K-th best is higher, and the
// mean less that of the best.
func (r *run) rerank() ([]scored, error) {
	if n := r.o.Exact; n > 0 {
		r.keep(best(r.approx, n))
		if r.trace != nil {
			r.trace.pruned(r, n)
		}
		return r.exact(nil, kernels.Fast)
	}
	pool := best(r.approx, mostExact(r.o.K))
	r.leaders = r.leaders[:0]
	n, limit, even := 0, math.Inf(-1), math.Inf(-1)
	for range 2 {
		next := best(pool[n:], min(leading(r.o.K), len(pool)-n))
		n += above(next, limit)
		if err := r.lead(pool[len(r.leaders):n]); err != nil {
			return nil, err
		}
		limit, even = floor(pool[:n], r.leaders, r.o.K)
	}
	even -= 2 * r.bound()
	rest := pool[n:]
	rest = rest[:above(rest, limit)]
	doubtful := 0
	r.docs = r.docs[:0]
	for _, s := range rest {
		r.docs = append(r.docs, s.doc)
		if float64(s.score) > even {
			doubtful++
		}
	}
	slices.Sort(r.docs)
	level := kernels.Fast
	if doubtful > len(r.docs)*doubtfulShare/100 {
		level = kernels.Fine
	}
	if r.trace != nil {
		r.trace.pruned(r, n+len(r.docs))
		r.trace.exact(r, r.leaders)
	}
	return r.exact(r.leaders, level)
}

// above moves the documents whose scores exceed limit to the front, and returns
// how many they are.
func above(s []scored, limit float64) int {
	n := 0
	for i := range s {
		if float64(s[i].score) > limit {
			s[n], s[i] = s[i], s[n]
			n++
		}
	}
	return n
}

// lead adds documents to the leaders, with their final scores. Their approximate
// ones are put in the same order, that of documents.
func (r *run) lead(approx []scored) error {
	if len(approx) == 0 {
		return nil
	}
	defer timed(&r.stats.Times.Exact)()
	r.keep(approx)
	docs, tokens, err := r.score(exactJob, storage.All, r.maxSim(kernels.Fine))
	if err != nil {
		return err
	}
	r.stats.ExactDocs += docs
	r.stats.ExactTokens += tokens
	r.stats.RefinedDocs += docs
	r.leaders = append(r.leaders, r.ranked...)
	slices.SortFunc(approx, func(a, b scored) int { return cmp.Compare(a.doc, b.doc) })
	return nil
}

// doubtfulShare is the percentage of documents that the error of level Fast is
// expected to leave in doubt from which on it costs more than it saves.
const doubtfulShare = 40

// floor is the approximate score at or below which a document is not worth
// scoring, given the approximate and exact scores of the same documents, and
// that of a document that may be expected to be as good as the k-th best.
func floor(approx, exact []scored, k int) (limit, even float64) {
	if len(exact) < k {
		return math.Inf(-1), math.Inf(-1)
	}
	var sum, square float64
	for i, s := range exact {
		gap := float64(s.score) - float64(approx[i].score)
		sum += gap
		square += float64(gap * gap) // rounded, not fused: the same on every processor
	}
	n := float64(len(exact))
	mean := sum / n
	deviation := math.Sqrt(max(square/n-float64(mean*mean), 0))
	even = lowest(best(slices.Clone(exact), k)) - mean
	return even - float64(confidence(k)*deviation), even
}

// lowest is the score of the last of s in order.
func lowest(s []scored) float64 {
	worst := s[0]
	for _, d := range s[1:] {
		if worst.before(d) {
			worst = d
		}
	}
	return float64(worst.score)
}

// bound is how far two scores of level Fast and Fine may be apart.
func (r *run) bound() float64 {
	return float64(r.scorer.ErrorBound(r.query, kernels.Fast)) + float64(r.scorer.ErrorBound(r.query, kernels.Fine))
}

// exact scores run.docs and returns the K best of them and of leaders, which
// have their final scores, in order. Of level Fast, documents whose place its
// error leaves open are scored again in float precision.
func (r *run) exact(leaders []scored, level kernels.Level) ([]scored, error) {
	stop := timed(&r.stats.Times.Exact)
	docs, tokens, err := r.score(exactJob, storage.All, r.maxSim(level))
	stop()
	if err != nil {
		return nil, err
	}
	r.stats.ExactDocs += docs
	r.stats.ExactTokens += tokens
	defer timed(&r.stats.Times.Refine)()
	if level == kernels.Fast {
		if err := r.refine(leaders); err != nil {
			return nil, err
		}
	} else {
		r.stats.RefinedDocs += docs
	}
	r.merged = append(append(r.merged[:0], leaders...), r.ranked...)
	if r.trace != nil {
		r.trace.exact(r, r.merged)
	}
	top := best(r.merged, r.o.K)
	slices.SortFunc(top, order)
	if r.trace != nil {
		r.trace.finish(top)
	}
	return slices.Clone(top), nil
}

// refine leaves those of run.ranked that may be among the K best, with the
// scores of level Fine.
func (r *run) refine(leaders []scored) error {
	r.merged = append(append(r.merged[:0], leaders...), r.ranked...)
	if r.trace != nil {
		r.trace.exact(r, r.merged)
	}
	if k := min(r.o.K, len(r.merged)); k < len(r.merged) {
		// Two scores that are compared may each be off.
		limit := lowest(best(r.merged, k)) - 2*r.bound()
		r.ranked = slices.DeleteFunc(r.ranked, func(s scored) bool { return float64(s.score) < limit })
	}
	r.keep(r.ranked)
	docs, _, err := r.score(exactJob, storage.All, r.maxSim(kernels.Fine))
	r.stats.RefinedDocs += docs
	return err
}

// keep makes the documents of s the list for the next stage.
func (r *run) keep(s []scored) {
	r.docs = r.docs[:0]
	for _, d := range s {
		r.docs = append(r.docs, d.doc)
	}
	slices.Sort(r.docs)
}

func (r *run) maxSim(level kernels.Level) kernel {
	qs := []kernels.Query{r.query}
	return kernel{
		docs: func(dst []float32, ch *kernels.Chunk, docs []uint32) {
			r.scorer.MaxSim(dst, qs, ch, docs, level)
		},
		maxima: func(dst []float64, ch *kernels.Chunk, lo, hi int) {
			r.scorer.Maxima(dst, r.query, ch, lo, hi, level)
		},
		total: func(maxima []float64) float32 { return r.scorer.Total(r.query, maxima, level) },
	}
}
