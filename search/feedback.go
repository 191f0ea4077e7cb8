package search

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/storage"
)

// Feedback adds to a query what documents have that are taken for good ones, as in
// ColBERT-PRF (Wang et al., ICTIR 2021), by what the index has: centroids stand for words.
// Every centroid of these documents gets a weight: the share of the documents that have a
// token with it, times how rare it is among all documents. The heaviest become further
// query tokens, each the mean of its tokens in these documents. It costs one search more.
//
// In JSON it is {"docs": 3, "like": ["a"], "unlike": ["b"]}, without what is not there.
type Feedback struct {
	// Docs is how many of the best documents are taken for good; 0: none.
	Docs int `json:"docs,omitempty"`
	// Like and Unlike are ids of documents that somebody has said to be good, and to be
	// bad: what only those have counts against others.
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
	usualWeight                       = 0.5
	unlikeShare                       = 0.5 // of the weight, for what is not wanted
)

// Check finds what is wrong with it ([ErrOption]), whatever is searched.
func (f *Feedback) Check() error {
	switch {
	case f == nil:
		return nil
	case f.Docs < 0 || f.Terms < 0 || f.Docs+len(f.Like)+len(f.Unlike) > maxFeedbackDocs || f.Terms > maxFeedbackTerms:
		return fmt.Errorf("%w: feedback of %d documents and %d terms; at most %d and %d are possible", ErrOption,
			f.Docs+len(f.Like)+len(f.Unlike), f.Terms, maxFeedbackDocs, maxFeedbackTerms)
	case f.Docs+len(f.Like)+len(f.Unlike) == 0:
		return fmt.Errorf("%w: feedback of no document", ErrOption)
	case !(f.Weight >= 0 && f.Weight <= maxMagnitude):
		return fmt.Errorf("%w: feedback of weight %v", ErrOption, f.Weight)
	}
	return nil
}

// withFeedback answers queries that feedback has added to.
func (c *core) withFeedback(ctx context.Context, all *collection, qs []Query, o *Options) ([]Result, error) {
	f := *o.Feedback
	f.Terms, f.Weight = cmp.Or(f.Terms, UsualFeedbackTerms), cmp.Or(f.Weight, usualWeight)
	liked, err := namedDocs(ctx, all, "like", f.Like)
	if err != nil {
		return nil, err
	}
	unliked, err := namedDocs(ctx, all, "unlike", f.Unlike)
	if err != nil {
		return nil, err
	}
	before := make([]Result, len(qs))
	if f.Docs > 0 {
		first := Options{K: f.Docs, Mode: o.Mode, Probes: o.Probes, Approx: o.Approx, Exact: o.Exact, Derive: o.Derive, Filter: o.Filter, Candidates: o.Candidates, AllowMissing: o.AllowMissing}
		if before, err = c.answer(ctx, all, qs, &first); err != nil {
			return nil, err
		}
	}
	more := make([]Query, len(qs))
	for i := range qs {
		if _, err := qs[i].size(all); err != nil {
			return nil, &QueryError{i, err}
		}
		docs := slices.Clone(liked)
		for _, h := range before[i].Hits {
			docs = append(docs, located{part: &all.parts[h.Part], ordinal: h.Ordinal})
		}
		if more[i], err = f.expand(ctx, all, &qs[i], docs, unliked); err != nil {
			return nil, err
		}
	}
	rest := *o
	rest.Feedback = nil
	results, err := c.answer(ctx, all, more, &rest)
	if err != nil {
		return nil, err
	}
	for i := range results {
		total := before[i].Stats
		total.Add(results[i].Stats)
		total.Queries = results[i].Stats.Queries
		if f.Docs > 0 {
			results[i].Stats = total
		}
	}
	return results, nil
}

// namedDocs are the documents of ids, with their passages.
func namedDocs(ctx context.Context, c *collection, what string, ids []string) (docs []located, err error) {
	a, err := include(ctx, c, what, ids, false)
	if err != nil {
		return nil, err
	}
	for i, s := range a.parts {
		for _, o := range s.docs(nil) {
			docs = append(docs, located{part: &c.parts[i], ordinal: o})
		}
	}
	return docs, nil
}

// term is a centroid of documents.
type term struct {
	code   uint32
	docs   int       // of them that have a token with it
	sum    []float32 // of these tokens
	weight float64
}

