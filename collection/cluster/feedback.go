package cluster

import (
	"context"
	"fmt"
	"slices"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/search"
)

// evidenceRequest asks for one kind of evidence. Which one depends on the fields that are set:
//
//   - Named: the locations of the documents with these ids
//   - Documents and Rows: the tokens of the documents
//   - Documents alone: their centroids, and in how many of them each centroid is
//   - Documents and Centroids: the sums of their tokens with these centroids
//   - Terms, or Centroids alone: in how many documents of the shard each of them is
type evidenceRequest struct {
	Named     []string          `json:"named,omitzero"`
	Documents []search.Location `json:"documents,omitzero"` // may be of any shard
	Rows      bool              `json:"rows,omitempty"`
	Centroids []uint32          `json:"centroids,omitzero"`
	Terms     floats            `json:"terms,omitzero"`
	Tokens    uint64            `json:"tokens,omitempty"` // number of tokens of the collection
}

type evidenceAnswer struct {
	answerHead
	Locations []search.Location `json:"places,omitzero"`
	Missing   []string          `json:"missing,omitzero"` // ids without a document
	Rows      []wireRows        `json:"rows,omitzero"`
	Centroids map[uint32]int    `json:"centroids,omitzero"` // in how many documents each is
	Counted   int               `json:"of,omitempty"`       // counted documents; one of passages counts once
	Counts    []uint64          `json:"counts,omitzero"`    // of the centroids or terms of the request
	Sums      floats            `json:"sums,omitzero"`      // [centroids, dimension]
}

// wireRows are the first tokens of a document.
type wireRows struct {
	search.TermDocument
	Tokens floats
}

// doEvidence reads the evidence of shards for feedback.
func (c *Cluster) doEvidence(ctx context.Context, target *shardTarget,
	in *evidenceRequest) (*answers[evidenceAnswer], error) {
	named := newSplitSelection(&collection.Selection{IDs: in.Named}, target.ShardCount)
	return eachShard(ctx, c, target, func(h *openShard, out *evidenceAnswer) (err error) {
		snap, shard := h.snapshot.Snapshot(), h.Shard
		for _, code := range in.Centroids {
			if int64(code) >= int64(snap.Header().Centroids) {
				return fmt.Errorf("%w: centroid %d of %d", errMessage, code, snap.Header().Centroids)
			}
		}
		// Documents that were deleted since they were found do not count.
		var live []uint32
		for _, p := range in.Documents {
			if p.Shard == shard && p.Ordinal < snap.State().Docs && snap.Live(p.Ordinal) {
				live = append(live, p.Ordinal)
			}
		}
		docs := len(in.Documents)
		switch {
		case in.Named != nil:
			docs, missing, err := snap.OrdinalsOfIDs(ctx, named.forShards(shard).IDs)
			if err != nil {
				return err
			}
			// Documents without tokens are left out, since no search finds them. withTokens has a bit for each
			// document. It is nil if all have tokens.
			withTokens, _ := snap.LiveSet()
			for it := docs.Iterator(); it.HasNext(); {
				if o := it.Next(); withTokens == nil || withTokens[o/64]>>(o%64)&1 == 1 {
					out.Locations = append(out.Locations, search.Location{Shard: shard, Ordinal: o})
				}
			}
			out.Missing = missing
		case in.Rows:
			for _, o := range live {
				d, err := search.ReadTerms(ctx, snap, shard, o, docs)
				if err != nil {
					return err
				}
				out.Rows = append(out.Rows, wireRows{d, d.Tokens})
			}
		case in.Documents != nil && in.Centroids == nil:
			out.Centroids = map[uint32]int{}
			perDocument := search.FeedbackTokensPerDocument(docs)
			out.Counted, err = search.CountByCentroid(ctx, snap, live, perDocument, out.Centroids)
			return err
		case in.Documents != nil:
			out.Sums = make(floats, len(in.Centroids)*snap.Dim())
			var rows [][]float32
			for row := range slices.Chunk(out.Sums, snap.Dim()) {
				rows = append(rows, row)
			}
			return search.SumByCentroid(ctx, snap, live, search.FeedbackTokensPerDocument(docs), in.Centroids, rows)
		case in.Terms != nil:
			if len(in.Terms)%snap.Dim() != 0 {
				return fmt.Errorf("%w: %d values of dimension %d", errMessage, len(in.Terms), snap.Dim())
			}
			out.Counts = make([]uint64, len(in.Terms)/snap.Dim())
			return search.TermFrequencies(ctx, snap, in.Terms, in.Tokens, out.Counts)
		default:
			out.Counts = make([]uint64, len(in.Centroids))
			return search.CentroidFrequencies(ctx, snap, in.Centroids, out.Counts)
		}
		return nil
	})
}

