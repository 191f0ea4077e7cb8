package search

import (
	"context"
	"fmt"
	"slices"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
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
	docs    []uint32                // of a list
	reached []reached               // by ordinal; set for the documents of run.set alone
}

// reached is what probing knows of a document.
type reached struct {
	token uint32  // the last query token that reached it, from 1
	gain  float32 // what it scores by probed centroids, above one that has none
}

// unseenGap is how far below the floor a document's best centroid is put where
// it was not probed, in units of how far above it the middle probe is. 4 to 10
// find about as much, 0 less (docs/search-quality.md).
const unseenGap = 5

// run.probe fills run.set with the allowed documents in the lists of the best
// centroids of each query token, and returns their number. More than Approx of
// them are cut down to that.
func (r *run) probe(weights []float32) (int, error) {
	defer timed(&r.stats.Times.Probe)()
	if err := r.prober.pick(r, weights); err != nil {
		return 0, err
	}
	if err := r.reach(); err != nil {
		return 0, err
	}
	for i := range r.set {
		r.set[i] &= r.allowed[i]
	}
	n := population(r.set)
	r.stats.Candidates = int64(n)
	if n > r.o.Approx {
		return r.cut(), nil
	}
	return n, nil
}

// reach fills run.set with the documents in the probed lists. Each of them gets,
// for every query token, the score of the best probed centroid that it has, or
// where it has none what one that was not probed may give, as in WARP (arXiv
// 2501.17788, section 4.2). WARP takes the first one not probed, the floor. A
// document's own best is lower, and by how much is not known: what counts most is
// how many query tokens found the document at all (as in EMVB, arXiv 2404.02805,
// section 4.1), so it is put far below, and as far for each query token.
func (r *run) reach() error {
	p := &r.prober
	docs := r.snap.State().Docs
	r.set = zeroed(r.set, len(r.allowed))
	p.reached = slices.Grow(p.reached[:0], int(docs))[:docs]
	p.lists = zeroed(p.lists, (r.snap.Header().Centroids+63)/64)
	var found float32 // by how much a token's middle probe exceeds its floor, on average
	for t, floor := range p.floors {
		found += (p.best[t*p.n+p.n/2].Score - floor) / float32(len(p.floors))
	}
	for t, weight := range p.weights {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		token, unseen := uint32(t+1), p.floors[t]-float32(unseenGap*found)
		for _, c := range p.best[t*p.n : (t+1)*p.n] {
			fresh := !inSet(p.lists, c.Centroid)
			p.lists[c.Centroid/64] |= 1 << (c.Centroid % 64)
			gain := float32(weight * (c.Score - unseen)) // not fused with what follows, as on some processors
			for seg := range r.snap.Segments() {
				list, err := r.snap.Postings(seg, c.Centroid)
				if err != nil {
					return err
				}
				if p.docs, err = list.AppendDocs(p.docs[:0], docs); err != nil {
					return r.badList(c.Centroid, err)
				}
				if fresh {
					r.stats.Postings += int64(len(p.docs))
				}
				for _, d := range p.docs {
					word, bit, doc := &r.set[d/64], uint64(1)<<(d%64), &p.reached[d]
					switch {
					case *word&bit == 0:
						*word |= bit
						*doc = reached{token, gain}
					case doc.token != token:
						doc.token = token
						doc.gain += gain
					}
				}
			}
		}
	}
	r.stats.Probed = int64(population(p.lists))
	return nil
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

// cut keeps the Approx best candidates by what probing knows of them.
func (r *run) cut() int {
	r.listDocs(r.set)
	r.ranked = r.ranked[:0]
	for _, d := range r.docs {
		r.ranked = append(r.ranked, scored{d, r.prober.reached[d].gain})
	}
	if r.trace != nil {
		r.trace.cut(r)
	}
	kept := best(r.ranked, r.o.Approx)
	clear(r.set)
	for _, s := range kept {
		r.set[s.doc/64] |= 1 << (s.doc % 64)
	}
	return len(kept)
}

func (r *run) badList(centroid uint32, err error) error {
	return &storage.CorruptError{Path: r.snap.Path(), What: fmt.Sprintf("postings of centroid %d", centroid), Err: err}
}
