package search

import (
	"cmp"
	"math"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/internal/topk"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
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

// Documents are found by their best passages. Each round searches the passages of documents that no
// earlier round has found, until there are enough. By GroupBest the first K documents are the best
// K. By the others a document may score more than its best passage, and have no passage among those
// that were found. How much more is estimated from the documents that were found: as in
// [run.rerank], a document is left out if the most that its best passage may score, plus the mean
// difference, plus some standard deviations, is below the K-th best score. A search that scores all
// passages anyway goes through them document by document.

// groupedDoc is a document with the passages that may answer the query.
type groupedDoc struct {
	shard    *shard
	id       string
	isSplit  bool
	scored   bool // by all of its passages
	score    float32
	best     float32   // passage
	passages []located // best first, as many as are shown; before it is scored, the one that it was found by
}

// newGroupedDoc returns a document that was found by a passage.
func newGroupedDoc(l located, id string, ofPassages bool) *groupedDoc {
	return &groupedDoc{shard: l.shard, id: id, isSplit: ofPassages, score: l.score, best: l.score, passages: []located{l}}
}

// groupedHits are the K best documents with their best passages, where there are passages.
func (r *run) groupedHits(vectors, weights []float32, allowed *allowedDocs) ([]Hit, error) {
	find := r.findGroups
	if r.request.scoresAllPassages(allowed.count) {
		find = r.scoreAllGroups
	}
	docs, err := find(vectors, weights, allowed)
	if err != nil {
		return nil, err
	}
	r.stats.Queries = 1
	return r.newGroupHits(docs, vectors, weights)
}

// roundSizes returns how many of n passages the first round searches, and how many a later round
// searches at most.
func (q *request) roundSizes(n int) (first, later int) {
	k := min(q.k, n)
	if first = 2 * k; q.group != GroupBest {
		first = max(first, k+k/4+32)
	}
	return first, 4 * first
}

// scoresAllPassages reports whether all of n passages are scored, because that is wanted or because finding the
// documents would cost about as much.
func (q *request) scoresAllPassages(n int) bool {
	first, _ := q.roundSizes(n)
	return q.group != GroupBest && (q.mode != Pruned || first >= n/4)
}

// Estimates of memory in bytes: for a document that is found, including the look-up of its
// passages; for each document or passage if all are scored, including its id, which is not kept;
// and for each if documents are searched for, a place in the lists of passages and in the set that
// is left.
const foundBytes, everyBytes, restBytes = 384, 64, 8

// groupBytes estimates the memory that finding documents takes in an index of docs documents and
// passages, in addition to that of an ordinary search.
func (q *request) groupBytes(docs int) int64 {
	if q.group == "" {
		return 0
	}
	_, later := q.roundSizes(docs)
	n := int64(min(docs, later+maxExactDocs(min(q.k, docs), 1)))*foundBytes + int64(docs)*restBytes
	if q.scoresAllPassages(docs) {
		n += int64(docs) * everyBytes
	}
	return n
}

// findGroups returns the K best documents, found by their best passages.
func (r *run) findGroups(vectors, weights []float32, allowed *allowedDocs) ([]*groupedDoc, error) {
	k, byBest, allAllowed := r.request.k, r.request.group == GroupBest, allowed
	depth, maxDepth := r.request.roundSizes(allowed.count)
	defer func() { r.request.k = k }()
	f := groupFinder{found: map[DocumentKey]bool{}}
	for searched := 0; ; depth = min(2*depth, maxDepth) {
		r.request.k = min(max(depth, 1), max(allowed.count, 1))
		top, err := r.bestDocuments(vectors, weights, allowed, nil)
		if err != nil {
			return nil, err
		}
		newDocs := f.add(top)
		searched += len(top)
		last := len(top) < r.request.k || r.request.k >= allowed.count
		if byBest && (last || len(f.docs) >= k) {
			break
		}
		members, err := r.livePassages(newDocs)
		if err != nil {
			return nil, err
		}
		if !byBest {
			if err := r.scoreGroups(newDocs, members, allowed); err != nil {
				return nil, err
			}
			floor := math.Inf(-1)
			if len(top) > 0 {
				floor = float64(top[len(top)-1].score)
			}
			if last || enoughFound(f.docs, k, floor, searched >= maxExactDocs(k, 1)) {
				break
			}
		}
		for _, l := range top {
			members[l.shard.index].Add(l.ordinal)
		}
		allowed = allowed.without(members)
	}
	docs := bestGroups(f.docs, k)
	if !byBest || r.request.passages == 1 {
		return docs, nil
	}
	members, err := r.livePassages(docs)
	if err != nil {
		return nil, err
	}
	return docs, r.scoreGroups(docs, members, allAllowed)
}

// bestGroups are the k best documents in order.
func bestGroups(docs []*groupedDoc, k int) []*groupedDoc {
	slices.SortStableFunc(docs, func(a, b *groupedDoc) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.shard.index, b.shard.index),
			cmp.Compare(a.passages[0].ordinal, b.passages[0].ordinal))
	})
	return docs[:min(k, len(docs))]
}