// withFeedback answers a query with feedback, as an engine does. All shards have one codec, so that their evidence can
// be added up.
func (v *shardedSnapshot) withFeedback(ctx context.Context, q search.Query, o search.Options) (*search.Result, error) {
	f := o.Feedback
	if err := v.Check(&q); err != nil {
		return nil, err
	}
	// searchOnce searches without feedback.
	o.Feedback = nil
	searchOnce := func(q search.Query) (*search.Result, error) {
		r, err := v.searchChunk(ctx, []search.Query{q}, o)
		if err != nil {
			return nil, err
		}
		return &r[0], nil
	}
	if v.dim == 0 {
		return searchOnce(q)
	}
	// Find the good and the bad documents: those that are named, and the best of a first search.
	d, err := v.Describe(ctx)
	if err != nil {
		return nil, err
	}
	e := &evidence{v: v, tokens: d.Tokens}
	liked, err := e.findNamed(ctx, "like", f.Like)
	if err != nil {
		return nil, err
	}
	unliked, err := e.findNamed(ctx, "unlike", f.Unlike)
	if err != nil {
		return nil, err
	}
	var first []search.Result
	var ranked []search.Hit
	if f.Docs > 0 {
		if first, err = v.searchFromBest(ctx, []search.Query{q}, f.FirstSearch(o)); err != nil {
			return nil, err
		}
		ranked = first[0].Hits
	}
	good, err := f.RelevantDocuments(liked, unliked, ranked)
	if err != nil {
		return nil, err
	}
	e.good, e.bad = good, unliked
	// Add terms to the query.
	var source search.Evidence = e
	if search.UsesOwnTerms(d.Centroids, d.Tokens) {
		source = &ownTermsEvidence{search.OwnTerms{Dim: v.dim}, e}
	}
	expanded, err := f.Expand(ctx, &q, v.dim, source)
	if err != nil {
		return nil, err
	}
	cut := search.TrimFeedback(&expanded, v.dim, len(q.Vectors), d.Centroids)
	// Search again. The statistics count both searches.
	r, err := searchOnce(expanded)
	if err != nil {
		return nil, err
	}
	r.Stats.FeedbackCut = cut
	if first != nil {
		total := first[0].Stats
		total.Add(r.Stats)
		total.Queries = r.Stats.Queries
		r.Stats = total
	}
	return r, nil
}

// evidence reads the evidence of good and bad documents from the shards.
type evidence struct {
	v         *shardedSnapshot
	good, bad []search.Location
	tokens    uint64 // of the collection
}

// askShards asks some shards for evidence.
func (e *evidence) askShards(ctx context.Context, selectShards func(*Map) []int,
	in evidenceRequest) (map[int]*evidenceAnswer, error) {
	_, answered, err := readAllShards[evidenceAnswer](ctx, e.v.coll, "evidence", selectShards, &in)
	return answered, err
}

// askAboutExamples asks the shards that have the good documents, or the bad ones, about them.
func (e *evidence) askAboutExamples(ctx context.Context, bad bool,
	in evidenceRequest) (map[int]*evidenceAnswer, error) {
	examples := e.good
	if bad {
		examples = e.bad
	}
	in.Documents = examples
	shards := map[int]bool{}
	for _, p := range examples {
		shards[p.Shard] = true
	}
	return e.askShards(ctx, func(*Map) []int { return sortedKeys(shards) }, in)
}

// findNamed returns the locations of documents with ids. The error is [search.ErrUnknownID] if an id has no document;
// option is the name of the option, for messages.
func (e *evidence) findNamed(ctx context.Context, option string,
	ids []string) (locations []search.Location, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	answered, err := e.askShards(ctx, shardsOf(collection.Selection{IDs: ids}), evidenceRequest{Named: ids})
	if err != nil {
		return nil, err
	}
	named := newSplitSelection(&collection.Selection{IDs: ids}, e.v.m.Shards)
	for _, shard := range sortedKeys(answered) {
		f := answered[shard]
		if f.Docs == 0 {
			f.Missing = named.forShards(shard).IDs
		}
		if len(f.Missing) > 0 {
			return nil, fmt.Errorf("%s: %w: %.100q", option, search.ErrUnknownID, f.Missing[0])
		}
		for _, p := range f.Locations {
			if p.Shard != shard {
				return nil, fmt.Errorf("shard %d: %w: a document of shard %d", shard, errMessage, p.Shard)
			}
			locations = append(locations, p)
		}
	}
	return locations, nil
}

