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

// Feedback expands a query with tokens of relevant documents, as in ColBERT-PRF (Wang et al., ICTIR
// 2021). Centroids serve as words: every centroid of these documents gets a weight, the share of the
// documents that have a token with it, times its rarity among all documents. The heaviest centroids
// become further query tokens, each the mean of its tokens in these documents. This costs one more
// search. A document of passages counts once, however many of its passages are relevant.
//
// If an index has too few centroids to tell documents apart, as before it is trained, tokens of the
// documents serve as words instead: each stands for the tokens near it, and is counted in all
// documents. If the added tokens do not fit the query ([ErrQuery]), the lightest are dropped
// ([Stats].FeedbackCut).
//
// In JSON it is {"docs": 3, "like": ["a"], "unlike": ["b"]}, without empty fields.
type Feedback struct {
	// Docs is how many of the best documents count as relevant, without those of Unlike; of a
	// document of passages the best passage counts. 0 means none.
	Docs int `json:"docs,omitempty"`
	// Like and Unlike are ids of documents that a user judged relevant and irrelevant. Words that
	// only irrelevant documents have lower the scores of documents. No id may be in both.
	Like   []string `json:"like,omitempty"`
	Unlike []string `json:"unlike,omitempty"`
	// Terms is how many query tokens are added, and at most as many for Unlike. 0 means 16.
	Terms int `json:"terms,omitempty"`
	// Weight is the weight of a token that all of these documents have and no other. 0 means 0.5.
	Weight float64 `json:"weight,omitempty"`
}

// DefaultFeedbackTerms is how many query tokens [Feedback] adds without Terms.
const DefaultFeedbackTerms = 16

// Limits and defaults of feedback.
const (
	maxFeedbackDocs, maxFeedbackTerms = 100, 128
	maxFeedbackTokens                 = 1 << 16 // in all documents together
	defaultFeedbackWeight             = 0.5
	unlikeFactor                      = 0.5 // of the weight, for tokens of irrelevant documents
)

// Check returns an [ErrOption] for feedback that is wrong for every index.
func (f *Feedback) Check() error {
	if f == nil {
		return nil
	}
	docs := f.Docs + len(f.Like) + len(f.Unlike)
	docsFit := f.Docs >= 0 && f.Docs <= maxFeedbackDocs && docs <= maxFeedbackDocs
	switch {
	case !docsFit || f.Terms < 0 || f.Terms > maxFeedbackTerms:
		return fmt.Errorf("%w: feedback of %d documents and %d terms; at most %d and %d are possible", ErrOption,
			max(f.Docs, docs), f.Terms, maxFeedbackDocs, maxFeedbackTerms)
	case docs == 0:
		return fmt.Errorf("%w: feedback of no document", ErrOption)
	case !(f.Weight >= 0 && f.Weight <= maxMagnitude):
		return fmt.Errorf("%w: feedback of weight %v", ErrOption, f.Weight)
	}
	for _, id := range f.Unlike {
		if slices.Contains(f.Like, id) {
			return fmt.Errorf("%w: feedback: %q is in like and in unlike", ErrOption, id)
		}
	}
	return nil
}

// FirstSearch returns the options of the search whose best documents count as relevant, given those of
// the whole search. It requests more documents than Docs, as any of Unlike may be among them.
func (f *Feedback) FirstSearch(o Options) Options {
	return Options{
		K:            f.Docs + len(f.Unlike),
		Group:        GroupBest,
		Mode:         o.Mode,
		Probes:       o.Probes,
		Approx:       o.Approx,
		Exact:        o.Exact,
		Effort:       o.Effort,
		Derive:       o.Derive,
		Filter:       o.Filter,
		Candidates:   o.Candidates,
		AllowMissing: o.AllowMissing,
	}
}

// Location is the location of a document: its shard, as in [Hit], and its ordinal there. Nodes of a
// cluster send it as JSON.
type Location struct {
	Shard   int    `json:"Part"`
	Ordinal uint32 `json:"Ordinal"`
}

