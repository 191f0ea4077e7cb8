package search

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/index"
)

// Feedback adds to a query what documents have that are taken for good ones, as in ColBERT-PRF
// (Wang et al., ICTIR 2021), by what the index has: centroids stand for words. Every centroid of
// these documents gets a weight: the share of the documents that have a token with it, times how
// rare it is among all documents. The heaviest become further query tokens, each the mean of its
// tokens in these documents. It costs one search more. A document of passages counts once, however
// many of its passages are taken. If an index has too few centroids to tell documents apart, as
// before it is trained, tokens of these documents take their place: each stands for the tokens near
// it, and is counted in all documents. If a query has no room for all of these tokens ([ErrQuery]),
// the lightest are left out ([Stats].FeedbackCut).
//
// In JSON it is {"docs": 3, "like": ["a"], "unlike": ["b"]}, without what is not there.
type Feedback struct {
	// Docs is how many of the best documents are taken for good, but for those of Unlike,
	// and of a document of passages the best one; 0: none.
	Docs int `json:"docs,omitempty"`
	// Like and Unlike are ids of documents that somebody has said to be good, and to be
	// bad: what only those have counts against others. No id is in both.
	Like   []string `json:"like,omitempty"`
	Unlike []string `json:"unlike,omitempty"`
	// Terms is how many query tokens are added, and at most as many for Unlike; 0: 16.
	Terms int `json:"terms,omitempty"`
	// Weight is that of a token which all of the documents have and no other; 0: 0.5.
	Weight float64 `json:"weight,omitempty"`
}

// UsualFeedbackTerms is how many query tokens [Feedback] adds without Terms.
const UsualFeedbackTerms = 16

// Limits and defaults of feedback.
const (
	maxFeedbackDocs, maxFeedbackTerms = 100, 128
	maxFeedbackTokens                 = 1 << 16 // of all documents together
	defaultFeedbackWeight             = 0.5
	unlikeFactor                      = 0.5 // of the weight, for what is not wanted
)

// Check finds what is wrong with it ([ErrOption]), whatever is searched.
func (f *Feedback) Check() error {
	switch {
	case f == nil:
		return nil
	case f.Docs < 0 || f.Docs > maxFeedbackDocs || f.Terms < 0 || f.Docs+len(f.Like)+len(f.Unlike) > maxFeedbackDocs || f.Terms > maxFeedbackTerms:
		return fmt.Errorf("%w: feedback of %d documents and %d terms; at most %d and %d are possible", ErrOption,
			max(f.Docs, f.Docs+len(f.Like)+len(f.Unlike)), f.Terms, maxFeedbackDocs, maxFeedbackTerms)
	case f.Docs+len(f.Like)+len(f.Unlike) == 0:
		return fmt.Errorf("%w: feedback of no document", ErrOption)
	case !(f.Weight >= 0 && f.Weight <= maxMagnitude):
		return fmt.Errorf("%w: feedback of weight %v", ErrOption, f.Weight)
	}
	for _, id := range f.Unlike {
		if slices.Contains(f.Like, id) {
			return fmt.Errorf("%w: feedback: %q is to be good and bad", ErrOption, id)
		}
	}
	return nil
}

// First are the options of the search whose best documents are taken for good, given those of
// the whole: as many more as may turn out to be bad.
func (f *Feedback) First(o Options) Options {
	return Options{
		K: f.Docs + len(f.Unlike), Group: GroupBest, Mode: o.Mode, Probes: o.Probes, Approx: o.Approx, Exact: o.Exact, Effort: o.Effort, Derive: o.Derive,
		Filter: o.Filter, Candidates: o.Candidates, AllowMissing: o.AllowMissing,
	}
}

// Place is where a document is: its index, as in [Hit], and its ordinal there.
type Place struct {
	Shard   int
	Ordinal uint32
}

