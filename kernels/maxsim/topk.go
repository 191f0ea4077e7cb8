package maxsim

import (
	"context"
	"math"
	"slices"

	"github.com/plaid-ir/plaid/internal/topk"
)

// ScoredDocument is a document with its score.
type ScoredDocument struct {
	Doc   int     // its number among the documents
	Score float32 // MaxSim
}

// Top finds the best documents of each query among any number of batches, added one after
// another, without keeping all scores: documents that do not fit into memory are scored
// batch by batch. Documents without tokens are left out.
type Top struct {
	k           int
	docs        int // so far
	lists       [][]topk.Scored
	scoreBuffer []float32
	docBuffer   []int32 // documents that a Ranker found, with their scores
}

// maxBufferedScores is about the largest number of scores in memory at a time. Tests change it.
var maxBufferedScores = 1 << 20

// NewTop returns a Top of the k best documents of each query.
func NewTop(k int) *Top { return &Top{k: max(k, 0)} }

// Add scores every query of q with every document of d on a backend. All calls must have
// the same queries. Numbers of documents continue those of earlier calls. After an error no
// document of d has been added, and the call can be repeated.
func (t *Top) Add(ctx context.Context, b Backend, q, d Operand, terms Terms) error {
	w, err := checkOperands(q, d, &Pairs{}, &terms)
	if err != nil {
		return err
	}
	nq, nd := w.Q.Len(), w.D.Len()
	if t.lists != nil && len(t.lists) != nq {
		return shapeErrorf("%d queries, and %d before", nq, len(t.lists))
	}
	if t.docs > math.MaxUint32-nd {
		return shapeErrorf("%d documents, and %d before", nd, t.docs)
	}
	lists := make([][]topk.Scored, nq)
	for i, list := range t.lists {
		lists[i] = slices.Clone(list)
	}
	if r, ok := b.(Ranker); ok && t.k > 0 {
		err = t.addByRank(ctx, lists, r, q, d, terms, nd)
	} else {
		err = t.addByScores(ctx, lists, b, q, d, &w.D, terms)
	}
	if err != nil {
		return err
	}
	t.lists = lists
	t.docs += nd
	return nil
}

// addByScores adds the best documents of d to the lists, from the scores of all of them.
func (t *Top) addByScores(
	ctx context.Context, lists [][]topk.Scored, b Backend, q, d Operand, docs *Shape, terms Terms,
) error {
	nq, nd := len(lists), docs.Len()
	size := max(maxBufferedScores/max(nq, 1), 1)
	for lo := 0; lo < nd && nq > 0; lo += size {
		n := min(size, nd-lo)
		if cap(t.scoreBuffer) < nq*n {
			t.scoreBuffer = make([]float32, nq*n)
		}
		c := Call{Q: q, D: d, Pairs: Range(lo, n), Terms: terms, Scores: t.scoreBuffer[:nq*n]}
		if err := b.Score(ctx, &c); err != nil {
			return err
		}
		for i := range lists {
			lists[i] = t.keepBest(lists[i], docs, lo, c.Scores[i*n:(i+1)*n])
		}
	}
	return nil
}

// addByRank adds the best of the nd documents of d to the lists, which a backend ranks.
func (t *Top) addByRank(
	ctx context.Context, lists [][]topk.Scored, r Ranker, q, d Operand, terms Terms, nd int,
) error {
	nq, k := len(lists), min(t.k, nd)
	if n := nq * k; cap(t.scoreBuffer) < n || cap(t.docBuffer) < n {
		t.scoreBuffer, t.docBuffer = make([]float32, n), make([]int32, n)
	}
	c := RankCall{
		Q:      q,
		D:      d,
		Terms:  terms,
		K:      k,
		Docs:   t.docBuffer[:nq*k],
		Scores: t.scoreBuffer[:nq*k],
	}
	if err := r.Rank(ctx, &c); err != nil {
		return err
	}
	for i, list := range lists {
		for j := i * k; j < (i+1)*k && c.Docs[j] >= 0; j++ {
			list = append(list, topk.Scored{Doc: uint32(t.docs + int(c.Docs[j])), Score: c.Scores[j]})
		}
		lists[i] = topk.Best(list, t.k)
	}
	return nil
}

// keepBest returns the k best of a query's list and of the documents from lo on, which have
// these scores.
func (t *Top) keepBest(list []topk.Scored, d *Shape, lo int, scores []float32) []topk.Scored {
	for i, s := range scores {
		if d.hasNoTokens(lo + i) {
			continue
		}
		if list = append(list, topk.Scored{Doc: uint32(t.docs + lo + i), Score: s}); len(list) >= 2*t.k+1024 {
			list = topk.Best(list, t.k)
		}
	}
	return topk.Best(list, t.k)
}

// Hits returns the best documents of each query, by descending score; ties are in order of
// their numbers.
func (t *Top) Hits() [][]ScoredDocument {
	results := make([][]ScoredDocument, len(t.lists))
	for i, list := range t.lists {
		slices.SortFunc(list, topk.Order)
		hits := make([]ScoredDocument, len(list))
		for j, s := range list {
			hits[j] = ScoredDocument{int(s.Doc), s.Score}
		}
		results[i] = hits
	}
	return results
}

// hasNoTokens reports whether all rows of item i are masked, or it has none.
func (l *Layout) hasNoTokens(i int) bool {
	lo, hi := l.Span(i)
	for ; lo < hi; lo++ {
		if l.IsToken(lo) {
			return false
		}
	}
	return true
}

// TopK returns the k best documents of each query.
func TopK(ctx context.Context, b Backend, q, d Operand, k int, terms Terms) ([][]ScoredDocument, error) {
	t := NewTop(k)
	if err := t.Add(ctx, b, q, d, terms); err != nil {
		return nil, err
	}
	return t.Hits(), nil
}

// RankCall has the arguments and results of [Ranker.Rank]: the K best documents of each
// query among all of D.
type RankCall struct {
	Q, D Operand
	Terms
	K int
	// Docs and Scores receive the best documents of each query and their scores, [Nq, K],
	// by descending score; ties are in order of the documents. Documents without tokens
	// are left out. If there are fewer than K, the remaining entries are −1 and 0.
	Docs   []int32
	Scores []float32
}

// Ranker is a [Backend] that ranks documents without returning all scores. On a device the
// documents may take many times its memory: they are streamed. [Top] uses it.
type Ranker interface {
	Rank(ctx context.Context, c *RankCall) error
}

// Check checks the call as [Call.Check] does.
func (c *RankCall) Check() (Work, error) {
	w, err := checkOperands(c.Q, c.D, &Pairs{}, &c.Terms)
	if err != nil {
		return w, err
	}
	n, err := checkedProduct(w.Q.Len(), c.K)
	if err != nil {
		return w, err
	}
	if len(c.Docs) != n || len(c.Scores) != n {
		return w, shapeErrorf("%d documents and %d scores for %d queries with %d each",
			len(c.Docs), len(c.Scores), w.Q.Len(), c.K)
	}
	warnIfNotUnit(c.Q, &c.Terms)
	return w, nil
}