// RelevantDocuments returns the relevant documents, each once: the liked ones, and the best Docs of
// a ranking, which a search with [Feedback.FirstSearch] returned. It excludes unliked documents. If
// that excludes every liked document, it returns [ErrOption].
func (f *Feedback) RelevantDocuments(liked, unliked []Location, ranked []Hit) ([]Location, error) {
	seen := make(map[Location]bool, len(unliked)+len(liked))
	for _, p := range unliked {
		seen[p] = true
	}
	bad := maps.Clone(seen)
	good := []Location{}
	add := func(p Location) {
		if !seen[p] {
			seen[p] = true
			good = append(good, p)
		}
	}
	for _, p := range liked {
		add(p)
	}
	if len(liked) > 0 && len(good) == 0 {
		return nil, fmt.Errorf("%w: feedback: all documents of like %q are in unlike, too", ErrOption, f.Like)
	}
	fromRanking := 0
	for i := range ranked {
		p := Location{ranked[i].Shard, ranked[i].Ordinal}
		if fromRanking == f.Docs || bad[p] {
			continue
		}
		fromRanking++
		add(p)
	}
	return good, nil
}

// answerWithFeedback answers queries that feedback expands.
func (c *core) answerWithFeedback(ctx context.Context, coll *collection, qs []Query, o *Options) ([]Result, error) {
	f := o.Feedback
	var liked, unliked []Location
	slots := c.newSlots(ctx) // reading the index needs a slot, as a search does
	waited, err := slots.withSlot(ctx, f.memoryBytes(coll, 0), func() (err error) {
		if liked, err = locateIDs(ctx, coll, "like", f.Like); err == nil {
			unliked, err = locateIDs(ctx, coll, "unlike", f.Unlike)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	// The first search finds the best documents.
	firstResults := make([]Result, len(qs))
	if f.Docs > 0 {
		firstOptions := f.FirstSearch(*o)
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
			good, err := f.RelevantDocuments(liked, unliked, firstResults[i].Hits)
			if err != nil {
				return err
			}
			expanded[i], err = f.Expand(ctx, &qs[i], coll.firstSnapshot().Dim(), coll.feedbackEvidence(good, unliked))
			return err
		})
		if err != nil {
			return nil, err
		}
		dim, centroids := coll.firstSnapshot().Dim(), coll.sharedCodec().Centroids.K
		dropped[i] = TrimFeedback(&expanded[i], dim, len(qs[i].Vectors), centroids)
		waited += wait
	}
	// The second search answers the expanded queries.
	secondOptions := *o
	secondOptions.Feedback = nil
	results, err := c.answer(ctx, coll, expanded, &secondOptions)
	if err != nil {
		return nil, err
	}
	for i := range results {
		st := &results[i].Stats
		st.FeedbackCut = dropped[i]
		st.Times.Wait += waited / time.Duration(len(results))
		if f.Docs > 0 { // the work of both searches is that of one query
			total := firstResults[i].Stats
			total.Add(results[i].Stats)
			total.Queries = results[i].Stats.Queries
			results[i].Stats = total
		}
	}
	return results, nil
}

// memoryBytes estimates the memory for the evidence of a query: for its centroids, for documents
// and passages, including the named ones, and for the added terms.
func (f *Feedback) memoryBytes(c *collection, named int) int64 {
	const ofCentroid, ofDocument, ofTerm = 192, 96, 64
	terms := 2 * int64(cmp.Or(f.Terms, DefaultFeedbackTerms))
	centroids := min(int64(c.sharedCodec().Centroids.K), 2*maxFeedbackTokens)
	docs, vector := int64(named+f.Docs+len(f.Unlike)), 4*int64(c.firstSnapshot().Dim())
	return centroids*ofCentroid + docs*ofDocument + terms*(vector+ofTerm)
}

// TrimFeedback drops the lightest tokens that feedback added to a query until the query fits a
// collection whose codec has this many centroids. It returns how many it dropped. The query had
// valuesBefore values in Vectors before.
func TrimFeedback(q *Query, dim, valuesBefore, centroids int) (dropped int) {
	return dropLightest(q, dim, valuesBefore, maxScoreBytes/4/max(centroids, 1))
}

// dropLightest drops the lightest added tokens until at most maxTokens tokens remain, and returns
// how many it dropped. The query had valuesBefore values in Vectors before.
func dropLightest(q *Query, dim, valuesBefore, maxTokens int) (dropped int) {
	n, ownTokens := len(q.Vectors)/dim, valuesBefore/dim
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
		q.Mask = q.Mask[:maxTokens] // no added token is masked
	}
	return dropped
}

