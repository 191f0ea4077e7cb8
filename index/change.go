package index

import (
	"context"
	"fmt"
	"reflect"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/storage"
)

// change is a change of an index on its way: it has the writer's turn, goes on from the
// newest snapshot, and may be an entry of a log.
type change struct {
	ix    *Index
	snap  *Snapshot
	entry Entry
}

// begin waits for the writer's turn. What an addition that failed has left, because
// removing it failed as well, as on a full disk, is removed now.
func (e Entry) begin(ctx context.Context) (*change, error) {
	ix := e.ix
	if err := ix.write.begin(ctx); err != nil {
		return nil, err
	}
	c := &change{ix: ix, entry: e}
	err := ix.file.Discard()
	if err != nil {
		err = ix.changed(err)
	} else if c.snap, err = ix.Snapshot(); err == nil {
		err = e.check(c.snap)
	}
	if err != nil {
		c.end()
		return nil, err
	}
	return c, nil
}

// end gives the turn back.
func (c *change) end() {
	if c.snap != nil {
		_ = c.snap.Close()
	}
	c.ix.write.end()
}

// update runs apply in a transaction, and then puts the state with the sets of documents,
// both of which apply may change.
func (c *change) update(s *storage.State, apply func(*storage.Generation, storage.DocSets) error) error {
	return c.ix.changed(c.ix.file.Update(func(tx *storage.Tx) error {
		g, err := tx.Generation(c.snap.Generation())
		if err != nil {
			return err
		}
		if err := c.confirm(tx, g); err != nil {
			return err
		}
		sets := c.snap.view.DocSets()
		if err := apply(g, sets); err != nil {
			return err
		}
		if err := g.PutDocSets(s, sets); err != nil {
			return err
		}
		return g.PutState(*s)
	}))
}

// confirm makes sure, in the transaction of the change, that the index still is what the
// snapshot shows, and notes the entry.
func (c *change) confirm(tx *storage.Tx, g *storage.Generation) error {
	s, err := g.State()
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(s, c.snap.State()) {
		return fmt.Errorf("%s: %w: the index has changed under a change", c.snap.Path(), storage.ErrInternal)
	}
	return c.entry.noteIn(tx, c.snap.Generation())
}

// noteEntry is all that is done where there is nothing to be changed.
func (c *change) noteEntry() error {
	if c.entry.applied == nil {
		return nil
	}
	return c.ix.changed(c.ix.file.Update(func(tx *storage.Tx) error { return c.entry.noteIn(tx, c.snap.Generation()) }))
}

// Delete removes documents by id, all in one transaction, and with a longer document
// all its passages ([Snapshot.Named]). Ids that name no live document are returned in
// missing; they are no error. The space is
// reused after [Index.Compact].
func (ix *Index) Delete(ctx context.Context, ids []string) (deleted int, missing []string, err error) {
	return Entry{ix: ix}.deleteIDs(ctx, ids, true)
}

func (e Entry) deleteIDs(ctx context.Context, ids []string, passages bool) (deleted int, missing []string, err error) {
	deleted, err = e.delete(ctx, func(snap *Snapshot) (*roaring.Bitmap, error) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var victims *roaring.Bitmap
		victims, missing, err = snap.named(ctx, ids, passages)
		return victims, err
	})
	if err != nil {
		return 0, nil, err
	}
	return deleted, missing, nil
}

// DeleteWhere removes the documents that a condition is true of, as [Snapshot.Select]
// finds them, all in one transaction.
func (ix *Index) DeleteWhere(ctx context.Context, where *condition.Condition) (deleted int, err error) {
	return Entry{ix: ix}.DeleteWhere(ctx, where)
}

// DeleteWhere is [Index.DeleteWhere].
func (e Entry) DeleteWhere(ctx context.Context, where *condition.Condition) (deleted int, err error) {
	return e.delete(ctx, func(snap *Snapshot) (*roaring.Bitmap, error) { return snap.Select(ctx, where) })
}

// deleteKnown is DeleteWhere for who has looked for the fields of the condition.
func (ix *Index) deleteKnown(ctx context.Context, where *condition.Condition) (deleted int, err error) {
	return Entry{ix: ix}.delete(ctx, func(snap *Snapshot) (*roaring.Bitmap, error) { return snap.selectKnown(ctx, where) })
}

// delete removes the live documents that choose returns, which is given the newest
// snapshot; nil: none.
func (e Entry) delete(ctx context.Context, choose func(*Snapshot) (*roaring.Bitmap, error)) (deleted int, err error) {
	c, err := e.begin(ctx)
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
