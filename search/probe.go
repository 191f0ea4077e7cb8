package search

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/topk"
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
	asked   []uint32                // those of all tokens, for what reads their lists ahead
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

// What probing knows of a document are two numbers of 32 bits: the stamp of the
// last query token that reached it, larger than all stamps before, and its gain,
// what it scores by probed centroids above a document that has none. Gains are
// integers, so that they add up without a branch and alike on every processor.
// Lists are read a block of documents after the other, so that the numbers of a
// block stay in the cache and those of the collection are never all there.

// reachBlock is the number of documents of a block.
const reachBlock = 1 << 16

// reachLook is how many documents of lists are read between two looks at the context: they
// take a nanosecond or two each.
const reachLook = 1 << 19

// cursor is in a list that a query token probes.
type cursor struct {
	storage.PostingCursor
	centroid uint32
	token    uint32
	gain     uint32
	fresh    bool // the list is not that of an earlier token too
}

// unseenGap is how far below the floor a document's best centroid is put where
// it was not probed, in units of how far above it the middle probe is. 4 to 10
// find about as much, 0 less (docs/lab/search-quality.md).
const unseenGap = 5

// gainSum is the largest sum of gains: small enough that different gains are different
// float32 scores.
const gainSum = 1<<23 - 1

// gainBuckets is into how many buckets candidates are counted by their gains, to find out
// which are the best.
const gainBuckets = 1 << 12

// candidate is what probing knows of a document, as one number: its gain, and below that
// its complement, so that the larger of two is before the other in the order of results.
type candidate uint64

func candidateOf(doc, gain uint32) candidate { return candidate(gain)<<32 | candidate(^doc) }

func (c candidate) doc() uint32  { return ^uint32(c) }
func (c candidate) gain() uint32 { return uint32(c >> 32) }
func (c candidate) bucket() int  { return int(c.gain() / ((gainSum + 1) / gainBuckets) % gainBuckets) }

// reach returns the allowed documents in the probed lists, in ascending order, each
// with what it gains: for every query token, the score of the best probed centroid
// that the document has, or where it has none what one that was not probed may give,
// as in WARP (arXiv 2501.17788, section 4.2). WARP takes the first one not probed,
// the floor. A document's own best is lower, and by how much is not known: what
// counts most is how many query tokens found the document at all (as in EMVB, arXiv
// 2404.02805, section 4.1), so it is put far below, and as far for each query token.
func (r *run) reach(allowed *allowance) ([]candidate, error) {
	p := &r.prober
	r.reached = r.reached[:0]
	p.reached = slices.Grow(p.reached[:0], reachBlock)[:reachBlock]
	defer func() { clear(p.cursors[:cap(p.cursors)]) }() // which are of the snapshots
	gap := p.gap()
	for i := range r.group {
		if s := allowed.parts[r.group[i].at]; s.count > 0 {
			if err := r.reachPart(&r.group[i], s, gap); err != nil {
				return nil, err
			}
		}
	}
	return r.reached, nil
}

// reachPart is reach for one part.
func (r *run) reachPart(of *part, allowed *selection, gap float64) (err error) {
	defer of.guard(r.call, &err)()
	p := &r.prober
	docs := of.snap.State().Docs
	set := allowed.bits(r.set, (int(docs)+63)/64)
	if allowed.set == nil {
		r.set = set
	}
	r.prefetchLists(of.snap)
	if err := r.openLists(of.snap, gap); err != nil {
		return err
	}
	pairs := 0 // of lists and documents since the last look
	for block := range of.blocks() {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		first := p.restamp()
		for i := range p.cursors {
			c := &p.cursors[i]
			if c.Done() || c.Block() != block {
				continue
			}
			if p.docs, err = c.Next(p.docs[:0], docs); err != nil {
				return badList(of.snap, c.centroid, err)
			}
			if pairs += 16 + len(p.docs); pairs > reachLook {
				if pairs, err = 0, r.ctx.Err(); err != nil {
					return err
				}
			}
			if c.fresh {
				r.stats.Postings += int64(len(p.docs))
			}
			p.raise(first, first+c.token, c.gain)
		}
		r.collect(set, of.base, block, first)
	}
	for _, c := range p.cursors {
		if !c.Done() {
			return badList(of.snap, c.centroid, fmt.Errorf("documents beyond %d", docs))
		}
	}
	return nil
}

// prefetchLists asks for all lists that are going to be read.
func (r *run) prefetchLists(snap *index.Snapshot) {
	p := &r.prober
	p.asked = p.asked[:0]
	for _, s := range p.best[:len(p.weights)*p.n] {
		p.asked = append(p.asked, s.Centroid)
	}
	snap.PrefetchPostings(p.asked)
}