// locateIDs returns the documents with these ids, and their passages. listName names the list of
// ids in errors.
func locateIDs(ctx context.Context, c *collection, listName string, ids []string) (docs []Location, err error) {
	const allowMissing = false
	a, err := lookUpIDs(ctx, c, listName, ids, allowMissing)
	if err != nil {
		return nil, err
	}
	for i, s := range a.shards {
		for _, o := range s.appendOrdinals(nil) {
			docs = append(docs, Location{i, o})
		}
	}
	return docs, nil
}

// Evidence counts terms in relevant ("good") and irrelevant ("bad") documents. A term is the code of
// a centroid, or the number of a term of [OwnTerms]. An engine reads evidence from its index. A
// program that searches shards elsewhere combines it from [CountByCentroid], [SumByCentroid] and
// [CentroidFrequencies] of each shard.
type Evidence interface {
	// TermCounts returns, for each term of the good documents or, with bad, of the bad ones, how
	// many of these documents have it, and the number of these documents.
	TermCounts(ctx context.Context, bad bool) (docs map[uint32]int, total int, err error)
	// TokenSums returns, for each of some terms, the sum of these documents' tokens with it.
	TokenSums(ctx context.Context, bad bool, codes []uint32) ([][]float32, error)
	// DocumentFrequencies returns, for each of some terms, how many of all live documents have it,
	// and the number of live documents.
	DocumentFrequencies(ctx context.Context, codes []uint32) (docs []uint64, live int64, err error)
}

// FeedbackTokensPerDocument returns how many tokens feedback reads of each of this many documents,
// at least 1.
func FeedbackTokensPerDocument(docs int) int { return max(maxFeedbackTokens/max(docs, 1), 1) }

// term is a term of [Evidence] with its weight.
type term struct {
	code   uint32
	weight float64
}

