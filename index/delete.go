package index

import (
	"context"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/condition"
	"github.com/plaid-ir/plaid/storage"
)

// Delete removes documents by id, all in one transaction. Ids that name no
// live document are returned in missing; they are no error. The space is
// reused after [Index.Compact].
func (ix *Index) Delete(ctx context.Context, ids []string) (deleted int, missing []string, err error) {
	return ix.deleteIDs(ctx, ids, nil)
}

func (ix *Index) deleteIDs(ctx context.Context, ids []string, log *entry) (deleted int, missing []string, err error) {
	deleted, err = ix.delete(ctx, func(snap *Snapshot) (*roaring.Bitmap, error) {
		victims := roaring.New()
		for _, id := range ids {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			ordinal, ok, err := snap.Ordinal(id)
			switch {
			case err != nil:
				return nil, err
			case ok:
				victims.Add(ordinal)
			default:
				missing = append(missing, id)
			}
		}
		return victims, nil
	}, log)
	if err != nil {
		return 0, nil, err
	}
	return deleted, missing, nil
}

// DeleteWhere removes the documents that a condition is true of, as [Snapshot.Select]
// finds them, all in one transaction.
func (ix *Index) DeleteWhere(ctx context.Context, where *condition.Condition) (deleted int, err error) {
	return ix.deleteWhere(ctx, where, nil)
}

func (ix *Index) deleteWhere(ctx context.Context, where *condition.Condition, log *entry) (deleted int, err error) {
	return ix.delete(ctx, func(snap *Snapshot) (*roaring.Bitmap, error) { return snap.Select(ctx, where) }, log)
}

// deleteKnown is DeleteWhere for who has looked for the fields of the condition.
func (ix *Index) deleteKnown(ctx context.Context, where *condition.Condition) (deleted int, err error) {
	return ix.delete(ctx, func(snap *Snapshot) (*roaring.Bitmap, error) {
		q, err := snap.selecting(ctx)
		if err != nil {
			return nil, err
		}
		return q.selected(where)
	}, nil)
}

// delete removes the live documents that choose returns, which is given the newest
// snapshot; nil: none.
func (ix *Index) delete(ctx context.Context, choose func(*Snapshot) (*roaring.Bitmap, error), log *entry) (deleted int, err error) {
	if err := ix.write.begin(ctx); err != nil {
		return 0, err
	}
	defer ix.write.end()
	snap, err := ix.beginChange()
	if err != nil {
		return 0, err
	}
	defer snap.Close()
	if err := log.check(snap); err != nil {
		return 0, err
	}
	victims := roaring.New()
	if choose != nil {
		if victims, err = choose(snap); err != nil {
			return 0, err
		}
	}
	if victims.IsEmpty() {
		return 0, ix.note(log, snap)
	}
	err = ix.file.Update(func(tx *storage.Tx) error {
		g, err := tx.Generation(snap.Generation())
		if err != nil {
			return err
		}
		if err := follows(g, snap); err != nil {
			return err
		}
		if err := log.put(tx, snap.Generation()); err != nil {
			return err
		}
		s := snap.State()
		tombstones := snap.Tombstones().Clone()
		for it := victims.Iterator(); it.HasNext(); {
			ordinal := it.Next()
			if err := bury(g, &s, snap, tombstones, ordinal); err != nil {
				return err
			}
			if err := g.DeleteID(snap.ID(ordinal)); err != nil {
				return err
			}
		}
		if err := g.PutTombstones(tombstones); err != nil {
			return err
		}
		return g.PutState(s)
	})
	if err := ix.changed(err); err != nil {
		return 0, err
	}
	return int(victims.GetCardinality()), nil
}