// enoughFound tells whether a document of which no passage scores more than a floor is not
// expected among the K best. After very many passages it is not asked any more, as long as
// there are K documents.
func enoughFound(docs []*groupedDoc, k int, floor float64, many bool) bool {
	if len(docs) < k {
		return false
	}
	var sum, squares float64
	scores := make([]float64, len(docs))
	for i, d := range docs {
		excess := float64(d.score) - float64(d.best)
		sum += excess
		squares += float64(excess * excess) // rounded, not fused
		scores[i] = float64(d.score)
	}
	n := float64(len(docs))
	mean := sum / n
	deviation := math.Sqrt(max(squares/n-float64(mean*mean), 0))
	slices.Sort(scores)
	return many || scores[len(scores)-k] >= floor+mean+float64(deviationsFor(k, 3.5, 2.25)*deviation)
}

// groupFinder collects documents by their passages.
type groupFinder struct {
	docs  []*groupedDoc
	found map[DocumentKey]bool
}

// add adds the documents of ranked passages that have not been found yet, each by its best passage.
func (f *groupFinder) add(top []located) (fresh []*groupedDoc) {
	first := len(f.docs)
	for _, l := range top {
		snap := l.shard.snap
		key := DocumentKey{l.shard.index, snap.DocumentOf(l.ordinal)}
		if !f.found[key] {
			f.found[key] = true
			f.docs = append(f.docs, newGroupedDoc(l, key.ID, snap.Passages().Contains(l.ordinal)))
		}
	}
	return f.docs[first:len(f.docs):len(f.docs)]
}

// livePassages returns the live passages of documents, by part.
func (r *run) livePassages(docs []*groupedDoc) (members []*roaring.Bitmap, err error) {
	parts := r.call.coll.shards
	ids := make([][]string, len(parts))
	for _, d := range docs {
		if d.isSplit {
			ids[d.shard.index] = append(ids[d.shard.index], d.id)
		}
	}
	members = make([]*roaring.Bitmap, len(parts))
	for part, wanted := range ids {
		members[part] = roaring.New()
		if len(wanted) > 0 {
			if members[part], _, err = parts[part].snap.Named(r.ctx, wanted); err != nil {
				return nil, err
			}
		}
	}
	return members, nil
}

// scoreGroups gives documents of passages their exact scores, by all of their passages.
func (r *run) scoreGroups(docs []*groupedDoc, members []*roaring.Bitmap, allowed *allowedDocs) error {
	defer addElapsed(&r.stats.Times.Exact)()
	var unscored []*groupedDoc
	indexByKey := map[DocumentKey]int{}
	var passages [][]uint32
	for _, d := range docs {
		if d.isSplit && !d.scored {
			indexByKey[DocumentKey{d.shard.index, d.id}] = len(unscored)
			unscored = append(unscored, d)
			// The passage that it was found by counts in any case, even if another program has
			// stored inconsistent data.
			passages = append(passages, []uint32{d.passages[0].ordinal})
		}
	}
	for i := range members {
		p := &r.call.coll.shards[i]
		live, _ := p.snap.LiveSet()
		for it := members[i].Iterator(); it.HasNext(); {
			ordinal := it.Next()
			if !hasBit(live, ordinal) || !allowed.shards[i].has(ordinal) {
				continue
			}
			id, _ := p.snap.PassageOf(ordinal)
			if d, ok := indexByKey[DocumentKey{i, id}]; ok && passages[d][0] != ordinal {
				passages[d] = append(passages[d], ordinal)
			}
		}
	}
	// Passages that the search has not scored may need rows of S that are not there.
	err := r.fillRows(len(unscored), func(i int) error { return r.requirePassageRows(unscored[i].shard, passages[i]) })
	if err != nil {
		return err
	}
	err = r.forEach(len(unscored), func(i int) error {
		d, s := unscored[i], r.newGroupScorer()
		var err error
		if d.score, err = s.scoreGroup(d.shard, passages[i]); err == nil {
			d.scored, d.best, d.passages = true, s.best[0].score, slices.Clone(s.best)
		}
		return err
	})
	for i := range unscored {
		r.stats.ExactDocs += int64(len(passages[i]))
	}
	return err
}

