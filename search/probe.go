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

// prober selects the n best centroids of each query token, and collects the documents in their
// posting lists.
type prober struct {
	probes       int                     // n
	selected     int                     // n + 1, or all centroids: the one after the last probed gives the floor
	best         []kernels.CentroidScore // n for each query token that probes, best first
	weights      []float32               // of those tokens
	floors       []float32               // of those tokens: the score of the best centroid that is not probed
	lists        []uint64                // centroids probed by some token
	prefetched   []uint32                // centroids whose lists are read ahead
	cursors      []cursor                // positions in their lists, best first
	decodeBuffer []byte                  // memory for decoded lists
	gains        []uint32                // stamp and gain of each document of a block
	touched      []uint64                // bit set of documents of the block with a gain
	total        int                     // candidates found
	gainUnit     float64                 // score of a gain of 1
	counts       [gainBuckets]uint32     // candidates by bucket of their gains
	minBucket    int                     // the lowest bucket that may have candidates to keep
	countFromMin int                     // candidates in that bucket and higher ones
	boundary     []candidate             // candidates in the bucket of the last one kept
	lastKept     candidate               // lowest candidate returned so far
	kept         int                     // how many were returned so far
}

// probeCentroids returns the allowed documents in the lists of the best centroids of each query
// token, in ascending order. If more than plan.firstApprox are found, it returns the best by their
// gains; [run.approximateMore] decides later which others get a score.
func (r *run) probeCentroids(weights []float32, allowed *allowedDocs) ([]uint32, error) {
	defer addElapsed(&r.stats.Times.Probe)()
	if err := r.prober.selectCentroids(r, weights); err != nil {
		return nil, err
	}
	if err := r.reachCandidates(allowed); err != nil {
		return nil, err
	}
	r.stats.Candidates += int64(r.prober.total)
	return r.selectReached(min(r.plan.firstApprox, r.prober.total)), nil
}

// maxInsertProbes is the number of probes up to which inserting into each query token's sorted best
// is faster than selecting from a column of S.
const maxInsertProbes = 32

// selectCentroids selects the n best centroids of each query token, the lowest number on ties.
// Tokens of weight 0 probe none, nor do tokens of negative weight: the documents in their best
// lists are the worst.
func (p *prober) selectCentroids(r *run, weights []float32) error {
	s, stride := r.query.Scores()
	lq, n, k := r.query.Len(), r.plan.probes, r.call.coll.sharedCodec().Centroids.K
	p.probes, p.selected = n, min(n+1, k)
	p.best = slices.Grow(p.best[:0], lq*p.selected)[:lq*p.selected]
	if n <= maxInsertProbes {
		r.query.TopCentroids(p.best, p.selected)
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
			top := p.best[t*p.selected : (t+1)*p.selected]
			p.weights = append(p.weights, w)
			p.floors = append(p.floors, top[p.selected-1].Score)
			kept = append(kept, top[:n]...)
		}
	}
	p.best = kept
	return nil
}

// selectColumns selects the best centroids of each query token from its column of S.
func (p *prober) selectColumns(ctx context.Context, scores []float32, stride, lq, k int) error {
	column := make([]topk.Scored, k)
	for t := range lq {
		if err := ctx.Err(); err != nil {
			return err
		}
		for c := range column {
			column[c] = topk.Scored{Doc: uint32(c), Score: scores[c*stride+t]}
		}
		top := topk.Best(column, p.selected)
		slices.SortFunc(top, topk.Order)
		for i, c := range top {
			p.best[t*p.selected+i] = kernels.CentroidScore{Centroid: c.Doc, Score: c.Score}
		}
	}
	return nil
}

// Probing keeps two numbers for each document of a block, in 32 bits:
//
//  1. a stamp: the query token that reached the document last;
//  2. its gain: how far its score by probed centroids exceeds that of a document that has none.
//
// Gains are integers, so that they add up without a branch and to the same sum on every
// processor. Lists are read block by block, so that the numbers of one block fit the cache and
// the collection as a whole needs none.

// docBlock is the number of documents in a block.
const docBlock = 1 << 16

// stampCount is how many query tokens can have different stamps, from 1 to stampCount.
const stampCount = 1<<(32-gainBits) - 1

// checkInterval is how many documents of lists are read between two checks of the context. Each
// takes one or two nanoseconds.
const checkInterval = 1 << 19

