package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/plaid-ir/plaid/storage"
)

// UpdateOptions of an update.
type UpdateOptions struct {
	// Replace lets a document take the place of one with the same id, which is
	// deleted; otherwise that is an error.
	Replace bool
	// Model, where set, is what made the vectors. The first one that is named is kept
	// with the collection, if its index is made of the request that names it; later
	// requests that name another are refused ([storage.ErrModel]).
	Model *storage.Model
}

// Receipt says what an update did.
type Receipt struct {
	// Ordinals of the documents, in the order of the request. An ordinal is given out
	// once, and never moves.
	Ordinals []uint32
	// IDs of the documents, those that the store has given included.
	IDs []string
	// Generation is that of the index: another number means another codec.
	Generation uint64
	// Evicted is how many of the oldest documents were deleted for it, and for those
	// that it shared a transaction with.
	Evicted int
}

// Update stores documents, all of them or none. When it returns they are on the disk
// and can be searched. What can be wrong with one document is found before the request
// is queued; an id that is taken, and a first document of another dimension, when its
// turn comes.
//
// When ctx ends before its turn, the request is withdrawn and nothing of it happens.
// From then on it is finished, whatever ctx does: an error of ctx always means that
// nothing was stored.
//
// Errors: [*DocumentError], [*BusyError], [storage.ErrModel], [ErrUnknown], [ErrDamaged], [ErrClosed], that
// of ctx, and what writing fails with. After [storage.ErrOutcomeUnknown], which the disk
// gives rarely, the documents may be stored or not.
func (c *Collection) Update(ctx context.Context, docs []Document, o UpdateOptions) (Receipt, error) {
	dim, err := c.dim(ctx)
	if err != nil {
		return Receipt{}, err
	}
	docs, err = CheckDocuments(docs, dim, c.s.o.MaxMetadata)
	if err != nil {
		return Receipt{}, err
	}
	if len(docs) == 0 {
		return Receipt{}, nil
	}
	if err := o.Model.Validate(); err != nil {
		return Receipt{}, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	r := &request{kind: updating, docs: docs, replace: o.Replace, model: o.Model}
	for i := range docs {
		r.cost += docs[i].cost()
	}
	if err := c.do(ctx, r); err != nil {
		return Receipt{}, err
	}
	return r.receipt, nil
}

// Delete deletes the documents that are chosen when its turn comes, and says how many
// there were. Of cancelling, see [Collection.Update].
//
// Errors: [ErrSelection], [*condition.Error], [ErrEmpty], [*BusyError],
// [ErrUnknown], [ErrDamaged], [ErrClosed], that of ctx, and what writing fails with.
func (c *Collection) Delete(ctx context.Context, chosen Selection) (int, error) {
	if err := chosen.Check(); err != nil {
		return 0, err
	}
	r := &request{kind: deleting, chosen: chosen, cost: chosen.cost()}
	if err := c.do(ctx, r); err != nil {
		return 0, err
	}
	return r.count, nil
}

// UpdateMetadata sets fields of the metadata of the chosen documents, and leaves their
// other fields and their vectors alone. It says how many documents there were.
//
// Errors: [ErrMetadata], and those of [Collection.Delete].
func (c *Collection) UpdateMetadata(ctx context.Context, chosen Selection, set map[string]json.RawMessage) (int, error) {
	if err := CheckFields(set, c.s.o.MaxMetadata); err != nil {
		return 0, err
	}
	if err := chosen.Check(); err != nil {
		return 0, err
	}
	r := &request{kind: acting, cost: chosen.cost()}
	r.act = func(ctx context.Context) (err error) {
		r.count, err = c.work.updateMetadata(ctx, chosen, set)
		return err
	}
	if err := c.do(ctx, r); err != nil {
		return 0, err
	}
	return r.count, nil
}
