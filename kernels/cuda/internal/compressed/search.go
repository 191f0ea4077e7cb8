package compressed

import (
	"context"
	"fmt"
	"time"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

// margin is how many documents beyond k get a fine score, so that the error of
// the scan leaves the first k in no doubt.
func margin(k int) int { return k + k/4 + 28 }

// Search answers queries; see [kernels.Attachment].
func (a *attachment) Search(ctx context.Context, c kernels.Corpus, qs []kernels.DeviceQuery) ([]kernels.DeviceAnswer, error) {
	start := time.Now()
	docs := corpusDocs(c)
	answers := make([]kernels.DeviceAnswer, len(qs))
	pending := make([]*request, 0, len(qs))
	index := make([]int, 0, len(qs))
	for i := range qs {
		q := &qs[i]
		groups, err := checkQuery(c, q, docs)
		if err != nil {
			return nil, err
		}
		pending = append(pending, newRequest(a, c, q, groups, min(margin(q.K), max(docs, 1))))
		index = append(index, i)
	}
	for len(pending) > 0 {
		if err := runtime.Do(ctx, a.dev, pending); err != nil {
			return nil, err
		}
		again := make([]bool, len(pending))
		_ = parallel.Do(context.Background(), len(pending), parallel.Threads(0, len(pending)/8), func(i int) error { // fewer do not pay
			answers[index[i]].Docs, answers[index[i]].Scores, again[i] = pending[i].order()
			return nil
		})
		var more []*request
		var at []int
		for i, s := range pending {
			ans := &answers[index[i]]
			s.stats.RefinedDocs = int64(len(s.ids))
			ans.Stats.Add(s.stats)
			next := newRequest(a, c, s.q, s.groups, s.want)
			switch {
			case s.q.Probes > 0 && len(s.ids) < s.q.K: // too few for an answer
				ans.Stats.Widened++
				all := *s.q
				all.Probes = 0
				next.q = &all
			case again[i] && s.want < min(maxTopK, docs):
				ans.Stats.Retried++
				next.want = min(4*s.want, maxTopK, docs)
			case again[i]:
				ans.Stats.InDoubt++
				continue
			default:
				continue
			}
			more = append(more, next)
			at = append(at, index[i])
		}
		pending, index = more, at
	}
	for i := range answers {
		st := &answers[i].Stats
		st.Device, st.Searches = a.dev.Info().Name, 1
		st.Times.Total = time.Since(start)
	}
	return answers, nil
}

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

func corpusDocs(c kernels.Corpus) int {
	n := c.Chunks()
	if n == 0 {
		return 0
	}
	first, off := c.ChunkDocs(n - 1)
	return int(first) + len(off) - 1
}