// cursor is a position in a list that a query token probes.
type cursor struct {
	storage.PostingCursor
	list     storage.PostingList
	centroid uint32
	token    uint32
	gain     uint32
	firstUse bool // no earlier query token probes the same list
}

// unseenGap is how far below the floor the best centroid of a document is assumed to lie if it was
// not probed, in units of the distance between the floor and the middle probe. 4 to 10 find about
// as much, 0 less (docs/lab/search-quality.md).
const unseenGap = 5

// gainSum is the largest sum of gains. It fits gainBits, and float32 tells all gains up to it apart.
const (
	gainSum  = 1<<23 - 1
	gainBits = 24
)

// gainBuckets is the number of buckets in which candidates are counted by gain, to find the best.
const gainBuckets = 1 << 12

// bucketGains is the number of gains in a bucket.
const bucketGains = (gainSum + 1) / gainBuckets

// candidate packs a document and its gain into one number: the gain above, the complement of the
// document's number below. Of two candidates the larger comes first in results.
type candidate uint64

func newCandidate(doc, gain uint32) candidate { return candidate(gain)<<32 | candidate(^doc) }

func (c candidate) number() uint32    { return ^uint32(c) }
func (c candidate) gainValue() uint32 { return uint32(c >> 32) }
func (c candidate) bucket() int       { return gainBucket(c.gainValue()) }

func gainBucket(gain uint32) int { return int(gain / bucketGains % gainBuckets) }

// reachCandidates collects the allowed documents in the probed lists, in ascending order, with
// their gains. A document gains, for every query token, the score of the best probed centroid that
// it has. If it has none, it gets an estimate for centroids that were not probed, as in WARP (arXiv
// 2501.17788, section 4.2).
//
// WARP estimates the floor: the score of the first centroid that was not probed. The document's own
// best is lower by an unknown amount, and the number of query tokens that found the document at all
// matters most (as in EMVB, arXiv 2404.02805, section 4.1). So the estimate lies far below the
// floor, by the same distance for each query token.
//
// If more documents are found than the approximate budget allows, r.reached may lack some that the
// budget would cut.
func (r *run) reachCandidates(allowed *allowedDocs) error {
	p := &r.prober
	r.reached = r.reached[:0]
	p.reset()
	defer func() { clear(p.cursors[:cap(p.cursors)]) }() // they hold on to memory of the snapshots
	gap := p.chooseGap()
	for i := range r.group {
		if s := allowed.shards[r.group[i].index]; s.count > 0 {
			if err := r.reachInShard(&r.group[i], s, gap); err != nil {
				return err
			}
		}
	}
	return nil
}

// reset prepares for another query. A search that failed may have left gains behind.
func (p *prober) reset() {
	if p.gains == nil {
		p.gains, p.touched = make([]uint32, docBlock), make([]uint64, docBlock/64)
	}
	for w, v := range p.touched {
		if v != 0 {
			clear(p.gains[64*w : 64*w+64])
			p.touched[w] = 0
		}
	}
	p.total, p.minBucket, p.countFromMin, p.kept, p.lastKept = 0, 0, 0, 0, math.MaxUint64
	clear(p.counts[:])
}

// reachInShard is reachCandidates for one shard.
func (r *run) reachInShard(sh *shard, allowed *selection, gap float64) (err error) {
	defer sh.guardRead(r.call, &err)()
	docs := sh.snap.State().Docs
	set := allowed.bitset(r.allowedBits, (int(docs)+63)/64)
	if allowed.set == nil {
		r.allowedBits = set
	}
	r.prefetchLists(sh.snap)
	if err := r.openLists(sh.snap, gap); err != nil {
		return err
	}
	return r.readLists(sh.snap.Path(), docs, sh.base, set)
}

// readLists reads the lists of the cursors block by block. docs is the number of documents of the
// shard, allowed the set of those that may be found, and base the number of the first.
func (r *run) readLists(path string, docs, base uint32, allowed []uint64) error {
	p := &r.prober
	readSinceCheck := 0 // documents, and 16 for each list, since the last check of the context
	for block := range uint32((uint64(docs) + docBlock - 1) / docBlock) {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		stampRound := uint32(0) // how often all stamps have been used up
		for i := range p.cursors {
			c := &p.cursors[i]
			if c.Done() || c.Block() != block {
				continue
			}
			list, err := c.Next(&p.decodeBuffer, docs)
			if err != nil {
				return postingsError(path, c.centroid, err)
			}
			if readSinceCheck += 16 + len(list)/2; readSinceCheck > checkInterval {
				if readSinceCheck, err = 0, r.ctx.Err(); err != nil {
					return err
				}
			}
			if c.firstUse {
				r.stats.Postings += int64(len(list) / 2)
			}
			if c.token/stampCount != stampRound {
				stampRound = c.token / stampCount
				p.clearStamps()
			}
			p.addGain(list, c.token%stampCount+1, c.gain)
		}
		r.collectBlock(allowed, base, block)
	}
	for _, c := range p.cursors {
		if !c.Done() {
			return postingsError(path, c.centroid, fmt.Errorf("documents beyond %d", docs))
		}
	}
	return nil
}