// Good are the documents that are taken for good, each once: those that are liked, and the
// best of a ranking, which [Feedback.First] has asked for. None of them is among those that
// are unliked. That nothing is left of what is liked is [ErrOption].
func (f *Feedback) Good(liked, unliked []Place, ranked []Hit) ([]Place, error) {
	seen := make(map[Place]bool, len(unliked)+len(liked))
	for _, p := range unliked {
		seen[p] = true
	}
	bad := maps.Clone(seen)
	good := []Place{}
	add := func(p Place) {
		if !seen[p] {
			seen[p] = true
			good = append(good, p)
		}
	}
	for _, p := range liked {
		add(p)
	}
	if len(liked) > 0 && len(good) == 0 {
		return nil, fmt.Errorf("%w: feedback: all of %q is to be bad, too", ErrOption, f.Like)
	}
	fromRanking := 0
	for i := range ranked {
		p := Place{ranked[i].Shard, ranked[i].Ordinal}
		if fromRanking == f.Docs || bad[p] {
			continue
		}
		fromRanking++
		add(p)
	}
	return good, nil
}

// answerWithFeedback answers queries that feedback has added to.
func (c *core) answerWithFeedback(ctx context.Context, coll *collection, qs []Query, o *Options) ([]Result, error) {
	f := o.Feedback
	var liked, unliked []Place
	slots := c.newSlots(ctx) // the index is read in turn, as by searches
	waited, err := slots.withSlot(ctx, f.memoryBytes(coll, 0), func() (err error) {
		if liked, err = locateIDs(ctx, coll, "like", f.Like); err == nil {
			unliked, err = locateIDs(ctx, coll, "unlike", f.Unlike)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	firstResults := make([]Result, len(qs))
	if f.Docs > 0 {
		firstOptions := f.First(*o)
		if firstResults, err = c.answer(ctx, coll, qs, &firstOptions); err != nil {
			return nil, err
		}
	}
	expanded, dropped := make([]Query, len(qs)), make([]int, len(qs))
	for i := range qs {
		if _, err := qs[i].countTokens(coll); err != nil {
			return nil, &QueryError{i, err}
		}
		wait, err := slots.withSlot(ctx, f.memoryBytes(coll, len(liked)+len(unliked)), func() error {
			good, err := f.Good(liked, unliked, firstResults[i].Hits)
			if err != nil {
				return err
			}
			expanded[i], err = f.Expand(ctx, &qs[i], coll.firstSnapshot().Dim(), coll.feedbackEvidence(good, unliked))
			return err
		})
		if err != nil {
			return nil, err
		}
		dropped[i] = FitFeedback(&expanded[i], coll.firstSnapshot().Dim(), len(qs[i].Vectors), coll.sharedCodec().Centroids.K)
		waited += wait
	}
	unexpanded := *o
	unexpanded.Feedback = nil
	results, err := c.answer(ctx, coll, expanded, &unexpanded)
	if err != nil {
		return nil, err
	}
	for i := range results {
		st := &results[i].Stats
		st.FeedbackCut = dropped[i]
		st.Times.Wait += waited / time.Duration(len(results))
		total := firstResults[i].Stats
		total.Add(results[i].Stats)
		total.Queries = results[i].Stats.Queries
		if f.Docs > 0 {
			results[i].Stats = total
		}
	}
	return results, nil
}

// memoryBytes estimates the memory that reading the evidence of a query takes, for its centroids, for
// documents and passages, named of them by the query, and for the terms that are added.
func (f *Feedback) memoryBytes(c *collection, named int) int64 {
	const ofCentroid, ofDocument, ofTerm = 192, 96, 64
	terms := 2 * int64(cmp.Or(f.Terms, UsualFeedbackTerms))
	centroids := min(int64(c.sharedCodec().Centroids.K), 2*maxFeedbackTokens)
	return centroids*ofCentroid + int64(named+f.Docs+len(f.Unlike))*ofDocument + terms*(4*int64(c.firstSnapshot().Dim())+ofTerm)
}

// FitFeedback drops the lightest of the tokens that feedback has added to a query until there is room for it
// in a collection whose codec has some centroids, and returns how many it dropped. The query had own values
// before.
func FitFeedback(q *Query, dim, valuesBefore, centroids int) (dropped int) {
	return dropLightest(q, dim, valuesBefore, maxScoreBytes/4/max(centroids, 1))
}

// dropLightest drops the lightest of the tokens that were added to a query until at most most tokens are
// left, and returns how many it dropped. The query had own values before.
func dropLightest(q *Query, dim, ownTokens, maxTokens int) (dropped int) {
	n := len(q.Vectors) / dim
	ownTokens /= dim
	if dropped = n - maxTokens; dropped <= 0 {
		return 0
	}
	added := make([]int, 0, n-ownTokens)
	for t := ownTokens; t < n; t++ {
		added = append(added, t)
	}
	weight := func(t int) float64 { return math.Abs(float64(q.Weights[t])) }
	slices.SortStableFunc(added, func(a, b int) int { return cmp.Compare(weight(b), weight(a)) })
	added = added[:len(added)-dropped]
	slices.Sort(added)
	for i, t := range added {
		to := ownTokens + i
		copy(q.Vectors[to*dim:(to+1)*dim], q.Vectors[t*dim:(t+1)*dim])
		q.Weights[to] = q.Weights[t]
	}
	q.Vectors, q.Weights = q.Vectors[:maxTokens*dim], q.Weights[:maxTokens]
	if q.Mask != nil {
		q.Mask = q.Mask[:maxTokens] // all that is added takes part
	}
	return dropped
}

// locateIDs are the documents of ids, with their passages.
func locateIDs(ctx context.Context, c *collection, what string, ids []string) (docs []Place, err error) {
	a, err := lookUpIDs(ctx, c, what, ids, false)
	if err != nil {
		return nil, err
	}
	for i, s := range a.shards {
		for _, o := range s.appendOrdinals(nil) {
			docs = append(docs, Place{i, o})
		}
	}
	return docs, nil
}

// Evidence is what feedback takes of the documents that are good, and of those that are bad. An
// engine reads it of its index; who asks several of them for parts of a collection puts it
// together ([Counts], [Sums], [Frequencies] of each part).
type Evidence interface {
	// Counts are the centroids that the good documents, or the bad ones, have tokens with, in how
	// many of them each is, and how many they are.
	Counts(ctx context.Context, bad bool) (docs map[uint32]int, of int, err error)
	// Sums adds up the tokens that these documents have with some centroids, in their order.
	Sums(ctx context.Context, bad bool, codes []uint32) ([][]float32, error)
	// Frequencies is in how many documents of all each of some centroids is, and how many they
	// are.
	Frequencies(ctx context.Context, codes []uint32) (docs []uint64, live int64, err error)
}

// FeedbackTokens is how many tokens of each of some documents feedback looks at, 1 at least.
func FeedbackTokens(docs int) int { return max(maxFeedbackTokens/max(docs, 1), 1) }

// term is a centroid of documents.
type term struct {
	code   uint32
	weight float64
}

// Expand is a query of a dimension with the tokens that feedback adds.
func (f *Feedback) Expand(ctx context.Context, q *Query, dim int, e Evidence) (Query, error) {
	terms, weight := cmp.Or(f.Terms, UsualFeedbackTerms), cmp.Or(f.Weight, defaultFeedbackWeight)
	var docs [2]map[uint32]int // good, bad
	var counts [2]int
	var codes []uint32
	for side := range docs {
		var err error
		if docs[side], counts[side], err = e.Counts(ctx, side == 1); err != nil {
			return Query{}, err
		}
		if side == 1 {
			for _, code := range codes {
				delete(docs[1], code)
			}
		}
		codes = slices.AppendSeq(codes, maps.Keys(docs[side]))
	}
	slices.Sort(codes)
	frequencies, live, err := e.Frequencies(ctx, codes)
	if err != nil {
		return Query{}, err
	}
	out := *q
	n := len(q.Vectors) / dim
	out.Vectors, out.Weights, out.Mask = slices.Clone(q.Vectors), slices.Clone(q.Weights), slices.Clone(q.Mask)
	if out.Weights == nil {
		out.Weights = slices.Repeat([]float32{1}, n)
	}
	for side, sideWeight := range []float64{weight, -weight * unlikeFactor} {
		best := weightTerms(docs[side], counts[side], codes, frequencies, live)
		best = best[:min(len(best), terms)]
		if len(best) == 0 {
			continue
		}
		chosen := make([]uint32, len(best))
		for i, t := range best {
			chosen[i] = t.code
		}
		sums, err := e.Sums(ctx, side == 1, chosen)
		if err != nil {
			return Query{}, err
		}
		for i, t := range best {
			square := codec.Square(sums[i])
			if square == 0 || t.weight <= 0 {
				continue
			}
			codec.Unit(sums[i], square)
			out.Vectors = append(out.Vectors, sums[i]...)
			out.Weights = append(out.Weights, float32(sideWeight*t.weight))
			if out.Mask != nil {
				out.Mask = append(out.Mask, true)
			}
		}
	}
	return out, nil
}

// weightTerms orders the centroids of so many documents by their weights, the heaviest first, given
// how many documents of all have each of codes.
func weightTerms(docs map[uint32]int, total int, codes []uint32, frequencies []uint64, live int64) []term {
	rarest := math.Log(float64(live) + 1)
	var list []term
	for i, code := range codes {
		if n := docs[code]; n > 0 {
			rare := max(math.Log((float64(live)+1)/(float64(frequencies[i])+1)), 0) / max(rarest, 1)
			list = append(list, term{code, float64(n) / float64(total) * rare})
		}
	}
	slices.SortStableFunc(list, func(a, b term) int { return cmp.Compare(b.weight, a.weight) })
	return list
}

// centroidEvidence is that of an engine: ordinals of the documents that are good, and of those that are
// bad, by part.
type centroidEvidence struct {
	c         *collection
	docs      [2][][]uint32
	documents [2]int
}

func newCentroidEvidence(c *collection, good, bad []Place) *centroidEvidence {
	e := &centroidEvidence{c: c, documents: [2]int{len(good), len(bad)}}
	for side, places := range [][]Place{good, bad} {
		e.docs[side] = make([][]uint32, len(c.shards))
		for _, p := range places {
			e.docs[side][p.Shard] = append(e.docs[side][p.Shard], p.Ordinal)
		}
	}
	return e
}

func feedbackSide(bad bool) int {
	if bad {
		return 1
	}
	return 0
}

// visitShards calls fn for the parts that have documents of a side, with how many tokens of each count.
func (e *centroidEvidence) visitShards(bad bool, fn func(snap *index.Snapshot, ordinals []uint32, tokens int) error) error {
	side := feedbackSide(bad)
	for i, ordinals := range e.docs[side] {
		if len(ordinals) == 0 {
			continue
		}
		if err := fn(e.c.shards[i].snap, ordinals, FeedbackTokens(e.documents[side])); err != nil {
			return err
		}
	}
	return nil
}

func (e *centroidEvidence) Counts(ctx context.Context, bad bool) (docs map[uint32]int, of int, err error) {
	docs = map[uint32]int{}
	err = e.visitShards(bad, func(snap *index.Snapshot, ordinals []uint32, tokens int) error {
		n, err := Counts(ctx, snap, ordinals, tokens, docs)
		of += n
		return err
	})
	return docs, of, err
}

func (e *centroidEvidence) Sums(ctx context.Context, bad bool, codes []uint32) ([][]float32, error) {
	dim := e.c.firstSnapshot().Dim()
	sums := slices.Collect(slices.Chunk(make([]float32, len(codes)*dim), dim))
	err := e.visitShards(bad, func(snap *index.Snapshot, ordinals []uint32, tokens int) error {
		return Sums(ctx, snap, ordinals, tokens, codes, sums)
	})
	return sums, err
}

func (e *centroidEvidence) Frequencies(ctx context.Context, codes []uint32) (docs []uint64, live int64, err error) {
	docs = make([]uint64, len(codes))
	for i := range e.c.shards {
		if err := Frequencies(ctx, e.c.shards[i].snap, codes, docs); err != nil {
			return nil, 0, err
		}
	}
	live, _ = e.c.countLive()
	return docs, live, nil
}
