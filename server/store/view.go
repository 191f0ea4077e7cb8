package store

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
)

// View is one state of a collection. It is safe for concurrent use until Close.
type View struct {
	c      *Collection
	snap   *index.Snapshot
	engine *search.Engine
	done   func()
	once   sync.Once
	err    error
}

// View takes the state as it is now, with every change that has been answered. Taking
// one is cheap; close it soon, since the space of what is replaced meanwhile is not
// used again before.
//
// Errors: [ErrEmpty], [ErrUnknown], [ErrDamaged], [ErrClosed], that of ctx, and those of
// [index.Index.Snapshot].
func (c *Collection) View(ctx context.Context) (*View, error) {
	o, done, err := c.use(ctx)
	if err != nil {
		return nil, err
	}
	snap, err := o.ix.Snapshot()
	if err != nil {
		done()
		return nil, err
	}
	return &View{c: c, snap: snap, engine: o.engine.At(snap), done: done}, nil
}

// Close ends the view. It may be called more than once; the searches of the view must
// have ended.
func (v *View) Close() error {
	v.once.Do(func() {
		v.err = v.snap.Close()
		v.done()
	})
	return v.err
}

// Search, SearchBatch, Explain and Describe are those of [search.Engine].
func (v *View) Search(ctx context.Context, q search.Query, o search.Options) (*search.Result, error) {
	return v.engine.Search(ctx, q, o)
}

// SearchBatch answers queries with the same options.
func (v *View) SearchBatch(ctx context.Context, qs []search.Query, o search.Options) ([]search.Result, error) {
	return v.engine.SearchBatch(ctx, qs, o)
}

// Explain says how the score of a document comes about, and how far it got.
func (v *View) Explain(ctx context.Context, q search.Query, id string, o search.Options) (*search.Explanation, error) {
	return v.engine.Explain(ctx, q, id, o)
}

// Describe says what is searched.
func (v *View) Describe(ctx context.Context) (search.Description, error) {
	return v.engine.Describe(ctx)
}

// Snapshot is what the view shows. It ends with the view.
func (v *View) Snapshot() *index.Snapshot { return v.snap }

// Engine searches what the view shows. It ends with the view.
func (v *View) Engine() *search.Engine { return v.engine }

// Len is the number of documents, Ordinals how many ordinals were given out.
func (v *View) Len() int { return v.snap.Len() }

// Ordinals is how many ordinals were given out: those of the documents are below it.
func (v *View) Ordinals() uint64 { return uint64(v.snap.State().Docs) }

// Dim is the dimension of the vectors.
func (v *View) Dim() int { return v.snap.Dim() }

// Live tells whether an ordinal is a document that was not deleted.
func (v *View) Live(ordinal uint64) bool {
	return ordinal < v.Ordinals() && v.snap.Live(uint32(ordinal))
}

// ID is the id of a document; "" if there is none.
func (v *View) ID(ordinal uint64) string {
	if !v.Live(ordinal) {
		return ""
	}
	return v.snap.ID(uint32(ordinal))
}

// Ordinal finds a document by its id.
func (v *View) Ordinal(id string) (ordinal uint32, ok bool, err error) { return v.snap.Ordinal(id) }

// All are the ordinals of all documents; the bitmap is the caller's.
func (v *View) All() *roaring.Bitmap {
	b := roaring.New()
	b.AddRange(0, v.Ordinals())
	b.AndNot(v.snap.Tombstones())
	return b
}

// Select are the ordinals of the documents that a condition holds for, with a
// parameter for each "?" in it; the bitmap is the caller's.
func (v *View) Select(ctx context.Context, condition string, params ...any) (*roaring.Bitmap, error) {
	return match(ctx, v.snap, condition, params)
}

// Metadata is what was stored beside a document; nil if nothing was. The error is
// [index.ErrNotFound] for an ordinal that is no document.
func (v *View) Metadata(ordinal uint64) (json.RawMessage, error) {
	if !v.Live(ordinal) {
		return nil, fmt.Errorf("ordinal %d: %w", ordinal, index.ErrNotFound)
	}
	return v.snap.Payload(uint32(ordinal))
}

// Tokens is how many vectors a document has; 0 for an ordinal that is no document.
func (v *View) Tokens(ordinal uint64) int {
	if !v.Live(ordinal) {
		return 0
	}
	chunk, doc, ok := v.snap.Locate(uint32(ordinal))
	if !ok {
		return 0
	}
	_, offsets := v.snap.ChunkDocs(chunk)
	return int(offsets[doc+1] - offsets[doc])
}

// Vectors are those of a document as they are stored: [tokens, dim], row-major, of
// unit length. The error is [index.ErrNotFound] for an ordinal that is no document.
func (v *View) Vectors(ordinal uint64) ([]float32, error) {
	if !v.Live(ordinal) {
		return nil, fmt.Errorf("ordinal %d: %w", ordinal, index.ErrNotFound)
	}
	return v.snap.Vectors(uint32(ordinal))
}

// Info walks the whole index and describes it; [Collection.Stats] is cheap.
func (v *View) Info(ctx context.Context) (*index.Info, error) { return v.snap.Info(ctx) }