// prefetchLists requests all lists that are read next.
func (r *run) prefetchLists(snap *index.Snapshot) {
	p := &r.prober
	p.prefetched = p.prefetched[:0]
	for _, s := range p.best[:len(p.weights)*p.probes] {
		p.prefetched = append(p.prefetched, s.Centroid)
	}
	snap.PrefetchPostings(p.prefetched)
}

// openLists opens a cursor at the beginning of each list. It looks up all lists before it reads the
// first, so that the operating system fetches their pages together.
func (r *run) openLists(snap *index.Snapshot, gap float64) error {
	p := &r.prober
	p.cursors = p.cursors[:0]
	p.lists = zeroedWords(p.lists, (snap.Header().Centroids+63)/64)
	for t := range p.weights {
		if t%64 == 63 {
			if err := r.ctx.Err(); err != nil {
				return err
			}
		}
		for _, s := range p.best[t*p.probes : (t+1)*p.probes] {
			gain, firstUse := p.centroidGain(t, s.Score, gap), !hasBit(p.lists, s.Centroid)
			p.lists[s.Centroid/64] |= 1 << (s.Centroid % 64)
			for seg := range snap.Segments() {
				list, err := snap.Postings(seg, s.Centroid)
				if err != nil {
					return err
				}
				if len(list) > 0 {
					p.cursors = append(p.cursors, cursor{
						list: list, centroid: s.Centroid, token: uint32(t), gain: gain, firstUse: firstUse,
					})
				}
			}
		}
	}
	for i := range p.cursors {
		c := &p.cursors[i]
		var err error
		if c.PostingCursor, err = c.list.Cursor(); err != nil {
			return postingsError(snap.Path(), c.centroid, err)
		}
	}
	r.stats.Probed = int64(countBits(p.lists)) // each shard has the same lists
	return nil
}

// addGain adds a gain to the documents that the query token with this stamp has not reached yet.
// docs holds the lower 16 bits of their numbers, two bytes each.
func (p *prober) addGain(docs []byte, stamp, gain uint32) {
	gains, seen := (*[docBlock]uint32)(p.gains), (*[docBlock / 64]uint64)(p.touched)
	base := stamp << gainBits
	baseAndGain := base + gain
	for i := 0; i < len(docs)-1; i += 2 {
		d := uint32(docs[i]) | uint32(docs[i+1])<<8
		e := gains[d]
		add := baseAndGain
		if e>>gainBits == stamp {
			add = base
		}
		gains[d] = e&(1<<gainBits-1) + add
		seen[d/64] |= 1 << (d % 64)
	}
}

// clearStamps removes all stamps, so that other query tokens can use them.
func (p *prober) clearStamps() {
	for i := range p.gains {
		p.gains[i] &= 1<<gainBits - 1
	}
}

// collectBlock appends the allowed documents of a block that were reached, by their numbers, except
// those that are certainly not among the best. Processors predict this condition badly, so no
// branch depends on it.
func (r *run) collectBlock(allowed []uint64, base, block uint32) {
	p := &r.prober
	words := allowed[block*(docBlock/64):]
	words = words[:min(len(words), docBlock/64)]
	n := 0
	for w, v := range words {
		n += bits.OnesCount64(v & p.touched[w])
	}
	p.total += n
	before := len(r.reached)
	r.reached = slices.Grow(r.reached, n+1) // the loop writes one behind the last
	out := r.reached[before:cap(r.reached)]
	n = 0
	base += block * docBlock
	gains, minBucket := (*[docBlock]uint32)(p.gains), uint32(p.minBucket)
	for w, allowedWord := range words {
		v := p.touched[w]
		p.touched[w] = 0
		for ; v != 0; v &= v - 1 {
			i := bits.TrailingZeros64(v)
			d := uint32(w*64 + i)
			gain := gains[d%docBlock] & (1<<gainBits - 1)
			gains[d%docBlock] = 0
			out[n] = newCandidate(base+d, gain)
			bucket := uint32(gainBucket(gain))
			keep := int(allowedWord >> i & 1)
			if bucket < minBucket {
				keep = 0
			}
			p.counts[bucket] += uint32(keep)
			n += keep
		}
	}
	p.countFromMin += n
	r.reached = r.reached[:before+n]
	if r.trace == nil {
		p.minBucket, p.countFromMin = p.nthBucket(r.plan.approxBudget)
	}
}

