package search

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/topk"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/vectors"
)

// Grouping is what a document scores that is stored as passages.
type Grouping string

// The groupings.
const (
	// GroupBest: what its best passage scores.
	GroupBest Grouping = "best"
	// GroupSum: the sum of what its best passages score, as many as Options.Passages says.
	GroupSum Grouping = "sum"
	// GroupMaxSim: MaxSim over the tokens of all its passages, as if it were one: for
	// each query token the best one anywhere in the document.
	GroupMaxSim Grouping = "maxsim"
)

// Groupings are all that there are.
func Groupings() []Grouping { return []Grouping{GroupBest, GroupSum, GroupMaxSim} }

// Documents are found by their passages. The best passages are searched, twice as many as
// documents are wanted and twice as many again until those that they are of suffice. By
// GroupBest the first K documents among them are the best K. A document that scores more
// than its best passage may have no passage among them. How much more is known of those
// that have: as in [run.rerank], a document is left out if what its best passage may score,
// plus the mean of that, plus some standard deviations, is below the K-th best.

// whole is a document with the passages that may answer the query.
type whole struct {
	part     *part
	id       string
	score    float32
	best     float32   // passage
	passages []located // best first; before it is scored, the one that it was found by
	scored   bool      // by all of them
}

// wholeHits are the K best documents with their best passages, where there are passages.
func (r *run) wholeHits(vectors, weights []float32, allowed *allowance) ([]Hit, error) {
	k := r.request.k
	if r.request.mode == Pruned && allowed.count > 0 {
		first := 2 * min(k, allowed.count)
		if r.request.group != GroupBest {
			first = max(first, leading(k, 1))
		}
		r.request.k = min(first, allowed.count)
	} else {
		r.request.k = max(allowed.count, 1) // what scores all of them tells all
	}
	defer func() { r.request.k = k }()
	found := map[wholeKey]*whole{}
	var docs []*whole
	for {
		top, err := r.best(vectors, weights, allowed, nil)
		if err != nil {
			return nil, err
		}
		if docs, err = r.wholes(top, found, docs); err != nil {
			return nil, err
		}
		every := len(top) < r.request.k || r.request.k >= allowed.count
		if r.request.group == GroupBest {
			if every || len(docs) >= k {
				docs = docs[:min(len(docs), k)]
				break
			}
		} else {
			if err := r.scoreWholes(docs, allowed); err != nil {
				return nil, err
			}
			if every || sureOf(docs, k, float64(top[len(top)-1].score), r.request.k >= mostExact(k, 1)) {
				break
			}
		}
		r.request.k = min(2*r.request.k, allowed.count)
	}
	if r.request.group == GroupBest && r.request.passages > 1 {
		if err := r.scoreWholes(docs, allowed); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(docs, func(a, b *whole) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.part.at, b.part.at), cmp.Compare(a.passages[0].ordinal, b.passages[0].ordinal))
	})
	r.stats.Queries = 1
	return r.hitsOfWholes(docs[:min(len(docs), k)], vectors, weights)
}

// sureOf tells whether a document of which no passage scores more than a floor is not
// expected among the K best. After very many passages it is not asked any more, as long as
// there are K documents.
func sureOf(docs []*whole, k int, floor float64, many bool) bool {
	if len(docs) < k {
		return false
	}
	var sum, square float64
	scores := make([]float64, len(docs))
	for i, d := range docs {
		more := float64(d.score) - float64(d.best)
		sum += more
		square += float64(more * more) // rounded, not fused
		scores[i] = float64(d.score)
	}
	n := float64(len(docs))
	mean := sum / n
	deviation := math.Sqrt(max(square/n-float64(mean*mean), 0))
	slices.Sort(scores)
	return many || scores[len(scores)-k] >= floor+mean+float64(confidence(k, 1)*deviation)
}

// wholeKey names a document: by its id if it has passages, or else by its ordinal.
type wholeKey struct {
	part    int
	id      string
	ordinal uint32
}

// wholeOf is the key of the document that an ordinal of a part is of, without the part.
func wholeOf(snap *index.Snapshot, passages *roaring.Bitmap, ordinal uint32) wholeKey {
	if !passages.Contains(ordinal) {
		return wholeKey{ordinal: ordinal}
	}
	id, _ := snap.PassageOf(ordinal)
	return wholeKey{id: id}
}

