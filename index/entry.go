package index

import (
	"context"
	"errors"
	"fmt"

	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// ErrApplied: an entry of a log that has been done to the index already.
var ErrApplied = errors.New("the index has this entry of the log already")

// Entry is one entry of an ordered log of changes, as replicas of an index follow
// it. What is done through its methods, and the number of the entry, are in one
// transaction: whatever happens, an entry has been done to the index, and
// [Snapshot.Applied] says so, or it has not. So a replica that starts again goes on
// with the entry after that. An entry is for one change.
//
// Each of its methods is that of [Index] of the same name, with one more error:
// [ErrApplied], if the index has this entry or a later one; nothing is changed then.
// Where nothing is to be changed, as by a deletion of ids that are not there, the
// number is noted nevertheless. After another error it is not; [Entry.Skip] passes
// over an entry that cannot be done, so that every replica does.
type Entry struct {
	ix      *Index
	applied storage.Applied
}

// Entry is the entry of a number above 0.
func (ix *Index) Entry(sequence uint64) Entry {
	return Entry{ix, storage.Applied{Sequence: sequence}}
}

// Marked is the entry with what tells it from another one of its number, such as a digest
// of it: a log that was lost and grew again has others. [Snapshot.Applied] has the mark of
// the last entry, for comparing before a log is followed further.
func (e Entry) Marked(mark [16]byte) Entry {
	e.applied.Mark = mark
	return e
}

// Add is [Index.Add].
func (e Entry) Add(ctx context.Context, src vectors.Source, o *AddOptions) (*AddReport, error) {
	return e.ix.add(ctx, src, o, e.logged())
}

// Delete is [Index.Delete] by ids alone, as with [AddOptions].Apart: who keeps the log says
// which passages go with a document.
func (e Entry) Delete(ctx context.Context, ids []string) (deleted int, missing []string, err error) {
	return e.ix.deleteIDs(ctx, ids, false, e.logged())
}

// DeleteWhere is [Index.DeleteWhere].
func (e Entry) DeleteWhere(ctx context.Context, where *condition.Condition) (deleted int, err error) {
	return e.ix.deleteWhere(ctx, where, e.logged())
}

// UpdatePayload is [Index.UpdatePayload].
func (e Entry) UpdatePayload(ctx context.Context, where *condition.Condition, set condition.Fields) (updated int, err error) {
	return e.ix.updatePayload(ctx, where, set, e.logged())
}

// SetPayload is [Index.SetPayload].
func (e Entry) SetPayload(ctx context.Context, payloads map[string][]byte) (updated int, missing []string, err error) {
	return e.ix.setPayload(ctx, payloads, e.logged())
}

// Skip notes the number and changes nothing else.
func (e Entry) Skip(ctx context.Context) error {
	_, err := e.ix.delete(ctx, nil, e.logged())
	return err
}

// entry is what a change is told of the log: nil for one that is in none.
type entry struct{ storage.Applied }

func (e Entry) logged() *entry { return &entry{e.applied} }

// check tells whether the entry may be done to what a snapshot shows.
func (e *entry) check(snap *Snapshot) error {
	if e == nil {
		return nil
	}
	if e.Sequence == 0 {
		return fmt.Errorf("%w: entries of a log count from 1", ErrOption)
	}
	last, err := snap.Applied()
	if err == nil && e.Sequence <= last.Sequence {
		err = fmt.Errorf("%s: entry %d: %w: the last one is %d", snap.Path(), e.Sequence, ErrApplied, last.Sequence)
	}
	return err
}

// noteIn notes the entry in the transaction that does it.
func (e *entry) noteIn(tx *storage.Tx, generation uint64) error {
	if e == nil {
		return nil
	}
	return tx.PutApplied(generation, e.Applied)
}

// copyApplied brings the number along into a rewritten index.
func copyApplied(tx *storage.Tx, gen uint64, snap *Snapshot) error {
	last, err := snap.Applied()
	if err != nil || last.Sequence == 0 {
		return err
	}
	return tx.PutApplied(gen, last)
}
