package storage

import (
	"encoding/binary"

	"github.com/plaid-ir/plaid/storage/internal/layout"
)

// Applied is how far a generation has followed an ordered log of changes.
type Applied struct {
	// Sequence is the number of the last entry that has been done; 0: none has.
	Sequence uint64
	// Mark tells that entry from another one of its number, of another log; zero: nothing
	// does.
	Mark [16]byte
}

// PutApplied stores how far a generation has followed a log. It belongs into the
// transaction that does the last entry. It is no part of the content, nor of its digest.
func (tx *Tx) PutApplied(generation uint64, a Applied) error {
	v := binary.LittleEndian.AppendUint64(nil, generation)
	v = binary.LittleEndian.AppendUint64(v, a.Sequence)
	if a.Mark != [16]byte{} {
		v = append(v, a.Mark[:]...)
	}
	return tx.root.Put(layout.KeyApplied, layout.Seal(layout.KeyApplied, v))
}

// Applied reads what PutApplied stored for the generation of the view; zero if there is
// nothing, as where the index has been built anew since.
func (v *View) Applied() (a Applied, err error) {
	defer Guard(v.file.path, &err)()
	sealed, err := frameRecord(v.tx.Bucket(layout.RootBucket), layout.KeyApplied, v.file.path)
	if sealed == nil {
		return a, err
	}
	b, ok := layout.Unseal(layout.KeyApplied, sealed)
	if !ok || len(b) != 16 && len(b) != 32 {
		return a, v.corrupt(layout.ErrChecksum, "the number of the last entry that was applied")
	}
	if binary.LittleEndian.Uint64(b) != v.generation {
		return a, nil
	}
	a.Sequence = binary.LittleEndian.Uint64(b[8:])
	copy(a.Mark[:], b[16:])
	return a, nil
}
