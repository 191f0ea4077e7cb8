package store

import (
	"context"
	"encoding/json"
	"slices"
	"sync"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
)

// Set is the store as a service takes it: its collections, behind the interfaces of
// package collection. It stays open until the store is closed.
func (s *Store) Set() collection.Catalog { return catalog{s} }

// catalog gives collections and views as what they implement.
type catalog struct{ *Store }

// Place implements [collection.Catalog].
func (s catalog) Place() string { return s.location() }

var (
	_ collection.Catalog  = catalog{}
	_ collection.Disker   = catalog{}
	_ collection.Panicker = catalog{}
	_ collection.Restorer = catalog{}

	_ collection.Collection = catalogMember{}
	_ collection.Backuper   = catalogMember{}
	_ collection.Retrainer  = catalogMember{}
	_ collection.Verifier   = catalogMember{}

	_ collection.Snapshot  = (*Snapshot)(nil)
	_ collection.Explainer = (*Snapshot)(nil)
	_ collection.Keywords  = (*Snapshot)(nil)
	_ collection.Faceter   = (*Snapshot)(nil)
	_ collection.Measured  = (*Snapshot)(nil)
)

// Get implements [collection.Catalog].
func (s catalog) Get(name string) (collection.Collection, error) {
	return toCatalogMember(s.Store.Get(name))
}

// Declare implements [collection.Catalog].
func (s catalog) Declare(ctx context.Context, name string, c collection.Config) (collection.Collection, error) {
	return toCatalogMember(s.Store.Declare(ctx, name, c))
}

type catalogMember struct{ *Collection }

func toCatalogMember(c *Collection, err error) (collection.Collection, error) {
	if err != nil {
		return nil, err
	}
	return catalogMember{c}, nil
}

// Snapshot implements [collection.Collection].
func (m catalogMember) Snapshot(ctx context.Context) (collection.Snapshot, error) {
	v, err := m.Collection.Snapshot(ctx)
	if err != nil {
		return nil, err // and no nil of a type
	}
	return v, nil
}

// Snapshot is one state of a collection. It is safe for concurrent use until Close.
type Snapshot struct {
	c         *Collection
	snap      *index.Snapshot
	engine    *search.Engine
	release   func()
	closeOnce sync.Once
	closeErr  error
}

// Snapshot takes the state as it is now, with every change that has been answered. Taking
// one is cheap; close it soon, since the space of what is replaced meanwhile is not
// used again before.
//
// Errors: [collection.ErrEmpty], [collection.ErrUnknown], [collection.ErrDamaged],
// [collection.ErrClosed], that of ctx, and those of [index.Index.Snapshot].
func (c *Collection) Snapshot(ctx context.Context) (*Snapshot, error) {
	o, done, err := c.acquireIndex(ctx)
	if err != nil {
		return nil, err
	}
	snap, err := o.ix.Snapshot()
	if err != nil {
		done()
		return nil, err
	}
	return &Snapshot{c: c, snap: snap, engine: o.engine.At(snap), release: done}, nil
}

// Close ends the view. It may be called more than once; the searches of the view must
// have ended.
func (v *Snapshot) Close() error {
	v.closeOnce.Do(func() {
		v.closeErr = v.snap.Close()
		v.release()
	})
	return v.closeErr
}

// Search answers queries with the same options. It leaves metadata out, which MetadataOf
// reads when it is asked for: that of many documents is never in memory at a time without
// being counted.
func (v *Snapshot) Search(ctx context.Context, qs []search.Query, o search.Options) ([]search.Result, error) {
	o.Payload = false
	if collection.Undecided(v.snap) {
		qs, o.Feedback = slices.Clone(qs), nil
		for i := range qs {
			qs[i] = v.adaptQuery(qs[i])
		}
	}
	results, err := v.engine.SearchBatch(ctx, qs, o)
	if err == nil {
		v.sampleQuestions(qs, &o)
	}
	return results, err
}

// Check finds what is wrong with a query, without searching.
func (v *Snapshot) Check(q *search.Query) error {
	_, err := v.QueryTokens(context.Background(), q)
	return err
}

// QueryTokens implements [collection.Explainer].
func (v *Snapshot) QueryTokens(_ context.Context, q *search.Query) ([]float32, error) {
	adapted := v.adaptQuery(*q)
	vectors, _, err := adapted.Tokens(v.snap)
	return vectors, err
}

// MetadataOf is what was stored beside a hit; nil if nothing was.
func (v *Snapshot) MetadataOf(h *search.Hit) (json.RawMessage, error) {
	return v.snap.Payload(h.Ordinal)
}

// Explain says how the score of a document comes about, and how far it got.
func (v *Snapshot) Explain(ctx context.Context, q search.Query, id string, o search.Options) (*search.Explanation, error) {
	return v.engine.Explain(ctx, v.adaptQuery(q), id, o)
}

// Describe says what is searched.
func (v *Snapshot) Describe(ctx context.Context) (search.Description, error) {
	return v.engine.Describe(ctx)
}

// Snapshot is what the view shows. It ends with the view.
func (v *Snapshot) Snapshot() *index.Snapshot { return v.snap }

// Traced implements [collection.Measured].
func (v *Snapshot) Traced() collection.Traced { return v.engine }

// Most is how many documents a search may return at most: all that there are.
func (v *Snapshot) Most() int { return v.snap.Len() }

// Dim is the dimension of the vectors, 0 while it is undecided.
func (v *Snapshot) Dim() int {
	if collection.Undecided(v.snap) {
		return 0
	}
	return v.snap.Dim()
}

// adaptQuery is a query as the index takes it. While the dimension is undecided, vectors of every dimension
// find nothing.
func (v *Snapshot) adaptQuery(q search.Query) search.Query {
	if len(q.Vectors) > 0 && collection.Undecided(v.snap) {
		q.Vectors, q.Dim, q.Mask, q.Weights = []float32{1}, 1, nil, nil
	}
	return q
}