// wholes adds the documents of ranked passages that are not among docs yet, by their best
// passages.
func (r *run) wholes(top []located, found map[wholeKey]*whole, docs []*whole) ([]*whole, error) {
	for _, l := range top {
		passages := l.part.snap.Passages()
		key := wholeOf(l.part.snap, passages, l.ordinal)
		key.part = l.part.at
		if found[key] == nil {
			id := key.id
			if !passages.Contains(l.ordinal) {
				id = l.part.snap.ID(l.ordinal)
			}
			d := &whole{part: l.part, id: id, score: l.score, best: l.score, passages: []located{l}}
			found[key] = d
			docs = append(docs, d)
		}
	}
	return docs, nil
}

// scoreWholes gives those documents that have but the passage that they were found by all
// of theirs, with exact scores.
func (r *run) scoreWholes(docs []*whole, allowed *allowance) error {
	defer timed(&r.stats.Times.Exact)()
	var fresh []*whole
	ids := make([][]string, len(r.call.coll.parts))
	for _, d := range docs {
		if !d.scored {
			d.scored = true
			if d.part.snap.Passages().Contains(d.passages[0].ordinal) {
				ids[d.part.at] = append(ids[d.part.at], d.id)
				fresh = append(fresh, d)
			}
		}
	}
	members := map[wholeKey][]uint32{}
	for _, d := range fresh { // in any case: another program may have stored what is not true
		members[wholeKey{part: d.part.at, id: d.id}] = []uint32{d.passages[0].ordinal}
	}
	for at, of := range ids {
		if len(of) == 0 {
			continue
		}
		p := &r.call.coll.parts[at]
		all, _, err := p.snap.Named(r.ctx, of)
		if err != nil {
			return err
		}
		live, _ := p.snap.LiveSet()
		for it := all.Iterator(); it.HasNext(); {
			ordinal := it.Next()
			if !inSet(live, ordinal) || !allowed.parts[at].has(ordinal) {
				continue
			}
			id, _ := p.snap.PassageOf(ordinal)
			key := wholeKey{part: at, id: id}
			if m := members[key]; len(m) == 0 || m[0] != ordinal {
				members[key] = append(m, ordinal)
			}
		}
	}
	of := func(d *whole) []uint32 { return members[wholeKey{part: d.part.at, id: d.id}] }
	// Passages that the search has not scored may need rows of S that are not there.
	err := r.fillRows(len(fresh), func(i int) error {
		return r.eachPassage(fresh[i], of(fresh[i]), func(_ uint32, ch *kernels.Chunk, lo, hi int) { r.query.RequireTokens(ch, lo, hi) })
	})
	if err != nil {
		return err
	}
	err = r.forEach(len(fresh), func(i int) error { return r.scoreWhole(fresh[i], of(fresh[i])) })
	for _, d := range fresh {
		r.stats.ExactDocs += int64(len(d.passages))
	}
	return err
}

// eachPassage calls fn with the tokens of the passages of a document.
func (r *run) eachPassage(d *whole, ordinals []uint32, fn func(ordinal uint32, ch *kernels.Chunk, lo, hi int)) (err error) {
	defer d.part.guard(r.call, &err)()
	for _, o := range ordinals {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		ch, doc, err := chunkOf(d.part.snap, o)
		if err != nil {
			return err
		}
		fn(o, ch, int(ch.Offsets[doc]), int(ch.Offsets[doc+1]))
	}
	return nil
}

// scoreWhole scores all passages of a document, and the document by them.
func (r *run) scoreWhole(d *whole, ordinals []uint32) error {
	n := r.query.Len()
	own, all := make([]float64, n), make([]float64, n)
	d.passages = d.passages[:0]
	err := r.eachPassage(d, ordinals, func(o uint32, ch *kernels.Chunk, lo, hi int) {
		r.query.Maxima(own, ch, lo, hi, kernels.Fine)
		if len(d.passages) == 0 {
			copy(all, own)
		} else {
			kernels.MergeMaxima(all, own)
		}
		d.passages = append(d.passages, located{d.part, o, r.query.Total(own, kernels.Fine)})
	})
	if err != nil {
		return err
	}
	slices.SortFunc(d.passages, func(a, b located) int {
		return topk.Order(topk.Scored{Doc: a.ordinal, Score: a.score}, topk.Scored{Doc: b.ordinal, Score: b.score})
	})
	d.best, d.score = d.passages[0].score, d.passages[0].score
	switch r.request.group {
	case GroupSum:
		sum := 0.0
		for _, p := range d.passages[:min(len(d.passages), r.request.passages)] {
			sum += float64(p.score)
		}
		d.score = float32(sum)
	case GroupMaxSim:
		d.score = r.query.Total(all, kernels.Fine)
	}
	return nil
}