// openLists puts a cursor at the beginning of each list.
func (r *run) openLists(snap *index.Snapshot, gap float64) error {
	p := &r.prober
	p.cursors = p.cursors[:0]
	p.lists = zeroed(p.lists, (snap.Header().Centroids+63)/64)
	for t := range p.weights {
		if t%64 == 63 {
			if err := r.ctx.Err(); err != nil {
				return err
			}
		}
		for _, s := range p.best[t*p.n : (t+1)*p.n] {
			c := cursor{centroid: s.Centroid, token: uint32(t), gain: p.gain(t, s.Score, gap), fresh: !inSet(p.lists, s.Centroid)}
			p.lists[s.Centroid/64] |= 1 << (s.Centroid % 64)
			for seg := range snap.Segments() {
				list, err := snap.Postings(seg, s.Centroid)
				if err != nil {
					return err
				}
				if c.PostingCursor, err = list.Cursor(); err != nil {
					return badList(snap, s.Centroid, err)
				}
				if !c.Done() {
					p.cursors = append(p.cursors, c)
				}
			}
		}
	}
	r.stats.Probed = int64(population(p.lists)) // the same lists of each part
	return nil
}

// raise adds a gain to those of prober.docs that the query token of this stamp has
// not reached yet. Stamps below first are of other blocks.
func (p *prober) raise(first, stamp, gain uint32) {
	reached := (*[reachBlock]uint64)(p.reached)
	for _, d := range p.docs {
		e := &reached[d%reachBlock]
		last, sum, more := uint32(*e>>32), uint32(*e), gain
		if last < first {
			sum = 0
		}
		if last == stamp {
			more = 0
		}
		*e = uint64(stamp)<<32 | uint64(sum+more)
	}
}

// collect adds the allowed documents of a block that were reached, by their numbers. Which
// were is hard to foretell for a processor, so none of its branches depends on that.
func (r *run) collect(allowed []uint64, base, block, first uint32) {
	words := allowed[block*(reachBlock/64):]
	words = words[:min(len(words), reachBlock/64)]
	have := len(r.reached)
	r.reached = slices.Grow(r.reached, population(words)+1) // one is written behind the last
	out := r.reached[have:cap(r.reached)]
	n := 0
	base += block * reachBlock
	for w, v := range words {
		reached := (*[64]uint64)(r.prober.reached[w*64:])
		if v == math.MaxUint64 {
			for i, e := range reached {
				out[n] = candidateOf(base+uint32(w*64+i), uint32(e))
				if uint32(e>>32) >= first {
					n++
				}
			}
			continue
		}
		for ; v != 0; v &= v - 1 {
			i := bits.TrailingZeros64(v)
			e := reached[i]
			out[n] = candidateOf(base+uint32(w*64+i), uint32(e))
			if uint32(e>>32) >= first {
				n++
			}
		}
	}
	r.reached = r.reached[:have+n]
}

func badList(snap *index.Snapshot, centroid uint32, err error) error {
	return &storage.CorruptError{Path: snap.Path(), What: fmt.Sprintf("postings of centroid %d", centroid), Err: err}
}

// restamp returns the stamp of the first query token for another block; the
// others follow.
func (p *prober) restamp() (first uint32) {
	tokens := uint32(len(p.weights))
	if p.stamp >= math.MaxUint32-tokens {
		clear(p.reached)
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

// cutReached returns the best candidates by what probing knows of them, as many as the
// approximate budget allows, which is less than there are, in ascending order.
func (r *run) cutReached(reached []candidate) []uint32 {
	n := r.plan.approx
	if r.trace != nil {
		r.trace.ranked(r.prober.scored(reached), StageCut, n)
	}
	least := r.prober.least(reached, n)
	docs := slices.Grow(r.docs[:0], n+1)[:n+1] // one is written behind the last
	kept := 0
	for _, c := range reached {
		docs[kept] = c.doc()
		if c >= least {
			kept++
		}
	}
	return docs[:kept]
}

// least is the last of the n best candidates. They are counted into buckets of gains, and
// only those of the bucket where the n-th is are put in order.
func (p *prober) least(reached []candidate, n int) candidate {
	clear(p.buckets[:])
	for _, c := range reached {
		p.buckets[c.bucket()]++
	}
	bucket := gainBuckets - 1
	for ; int(p.buckets[bucket]) < n; bucket-- {
		n -= int(p.buckets[bucket])
	}
	p.level = p.level[:0]
	for _, c := range reached {
		if c.bucket() == bucket {
			p.level = append(p.level, c)
		}
	}
	slices.Sort(p.level)
	return p.level[len(p.level)-n]
}

// scored is what probing knows of candidates, for explanations.
func (p *prober) scored(reached []candidate) []topk.Scored {
	all := make([]topk.Scored, len(reached))
	for i, c := range reached {
		all[i] = topk.Scored{Doc: c.doc(), Score: float32(float64(c.gain()) * p.unit)}
	}
	return all
}
