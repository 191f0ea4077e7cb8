package server

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/keywords"
	"github.com/plaid-ir/plaid/search/fuse"
	"github.com/plaid-ir/plaid/server/store"
)

// DeriveKeywords is what [store.Options] derive for searches by keywords: a file beside
// the index of each collection that is searched so. Without it such searches are
// answered with NOT_SUPPORTED.
func DeriveKeywords(log *slog.Logger) func(ctx context.Context, path string, c store.Config) (store.Derived, error) {
	return func(ctx context.Context, path string, c store.Config) (store.Derived, error) {
		return keywords.Open(ctx, keywords.Path(path), &keywords.Options{
			Settings: &keywords.Settings{Tokenizer: c.Tokenizer}, Write: true, Logger: log,
		})
	}
}

// bitmap is what a query may return of an index file; nil: all documents.
func (f *filtered) bitmap(i int) *roaring.Bitmap {
	switch {
	case f.shared == nil && f.own[i] == nil:
		return nil
	case f.shared == nil:
		return f.own[i].Docs
	case f.own[i] == nil:
		return f.shared.Docs
	}
	return roaring.And(f.shared.Docs, f.own[i].Docs)
}

// byKeywords ranks the k best documents for each text among those that are allowed.
func (q *request) byKeywords(v folderView, in *common, f filtered, k int) ([]ranking, error) {
	derived, err := v.c.Derived(q.ctx)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil, problem(CodeNotSupported, "text_query: this service has no keyword search")
	} else if err != nil {
		return nil, err
	}
	ix, ok := derived.(*keywords.Index)
	if !ok {
		return nil, problem(CodeNotSupported, "text_query: this service has no keyword search")
	}
	mode := keywords.Words
	if in.TextMode == textExpression {
		mode = keywords.Expression
	}
	out := make([]ranking, len(in.TextQuery))
	if k == 0 {
		return out, nil
	}
	ctx, end := q.span("keywords")
	for i, text := range in.TextQuery {
		hits, err := ix.Search(ctx, keywords.Query{Text: text, Mode: mode, K: k, Filter: f.bitmap(i)})
		if err != nil {
			end(err)
			return nil, ofQuery(i, err)
		}
		for _, h := range hits {
			if v.Live(uint64(h.Ordinal)) { // the keywords may know of a later change than the view
				out[i].add(v, h.Ordinal, float64(h.Score))
			}
		}
		out[i].readFrom(v)
	}
	end(nil)
	return out, nil
}

// add appends a document of an index file.
func (r *ranking) add(v folderView, ordinal uint32, score float64) {
	r.hits = append(r.hits, rankedDoc{uint64(ordinal), v.ID(uint64(ordinal)), score})
}

// readFrom reads metadata from an index file.
func (r *ranking) readFrom(v folderView) {
	hits := r.hits
	r.metadata = func(i int) (json.RawMessage, error) { return v.View.Metadata(hits[i].document) }
}

// byBoth fuses the rankings by vectors and by keywords.
func (q *request) byBoth(v folderView, tasks []task, in *common, f filtered, k int) ([]ranking, error) {
	depth := min(fuse.Depth(k), v.Len())
	words, err := q.byKeywords(v, in, f, depth)
	if err != nil {
		return nil, err
	}
	out, err := q.byVectors(v, tasks, in, f, depth)
	if err != nil || k == 0 {
		return out, err
	}
	method, alpha := fuse.RelativeScore, usualAlpha
	if in.Fusion == fusionRanks {
		method = fuse.ReciprocalRank
	}
	if in.Alpha != nil {
		alpha = *in.Alpha
	}
	for i := range out {
		pair, err := fuse.Pair(out[i].fused(), words[i].fused(), alpha)
		if err != nil {
			return nil, err
		}
		hits, err := fuse.Fuse(method, k, pair...)
		if err != nil {
			return nil, err
		}
		out[i].hits = nil
		for _, h := range hits {
			out[i].add(v, h.Ordinal, h.Score)
		}
		out[i].readFrom(v)
	}
	return out, nil
}

// fused is the ranking as package fuse has it.
func (r *ranking) fused() []fuse.Hit {
	hits := make([]fuse.Hit, len(r.hits))
	for i, h := range r.hits {
		hits[i] = fuse.Hit{Ordinal: uint32(h.document), Score: h.score}
	}
	return hits
}