// hitsOfWholes makes hits of documents. The payload of one that has passages is what its
// best passage has of it.
func (r *run) hitsOfWholes(docs []*whole, query, weights []float32) ([]Hit, error) {
	hits := make([]Hit, len(docs))
	for i, d := range docs {
		if r.stats.Parts != nil {
			r.stats.Parts[d.part.at].Hits++
		}
		best := d.passages[:min(len(d.passages), r.request.passages)]
		h := &hits[i]
		h.ID, h.Part, h.Ordinal, h.Score = d.id, d.part.at, best[0].ordinal, d.score
		var err error
		if h.Passages, err = hitsOf(len(best), func(j int) located { return best[j] }, true); err != nil {
			return nil, err
		}
		if r.request.matches {
			if err := r.matchHits(h.Passages, best, query, weights); err != nil {
				return nil, err
			}
		}
		for j := range h.Passages {
			p := &h.Passages[j]
			if p.Passage, err = vectors.PassageOf(p.ID, p.Payload); err != nil {
				p.Passage = nil // it was stored by another program
			}
			if j == 0 && r.request.payload {
				h.Payload = p.Payload
				if p.Passage != nil {
					h.Payload = vectors.WholePayload(p.Payload)
				}
			}
			if !r.request.payload {
				p.Payload = nil
			}
		}
	}
	return hits, nil
}

// groupRanked returns the documents of a ranking of passages, best first. A document has the
// score of its best passage, and its best ranked passages, at most the number given. The payload
// of a hit names the document of a passage; a hit without one is a document.
func groupRanked(ranked []Hit, passages int) []Hit {
	type key struct {
		part int
		of   string
		is   bool // of passages
	}
	at := map[key]int{}
	docs := []Hit{}
	for _, h := range ranked {
		p, err := vectors.PassageOf(h.ID, h.Payload)
		if err != nil {
			p = nil // another program has stored it
		}
		k := key{h.Part, h.ID, false}
		if p != nil {
			h.Passage, k = p, key{h.Part, p.Of, true}
		}
		i, there := at[k]
		if !there {
			i = len(docs)
			at[k] = i
			d := Hit{ID: k.of, Part: h.Part, Ordinal: h.Ordinal, Score: h.Score, Payload: h.Payload}
			if p != nil {
				d.Payload = vectors.WholePayload(h.Payload)
			}
			docs = append(docs, d)
		}
		if len(docs[i].Passages) < max(passages, 1) {
			docs[i].Passages = append(docs[i].Passages, h)
		}
	}
	return docs
}

// DefaultPassages is the number of passages of a document where a user gives none.
const DefaultPassages = 3

// RankGroups returns the k best documents of a ranking of passages that did not come from an
// [Engine], such as one by words. A document has the score of its best passage, and its best
// ranked passages, at most the number given. RankGroups asks rank for the best passages, twice
// as many each time, until they belong to k documents or there are no more; most is the number
// of all passages. payload returns the stored payload of a hit, which names its document.
func RankGroups(ctx context.Context, k, passages, most int, payload func(*Hit) ([]byte, error),
	rank func(k int) ([]Hit, error)) ([]Hit, error) {
	most = max(most, 1)
	depth, each := most, min(max(passages, 1), most)+1
	if k < most/each {
		depth = each * k
	}
	for ; ; depth = min(2*depth, most) {
		ranked, err := rank(depth)
		if err != nil {
			return nil, err
		}
		for i := range ranked {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if ranked[i].Payload, err = payload(&ranked[i]); err != nil {
				return nil, err
			}
		}
		docs := groupRanked(ranked, passages)
		if len(docs) >= k || len(ranked) < depth || depth == most {
			return docs[:min(len(docs), k)], nil
		}
	}
}
