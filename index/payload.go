package index

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/condition"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// UpdatePayload sets fields in the payloads of the documents that a condition is true
// of, all in one transaction that no vector takes part in; "_id IN (…)" names
// documents. [condition.Fields] says what becomes of the other fields. A document
// without payload gets one; a payload that is no JSON object is an error
// ([condition.ErrNoObject]), and then nothing is changed.
//
// The new payloads are in memory until the transaction is committed.
func (ix *Index) UpdatePayload(ctx context.Context, where *condition.Condition, set condition.Fields) (updated int, err error) {
	if err := set.Validate(); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrOption, err)
	}
	err = ix.changePayload(ctx, func(snap *Snapshot) (map[uint32][]byte, error) {
		docs, err := snap.Select(ctx, where)
		if err != nil || len(set) == 0 {
			return nil, err
		}
		payloads := make(map[uint32][]byte, docs.GetCardinality())
		for it := docs.Iterator(); it.HasNext(); {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			ordinal := it.Next()
			was, err := snap.Payload(ordinal)
			if err != nil {
				return nil, err
			}
			if payloads[ordinal], err = set.Merge(was); err != nil {
				return nil, fmt.Errorf("%s: document %q: %w", ix.Path(), snap.ID(ordinal), err)
			}
		}
		updated = len(payloads)
		return payloads, nil
	})
	if err != nil {
		return 0, err
	}
	return updated, nil
}

// SetPayload replaces the payloads of documents, by id, all in one transaction that no
// vector takes part in. An empty payload removes what is there. Ids that name no live
// document are returned in missing, in order; they are no error.
func (ix *Index) SetPayload(ctx context.Context, payloads map[string][]byte) (updated int, missing []string, err error) {
	err = ix.changePayload(ctx, func(snap *Snapshot) (map[uint32][]byte, error) {
		found := make(map[uint32][]byte, len(payloads))
		for _, id := range slices.Sorted(maps.Keys(payloads)) {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			p := payloads[id]
			if !utf8.Valid(p) {
				return nil, fmt.Errorf("payload of document %q: %w: it is not UTF-8", id, vectors.ErrFormat)
			}
			ordinal, ok, err := snap.Ordinal(id)
			switch {
			case err != nil:
				return nil, err
			case !ok:
				missing = append(missing, id)
			case len(p) == 0:
				found[ordinal] = nil
			default:
				found[ordinal] = p
			}
		}
		updated = len(found)
		return found, nil
	})
	if err != nil {
		return 0, nil, err
	}
	return updated, missing, nil
}

// changePayload replaces payloads by ordinal with those that choose returns, which is
// given the newest snapshot.
func (ix *Index) changePayload(ctx context.Context, choose func(*Snapshot) (map[uint32][]byte, error)) error {
	if err := ix.write.begin(ctx); err != nil {
		return err
	}
	defer ix.write.end()
	snap, err := ix.beginChange()
	if err != nil {
		return err
	}
	defer snap.Close()
	payloads, err := choose(snap)
	if err != nil || len(payloads) == 0 {
		return err
	}
	ordinals := slices.Sorted(maps.Keys(payloads))
	fields, state := newFieldRuns(DefaultMemory), snap.State()
	for _, ordinal := range ordinals {
		if err := ctx.Err(); err != nil {
			return err
		}
		fields.builder.Add(ordinal, payloads[ordinal])
	}
	old, err := fields.absorb(ctx, snap, &state)
	if err != nil {
		return err
	}
	run, err := fields.take(&state)
	if err != nil {
		return err
	}
	err = ix.changed(ix.file.Update(func(tx *storage.Tx) error {
		g, err := tx.Generation(snap.Generation())
		if err != nil {
			return err
		}
		if err := follows(g, snap); err != nil {
			return err
		}
		for _, ordinal := range ordinals {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := g.ReplacePayload(snap.view, ordinal, payloads[ordinal]); err != nil {
				return err
			}
		}
		for _, id := range old {
			if err := g.DeleteFieldRun(id); err != nil {
				return err
			}
		}
		if err := run.put(g); err != nil {
			return err
		}
		state.PayloadUpdates++
		return g.PutState(state)
	}))
	if err == nil && ix.repaid != nil {
		for ordinal := range payloads {
			ix.repaid.Add(ordinal)
		}
	}
	return err
}