// Expand returns the query, which has vectors of this dimension, with the tokens that feedback
// adds.
func (f *Feedback) Expand(ctx context.Context, q *Query, dim int, e Evidence) (Query, error) {
	terms, weight := cmp.Or(f.Terms, DefaultFeedbackTerms), cmp.Or(f.Weight, defaultFeedbackWeight)
	// Count terms in good documents, and terms in bad ones that no good one has.
	var docs [2]map[uint32]int // good, bad
	var counts [2]int
	var codes []uint32
	for side := range docs {
		var err error
		if docs[side], counts[side], err = e.TermCounts(ctx, side == 1); err != nil {
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
	frequencies, live, err := e.DocumentFrequencies(ctx, codes)
	if err != nil {
		return Query{}, err
	}
	// Add the heaviest terms of each side to a copy of the query.
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
		sums, err := e.TokenSums(ctx, side == 1, chosen)
		if err != nil {
			return Query{}, err
		}
		for i, t := range best {
			square := codec.SquaredNorm(sums[i])
			if square == 0 || t.weight <= 0 {
				continue
			}
			codec.ScaleToUnit(sums[i], square)
			out.Vectors = append(out.Vectors, sums[i]...)
			out.Weights = append(out.Weights, float32(sideWeight*t.weight))
			if out.Mask != nil {
				out.Mask = append(out.Mask, true)
			}
		}
	}
	return out, nil
}

// weightTerms returns the centroids of docs with their weights, the heaviest first. total is the
// number of these documents, and frequencies has, for each of codes, how many of all live documents
// have it.
func weightTerms(docs map[uint32]int, total int, codes []uint32, frequencies []uint64, live int64) []term {
	rarest := math.Log(float64(live) + 1)
	var list []term
	for i, code := range codes {
		if n := docs[code]; n > 0 {
			rarity := max(math.Log((float64(live)+1)/(float64(frequencies[i])+1)), 0) / max(rarest, 1)
			list = append(list, term{code, float64(n) / float64(total) * rarity})
		}
	}
	slices.SortStableFunc(list, func(a, b term) int { return cmp.Compare(b.weight, a.weight) })
	return list
}

// centroidEvidence is the [Evidence] of an engine by centroids. The arrays have an entry for good
// and one for bad documents.
type centroidEvidence struct {
	c        *collection
	docs     [2][][]uint32 // ordinals by shard
	docCount [2]int
}

// newCentroidEvidence returns the evidence of good and bad documents.
func newCentroidEvidence(c *collection, good, bad []Location) *centroidEvidence {
	e := &centroidEvidence{c: c, docCount: [2]int{len(good), len(bad)}}
	for side, locations := range [][]Location{good, bad} {
		e.docs[side] = make([][]uint32, len(c.shards))
		for _, p := range locations {
			e.docs[side][p.Shard] = append(e.docs[side][p.Shard], p.Ordinal)
		}
	}
	return e
}

// feedbackSide returns the index of good or bad documents in the arrays of evidence.
func feedbackSide(bad bool) int {
	if bad {
		return 1
	}
	return 0
}

// visitShards calls visit for the shards that have good documents or, with bad, bad ones, with the
// number of tokens to read of each document.
func (e *centroidEvidence) visitShards(
	bad bool, visit func(snap *index.Snapshot, ordinals []uint32, tokens int) error,
) error {
	side := feedbackSide(bad)
	for i, ordinals := range e.docs[side] {
		if len(ordinals) == 0 {
			continue
		}
		if err := visit(e.c.shards[i].snap, ordinals, FeedbackTokensPerDocument(e.docCount[side])); err != nil {
			return err
		}
	}
	return nil
}

// TermCounts implements [Evidence].
func (e *centroidEvidence) TermCounts(ctx context.Context, bad bool) (docs map[uint32]int, total int, err error) {
	docs = map[uint32]int{}
	err = e.visitShards(bad, func(snap *index.Snapshot, ordinals []uint32, tokens int) error {
		n, err := CountByCentroid(ctx, snap, ordinals, tokens, docs)
		total += n
		return err
	})
	return docs, total, err
}

// TokenSums implements [Evidence].
func (e *centroidEvidence) TokenSums(ctx context.Context, bad bool, codes []uint32) ([][]float32, error) {
	dim := e.c.firstSnapshot().Dim()
	sums := slices.Collect(slices.Chunk(make([]float32, len(codes)*dim), dim))
	err := e.visitShards(bad, func(snap *index.Snapshot, ordinals []uint32, tokens int) error {
		return SumByCentroid(ctx, snap, ordinals, tokens, codes, sums)
	})
	return sums, err
}

// DocumentFrequencies implements [Evidence].
func (e *centroidEvidence) DocumentFrequencies(
	ctx context.Context, codes []uint32,
) (docs []uint64, live int64, err error) {
	docs = make([]uint64, len(codes))
	for i := range e.c.shards {
		if err := CentroidFrequencies(ctx, e.c.shards[i].snap, codes, docs); err != nil {
			return nil, 0, err
		}
	}
	live, _ = e.c.countLive()
	return docs, live, nil
}