// TermCounts implements [search.Evidence].
func (e *evidence) TermCounts(ctx context.Context, bad bool) (docs map[uint32]int, counted int, err error) {
	answered, err := e.askAboutExamples(ctx, bad, evidenceRequest{})
	docs = map[uint32]int{}
	for _, f := range answered {
		for code, n := range f.Centroids {
			docs[code] += n
		}
		counted += f.Counted
	}
	return docs, counted, err
}

// TokenSums implements [search.Evidence]. It adds shard by shard, in their order, so that the result is reproducible.
func (e *evidence) TokenSums(ctx context.Context, bad bool, codes []uint32) ([][]float32, error) {
	answered, err := e.askAboutExamples(ctx, bad, evidenceRequest{Centroids: codes})
	sums := make([]float32, e.v.dim*len(codes))
	for _, shard := range sortedKeys(answered) {
		shardSums := answered[shard].Sums
		if len(shardSums) != len(sums) && (len(shardSums) > 0 || answered[shard].Docs > 0) {
			return nil, fmt.Errorf("shard %d: %w: sums of %d values", shard, errMessage, len(shardSums))
		}
		for i, x := range shardSums {
			sums[i] += x
		}
	}
	return slices.Collect(slices.Chunk(sums, e.v.dim)), err
}

// frequencies adds up the counts of n terms or centroids in all shards.
func (e *evidence) frequencies(ctx context.Context, n int, in evidenceRequest) (docs []uint64, live int64, err error) {
	docs = make([]uint64, n)
	if n == 0 {
		return docs, 0, nil
	}
	answered, err := e.askShards(ctx, allShards, in)
	for shard, f := range answered {
		if len(f.Counts) != n && (len(f.Counts) > 0 || f.Docs > 0) {
			return nil, 0, fmt.Errorf("shard %d: %w: %d of %d terms", shard, errMessage, len(f.Counts), n)
		}
		for i, count := range f.Counts {
			docs[i] += count
		}
		live += int64(f.Docs)
	}
	return docs, live, err
}

// DocumentFrequencies implements [search.Evidence].
func (e *evidence) DocumentFrequencies(ctx context.Context, codes []uint32) (docs []uint64, live int64, err error) {
	return e.frequencies(ctx, len(codes), evidenceRequest{Centroids: codes})
}

// ownTermsEvidence uses numbers of the query's own terms instead of centroids.
type ownTermsEvidence struct {
	search.OwnTerms
	*evidence
}

// TermCounts implements [search.Evidence].
func (e *ownTermsEvidence) TermCounts(ctx context.Context, bad bool) (docs map[uint32]int, counted int, err error) {
	answered, err := e.askAboutExamples(ctx, bad, evidenceRequest{Rows: true})
	if err != nil {
		return nil, 0, err
	}
	var documents []search.TermDocument
	for shard, f := range answered {
		for _, r := range f.Rows {
			if len(r.Tokens)%e.Dim != 0 {
				return nil, 0, fmt.Errorf("shard %d: %w: %d values", shard, errMessage, len(r.Tokens))
			}
			r.TermDocument.Tokens = r.Tokens
			documents = append(documents, r.TermDocument)
		}
	}
	docs, counted = e.CountTerms(bad, documents)
	return docs, counted, nil
}

// TokenSums implements [search.Evidence].
func (e *ownTermsEvidence) TokenSums(ctx context.Context, bad bool, codes []uint32) ([][]float32, error) {
	return e.OwnTerms.TokenSums(ctx, bad, codes)
}

// DocumentFrequencies implements [search.Evidence].
func (e *ownTermsEvidence) DocumentFrequencies(ctx context.Context,
	codes []uint32) (docs []uint64, live int64, err error) {
	return e.frequencies(ctx, len(codes), evidenceRequest{Terms: e.TermVectors(codes), Tokens: e.tokens})
}
