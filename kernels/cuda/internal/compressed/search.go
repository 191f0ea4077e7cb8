package compressed

import (
	"context"
	"fmt"
	"time"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

// Search answers queries; see [kernels.Attachment].
func (a *attachment) Search(
	ctx context.Context, c kernels.Corpus, qs []kernels.DeviceQuery,
) ([]kernels.DeviceAnswer, error) {
	start := time.Now()
	docs := documentCount(c)
	answers := make([]kernels.DeviceAnswer, len(qs))
	pending := make([]*request, 0, len(qs))
	answerIndex := make([]int, 0, len(qs))
	for i := range qs {
		q := &qs[i]
		groups, err := checkQuery(c, q, docs)
		if err != nil {
			return nil, err
		}
		pending = append(pending, newRequest(a, c, q, groups, a.capacityFor(q.K), firstSlack))
		answerIndex = append(answerIndex, i)
	}
	// At least eight queries a thread: fewer cost more than they save.
	_ = parallel.Do(context.Background(), len(pending), parallel.Threads(0, len(pending)/8),
		func(i int) error {
			pending[i].countAlike()
			return nil
		})
	for len(pending) > 0 {
		if err := runtime.RunRequests(ctx, a.dev, pending); err != nil {
			return nil, err
		}
		next := make([]*request, len(pending))
		_ = parallel.Do(context.Background(), len(pending), parallel.Threads(0, len(pending)/8), func(i int) error {
			next[i] = pending[i].finish(&answers[answerIndex[i]])
			return nil
		})
		var remaining []*request
		var remainingIndex []int
		for i, r := range next {
			if r != nil {
				remaining, remainingIndex = append(remaining, r), append(remainingIndex, answerIndex[i])
			}
		}
		pending, answerIndex = remaining, remainingIndex
	}
	total := time.Since(start)
	for i := range answers {
		st := &answers[i].Stats
		st.Device, st.Searches = a.dev.Info().Name, 1
		st.Times.Total = total / time.Duration(len(answers))
	}
	return answers, nil
}

// finish writes the answer from the results of the device. It returns the request that repeats
// the search if the results may be incomplete, else nil.
func (t *request) finish(answer *kernels.DeviceAnswer) (next *request) {
	docs, scores, neededCapacity, doubtful := t.rankFine()
	t.stats.RefinedDocs, t.stats.BoundShare = int64(len(t.ids)), float64(t.boundShare)
	answer.Stats.Add(t.stats)
	answer.Docs, answer.Scores = docs, scores
	retry := func() *request {
		next := newRequest(t.attachment, t.corpus, t.query, t.groups, t.capacity, t.slack)
		next.worstBound, next.alike, next.alikeShape = t.worstBound, t.alike, t.alikeShape
		return next
	}
	switch {
	case t.query.Probes > 0 && t.listedDocs < t.query.K: // probing has found fewer than K: scan all
		answer.Stats.Widened++
		unprobed := *t.query
		unprobed.Probes = 0
		next = retry()
		next.query = &unprobed
	case neededCapacity > 0:
		answer.Stats.Retried++
		next = retry()
		next.capacity = neededCapacity
		t.attachment.recordSurplus(t.query.K, neededCapacity)
	// An error near the bound is improbable if roundings are independent, as the bound assumes.
	case t.boundShare > kernels.NearBound && !t.worstBound && t.attachment.scanBound != kernels.Worst:
		answer.Stats.Retried++
		next = retry()
		next.worstBound = true
	case doubtful && t.slack < lastSlack:
		answer.Stats.Retried++
		next = retry()
		next.slack = lastSlack
	case doubtful:
		answer.Stats.InDoubt++
	}
	return next
}

// capacityFor returns how many documents may be listed for the k best. Too large a list costs
// little, and too small a list costs another search.
func (a *attachment) capacityFor(k int) int {
	return k + max(k/2+64, int(a.surplus.Load()))
}

// recordSurplus records that a search for the k best has found more documents than it could
// list, so that later searches get longer lists.
func (a *attachment) recordSurplus(k, found int) {
	surplus := int64(min(found-k+(found-k)/4, maxSurplus))
	for {
		if old := a.surplus.Load(); old >= surplus || a.surplus.CompareAndSwap(old, surplus) {
			return
		}
	}
}

// checkQuery validates a query for a corpus of docs documents, and returns its number of groups of
// query tokens.
func checkQuery(c kernels.Corpus, q *kernels.DeviceQuery, docs int) (groups int, err error) {
	dim := c.Codec().Dim()
	lq := len(q.Vectors) / dim
	switch {
	case lq == 0 || len(q.Vectors)%dim != 0:
		return 0, fmt.Errorf("%w: query of %d values, dimension %d", kernels.ErrShape, len(q.Vectors), dim)
	case q.Weights != nil && len(q.Weights) != lq:
		return 0, fmt.Errorf("%w: %d weights for %d query tokens", kernels.ErrShape, len(q.Weights), lq)
	case q.K < 1 || q.Probes < 0:
		return 0, fmt.Errorf("%w: k %d, %d probes", kernels.ErrShape, q.K, q.Probes)
	case q.Allowed != nil && len(q.Allowed) < (docs+63)/64:
		return 0, fmt.Errorf("%w: %d documents, %d words of allowed ones", kernels.ErrShape, docs, len(q.Allowed))
	case q.Docs != nil && q.Allowed != nil:
		return 0, fmt.Errorf("%w: both a list and a set of documents", kernels.ErrShape)
	}
	for i, d := range q.Docs {
		if int(d) >= docs || i > 0 && d <= q.Docs[i-1] {
			return 0, fmt.Errorf("%w: list of documents: %d at %d, of %d documents", kernels.ErrShape, d, i, docs)
		}
	}
	return runtime.CeilDiv(lq, columns), nil
}

// documentCount returns the number of documents of a corpus, deleted ones included.
func documentCount(c kernels.Corpus) int {
	n := c.Chunks()
	if n == 0 {
		return 0
	}
	first, off := c.ChunkDocs(n - 1)
	return int(first) + len(off) - 1
}
