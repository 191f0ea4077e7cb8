package service

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"math"

	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/wire"
	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

// view is a collection, and what was known of it when the view was taken.
type view struct {
	c *shards
	d search.Description
}

var (
	_ collection.View      = (*view)(nil)
	_ collection.Explainer = (*view)(nil)
	_ collection.Faceter   = (*view)(nil)
	_ collection.Keywords  = (*view)(nil)
	_ collection.Measured  = (*view)(nil)
)

func (v *view) Close() error { return nil }

func (v *view) Dim() int { return v.d.Dim }

// Most is above the number of documents: what others are adding is not known here.
func (v *view) Most() int { return int(min(v.d.Docs, math.MaxInt32/2)) + 1<<16 }

// Describe asks the shards for what changes.
func (v *view) Describe(ctx context.Context) (search.Description, error) {
	st, err := v.c.Stats(ctx)
	d := v.d
	d.Docs, d.Tokens, d.Centroids = int64(st.Documents), st.Tokens, st.Centroids
	return d, err
}

// Filter leaves conditions to the nodes. Document ids are turned into names.
func (v *view) Filter(ctx context.Context, s collection.Selection) (*search.Filter, error) {
	if s.All() {
		return nil, nil
	}
	s, err := v.byName(ctx, s)
	return &search.Filter{AllowMissing: true, Where: s.Where, IDs: s.IDs}, err
}

// byName is a selection without document ids.
func (v *view) byName(ctx context.Context, s collection.Selection) (collection.Selection, error) {
	if s.Numbers == nil {
		return s, nil
	}
	named := map[string]bool{}
	for _, id := range s.IDs {
		named[id] = true
	}
	ids := []string{}
	for d, err := range v.c.Documents(ctx, collection.Selection{Numbers: s.Numbers}, collection.ReadOptions{Metadata: s.IDs != nil}) {
		if err != nil {
			return s, answered(err)
		}
		passage, err := vectors.PassageOf(d.ID, d.Payload)
		if s.IDs == nil || named[d.ID] || err == nil && passage != nil && named[passage.Of] {
			ids = append(ids, d.ID)
		}
	}
	return collection.Selection{IDs: ids, Where: s.Where}, nil
}

// Facets implements [collection.Faceter].
func (v *view) Facets(ctx context.Context, fields []condition.Field, s collection.Selection, o index.FacetOptions) ([]*index.Facet, error) {
	s, err := v.byName(ctx, s)
	if err != nil {
		return nil, err
	}
	all := make([]*index.Facet, len(fields))
	left := cmp.Or(o.Memory, index.DefaultFacetMemory)
	for i, f := range fields {
		o.Memory = max(left, 1) // 0 is the default
		if all[i], err = v.c.Facet(ctx, f, s, o); err != nil {
			return nil, answered(err)
		}
		left -= all[i].Bytes()
	}
	return all, nil
}

// Check finds what can be seen of a query without a node.
func (v *view) Check(q *search.Query) error {
	if q.Dim != 0 && q.Dim != v.d.Dim || len(q.Vectors) == 0 || len(q.Vectors)%v.d.Dim != 0 {
		return fmt.Errorf("%w: %d values of dimension %d; the collection has %d", search.ErrQuery, len(q.Vectors), q.Dim, v.d.Dim)
	}
	return v.d.Model.CheckQueries(q.Model)
}

// Explain implements [collection.Explainer].
func (v *view) Explain(ctx context.Context, q search.Query, id string, o search.Options) (*search.Explanation, error) {
	x, err := v.c.Explain(ctx, q, id, o)
	return x, answered(err)
}

// QueryTokens implements [collection.Explainer].
func (v *view) QueryTokens(ctx context.Context, q *search.Query) ([]float32, error) {
	if err := v.Check(q); err != nil {
		return nil, err
	}
	shards, err := v.c.Shards(ctx)
	if err != nil {
		return nil, answered(err)
	}
	var tokens []float32
	for t := range len(q.Vectors) / v.d.Dim {
		if q.Mask == nil || t < len(q.Mask) && q.Mask[t] {
			tokens = append(tokens, q.Vectors[t*v.d.Dim:(t+1)*v.d.Dim]...)
		}
	}
	if shards[0].Normalize {
		codec.Normalize(tokens, v.d.Dim)
	}
	return tokens, nil
}

