package index

import (
	"context"
	"fmt"
	"reflect"

	"github.com/plaid-ir/plaid/storage"
)

// change is a change of an index on its way: it has the writer's turn, goes on from the
// newest snapshot, and may be an entry of a log.
type change struct {
	ix    *Index
	snap  *Snapshot
	entry *entry // nil: it is in no log
}

// beginChange waits for the writer's turn. What an addition that failed has left, because
// removing it failed as well, as on a full disk, is removed now.
func (ix *Index) beginChange(ctx context.Context, e *entry) (*change, error) {
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
	if c.entry == nil {
		return nil
	}
	return c.ix.changed(c.ix.file.Update(func(tx *storage.Tx) error { return c.entry.noteIn(tx, c.snap.Generation()) }))
}
