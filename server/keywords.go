package server

import (
	"context"
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

// byKeywords ranks the k best documents for each text among those that are allowed.
func (q *request) byKeywords(c *store.Collection, v *store.View, in *common, allowed []*roaring.Bitmap, k int) ([]ranking, error) {
	derived, err := c.Derived(q.ctx)
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
	ranked := make([]ranking, len(in.TextQuery))
	if k == 0 {
		return ranked, nil
	}
	ctx, end := q.span("keywords")
	for i, text := range in.TextQuery {
		hits, err := ix.Search(ctx, keywords.Query{Text: text, Mode: mode, K: k, Filter: allowed[i]})
		if err != nil {
			end(err)
			return nil, ofQuery(i, err)
		}
		for _, h := range hits {
			if v.Live(uint64(h.Ordinal)) { // the keywords may know of a later change than the view
				ranked[i].documents = append(ranked[i].documents, h.Ordinal)
				ranked[i].scores = append(ranked[i].scores, float64(h.Score))
			}
		}
	}
	end(nil)
	return ranked, nil
}

// byBoth fuses the rankings by vectors and by keywords.
func (q *request) byBoth(c *store.Collection, v *store.View, tasks []task, in *common, allowed []*roaring.Bitmap, k int) ([]ranking, error) {
	depth := min(fuse.Depth(k), v.Len())
	words, err := q.byKeywords(c, v, in, allowed, depth)
	if err != nil {
		return nil, err
	}
	ranked, err := q.byVectors(c, v, tasks, allowed, &in.Params, depth)
	if err != nil || k == 0 {
		return ranked, err
	}
	method, alpha := fuse.RelativeScore, usualAlpha
	if in.Fusion == fusionRanks {
		method = fuse.ReciprocalRank
	}
	if in.Alpha != nil {
		alpha = *in.Alpha
	}
	for i := range ranked {
		pair, err := fuse.Pair(ranked[i].hits(), words[i].hits(), alpha)
		if err != nil {
			return nil, err
		}
		hits, err := fuse.Fuse(method, k, pair...)
		if err != nil {
			return nil, err
		}
		ranked[i].documents, ranked[i].scores = nil, nil
		for _, h := range hits {
			ranked[i].documents = append(ranked[i].documents, h.Ordinal)
			ranked[i].scores = append(ranked[i].scores, h.Score)
		}
	}
	return ranked, nil
}

// hits is the ranking as package fuse has it.
func (r *ranking) hits() []fuse.Hit {
	hits := make([]fuse.Hit, len(r.documents))
	for i, d := range r.documents {
		hits[i] = fuse.Hit{Ordinal: d, Score: r.scores[i]}
	}
	return hits
}