func (v *view) Search(ctx context.Context, qs []search.Query, o search.Options) ([]search.Result, error) {
	r, err := v.c.SearchBatch(ctx, qs, o)
	return r, answered(err)
}

// SearchKeywords implements [collection.Keywords].
func (v *view) SearchKeywords(ctx context.Context, q collection.KeywordQuery) ([]search.Hit, error) {
	c, page := v.c.Config(), q.Page()
	if err := page.Check(); err != nil {
		return nil, err
	}
	q.K = page.End()
	if q.Passages == 0 {
		hits, err := v.c.SearchWords(ctx, q, *c.Keywords())
		return page.Hits(hits), answered(err)
	}
	q.Payload = true // which says what a passage is of
	rank := func(k int) ([]search.Hit, error) {
		q := q
		q.K = k
		return v.c.SearchWords(ctx, q, *c.Keywords())
	}
	of := func(h *search.Hit) (search.DocumentKey, bool) {
		if h.Passage, _ = vectors.PassageOf(h.ID, h.Payload); h.Passage != nil {
			return search.DocumentKey{Part: h.Part, ID: h.Passage.Of}, true
		}
		return search.DocumentKey{Part: h.Part, ID: h.ID}, true
	}
	hits, err := search.RankGroups(ctx, q.K, q.Passages, v.Most(), rank, of, func(h *search.Hit) (search.Hit, error) { return *h, nil })
	return page.Hits(hits), answered(err)
}

// Traced implements [collection.Measured]: what is changed meanwhile counts.
func (v *view) Traced() collection.Traced { return v.c.Client }

// MetadataOf came with the hit.
func (v *view) MetadataOf(h *search.Hit) (json.RawMessage, error) {
	return json.RawMessage(h.Payload), nil
}

func (v *view) Documents(ctx context.Context, s collection.Selection, o collection.ReadOptions) iter.Seq2[collection.Stored, error] {
	return func(yield func(collection.Stored, error) bool) {
		for d, err := range v.c.Documents(ctx, s, o) {
			out := collection.Stored{Number: d.Number(), ID: d.ID, Metadata: d.Payload, Vectors: d.Vectors}
			if of, n := vectors.SplitPassageID(d.ID); n >= 0 { // nodes do not say what is a passage
				out.Of, out.Passage = of, n
			}
			if !yield(out, answered(err)) || err != nil {
				return
			}
		}
	}
}

// named gives names to documents that have none. What it returns is a source, the receipt,
// which place fills in, and which rows are documents or the first passages of documents.
func named(docs []collection.Document, dim int) (src vectors.Source, r collection.Receipt, firsts []int, place func(id string, shard int, ordinal uint32), err error) {
	r = collection.Receipt{Numbers: make([]uint64, len(docs)), IDs: make([]string, len(docs))}
	at := make(map[string]int, len(docs))
	all := make([]vectors.Document, len(docs))
	before := ""
	for i, d := range docs {
		if d.ID == "" {
			d.ID = wire.NewID().String()
		}
		r.IDs[i], at[d.ID] = d.ID, i
		all[i] = vectors.Document{ID: d.ID, Tokens: d.Vectors, Payload: d.Metadata}
		passage, err := vectors.PassageOf(d.ID, d.Metadata)
		switch {
		case err != nil:
			return nil, r, nil, nil, &collection.DocumentError{Document: i, ID: d.ID, Token: -1, Err: err}
		case passage == nil:
			before = ""
		case passage.Of == before:
			r.Stored.Passages++
			continue
		default:
			r.Stored.Passages++
			before = passage.Of
		}
		r.Stored.Documents++
		firsts = append(firsts, i)
	}
	src, err = vectors.FromDocuments(dim, all)
	return src, r, firsts, func(id string, shard int, ordinal uint32) {
		r.Numbers[at[id]] = client.Place{Shard: shard, Ordinal: ordinal}.Number()
	}, err
}
