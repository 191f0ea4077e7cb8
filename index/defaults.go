package index

import (
	"fmt"

	"github.com/plaid-ir/plaid/storage"
)

// Defaults returns the search parameters that are stored with the index; nil if
// there are none. They are not to be changed.
func (s *Snapshot) Defaults() (*storage.Defaults, error) { return s.picture.defaults() }

// SetDefaults stores search parameters with the index, in one transaction; nil
// removes them. Searches that name none of their own use them from the next
// snapshot on. They stay with the index through additions, deletions and
// compaction, and go when it is built anew. Its digest does not depend on them.
//
// Errors: [ErrOption] for parameters out of range, [storage.ErrReadOnly],
// [storage.ErrOutcomeUnknown], and what writing fails with.
func (ix *Index) SetDefaults(d *storage.Defaults) error {
	if d != nil {
		if err := d.Validate(); err != nil {
			return fmt.Errorf("%w: %w", ErrOption, err)
		}
	}
	ix.write <- struct{}{}
	defer ix.write.end()
	return ix.changed(ix.file.Update(func(tx *storage.Tx) error {
		gen, err := tx.Current()
		if err != nil {
			return err
		}
		return tx.PutDefaults(gen, d)
	}))
}

// copyDefaults brings the parameters along into a rewritten index. A damaged
// record stays behind: nothing but speed and recall hangs on it.
func copyDefaults(tx *storage.Tx, gen uint64, snap *Snapshot) error {
	d, err := snap.Defaults()
	if err != nil || d == nil {
		return nil
	}
	return tx.PutDefaults(gen, d)
}
