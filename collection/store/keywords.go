package store

import (
	"context"
	"errors"
	"log/slog"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/keywords"
)

// DeriveKeywords is what [Options] derive for searches by keywords: a file beside the
// index of each collection that is searched so. Without it such searches are
// [collection.ErrUnsupported].
func DeriveKeywords(log *slog.Logger) func(ctx context.Context, path string, c collection.Config) (Derived, error) {
	return func(ctx context.Context, path string, c collection.Config) (Derived, error) {
		ix, err := keywords.Open(ctx, keywords.Path(path), &keywords.Options{Settings: c.Keywords(), Write: true, Logger: log})
		if err != nil {
			return nil, err // and no nil of a type, which is not nil to who gets it
		}
		return ix, nil
	}
}

// SearchKeywords implements [collection.Keywords].
func (v *View) SearchKeywords(ctx context.Context, q collection.KeywordQuery) ([]search.Hit, error) {
	ix, err := keywordsOf(v.c.Derived(ctx))
	if err != nil {
		return nil, err
	}
	hits, err := v.searchKeywords(ctx, ix, &q)
	if errors.Is(err, keywords.ErrDamaged) {
		if ix, err = keywordsOf(v.c.mendDerived(ctx, ix)); err == nil {
			hits, err = v.searchKeywords(ctx, ix, &q)
		}
	}
	return hits, err
}

// keywordsOf are the keywords of a collection, if that is what its store derives.
func keywordsOf(derived Derived, err error) (*keywords.Index, error) {
	ix, ok := derived.(*keywords.Index)
	if errors.Is(err, errors.ErrUnsupported) || err == nil && !ok {
		return nil, collection.Unsupported("a search by keywords")
	}
	return ix, err
}

func (v *View) searchKeywords(ctx context.Context, ix *keywords.Index, q *collection.KeywordQuery) ([]search.Hit, error) {
	var among *roaring.Bitmap
	for _, f := range q.Filters {
		switch {
		case f == nil:
		case among == nil:
			among = f.Docs
		default:
			among = roaring.And(among, f.Docs)
		}
	}
	found, err := ix.Search(ctx, keywords.Query{Text: q.Text, Mode: q.Mode, K: q.K, Filter: among})
	if err != nil {
		return nil, err
	}
	hits := make([]search.Hit, 0, len(found))
	for _, h := range found {
		if v.snap.Live(h.Ordinal) { // the keywords may know of a later change than the view
			hits = append(hits, search.Hit{ID: v.snap.ID(h.Ordinal), Ordinal: h.Ordinal, Score: h.Score})
		}
	}
	return hits, nil
}