// nthBucket returns the bucket of the n-th best candidate, or the lowest bucket if there are fewer,
// and the number of candidates in that bucket and higher ones.
func (p *prober) nthBucket(n int) (bucket, above int) {
	bucket, above = p.minBucket, p.countFromMin
	for above-int(p.counts[bucket]) >= n {
		above -= int(p.counts[bucket])
		bucket++
	}
	return bucket, above
}

// postingsError returns the error of a damaged posting list.
func postingsError(path string, centroid uint32, err error) error {
	return &storage.CorruptError{Path: path, What: fmt.Sprintf("postings of centroid %d", centroid), Err: err}
}

// chooseGap returns how far below their floors unseen centroids are assumed to lie, and sets the
// unit of gains so that no document gains more than gainSum.
func (p *prober) chooseGap() (gap float64) {
	for t, floor := range p.floors {
		gap += (float64(p.best[t*p.probes+p.probes/2].Score) - float64(floor)) / float64(len(p.floors))
	}
	gap = float64(unseenGap * gap) // rounded, not fused with the next operation
	var maxGain float64
	for t, w := range p.weights {
		maxGain += float64(float64(w) * (float64(p.best[t*p.probes].Score) - float64(p.floors[t]) + gap))
	}
	p.gainUnit = max(maxGain, 1e-30) / gainSum
	return gap
}

// centroidGain returns the gain by a probed centroid with this score for query token t. The gains
// for all tokens add up to gainSum at most.
func (p *prober) centroidGain(t int, score float32, gap float64) uint32 {
	return uint32(float64(p.weights[t]) * (float64(score) - float64(p.floors[t]) + gap) / p.gainUnit)
}

// selectReached returns those of the n best candidates, by gain, that it has not returned before,
// in ascending order. It keeps the candidates that it may return later and drops the others, unless
// a document is traced.
func (r *run) selectReached(n int) []uint32 {
	p, lowestSelected, lowestKept := &r.prober, candidate(0), candidate(0)
	keepAll := n == p.total || r.trace != nil
	if n < p.total {
		lowestSelected = p.nthCandidate(r.reached, n)
		bucket, _ := p.nthBucket(min(r.plan.approxBudget, p.total))
		lowestKept = candidate(bucket) * bucketGains << 32
		if r.trace != nil {
			r.trace.recordRanking(p.gainScores(r.reached), StageCut, n)
		}
	}
	docs := slices.Grow(r.docs[:0], n-p.kept+1)[:n-p.kept+1] // the loop writes one behind the last
	kept, remaining := 0, 0
	for _, c := range r.reached {
		docs[kept] = c.number()
		if c >= lowestSelected && c < p.lastKept {
			kept++
		}
		if !keepAll {
			r.reached[remaining] = c
			if c >= lowestKept && c < lowestSelected {
				remaining++
			}
		}
	}
	if !keepAll {
		r.reached = r.reached[:remaining]
	}
	p.lastKept, p.kept = lowestSelected, n
	r.docs = docs[:kept]
	return r.docs
}

// nthCandidate returns the n-th best candidate. It sorts only the bucket that has it.
func (p *prober) nthCandidate(reached []candidate, n int) candidate {
	bucket, above := p.nthBucket(n)
	p.boundary = p.boundary[:0]
	for _, c := range reached {
		if c.bucket() == bucket {
			p.boundary = append(p.boundary, c)
		}
	}
	slices.Sort(p.boundary)
	return p.boundary[above-n]
}

// gainScores returns candidates with their gains as scores, for explanations.
func (p *prober) gainScores(reached []candidate) []topk.Scored {
	scored := make([]topk.Scored, len(reached))
	for i, c := range reached {
		scored[i] = topk.Scored{Doc: c.number(), Score: float32(float64(c.gainValue()) * p.gainUnit)}
	}
	return scored
}
