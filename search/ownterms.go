package search

import (
	"cmp"
	"context"
	"slices"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
)

// If a codec has too few centroids to tell documents apart, as before an index is trained, feedback
// makes terms of the tokens of the documents themselves. A token near a term counts as that term; a
// token near none becomes a new term. A document of the collection has a term if one of its tokens
// is near it.

// Limits of such terms.
const (
	fewCentroids  = 256     // from this many on, centroids are terms
	nearTerm      = 0.7     // the least cosine
	maxOwnTokens  = 1 << 11 // of all documents of a side together
	maxOwnTerms   = 1 << 10 // of both sides; tokens that are near none of them are passed over
	countedTokens = 1 << 16 // of the collection, about; of a larger one, a sample of documents is counted
	termsAtOnce   = 32
)

// evidence returns the evidence of documents: by centroids, if there are enough to tell documents
// apart.
func (c *collection) evidence(good, bad []Place) Evidence {
	k, tokens := c.codec().Centroids.K, uint64(0)
	if _, tokens = c.live(); k >= fewCentroids || uint64(k*k) >= tokens { // ColBERT's rule gives 16·√tokens
		return newEvidence(c, good, bad)
	}
	return &ownTerms{c: c, docs: [2][]Place{good, bad}}
}

// ownTerms is [Evidence] with numbers of terms in place of centroids: first the terms of good
// documents, then those that only bad ones have.
type ownTerms struct {
	c     *collection
	docs  [2][]Place
	terms []float32 // [n, dim], of unit length
	sums  [2][]float32
}

// Counts finds the terms of a side. It is called for the good side first.
func (e *ownTerms) Counts(ctx context.Context, bad bool) (docs map[uint32]int, of int, err error) {
	side := sideOf(bad)
	type named struct {
		Place
		id string
	}
	var places []named // in the same order however the documents are spread over files
	for _, p := range e.docs[side] {
		places = append(places, named{p, e.c.parts[p.Part].snap.ID(p.Ordinal)})
	}
	slices.SortFunc(places, func(a, b named) int { return cmp.Compare(a.id, b.id) })
	type has struct {
		code uint32
		of   DocumentKey
	}
	docs = map[uint32]int{}
	wholes, seen := map[DocumentKey]bool{}, map[has]bool{}
	dim := e.c.first().Dim()
	row, unit := make([]float32, dim), make([]float32, dim)
	most := max(maxOwnTokens/max(len(places), 1), 1)
	for _, p := range places {
		snap := e.c.parts[p.Part].snap
		key := DocumentKey{p.Part, snap.DocumentOf(p.Ordinal)}
		wholes[key] = true
		err = eachToken(ctx, snap, []uint32{p.Ordinal}, most, func(ch *kernels.Chunk, token int) {
			snap.Quantizer().DecodeTokens(row, ch, token, token+1)
			copy(unit, row)
			codec.Unit(unit, codec.Square(unit))
			code, ok := e.termOf(unit)
			if !ok {
				return
			}
			if need := (int(code) + 1) * dim; len(e.sums[side]) < need {
				e.sums[side] = append(e.sums[side], make([]float32, need-len(e.sums[side]))...)
			}
			for j, sum := 0, e.sums[side][int(code)*dim:]; j < dim; j++ {
				sum[j] += row[j]
			}
			if !seen[has{code, key}] {
				seen[has{code, key}] = true
				docs[code]++
			}
		})
		if err != nil {
			return nil, 0, err
		}
	}
	return docs, len(wholes), nil
}

// termOf returns the term nearest to a token of unit length, or a new one if it is near none.
func (e *ownTerms) termOf(unit []float32) (code uint32, ok bool) {
	best, dim := nearTerm, len(unit)
	for i := 0; i < len(e.terms); i += dim {
		dot := 0.
		for j, x := range e.terms[i : i+dim] {
			dot += float64(x) * float64(unit[j])
		}
		if dot >= best {
			best, code, ok = dot, uint32(i/dim), true
		}
	}
	if n := len(e.terms) / dim; !ok && n < maxOwnTerms && codec.Square(unit) > 0 {
		e.terms = append(e.terms, unit...)
		return uint32(n), true
	}
	return code, ok
}

// Sums implements [Evidence].
func (e *ownTerms) Sums(_ context.Context, bad bool, codes []uint32) ([][]float32, error) {
	dim := e.c.first().Dim()
	sums := make([][]float32, len(codes))
	for i, code := range codes {
		sums[i] = slices.Clone(e.sums[sideOf(bad)][int(code)*dim : (int(code)+1)*dim])
	}
	return sums, nil
}

// Frequencies implements [Evidence].
func (e *ownTerms) Frequencies(ctx context.Context, codes []uint32) (docs []uint64, live int64, err error) {
	docs = make([]uint64, len(codes))
	live, tokens := e.c.live()
	stride := uint32(tokens/countedTokens) + 1
	dim := e.c.first().Dim()
	query := e.c.first().Scorer().NewQuery()
	for lo := 0; lo < len(codes); lo += termsAtOnce {
		some := codes[lo:min(lo+termsAtOnce, len(codes))]
		var terms []float32
		for _, code := range some {
			terms = append(terms, e.terms[int(code)*dim:(int(code)+1)*dim]...)
		}
		if err := query.Reset(terms, nil); err != nil {
			return nil, 0, err
		}
		query.CentroidScores(0, e.c.codec().Centroids.K)
		query.Seal()
		for i := range e.c.parts {
			if err := countNear(ctx, &e.c.parts[i], query, stride, docs[lo:]); err != nil {
				return nil, 0, err
			}
		}
	}
	return docs, live, nil
}

// countNear adds to docs how many documents of a part have a token near each vector of a query. One
// of stride documents stands for all of them.
func countNear(ctx context.Context, p *part, query kernels.Query, stride uint32, docs []uint64) (err error) {
	defer storage.Guard(p.snap.Path(), &err)()
	maxima, single := make([]float64, query.Len()), make([]float64, query.Len())
	for ordinal := uint32(0); ordinal < p.snap.State().Docs; ordinal += stride {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !p.snap.Live(ordinal) {
			continue
		}
		chunk, doc, _ := p.snap.Locate(ordinal)
		ch, err := p.snap.Chunk(chunk, storage.All) // of which it reads many documents
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
			if float64(query.Total(single, kernels.Fast)) >= nearTerm {
				docs[i] += uint64(stride)
			}
			single[i] = 0
		}
	}
	return nil
}
