package index

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

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

// Affected counts the documents and passages that a change by ids or by a condition was made to.
type Affected struct {
	// Documents counts documents: for a deletion those that are gone entirely, for other changes
	// those that were changed, wholly or in some of their passages.
	Documents int
	// Passages counts passages, of these documents and of others.
	Passages int
}

// Add adds the counts of another change.
func (a *Affected) Add(other Affected) {
	a.Documents += other.Documents
	a.Passages += other.Passages
}

// Delete removes documents by id with all of their passages, and passages by their own ids
// ([Snapshot.Named]), all in one transaction. Unknown ids are returned in missing and are no error.
// The space is reused after [Index.Compact].
func (ix *Index) Delete(ctx context.Context, ids []string) (removed Affected, missing []string, err error) {
	return Entry{ix: ix}.Delete(ctx, ids)
}

// Delete is [Index.Delete].
func (e Entry) Delete(ctx context.Context, ids []string) (removed Affected, missing []string, err error) {
	removed, err = e.DeleteChosen(ctx, func(snap *Snapshot) (victims *roaring.Bitmap, err error) {
		victims, missing, err = snap.Named(ctx, ids)
		return victims, err
	})
	if err != nil {
		return Affected{}, nil, err
	}
	return removed, missing, nil
}

// DeleteWhere removes the documents and passages that [Snapshot.Select] finds for a condition, all
// in one transaction. If the condition is true of some passages of a document, the others stay.
func (ix *Index) DeleteWhere(ctx context.Context, where *condition.Condition) (Affected, error) {
	return Entry{ix: ix}.DeleteWhere(ctx, where)
}

// DeleteWhere is [Index.DeleteWhere].
func (e Entry) DeleteWhere(ctx context.Context, where *condition.Condition) (Affected, error) {
	return e.DeleteChosen(ctx, func(snap *Snapshot) (*roaring.Bitmap, error) { return snap.Select(ctx, where) })
}

// DeleteChosen removes the live ordinals that choose returns, in one transaction. choose is called
// in the writer's turn with the newest snapshot; nil chooses nothing.
func (ix *Index) DeleteChosen(ctx context.Context, choose func(*Snapshot) (*roaring.Bitmap, error)) (Affected, error) {
	return Entry{ix: ix}.DeleteChosen(ctx, choose)
}

// DeleteChosen is [Index.DeleteChosen].
func (e Entry) DeleteChosen(ctx context.Context, choose func(*Snapshot) (*roaring.Bitmap, error)) (Affected, error) {
	c, err := e.begin(ctx)
	if err != nil {
		return Affected{}, err
	}
	defer c.end()
	return c.delete(ctx, choose)
}

// Evict deletes the oldest documents beyond the number that may stay, with all of their passages,
// in one transaction.
func (ix *Index) Evict(ctx context.Context, most uint64) (Affected, error) {
	return ix.DeleteChosen(ctx, beyond(ctx, most))
}

// Beyond returns the ordinals of the oldest documents beyond the number that may stay.
func (s *Snapshot) Beyond(ctx context.Context, most uint64) (*roaring.Bitmap, error) {
	a := NewAdmission(s)
	_, _, err := a.evict(ctx, most, 0)
	return a.removed[0], err
}

func beyond(ctx context.Context, most uint64) func(*Snapshot) (*roaring.Bitmap, error) {
	return func(snap *Snapshot) (*roaring.Bitmap, error) { return snap.Beyond(ctx, most) }
}

// deleteNext makes another deletion in the writer's turn of a change that is done.
func (c *change) deleteNext(ctx context.Context, choose func(*Snapshot) (*roaring.Bitmap, error)) (Affected, error) {
	snap, err := c.ix.Snapshot()
	if err != nil {
		return Affected{}, err
	}
	defer func() { _ = snap.Close() }()
	next := &change{ix: c.ix, snap: snap}
	return next.delete(ctx, choose)
}

