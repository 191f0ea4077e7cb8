package search

import (
	"context"
	"fmt"
	"math/bits"
	"slices"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
)

// prober finds the n best centroids of each query token.
type prober struct {
	n       int
	picked  int                     // n + 1, or all centroids: the one after the last probed is the floor
	best    []kernels.CentroidScore // n a query token that probes, best first
	weights []float32               // of those tokens
	floors  []float32               // of those tokens: the score of the best centroid that is not probed
	seen    []uint64                // centroids taken by some token
}

// run.probe fills run.set with the allowed documents in the lists of the best
// centroids of each query token, and returns their number. More than Approx of
// them are cut down to that.
func (r *run) probe(weights []float32) (int, error) {
	defer timed(&r.stats.Times.Probe)()
	if err := r.prober.pick(r, weights); err != nil {
		return 0, err
	}
	r.set = zeroed(r.set, len(r.allowed))
	r.probes = r.probes[:0]
	r.prober.seen = zeroed(r.prober.seen, (r.snap.Header().Centroids+63)/64)
	for _, p := range r.prober.best {
		if w, bit := p.Centroid/64, uint64(1)<<(p.Centroid%64); r.prober.seen[w]&bit == 0 {
			r.prober.seen[w] |= bit
			r.probes = append(r.probes, p.Centroid)
		}
	}
	r.stats.Probed = int64(len(r.probes))
	slices.Sort(r.probes) // in the order of the file
	for seg := range r.snap.Segments() {
		if err := r.ctx.Err(); err != nil {
			return 0, err
		}
		for _, c := range r.probes {
			list, err := r.snap.Postings(seg, c)
			if err != nil {
				return 0, err
			}
			if err := list.Or(r.set); err != nil {
				return 0, r.badList(c, err)
			}
			r.stats.Postings += int64(list.Len())
		}
	}
	for i := range r.set {
		r.set[i] &= r.allowed[i]
	}
	n := population(r.set)
	r.stats.Candidates = int64(n)
	if n > r.o.Approx {
		return r.cut()
	}
	return n, nil
}

// insertProbes is the number of probes up to which keeping each query token's
// best in order as they come is faster than selecting from a column of S.
const insertProbes = 32

// pick selects the o.Probes best centroids of each query token, the lowest
// number on ties. A token of weight 0 probes none, nor does one of negative
// weight, to which the documents in its lists are the worst.
func (p *prober) pick(r *run, weights []float32) error {
	s, stride := r.query.Scores()
	lq, n, k := r.query.Len(), r.o.Probes, r.snap.Header().Centroids
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
	column := make([]scored, k)
	for t := range lq {
		if err := ctx.Err(); err != nil {
			return err
		}
		for c := range column {
			column[c] = scored{uint32(c), s[c*stride+t]}
		}
		top := best(column, p.picked)
		slices.SortFunc(top, order)
		for i, c := range top {
			p.best[t*p.picked+i] = kernels.CentroidScore{Centroid: c.doc, Score: c.score}
		}
	}
	return nil
}

// cut keeps the Approx best candidates by what probing knows of them: for each
// query token the score of the best probed centroid that a document has, or of
// the first one not probed where it has none (as WARP imputes what it has not
// seen, arXiv 2501.17788, section 4.2).
func (r *run) cut() (int, error) {
	docs := len(r.set) * 64
	gain := make([]float32, docs)
	hit := make([]uint64, len(r.set))
	fresh := make([]uint64, len(r.set))
	for t, weight := range r.prober.weights {
		if err := r.ctx.Err(); err != nil {
			return 0, err
		}
		clear(hit)
		top := r.prober.best[t*r.prober.n : (t+1)*r.prober.n]
		floor := r.prober.floors[t]
		for _, p := range top {
			clear(fresh)
			for seg := range r.snap.Segments() {
				list, err := r.snap.Postings(seg, p.Centroid)
				if err != nil {
					return 0, err
				}
				if err := list.Or(fresh); err != nil {
					return 0, r.badList(p.Centroid, err)
				}
			}
			for w := range fresh {
				for v := fresh[w] & r.set[w] &^ hit[w]; v != 0; v &= v - 1 {
					gain[w*64+bits.TrailingZeros64(v)] += weight * (p.Score - floor)
				}
				hit[w] |= fresh[w]
			}
		}
	}
	r.listDocs(r.set)
	r.ranked = r.ranked[:0]
	for _, d := range r.docs {
		r.ranked = append(r.ranked, scored{d, gain[d]})
	}
	if r.trace != nil {
		r.trace.cut(r)
	}
	kept := best(r.ranked, r.o.Approx)
	clear(r.set)
	for _, s := range kept {
		r.set[s.doc/64] |= 1 << (s.doc % 64)
	}
	return len(kept), nil
}

func (r *run) badList(centroid uint32, err error) error {
	return &storage.CorruptError{Path: r.snap.Path(), What: fmt.Sprintf("postings of centroid %d", centroid), Err: err}
}
