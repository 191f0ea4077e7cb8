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

// change is a change of an index in progress: it holds the write lock, starts from the newest
// snapshot, and may be an entry of a log.
type change struct {
	ix    *Index
	snap  *Snapshot
	entry Entry
}

// beginChange waits for the write lock. It also discards the leftovers of a failed addition if they
// could not be discarded then, for example on a full disk.
func (e Entry) beginChange(ctx context.Context) (*change, error) {
	ix := e.ix
	if err := ix.writeLock.lock(ctx); err != nil {
		return nil, err
	}
	c := &change{ix: ix, entry: e}
	err := ix.file.Discard()
	if err != nil {
		err = ix.afterChange(err)
	} else if c.snap, err = ix.Snapshot(); err == nil {
		err = e.checkNotApplied(c.snap)
	}
	if err != nil {
		c.endChange()
		return nil, err
	}
	return c, nil
}

// endChange releases the snapshot and the write lock.
func (c *change) endChange() {
	if c.snap != nil {
		_ = c.snap.Close()
	}
	c.ix.writeLock.unlock()
}

// update runs apply in a transaction and then stores the state and the document sets.
// apply may change both.
func (c *change) update(s *storage.State, apply func(*storage.Generation, storage.DocSets) error) error {
	return c.ix.afterChange(c.ix.file.Update(func(tx *storage.Tx) error {
		g, err := tx.Generation(c.snap.Generation())
		if err != nil {
			return err
		}
		if err := c.confirmUnchanged(tx, g); err != nil {
			return err
		}
		sets := c.snap.fileSnapshot.CloneDocSets()
		if err := apply(g, sets); err != nil {
			return err
		}
		if err := g.PutDocSets(s, sets); err != nil {
			return err
		}
		return g.PutState(*s)
	}))
}

// confirmUnchanged checks, in the transaction of the change, that the index still is as the
// snapshot shows it, and records the log entry.
func (c *change) confirmUnchanged(tx *storage.Tx, g *storage.Generation) error {
	s, err := g.State()
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(s, c.snap.State()) {
		return fmt.Errorf("%s: %w: the index has changed under a change", c.snap.Path(), storage.ErrInternal)
	}
	return c.entry.recordIn(tx, c.snap.Generation())
}

// recordEntry records the log entry of a change that has nothing to change.
func (c *change) recordEntry() error {
	if c.entry.applied == nil {
		return nil
	}
	return c.ix.afterChange(c.ix.file.Update(func(tx *storage.Tx) error {
		return c.entry.recordIn(tx, c.snap.Generation())
	}))
}

// Affected counts the documents and passages that a change affected.
type Affected struct {
	// Documents counts documents: in a deletion those that were deleted entirely, in other changes
	// those that were changed, entirely or in some of their passages.
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
// ([Snapshot.OrdinalsOfIDs]), in one transaction. Unknown ids are returned in missing and are not an error.
// The space is reused after [Index.Compact].
func (ix *Index) Delete(ctx context.Context, ids []string) (removed Affected, missing []string, err error) {
	return Entry{ix: ix}.Delete(ctx, ids)
}

// Delete does [Index.Delete] as this entry.
func (e Entry) Delete(ctx context.Context, ids []string) (removed Affected, missing []string, err error) {
	removed, err = e.DeleteSelected(ctx, func(snap *Snapshot) (victims *roaring.Bitmap, err error) {
		victims, missing, err = snap.OrdinalsOfIDs(ctx, ids)
		return victims, err
	})
	if err != nil {
		return Affected{}, nil, err
	}
	return removed, missing, nil
}

// DeleteWhere removes the documents and passages that [Snapshot.Select] finds for a condition, in
// one transaction. If the condition is true of some passages of a document, the others stay.
func (ix *Index) DeleteWhere(ctx context.Context, where *condition.Condition) (Affected, error) {
	return Entry{ix: ix}.DeleteWhere(ctx, where)
}

// DeleteWhere does [Index.DeleteWhere] as this entry.
func (e Entry) DeleteWhere(ctx context.Context, where *condition.Condition) (Affected, error) {
	return e.DeleteSelected(ctx, func(snap *Snapshot) (*roaring.Bitmap, error) { return snap.Select(ctx, where) })
}

// Selection selects live ordinals of a snapshot for a change.
type Selection = func(*Snapshot) (*roaring.Bitmap, error)

// DeleteSelected removes the live ordinals that selectDocs returns, in one transaction. selectDocs is
// called under the write lock with the newest snapshot. A nil selectDocs selects nothing.
func (ix *Index) DeleteSelected(ctx context.Context, selectDocs Selection) (Affected, error) {
	return Entry{ix: ix}.DeleteSelected(ctx, selectDocs)
}

// DeleteSelected does [Index.DeleteSelected] as this entry.
func (e Entry) DeleteSelected(ctx context.Context, selectDocs Selection) (Affected, error) {
	c, err := e.beginChange(ctx)
	if err != nil {
		return Affected{}, err
	}
	defer c.endChange()
	return c.deleteSelected(ctx, selectDocs)
}

// Evict deletes the oldest documents beyond the limit, with all of their passages, in one
// transaction.
func (ix *Index) Evict(ctx context.Context, limit uint64) (Affected, error) {
	return ix.DeleteSelected(ctx, selectOldestBeyond(ctx, limit))
}

// OldestBeyond returns the ordinals of the oldest documents beyond the limit.
func (s *Snapshot) OldestBeyond(ctx context.Context, limit uint64) (*roaring.Bitmap, error) {
	a := NewAdmission(s)
	_, _, err := a.markOldest(ctx, limit, 0)
	return a.removed[0], err
}

// selectOldestBeyond returns a function for DeleteSelected that selects the oldest documents beyond
// the limit.
func selectOldestBeyond(ctx context.Context, limit uint64) Selection {
	return func(snap *Snapshot) (*roaring.Bitmap, error) { return snap.OldestBeyond(ctx, limit) }
}

// deleteAfterwards makes a deletion after the change was committed, still under its write lock.
func (c *change) deleteAfterwards(ctx context.Context, selectDocs Selection) (Affected, error) {
	snap, err := c.ix.Snapshot()
	if err != nil {
		return Affected{}, err
	}
	defer func() { _ = snap.Close() }()
	next := &change{ix: c.ix, snap: snap}
	return next.deleteSelected(ctx, selectDocs)
}

// deleteSelected deletes the ordinals that selectDocs returns for the snapshot of the change.
func (c *change) deleteSelected(ctx context.Context, selectDocs Selection) (Affected, error) {
	victims := roaring.New()
	if selectDocs != nil {
		var err error
		if victims, err = selectDocs(c.snap); err != nil {
			return Affected{}, err
		}
	}
	if victims.IsEmpty() {
		return Affected{}, c.recordEntry()
	}
	plan, err := c.snap.planDeletion(ctx, victims)
	if err != nil {
		return Affected{}, err
	}
	state := c.snap.State()
	err = c.update(&state, func(g *storage.Generation, sets storage.DocSets) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return plan.applyTo(g, &state, sets)
	})
	if err != nil {
		return Affected{}, err
	}
	return plan.Affected, nil
}

