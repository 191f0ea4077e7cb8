package index

import (
	"context"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/storage"
)

// Delete removes documents by id, all in one transaction, and with a longer document
// all its passages ([Snapshot.Named]). Ids that name no live document are returned in
// missing; they are no error. The space is
// reused after [Index.Compact].
func (ix *Index) Delete(ctx context.Context, ids []string) (deleted int, missing []string, err error) {
	return ix.deleteIDs(ctx, ids, true, nil)
}

func (ix *Index) deleteIDs(ctx context.Context, ids []string, passages bool, log *entry) (deleted int, missing []string, err error) {
	deleted, err = ix.delete(ctx, func(snap *Snapshot) (*roaring.Bitmap, error) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var victims *roaring.Bitmap
		victims, missing, err = snap.named(ctx, ids, passages)
		return victims, err
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
	return ix.delete(ctx, func(snap *Snapshot) (*roaring.Bitmap, error) { return snap.selectKnown(ctx, where) }, nil)
}

// delete removes the live documents that choose returns, which is given the newest
// snapshot; nil: none.
func (ix *Index) delete(ctx context.Context, choose func(*Snapshot) (*roaring.Bitmap, error), log *entry) (deleted int, err error) {
	c, err := ix.beginChange(ctx, log)
	if err != nil {
		return 0, err
	}
	defer c.end()
	victims := roaring.New()
	if choose != nil {
		if victims, err = choose(c.snap); err != nil {
			return 0, err
		}
	}
	if victims.IsEmpty() {
		return 0, c.noteEntry()
	}
	state := c.snap.State()
	err = c.update(&state, func(g *storage.Generation, sets storage.DocSets) error {
		for it := victims.Iterator(); it.HasNext(); {
			if err := ctx.Err(); err != nil {
				return err
			}
			ordinal := it.Next()
			if err := bury(g, &state, sets, c.snap, ordinal); err != nil {
				return err
			}
			if err := g.DeleteID(c.snap.ID(ordinal)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return int(victims.GetCardinality()), nil
}
