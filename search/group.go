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

// Grouping selects how a document that is stored as passages is scored.
type Grouping string

// The groupings.
const (
	// GroupBest is the score of its best passage.
	GroupBest Grouping = "best"
	// GroupSum is the sum of the scores of its best Options.Passages passages.
	GroupSum Grouping = "sum"
	// GroupMaxSim is MaxSim over the tokens of all its passages, as if they were one: each query
	// token matches the best token anywhere in the document.
	GroupMaxSim Grouping = "maxsim"
)

// Groupings returns all groupings.
func Groupings() []Grouping { return []Grouping{GroupBest, GroupSum, GroupMaxSim} }

// Documents are found by their best passages. Each round searches the passages of documents that no
// earlier round found, until enough documents are known.
//
// With GroupBest the first K documents are the best K. With the other groupings a document may score
// more than its best passage, and may be among the best although no round has found a passage of it.
// The excess is estimated from the documents that were found, as in [run.rerank]: the search ends
// when the score of the last passage, plus the mean excess, plus some standard deviations, is below
// the K-th best score.
//
// A search that scores all passages anyway visits them document by document (groupevery.go).

// groupedDoc is a document with the passages that match the query.
type groupedDoc struct {
	shard    *shard
	id       string
	isSplit  bool // it is stored as passages
	scored   bool // score is exact: by all of its passages
	score    float32
	best     float32   // score of its best passage
	passages []located // best first, as many as hits include; until it is scored, the one that found it
}

// Values of groupedDoc.isSplit.
const (
	wholeDoc = false
	splitDoc = true
)

// newGroupedDoc returns a document that was found by a passage, or as a whole.
func newGroupedDoc(l located, id string, isSplit bool) *groupedDoc {
	return &groupedDoc{
		shard:    l.shard,
		id:       id,
		isSplit:  isSplit,
		score:    l.score,
		best:     l.score,
		passages: []located{l},
	}
}

// groupedHits returns the K best documents with their best passages.
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

// scoresAllPassages reports whether the search scores all of n passages, because its mode says so
// or because finding the documents would cost about as much.
func (q *request) scoresAllPassages(n int) bool {
	first, _ := q.roundSizes(n)
	return q.group != GroupBest && (q.mode != Pruned || first >= n/4)
}

// Estimates of memory in bytes.
const (
	foundBytes = 384 // for a document that is found, including the look-up of its passages
	everyBytes = 64  // for each document or passage if all are scored, including its id, which is not kept
	restBytes  = 8   // for each document or passage in the lists of passages and the remaining set
)

// groupBytes estimates the memory for finding documents in an index of docs documents and passages,
// in addition to the memory of an ungrouped search.
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
	defer func() { r.request.k = k }() // each round sets it to its number of passages
	f := groupFinder{found: map[DocumentKey]bool{}}
	for searched := 0; ; depth = min(2*depth, maxDepth) {
		r.request.k = min(max(depth, 1), max(allowed.count, 1))
		top, err := r.bestDocuments(vectors, weights, allowed, nil)
		if err != nil {
			return nil, err
		}
		// Collect new documents, and stop if they are enough.
		newDocs := f.add(top)
		searched += len(top)
		isLastRound := len(top) < r.request.k || r.request.k >= allowed.count
		if byBest && (isLastRound || len(f.docs) >= k) {
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
			if isLastRound || enoughFound(f.docs, k, floor, searched >= maxExactDocs(k, 1)) {
				break
			}
		}
		// The next round skips the documents of this one.
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

// bestGroups sorts the documents and returns the k best.
func bestGroups(docs []*groupedDoc, k int) []*groupedDoc {
	slices.SortStableFunc(docs, func(a, b *groupedDoc) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.shard.index, b.shard.index),
			cmp.Compare(a.passages[0].ordinal, b.passages[0].ordinal))
	})
	return docs[:min(k, len(docs))]
}

// enoughFound reports whether no document outside of docs is expected among the K best, given that
// the passages of such documents score at most floor. Once searchedMany passages are searched, any K
// documents are enough: the estimate may not make a search longer than that.
func enoughFound(docs []*groupedDoc, k int, floor float64, searchedMany bool) bool {
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
	return searchedMany || scores[len(scores)-k] >= floor+mean+float64(deviationsFor(k, 3.5, 2.25)*deviation)
}

// groupFinder collects documents by their passages.
type groupFinder struct {
	docs  []*groupedDoc
	found map[DocumentKey]bool
}

