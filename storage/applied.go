package storage

import "encoding/binary"

var keyApplied = []byte("applied")

// PutApplied stores how far a generation has followed an ordered log of changes: the
// number of the last entry that has been done to it. It belongs into the transaction
// that does so. It is no part of the content, nor of its digest.
func (tx *Tx) PutApplied(generation, sequence uint64) error {
	v := binary.LittleEndian.AppendUint64(nil, generation)
	v = binary.LittleEndian.AppendUint64(v, sequence)
	return tx.root.Put(keyApplied, seal(keyApplied, v))
}

// Applied reads what PutApplied stored for the generation of the view; 0 if there is
// nothing, as where the index has been built anew since.
func (v *View) Applied() (sequence uint64, err error) {
	defer Guard(v.file.path, &err)()
	v.mu.Lock()
	defer v.mu.Unlock()
	const what = "the number of the last entry that was applied"
	root := v.tx.Bucket(rootBucket)
	sealed := root.Get(keyApplied)
	if sealed == nil {
		return 0, v.damagedName(root, what)
	}
	b, ok := unseal(keyApplied, sealed)
	if !ok || len(b) != 16 {
		return 0, v.bad(errChecksum, what)
	}
	if binary.LittleEndian.Uint64(b) != v.generation {
		return 0, nil
	}
	return binary.LittleEndian.Uint64(b[8:]), nil
}
