package service

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/wire"
	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/server"
	"github.com/plaid-ir/plaid/server/store"
	"github.com/plaid-ir/plaid/vectors"
)

// view is a collection, and what was known of it when the view was taken.
type view struct {
	c *collection
	d search.Description
}

var (
	_ server.View      = (*view)(nil)
	_ server.Explainer = (*view)(nil)
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
func (v *view) Filter(ctx context.Context, r server.Restriction) (*search.Filter, error) {
	f := &search.Filter{AllowMissing: true}
	if r.Condition != "" {
		var err error
		if f.Where, err = store.Bind(r.Condition, r.Params); err != nil {
			return nil, err
		}
	}
	if r.Documents != nil {
		var err error
		if f.IDs, _, err = v.c.names(ctx, r.Documents); err != nil {
			return nil, err
		}
	}
	switch {
	case r.IDs == nil:
	case f.IDs == nil:
		f.IDs = r.IDs
	default:
		named := map[string]bool{}
		for _, id := range r.IDs {
			named[id] = true
		}
		f.IDs = slices.DeleteFunc(f.IDs, func(id string) bool { return !named[id] })
	}
	if f.IDs == nil && f.Where == nil {
		return nil, nil
	}
	return f, nil
}

// Check finds what can be seen of a query without a node.
func (v *view) Check(q *search.Query) error {
	if q.Dim != 0 && q.Dim != v.d.Dim || len(q.Vectors) == 0 || len(q.Vectors)%v.d.Dim != 0 {
		return fmt.Errorf("%w: %d values of dimension %d; the collection has %d", search.ErrQuery, len(q.Vectors), q.Dim, v.d.Dim)
	}
	return v.d.Model.Check(q.Model)
}

// Explain implements [server.Explainer].
func (v *view) Explain(ctx context.Context, q search.Query, id string, o search.Options) (*search.Explanation, error) {
	x, err := v.c.Explain(ctx, q, id, o)
	return x, answered(err)
}

// Tokens implements [server.Explainer].
func (v *view) Tokens(ctx context.Context, q *search.Query) ([]float32, error) {
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

// Metadata came with the hit.
func (v *view) Metadata(h *search.Hit) (json.RawMessage, error) {
	return json.RawMessage(h.Payload), nil
}

func (v *view) Documents(ctx context.Context, o server.Wanted) iter.Seq2[server.Document, error] {
	return func(yield func(server.Document, error) bool) {
		w := client.Wanted{Limit: o.Limit, Payload: o.Metadata, Vectors: o.Vectors}
		if c := o.Chosen; c != nil {
			var err error
			switch {
			case c.Condition != "":
				w.Where, err = store.Bind(c.Condition, c.Params)
			case c.Ordinals != nil:
				w.Places = places(c.Ordinals)
			default:
				w.IDs = append([]string{}, c.IDs...)
			}
			if err != nil {
				yield(server.Document{}, err)
				return
			}
		}
		for d, err := range v.c.Documents(ctx, w) {
			out := server.Document{Document: number(d.Place), ID: d.ID, Metadata: d.Payload, Vectors: d.Vectors}
			if !yield(out, answered(err)) || err != nil {
				return
			}
		}
	}
}

// number is the document id of a place; places is the inverse.
func number(p client.Place) uint64 {
	return server.DocumentID(&search.Hit{Part: p.Shard, Ordinal: p.Ordinal})
}

func places(documents []uint64) []client.Place {
	all := make([]client.Place, 0, len(documents))
	for _, d := range documents {
		if shard := d >> 32; shard <= wire.MaxShards {
			all = append(all, client.Place{Shard: int(shard), Ordinal: uint32(d)})
		}
	}
	return all
}

// named gives names to documents that have none. What it returns is a source, and the
// receipt, which place fills in.
func named(docs []store.Document, dim int) (src vectors.Source, r server.Receipt, place func(id string, shard int, ordinal uint32), err error) {
	r = server.Receipt{Documents: make([]uint64, len(docs)), IDs: make([]string, len(docs))}
	at := make(map[string]int, len(docs))
	all := make([]vectors.Document, len(docs))
	for i, d := range docs {
		if d.ID == "" {
			d.ID = wire.NewID().String()
		}
		r.IDs[i], at[d.ID] = d.ID, i
		all[i] = vectors.Document{ID: d.ID, Tokens: d.Vectors, Payload: d.Metadata}
	}
	src, err = vectors.FromDocuments(dim, all)
	return src, r, func(id string, shard int, ordinal uint32) {
		r.Documents[at[id]] = number(client.Place{Shard: shard, Ordinal: ordinal})
	}, err
}
