package search

import (
	"fmt"
	"math"
	"slices"

	"github.com/plaid-ir/plaid/storage"
)

// What probing knows of a document are two numbers of 32 bits: the stamp of the
// last query token that reached it, larger than all stamps of earlier searches,
// and its gain, what it scores by probed centroids above a document that has
// none. Gains are integers, so that they add up without a branch and alike on
// every processor.

// unseenGap is how far below the floor a document's best centroid is put where
// it was not probed, in units of how far above it the middle probe is. 4 to 10
// find about as much, 0 less (docs/search-quality.md).
const unseenGap = 5

// gainSum is the largest sum of gains.
const gainSum = 1 << 31

// reach fills run.set with the documents in the probed lists. Each of them gets,
// for every query token, the score of the best probed centroid that it has, or
// where it has none what one that was not probed may give, as in WARP (arXiv
// 2501.17788, section 4.2). WARP takes the first one not probed, the floor. A
// document's own best is lower, and by how much is not known: what counts most is
// how many query tokens found the document at all (as in EMVB, arXiv 2404.02805,
// section 4.1), so it is put far below, and as far for each query token.
func (r *run) reach() error {
	p := &r.prober
	r.set = zeroed(r.set, len(r.allowed))
	p.lists = zeroed(p.lists, (r.snap.Header().Centroids+63)/64)
	first := p.restamp(int(r.snap.State().Docs))
	gap := p.gap()
	for t := range p.weights {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		for _, c := range p.best[t*p.n : (t+1)*p.n] {
			if err := r.reachList(c.Centroid, first, first+uint32(t), p.gain(t, c.Score, gap)); err != nil {
				return err
			}
		}
	}
	r.stats.Probed = int64(population(p.lists))
	return nil
}

// reachList adds a gain to the documents in the lists of a centroid that the
// query token of this stamp has not reached yet.
func (r *run) reachList(centroid, first, stamp, gain uint32) error {
	p, set := &r.prober, r.set
	reached := p.reached
	fresh := !inSet(p.lists, centroid)
	p.lists[centroid/64] |= 1 << (centroid % 64)
	for seg := range r.snap.Segments() {
		list, err := r.snap.Postings(seg, centroid)
		if err != nil {
			return err
		}
		if p.docs, err = list.AppendDocs(p.docs[:0], uint32(len(reached))); err != nil {
			return &storage.CorruptError{Path: r.snap.Path(), What: fmt.Sprintf("postings of centroid %d", centroid), Err: err}
		}
		if fresh {
			r.stats.Postings += int64(len(p.docs))
		}
		for _, d := range p.docs {
			last, sum, more := uint32(reached[d]>>32), uint32(reached[d]), gain
			if last < first {
				sum = 0
			}
			if last == stamp {
				more = 0
			}
			reached[d] = uint64(stamp)<<32 | uint64(sum+more)
			set[d/64] |= 1 << (d % 64)
		}
	}
	return nil
}

// restamp returns the stamp of the first query token, the others follow.
func (p *prober) restamp(docs int) (first uint32) {
	p.reached = slices.Grow(p.reached[:0], docs)[:docs]
	tokens := uint32(len(p.weights))
	if p.stamp > math.MaxUint32-tokens {
		clear(p.reached[:cap(p.reached)])
		p.stamp = 0
	}
	first = p.stamp + 1
	p.stamp += tokens
	return first
}

// gap returns how far below the floors unseen centroids are put, and chooses the
// unit of gains.
func (p *prober) gap() (gap float64) {
	for t, floor := range p.floors {
		gap += (float64(p.best[t*p.n+p.n/2].Score) - float64(floor)) / float64(len(p.floors))
	}
	gap = float64(unseenGap * gap) // rounded, not fused with what follows
	var sum float64
	for t, w := range p.weights {
		sum += float64(float64(w) * (float64(p.best[t*p.n].Score) - float64(p.floors[t]) + gap))
	}
	p.unit = max(sum, 1e-30) / gainSum
	return gap
}

// gain is what a probed centroid of this score adds for query token t, at most
// gainSum for all tokens together.
func (p *prober) gain(t int, score float32, gap float64) uint32 {
	return uint32(float64(p.weights[t]) * (float64(score) - float64(p.floors[t]) + gap) / p.unit)
}

// cut keeps the Approx best candidates by what probing knows of them.
func (r *run) cut() int {
	r.listDocs(r.set)
	r.ranked = r.ranked[:0]
	for _, d := range r.docs {
		r.ranked = append(r.ranked, scored{d, float32(float64(uint32(r.prober.reached[d])) * r.prober.unit)})
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