// deletionPlan holds the live ordinals of a snapshot that a change deletes, and their counts.
type deletionPlan struct {
	Affected
	snap    *Snapshot
	victims *roaring.Bitmap
	emptied []string // ids of documents that lose their last passages
}

// planDeletion prepares the deletion of live ordinals, and counts them.
func (s *Snapshot) planDeletion(ctx context.Context, victims *roaring.Bitmap) (*deletionPlan, error) {
	plan := &deletionPlan{snap: s, victims: victims}
	if err := plan.countOrdinals(ctx, victims); err != nil {
		return nil, err
	}
	return plan, nil
}

// countOrdinals adds some of the victims to the counts. A document counts only if none of its
// passages remains.
func (p *deletionPlan) countOrdinals(ctx context.Context, ordinals *roaring.Bitmap) error {
	lastParent := ""
	for it := ordinals.Iterator(); it.HasNext(); {
		if err := ctx.Err(); err != nil {
			return err
		}
		ordinal := it.Next()
		if !p.snap.Passages().Contains(ordinal) {
			p.Documents++
			continue
		}
		p.Passages++
		parent, _ := p.snap.PassageOf(ordinal)
		if parent == lastParent {
			continue // passages of a document are in a row
		}
		lastParent = parent
		passages, err := p.snap.PassagesOf(parent)
		if err != nil {
			return err
		}
		remain := slices.ContainsFunc(passages, func(o uint32) bool { return !p.victims.Contains(o) })
		if !remain {
			p.Documents++
			p.emptied = append(p.emptied, parent)
		}
	}
	return nil
}

// CountDeleted counts the documents and passages that a deletion would remove: passages if they are
// in counted, and a document if one of its passages is in counted and all of them are in deleted.
// Both are sets of live ordinals, and deleted includes counted.
func (s *Snapshot) CountDeleted(ctx context.Context, counted, deleted *roaring.Bitmap) (Affected, error) {
	plan := &deletionPlan{snap: s, victims: deleted}
	if err := plan.countOrdinals(ctx, counted); err != nil {
		return Affected{}, err
	}
	return plan.Affected, nil
}

// countDocuments counts the documents that live ordinals belong to, and the passages among the
// ordinals.
func (s *Snapshot) countDocuments(docs *roaring.Bitmap) (n Affected) {
	passages := roaring.And(docs, s.Passages())
	n.Passages = int(passages.GetCardinality())
	n.Documents = int(docs.GetCardinality()) - n.Passages
	lastParent := ""
	for it := passages.Iterator(); it.HasNext(); {
		if parent, _ := s.PassageOf(it.Next()); parent != lastParent { // passages of a document are in a row
			lastParent = parent
			n.Documents++
		}
	}
	return n
}

// applyTo deletes the ordinals in a transaction, and updates the state and the document sets.
func (p *deletionPlan) applyTo(g *storage.Generation, state *storage.State, sets storage.DocSets) error {
	for it := p.victims.Iterator(); it.HasNext(); {
		ordinal := it.Next()
		chunk, doc, _ := p.snap.Locate(ordinal)
		_, offsets := p.snap.ChunkDocs(chunk)
		state.Live--
		state.LiveTokens -= uint64(offsets[doc+1] - offsets[doc])
		if err := errors.Join(g.DeleteID(p.snap.ID(ordinal)), g.DeletePayload(ordinal)); err != nil {
			return err
		}
	}
	for _, parent := range p.emptied {
		if err := g.DeleteID(parent); err != nil {
			return err
		}
	}
	state.PassageParents -= uint32(len(p.emptied))
	sets.Deleted.Or(p.victims)
	sets.Payload.AndNot(p.victims)
	sets.Passages.AndNot(p.victims)
	return nil
}