// expand is a query with the tokens that feedback adds.
func (f *Feedback) expand(ctx context.Context, c *collection, q *Query, good, bad []located) (Query, error) {
	wanted, err := c.terms(ctx, good)
	if err != nil {
		return Query{}, err
	}
	against, err := c.terms(ctx, bad)
	if err != nil {
		return Query{}, err
	}
	for code := range wanted {
		delete(against, code)
	}
	out, dim := *q, c.first().Dim()
	n := len(q.Vectors) / dim
	out.Vectors, out.Weights, out.Mask = slices.Clone(q.Vectors), slices.Clone(q.Weights), slices.Clone(q.Mask)
	if out.Weights == nil {
		out.Weights = slices.Repeat([]float32{1}, n)
	}
	for _, side := range []struct {
		terms  map[uint32]*term
		of     int
		weight float64
	}{{wanted, len(good), f.Weight}, {against, len(bad), -f.Weight * unlikeShare}} {
		best, err := c.weigh(ctx, side.terms, side.of)
		if err != nil {
			return Query{}, err
		}
		for _, t := range best[:min(len(best), f.Terms)] {
			square := codec.Square(t.sum)
			if square == 0 || t.weight <= 0 {
				continue
			}
			codec.Unit(t.sum, square)
			out.Vectors = append(out.Vectors, t.sum...)
			out.Weights = append(out.Weights, float32(side.weight*t.weight))
			if out.Mask != nil {
				out.Mask = append(out.Mask, true)
			}
		}
	}
	return out, nil
}

// terms are the centroids of documents.
func (c *collection) terms(ctx context.Context, docs []located) (terms map[uint32]*term, err error) {
	terms = map[uint32]*term{}
	dim := c.first().Dim()
	each := maxFeedbackTokens / max(len(docs), 1) // tokens of a document that count
	for _, d := range docs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := d.addTerms(terms, dim, each); err != nil {
			return nil, err
		}
	}
	return terms, nil
}

func (d *located) addTerms(terms map[uint32]*term, dim, most int) (err error) {
	snap := d.part.snap
	defer storage.Guard(snap.Path(), &err)()
	chunk, doc, _ := snap.Locate(d.ordinal)
	ch, err := snap.Chunk(chunk, storage.All)
	if err != nil {
		return err
	}
	lo, hi := int(ch.Offsets[doc]), int(ch.Offsets[doc+1])
	row := make([]float32, dim)
	seen := map[uint32]bool{}
	for token := lo; token < min(hi, lo+most); token++ {
		code := ch.Code(token)
		t := terms[code]
		if t == nil {
			t = &term{code: code, sum: make([]float32, dim)}
			terms[code] = t
		}
		if !seen[code] {
			seen[code] = true
			t.docs++
		}
		snap.Quantizer().DecodeTokens(row, ch, token, token+1)
		for j, x := range row {
			t.sum[j] += x
		}
	}
	return nil
}

// weigh orders terms of so many documents by their weights, the heaviest first.
func (c *collection) weigh(ctx context.Context, terms map[uint32]*term, docs int) ([]*term, error) {
	all, _ := c.live()
	rarest := math.Log(float64(all) + 1)
	list := make([]*term, 0, len(terms))
	for i, code := range slices.Sorted(maps.Keys(terms)) {
		if i%256 == 255 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		t := terms[code]
		have := uint64(0)
		for p := range c.parts {
			n, err := documentsOf(&c.parts[p], code)
			if err != nil {
				return nil, err
			}
			have += n
		}
		t.weight = float64(t.docs) / float64(docs) * max(math.Log((float64(all)+1)/(float64(have)+1)), 0) / max(rarest, 1)
		list = append(list, t)
	}
	slices.SortStableFunc(list, func(a, b *term) int { return cmp.Compare(b.weight, a.weight) })
	return list, nil
}

// documentsOf is how many documents of a part have a token with a centroid, those that
// were deleted included.
func documentsOf(p *part, code uint32) (n uint64, err error) {
	defer storage.Guard(p.snap.Path(), &err)()
	for seg := range p.snap.Segments() {
		list, err := p.snap.Postings(seg, code)
		if err != nil {
			return 0, err
		}
		if len(list) == 0 {
			continue
		}
		docs := roaring.New()
		if _, err := docs.FromBuffer(list); err != nil {
			return 0, badList(p.snap, code, err)
		}
		n += docs.GetCardinality()
	}
	return n, nil
}
