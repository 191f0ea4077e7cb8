package search

import (
	"context"
	"slices"

	"github.com/plaid-ir/plaid/internal/topk"
	"github.com/plaid-ir/plaid/kernels"
)

// prober finds the n best centroids of each query token, and what they say
// about the documents in their lists.
type prober struct {
	n       int
	picked  int                     // n + 1, or all centroids: the one after the last probed is the floor
	best    []kernels.CentroidScore // n a query token that probes, best first
	weights []float32               // of those tokens
	floors  []float32               // of those tokens: the score of the best centroid that is not probed
	lists   []uint64                // centroids probed by some token
	cursors []cursor                // in their lists, best first
	docs    []uint32                // of a block of a list
	reached []uint64                // of each document of a block: stamp, gain
	stamp   uint32                  // the last one given out
	unit    float64                 // of gains
	buckets [gainBuckets]uint32     // how many candidates have gains of each
	level   []candidate             // those of the bucket of the last that is kept
}

// probe returns the allowed documents in the lists of the best centroids of each
// query token, in ascending order. More than the approximate budget of them are cut
// down to that.
func (r *run) probe(weights []float32, allowed *allowance) ([]uint32, error) {
	defer timed(&r.stats.Times.Probe)()
	if err := r.prober.pick(r, weights); err != nil {
		return nil, err
	}
	reached, err := r.reach(allowed)
	if err != nil {
		return nil, err
	}
	r.stats.Candidates += int64(len(reached))
	if len(reached) > r.plan.approx {
		r.docs = r.cutReached(reached)
		return r.docs, nil
	}
	r.docs = r.docs[:0]
	for _, c := range reached {
		r.docs = append(r.docs, c.doc())
	}
	return r.docs, nil
}

// insertProbes is the number of probes up to which keeping each query token's
// best in order as they come is faster than selecting from a column of S.
const insertProbes = 32

// pick selects the n best centroids of each query token, the lowest
// number on ties. A token of weight 0 probes none, nor does one of negative
// weight, to which the documents in its lists are the worst.
func (p *prober) pick(r *run, weights []float32) error {
	s, stride := r.query.Scores()
	lq, n, k := r.query.Len(), r.plan.probes, r.call.coll.codec().Centroids.K
	p.n, p.picked = n, min(n+1, k)
	p.best = slices.Grow(p.best[:0], lq*p.picked)[:lq*p.picked]
	if n <= insertProbes {
		r.query.Top(p.best, p.picked)
	} else if err := p.selectColumns(r.ctx, s, stride, lq, k); err != nil {
		return err
	}
	p.weights, p.floors = p.weights[:0], p.floors[:0]
	kept := p.best[:0]
	for t := range lq {
		w := float32(1)
		if weights != nil {
			w = weights[t]
		}
		if w > 0 {
			top := p.best[t*p.picked : (t+1)*p.picked]
			p.weights = append(p.weights, w)
			p.floors = append(p.floors, top[p.picked-1].Score)
			kept = append(kept, top[:n]...)
		}
	}
	p.best = kept
	return nil
}

// selectColumns takes one column of S after the other.
func (p *prober) selectColumns(ctx context.Context, s []float32, stride, lq, k int) error {
	column := make([]topk.Scored, k)
	for t := range lq {
		if err := ctx.Err(); err != nil {
			return err
		}
		for c := range column {
			column[c] = topk.Scored{Doc: uint32(c), Score: s[c*stride+t]}
		}
		top := topk.Best(column, p.picked)
		slices.SortFunc(top, topk.Order)
		for i, c := range top {
			p.best[t*p.picked+i] = kernels.CentroidScore{Centroid: c.Doc, Score: c.Score}
		}
	}
	return nil
}
