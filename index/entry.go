package index

import (
	"context"
	"errors"
	"fmt"

	"github.com/plaid-ir/plaid/storage"
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
	applied *storage.Applied // nil: of no log
}

// Change is a change of no log.
func (ix *Index) Change() Entry { return Entry{ix: ix} }

// Entry is the entry of a number above 0.
func (ix *Index) Entry(sequence uint64) Entry {
	return Entry{ix, &storage.Applied{Sequence: sequence}}
}

// Marked is the entry with what tells it from another one of its number, such as a digest
// of it: a log that was lost and grew again has others. [Snapshot.Applied] has the mark of
// the last entry, for comparing before a log is followed further.
func (e Entry) Marked(mark [16]byte) Entry {
	return Entry{e.ix, &storage.Applied{Sequence: e.applied.Sequence, Mark: mark}}
}

// Skip notes the number and changes nothing else.
func (e Entry) Skip(ctx context.Context) error {
	_, err := e.DeleteChosen(ctx, nil)
	return err
}

// checkNotApplied tells whether the entry may be done to what a snapshot shows.
func (e Entry) checkNotApplied(snap *Snapshot) error {
	if e.applied == nil {
		return nil
	}
	if e.applied.Sequence == 0 {
		return fmt.Errorf("%w: entries of a log count from 1", ErrOption)
	}
	last, err := snap.Applied()
	if n := e.applied.Sequence; err == nil && n <= last.Sequence {
		err = fmt.Errorf("%s: entry %d: %w: the last one is %d", snap.Path(), n, ErrApplied, last.Sequence)
	}
	return err
}

// recordIn notes the entry in the transaction that does it.
func (e Entry) recordIn(tx *storage.Tx, generation uint64) error {
	if e.applied == nil {
		return nil
	}
	return tx.PutApplied(generation, *e.applied)
}

// copyApplied brings the number along into a rewritten index.
func copyApplied(tx *storage.Tx, gen uint64, snap *Snapshot) error {
	last, err := snap.Applied()
	if err != nil || last.Sequence == 0 {
		return err
	}
	return tx.PutApplied(gen, last)
}