func (c *change) delete(ctx context.Context, choose func(*Snapshot) (*roaring.Bitmap, error)) (Affected, error) {
	victims := roaring.New()
	if choose != nil {
		var err error
		if victims, err = choose(c.snap); err != nil {
			return Affected{}, err
		}
	}
	if victims.IsEmpty() {
		return Affected{}, c.noteEntry()
	}
	gone, err := c.snap.going(ctx, victims)
	if err != nil {
		return Affected{}, err
	}
	state := c.snap.State()
	err = c.update(&state, func(g *storage.Generation, sets storage.DocSets) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return gone.drop(g, &state, sets)
	})
	if err != nil {
		return Affected{}, err
	}
	return gone.Affected, nil
}

// going holds the live ordinals of a snapshot that a change deletes.
type going struct {
	Affected
	snap    *Snapshot
	victims *roaring.Bitmap
	parents []string // documents that lose their last passages
}

// going prepares the deletion of live ordinals, and counts them.
func (s *Snapshot) going(ctx context.Context, victims *roaring.Bitmap) (*going, error) {
	gone := &going{snap: s, victims: victims}
	if err := gone.count(ctx, victims); err != nil {
		return nil, err
	}
	return gone, nil
}

// count counts some of the victims: a document counts if nothing is left of it.
func (d *going) count(ctx context.Context, some *roaring.Bitmap) error {
	last := ""
	for it := some.Iterator(); it.HasNext(); {
		if err := ctx.Err(); err != nil {
			return err
		}
		ordinal := it.Next()
		if !d.snap.Passages().Contains(ordinal) {
			d.Documents++
			continue
		}
		d.Passages++
		parent, _ := d.snap.PassageOf(ordinal)
		if parent == last {
			continue // its passages are in a row
		}
		last = parent
		parts, err := d.snap.PassagesOf(parent)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(parts, func(o uint32) bool { return !d.victims.Contains(o) }) {
			d.Documents++
			d.parents = append(d.parents, parent)
		}
	}
	return nil
}

// CountDeleted counts the documents and passages of some live ordinals when all of a larger set are
// deleted: a document counts if one of its parts is among some, and each of its parts among all.
func (s *Snapshot) CountDeleted(ctx context.Context, some, all *roaring.Bitmap) (Affected, error) {
	gone := &going{snap: s, victims: all}
	if err := gone.count(ctx, some); err != nil {
		return Affected{}, err
	}
	return gone.Affected, nil
}

// countDocuments counts the documents that live ordinals belong to, and the passages among them.
func (s *Snapshot) countDocuments(docs *roaring.Bitmap) (n Affected) {
	passages := roaring.And(docs, s.Passages())
	n.Passages = int(passages.GetCardinality())
	n.Documents = int(docs.GetCardinality()) - n.Passages
	last := ""
	for it := passages.Iterator(); it.HasNext(); {
		if parent, _ := s.PassageOf(it.Next()); parent != last { // its passages are in a row
			last = parent
			n.Documents++
		}
	}
	return n
}

// drop deletes the ordinals in a transaction.
func (d *going) drop(g *storage.Generation, s *storage.State, sets storage.DocSets) error {
	for it := d.victims.Iterator(); it.HasNext(); {
		ordinal := it.Next()
		chunk, doc, _ := d.snap.Locate(ordinal)
		_, offsets := d.snap.ChunkDocs(chunk)
		s.Live--
		s.LiveTokens -= uint64(offsets[doc+1] - offsets[doc])
		if err := errors.Join(g.DeleteID(d.snap.ID(ordinal)), g.DeletePayload(ordinal)); err != nil {
			return err
		}
	}
	for _, parent := range d.parents {
		if err := g.DeleteID(parent); err != nil {
			return err
		}
	}
	s.PassageParents -= uint32(len(d.parents))
	sets.Deleted.Or(d.victims)
	sets.Payload.AndNot(d.victims)
	sets.Passages.AndNot(d.victims)
	return nil
}
