package search

import (
	"cmp"
	"context"
	"slices"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
)

// If a codec has too few centroids to tell documents apart, as before an index is trained, feedback
// derives terms from the tokens of the documents themselves. A token near a term counts as that
// term; a token that is near none becomes a new term. A document of the collection has a term if one
// of its tokens is near it.

// Limits of such terms.
const (
	fewCentroids  = 256     // from this many on, centroids serve as terms
	nearTerm      = 0.7     // minimum cosine
	maxOwnTokens  = 1 << 11 // of all documents of a side
	maxOwnTerms   = 1 << 10 // of both sides; further tokens that are near none are skipped
	countedTokens = 1 << 16 // about; in a larger collection a sample of documents is counted
	termsAtOnce   = 32
)

// UsesOwnTerms reports whether feedback derives terms from tokens, in a collection with this many
// tokens whose codec has this many centroids.
func UsesOwnTerms(centroids int, tokens uint64) bool {
	return centroids < fewCentroids && uint64(centroids*centroids) < tokens // ColBERT's rule gives 16·√tokens
}

// feedbackEvidence returns the evidence of documents: by centroids, if there are enough to tell
// documents apart.
func (c *collection) feedbackEvidence(good, bad []Location) Evidence {
	if _, tokens := c.countLive(); !UsesOwnTerms(c.sharedCodec().Centroids.K, tokens) {
		return newCentroidEvidence(c, good, bad)
	}
	return &tokenEvidence{OwnTerms: OwnTerms{Dim: c.firstSnapshot().Dim()}, c: c, docs: [2][]Location{good, bad}}
}

// OwnTerms numbers the terms of documents: first those of good documents, then those that only bad
// ones have. It implements the part of [Evidence] that the tokens of these documents determine.
type OwnTerms struct {
	Dim   int       // of vectors
	terms []float32 // [n, dim], of unit length
	sums  [2][]float32
}

// TermDocument is a document or a passage that feedback reads.
type TermDocument struct {
	ID     string
	Of     DocumentKey // the document that it belongs to
	Tokens []float32   // its first tokens, decoded
}

// ReadTerms reads a document for feedback. sideDocs is the number of good documents, or of bad ones,
// whichever the document is: they share a budget of tokens.
func ReadTerms(
	ctx context.Context, snap *index.Snapshot, shard int, ordinal uint32, sideDocs int,
) (d TermDocument, err error) {
	d = TermDocument{ID: snap.ID(ordinal), Of: DocumentKey{shard, snap.DocumentOf(ordinal)}}
	row := make([]float32, snap.Dim())
	maxTokens := max(maxOwnTokens/max(sideDocs, 1), 1)
	err = visitTokens(ctx, snap, []uint32{ordinal}, maxTokens, func(ch *kernels.Chunk, token int) {
		snap.Quantizer().DecodeTokens(row, ch, token, token+1)
		d.Tokens = append(d.Tokens, row...)
	})
	return d, err
}

// CountTerms returns how many of the good or of the bad documents have each term, and the number of
// these documents, as [Evidence] counts them. Call it for the good ones first.
func (t *OwnTerms) CountTerms(bad bool, termDocs []TermDocument) (docs map[uint32]int, total int) {
	side, dim := feedbackSide(bad), t.Dim
	// The order must not depend on how documents are spread over shards.
	slices.SortFunc(termDocs, func(a, b TermDocument) int { return cmp.Compare(a.ID, b.ID) })
	type termInDocument struct {
		code     uint32
		document DocumentKey
	}
	docs = map[uint32]int{}
	documents, seen := map[DocumentKey]bool{}, map[termInDocument]bool{}
	unit := make([]float32, dim)
	for _, d := range termDocs {
		documents[d.Of] = true
		for row := range slices.Chunk(d.Tokens, dim) {
			copy(unit, row)
			codec.ScaleToUnit(unit, codec.SquaredNorm(unit))
			code, ok := t.nearestTerm(unit)
			if !ok {
				continue
			}
			if need := (int(code) + 1) * dim; len(t.sums[side]) < need {
				t.sums[side] = append(t.sums[side], make([]float32, need-len(t.sums[side]))...)
			}
			for j, sum := 0, t.sums[side][int(code)*dim:]; j < dim; j++ {
				sum[j] += row[j]
			}
			if key := (termInDocument{code, d.Of}); !seen[key] {
				seen[key] = true
				docs[code]++
			}
		}
	}
	return docs, len(documents)
}