// visitPassages calls fn with the tokens of passages.
func (r *run) visitPassages(p *shard, ordinals []uint32,
	fn func(ordinal uint32, ch *kernels.Chunk, lo, hi int)) (err error) {
	defer p.guardRead(r.call, &err)()
	if err := p.snap.Prefetch(r.ctx, storage.All, ordinals); err != nil {
		return err
	}
	for _, o := range ordinals {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		chunk, doc, _ := p.snap.Locate(o)
		ch, err := p.snap.ChunkFor(chunk, storage.All, uint32(doc))
		if err != nil {
			return err
		}
		fn(o, ch, int(ch.Offsets[doc]), int(ch.Offsets[doc+1]))
	}
	return nil
}

// requirePassageRows asks for the rows of S that the passages of a document need.
func (r *run) requirePassageRows(p *shard, ordinals []uint32) error {
	return r.visitPassages(p, ordinals, func(_ uint32, ch *kernels.Chunk, lo, hi int) { r.query.RequireTokens(ch, lo, hi) })
}

// groupScorer scores documents by all of their passages, one after the other.
type groupScorer struct {
	run                   *run
	passageMaxima, maxima []float64 // maxima
	best                  []located // passages of the last document, the best first
}

func (r *run) newGroupScorer() *groupScorer {
	n := r.query.Len()
	return &groupScorer{run: r, passageMaxima: make([]float64, n), maxima: make([]float64, n)}
}

// scoreGroup returns the score of a document with these passages.
func (s *groupScorer) scoreGroup(p *shard, ordinals []uint32) (float32, error) {
	r := s.run
	s.best = s.best[:0]
	first := true
	err := r.visitPassages(p, ordinals, func(o uint32, ch *kernels.Chunk, lo, hi int) {
		r.query.Maxima(s.passageMaxima, ch, lo, hi, kernels.Fine)
		if first {
			copy(s.maxima, s.passageMaxima)
		} else {
			kernels.MergeMaxima(s.maxima, s.passageMaxima)
		}
		first = false
		s.best = append(s.best, located{p, o, r.query.Total(s.passageMaxima, kernels.Fine)})
		if n := len(s.best); n >= 64 && n/2 >= r.request.passages {
			s.keepBestPassages()
		}
	})
	if err != nil {
		return 0, err
	}
	s.keepBestPassages()
	switch r.request.group {
	case GroupSum:
		sum := 0.0
		for _, p := range s.best {
			sum += float64(p.score)
		}
		return float32(sum), nil
	case GroupMaxSim:
		return r.query.Total(s.maxima, kernels.Fine), nil
	}
	return s.best[0].score, nil
}

// keepBestPassages keeps the best passages, as many as are wanted.
func (s *groupScorer) keepBestPassages() {
	slices.SortFunc(s.best, func(a, b located) int {
		return topk.Order(topk.Scored{Doc: a.ordinal, Score: a.score}, topk.Scored{Doc: b.ordinal, Score: b.score})
	})
	s.best = s.best[:min(len(s.best), s.run.request.passages)]
}

// newGroupHits makes hits of documents. The payload of one that has passages is what its
// best passage has of it.
func (r *run) newGroupHits(docs []*groupedDoc, query, weights []float32) ([]Hit, error) {
	if err := r.fetchPayloads(len(docs), func(i int) []located { return docs[i].passages }); err != nil {
		return nil, err
	}
	hits := make([]Hit, len(docs))
	for i, d := range docs {
		if r.stats.Shards != nil {
			r.stats.Shards[d.shard.index].Hits++
		}
		best := d.passages
		h := &hits[i]
		h.ID, h.Shard, h.Ordinal, h.Score = d.id, d.shard.index, best[0].ordinal, d.score
		var err error
		if h.Passages, err = newHits(len(best), func(j int) located { return best[j] }, true); err != nil {
			return nil, err
		}
		if r.request.matches {
			if err := r.addMatches(h.Passages, best, query, weights); err != nil {
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
