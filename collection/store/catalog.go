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

// Catalog returns the collections of the store behind the interfaces of package collection, as a service uses them. The
// catalog stays open until the store is closed.
func (s *Store) Catalog() collection.Catalog { return catalog{s} }

// catalog adapts a Store to [collection.Catalog].
type catalog struct{ *Store }

// Location implements [collection.Catalog].
func (s catalog) Location() string { return s.location() }

var (
	_ collection.Catalog      = catalog{}
	_ collection.DiskReporter = catalog{}
	_ collection.PanicCounter = catalog{}
	_ collection.Restorer     = catalog{}

	_ collection.Collection = catalogMember{}
	_ collection.Backuper   = catalogMember{}
	_ collection.Retrainer  = catalogMember{}
	_ collection.Verifier   = catalogMember{}

	_ collection.Snapshot  = (*Snapshot)(nil)
	_ collection.Explainer = (*Snapshot)(nil)
	_ collection.Keywords  = (*Snapshot)(nil)
	_ collection.Faceter   = (*Snapshot)(nil)
	_ collection.Traceable = (*Snapshot)(nil)
)

// Get implements [collection.Catalog].
func (s catalog) Get(name string) (collection.Collection, error) {
	return toCatalogMember(s.Store.Get(name))
}

// Create implements [collection.Catalog].
func (s catalog) Create(ctx context.Context, name string, c collection.Config) (collection.Collection, error) {
	return toCatalogMember(s.Store.Create(ctx, name, c))
}

// catalogMember adapts a Collection to [collection.Collection].
type catalogMember struct{ *Collection }

// toCatalogMember adapts the results of Get and Declare.
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
		return nil, err // a nil *Snapshot would not be a nil interface
	}
	return v, nil
}

// Snapshot is one state of a collection. It is safe for concurrent use until Close.
type Snapshot struct {
	c         *Collection
	snap      *index.Snapshot
	engine    *search.Engine
	release   func() // lets the index file be closed
	closeOnce sync.Once
	closeErr  error // result of the first Close
}

// Snapshot returns the present state, with every change that has been answered. Taking one is cheap. Close it soon:
// the space of documents that are replaced meanwhile is not reused until then.
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

// Close releases the snapshot. It may be called more than once. The searches of the snapshot must have ended.
func (v *Snapshot) Close() error {
	v.closeOnce.Do(func() {
		v.closeErr = v.snap.Close()
		v.release()
	})
	return v.closeErr
}

// Search answers queries with the same options. Hits have no metadata: MetadataOf reads it on demand, so that the
// metadata of many documents is never in memory at once without being counted.
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

// Check returns an error if the query is faulty. It does not search.
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

// MetadataOf returns the metadata that was stored with a hit, nil if it has none.
func (v *Snapshot) MetadataOf(h *search.Hit) (json.RawMessage, error) {
	return v.snap.Payload(h.Ordinal)
}

// Explain returns how the score of a document comes about, and how far the document got in the search.
func (v *Snapshot) Explain(ctx context.Context, q search.Query, id string,
	o search.Options) (*search.Explanation, error) {
	return v.engine.Explain(ctx, v.adaptQuery(q), id, o)
}

// Describe describes the index that is searched.
func (v *Snapshot) Describe(ctx context.Context) (search.Description, error) {
	return v.engine.Describe(ctx)
}

// Snapshot returns the state of the index. It ends with the collection's snapshot.
func (v *Snapshot) Snapshot() *index.Snapshot { return v.snap }

// Tracer implements [collection.Traceable].
func (v *Snapshot) Tracer() collection.Tracer { return v.engine }

// MaxHits returns how many documents a search may return: the number of all documents.
func (v *Snapshot) MaxHits() int { return v.snap.Len() }

// Dim returns the dimension of the vectors, 0 while it is undecided.
func (v *Snapshot) Dim() int {
	if collection.Undecided(v.snap) {
		return 0
	}
	return v.snap.Dim()
}

// adaptQuery returns a query that the index accepts. While its dimension is undecided, a query with vectors of any
// dimension is valid and finds nothing.
func (v *Snapshot) adaptQuery(q search.Query) search.Query {
	if len(q.Vectors) > 0 && collection.Undecided(v.snap) {
		q.Vectors, q.Dim, q.Mask, q.Weights = []float32{1}, 1, nil, nil // collection.noDim is 1
	}
	return q
}