// nearestTerm returns the term nearest to a token of unit length, or a new one if none is near. ok is
// false if there are too many terms.
func (t *OwnTerms) nearestTerm(unit []float32) (code uint32, ok bool) {
	best, dim := nearTerm, len(unit)
	for i := 0; i < len(t.terms); i += dim {
		dot := 0.
		for j, x := range t.terms[i : i+dim] {
			dot += float64(x) * float64(unit[j])
		}
		if dot >= best {
			best, code, ok = dot, uint32(i/dim), true
		}
	}
	if n := len(t.terms) / dim; !ok && n < maxOwnTerms && codec.SquaredNorm(unit) > 0 {
		t.terms = append(t.terms, unit...)
		return uint32(n), true
	}
	return code, ok
}

// TokenSums implements [Evidence].
func (t *OwnTerms) TokenSums(_ context.Context, bad bool, codes []uint32) ([][]float32, error) {
	sums := make([][]float32, len(codes))
	for i, code := range codes {
		sums[i] = slices.Clone(t.sums[feedbackSide(bad)][int(code)*t.Dim : (int(code)+1)*t.Dim])
	}
	return sums, nil
}

// TermVectors returns the vectors of terms.
func (t *OwnTerms) TermVectors(codes []uint32) (terms []float32) {
	for _, code := range codes {
		terms = append(terms, t.terms[int(code)*t.Dim:(int(code)+1)*t.Dim]...)
	}
	return terms
}

// TermFrequencies adds to docs how many documents of a snapshot have each term. The whole
// collection has this many tokens; if that is large, a sample is counted.
func TermFrequencies(ctx context.Context, snap *index.Snapshot, terms []float32, tokens uint64, docs []uint64) error {
	dim, stride := snap.Dim(), uint32(tokens/countedTokens)+1
	query := snap.Scorer().NewQuery()
	for lo := 0; lo*dim < len(terms); lo += termsAtOnce {
		if err := query.Reset(terms[lo*dim:min((lo+termsAtOnce)*dim, len(terms))], nil); err != nil {
			return err
		}
		query.CentroidScores(0, snap.Codec().Centroids.K)
		query.Seal()
		if err := countDocumentsNear(ctx, snap, query, stride, docs[lo:]); err != nil {
			return err
		}
	}
	return nil
}

// tokenEvidence is the [Evidence] of an engine by its own terms.
type tokenEvidence struct {
	OwnTerms
	c    *collection
	docs [2][]Location
}

// TermCounts implements [Evidence]. Call it for the good documents first.
func (e *tokenEvidence) TermCounts(ctx context.Context, bad bool) (docs map[uint32]int, total int, err error) {
	locations := e.docs[feedbackSide(bad)]
	documents := make([]TermDocument, len(locations))
	for i, p := range locations {
		snap := e.c.shards[p.Shard].snap
		if documents[i], err = ReadTerms(ctx, snap, p.Shard, p.Ordinal, len(locations)); err != nil {
			return nil, 0, err
		}
	}
	docs, total = e.CountTerms(bad, documents)
	return docs, total, nil
}

// DocumentFrequencies implements [Evidence].
func (e *tokenEvidence) DocumentFrequencies(
	ctx context.Context, codes []uint32,
) (docs []uint64, live int64, err error) {
	docs = make([]uint64, len(codes))
	live, tokens := e.c.countLive()
	for i := range e.c.shards {
		if err := TermFrequencies(ctx, e.c.shards[i].snap, e.TermVectors(codes), tokens, docs); err != nil {
			return nil, 0, err
		}
	}
	return docs, live, nil
}

// countDocumentsNear adds to docs how many documents of an index have a token near each vector of a
// query. It reads one of stride documents, and counts it stride times.
func countDocumentsNear(
	ctx context.Context, snap *index.Snapshot, query kernels.Query, stride uint32, docs []uint64,
) (err error) {
	defer storage.Guard(snap.Path(), &err)()
	maxima := make([]float64, query.Len())
	single := make([]float64, query.Len()) // one maximum and zeros: its total score is that of one vector
	for ordinal := uint32(0); ordinal < snap.State().Docs; ordinal += stride {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !snap.Live(ordinal) {
			continue
		}
		chunk, doc, _ := snap.Locate(ordinal)
		ch, err := snap.ChunkFor(chunk, storage.All, uint32(doc))
		if err != nil {
			return err
		}
		lo, hi := int(ch.Offsets[doc]), int(ch.Offsets[doc+1])
		if lo == hi {
			continue
		}
		query.Maxima(maxima, ch, lo, hi, kernels.Fast)
		for i, x := range maxima {
			single[i] = x
			if float64(query.TotalScore(single, kernels.Fast)) >= nearTerm {
				docs[i] += uint64(stride)
			}
			single[i] = 0
		}
	}
	return nil
}
