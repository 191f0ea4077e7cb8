package index

import (
	"context"
	"errors"
	"fmt"

	"github.com/plaid-ir/plaid/storage"
)

// ErrApplied reports an entry of a log that the index has already.
var ErrApplied = errors.New("the index has this entry of the log already")

// Entry is one entry of an ordered log of changes, which replicas of an index follow. A change made
// through its methods, and the number of the entry, are in one transaction: whatever happens, the
// index has either the change, and [Snapshot.Applied] says so, or not. So a replica that restarts
// continues with the next entry. An entry is for one change.
//
// Each of its methods does the same as that of [Index] with its name, and has one more error:
// [ErrApplied], if the index has this entry or a later one; then nothing is changed. If there is
// nothing to change, as in a deletion of unknown ids, the number is recorded nevertheless. After
// another error it is not; [Entry.Skip] records an entry that cannot be applied, so that every
// replica skips it.
type Entry struct {
	ix      *Index
	applied *storage.Applied // nil means that the change is in no log
}

// Change returns an Entry for a change that is in no log.
func (ix *Index) Change() Entry { return Entry{ix: ix} }

// Entry returns the entry with a number above 0.
func (ix *Index) Entry(sequence uint64) Entry {
	return Entry{ix, &storage.Applied{Sequence: sequence}}
}

// WithMark returns the entry with a mark that distinguishes it from another entry of its number, such
// as a digest of it: a log that was lost and grew again has other entries. [Snapshot.Applied]
// returns the mark of the last entry, to compare before a log is followed further.
func (e Entry) WithMark(mark [16]byte) Entry {
	return Entry{e.ix, &storage.Applied{Sequence: e.applied.Sequence, Mark: mark}}
}

// Skip records the number and changes nothing else.
func (e Entry) Skip(ctx context.Context) error {
	_, err := e.DeleteSelected(ctx, nil)
	return err
}

// checkNotApplied checks that the snapshot does not have the entry yet.
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

// recordIn records the entry in the transaction that applies it.
func (e Entry) recordIn(tx *storage.Tx, generation uint64) error {
	if e.applied == nil {
		return nil
	}
	return tx.PutApplied(generation, *e.applied)
}

// copyApplied copies the number of the last entry into a rewritten index.
func copyApplied(tx *storage.Tx, gen uint64, snap *Snapshot) error {
	last, err := snap.Applied()
	if err != nil || last.Sequence == 0 {
		return err
	}
	return tx.PutApplied(gen, last)
}