// add adds the documents of ranked passages that are not found yet, each with its best passage, and
// returns them.
func (f *groupFinder) add(top []located) (newDocs []*groupedDoc) {
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

// livePassages returns the live passages of documents, by shard.
func (r *run) livePassages(docs []*groupedDoc) (members []*roaring.Bitmap, err error) {
	shards := r.call.coll.shards
	ids := make([][]string, len(shards))
	for _, d := range docs {
		if d.isSplit {
			ids[d.shard.index] = append(ids[d.shard.index], d.id)
		}
	}
	members = make([]*roaring.Bitmap, len(shards))
	for i, wanted := range ids {
		members[i] = roaring.New()
		if len(wanted) > 0 {
			if members[i], _, err = shards[i].snap.OrdinalsOfIDs(r.ctx, wanted); err != nil {
				return nil, err
			}
		}
	}
	return members, nil
}

// scoreGroups computes the exact scores of split documents by all of their passages.
func (r *run) scoreGroups(docs []*groupedDoc, members []*roaring.Bitmap, allowed *allowedDocs) error {
	defer addElapsed(&r.stats.Times.Exact)()
	var unscored []*groupedDoc
	indexByKey := map[DocumentKey]int{}
	var passages [][]uint32
	for _, d := range docs {
		if d.isSplit && !d.scored {
			indexByKey[DocumentKey{d.shard.index, d.id}] = len(unscored)
			unscored = append(unscored, d)
			// The passage that found the document counts in any case, even if another program
			// stored inconsistent data.
			passages = append(passages, []uint32{d.passages[0].ordinal})
		}
	}
	for i := range members {
		sh := &r.call.coll.shards[i]
		live, _ := sh.snap.LiveSet()
		for it := members[i].Iterator(); it.HasNext(); {
			ordinal := it.Next()
			if !hasBit(live, ordinal) || !allowed.shards[i].contains(ordinal) {
				continue
			}
			id, _ := sh.snap.PassageOf(ordinal)
			if d, ok := indexByKey[DocumentKey{i, id}]; ok && passages[d][0] != ordinal {
				passages[d] = append(passages[d], ordinal)
			}
		}
	}
	// Passages that the search did not score may need rows of S that are not computed yet.
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

// visitPassages calls visit with the tokens lo to hi of each passage.
func (r *run) visitPassages(
	sh *shard, ordinals []uint32, visit func(ordinal uint32, ch *kernels.Chunk, lo, hi int),
) (err error) {
	defer sh.guardRead(r.call, &err)()
	if err := sh.snap.Prefetch(r.ctx, storage.All, ordinals); err != nil {
		return err
	}
	for _, o := range ordinals {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		chunk, doc, _ := sh.snap.Locate(o)
		ch, err := sh.snap.ChunkFor(chunk, storage.All, uint32(doc))
		if err != nil {
			return err
		}
		visit(o, ch, int(ch.Offsets[doc]), int(ch.Offsets[doc+1]))
	}
	return nil
}

// requirePassageRows requests the rows of S that the passages of a document need.
func (r *run) requirePassageRows(sh *shard, ordinals []uint32) error {
	return r.visitPassages(sh, ordinals, func(_ uint32, ch *kernels.Chunk, lo, hi int) {
		r.query.RequireRowsOfTokens(ch, lo, hi)
	})
}

// groupScorer scores documents by all of their passages, one document after the other.
type groupScorer struct {
	run           *run
	passageMaxima []float64
	maxima        []float64 // over the passages of the document so far
	best          []located // passages of the last document, the best first
}

// newGroupScorer returns a scorer for the prepared query.
func (r *run) newGroupScorer() *groupScorer {
	n := r.query.Len()
	return &groupScorer{run: r, passageMaxima: make([]float64, n), maxima: make([]float64, n)}
}

// scoreGroup returns the score of a document with these passages.
func (s *groupScorer) scoreGroup(sh *shard, ordinals []uint32) (float32, error) {
	r := s.run
	s.best = s.best[:0]
	first := true
	err := r.visitPassages(sh, ordinals, func(o uint32, ch *kernels.Chunk, lo, hi int) {
		r.query.Maxima(s.passageMaxima, ch, lo, hi, kernels.Fine)
		if first {
			copy(s.maxima, s.passageMaxima)
		} else {
			kernels.MergeMaxima(s.maxima, s.passageMaxima)
		}
		first = false
		s.best = append(s.best, located{sh, o, r.query.TotalScore(s.passageMaxima, kernels.Fine)})
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
		return r.query.TotalScore(s.maxima, kernels.Fine), nil
	}
	return s.best[0].score, nil
}

// keepBestPassages sorts the passages, and drops those beyond the number that hits include.
func (s *groupScorer) keepBestPassages() {
	slices.SortFunc(s.best, func(a, b located) int {
		return topk.Order(topk.Scored{Doc: a.ordinal, Score: a.score}, topk.Scored{Doc: b.ordinal, Score: b.score})
	})
	s.best = s.best[:min(len(s.best), s.run.request.passages)]
}

// newGroupHits returns the hits of documents. The payload of a split document is that of its best
// passage, without the fields of the passage.
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
			if p.Passage, err = vectors.PassageFromPayload(p.ID, p.Payload); err != nil {
				p.Passage = nil // another program stored it
			}
			if j == 0 && r.request.payload {
				h.Payload = p.Payload
				if p.Passage != nil {
					h.Payload = vectors.DocumentPayload(p.Payload)
				}
			}
			if !r.request.payload {
				p.Payload = nil
			}
		}
	}
	return hits, nil
}
