package wire

import "fmt"

// A group is one entry of a log with several batches, which were waiting at the same time.
// Each of them is carried out or refused by itself, in their order, and has its own answer.
const groupMagic = "PLG1"

// groupLeast is what a batch takes in a group at least: its length, and its own frame.
const groupLeast = 4 + 40

// GroupSize is how large a group is whose batches, encoded, have so many bytes together.
func GroupSize(batches, bytes int) int { return len(groupMagic) + 1 + 4 + 4*batches + bytes + 4 }

// EncodeGroup returns the entry that has some encoded batches in it; one alone is an entry as
// it is.
func EncodeGroup(batches [][]byte) []byte {
	if len(batches) == 1 {
		return batches[0]
	}
	size := 0
	for _, b := range batches {
		size += len(b)
	}
	w := begin(groupMagic, GroupSize(len(batches), size))
	w.u8(version)
	w.u32(uint32(len(batches)))
	for _, b := range batches {
		w.u32(uint32(len(b)))
		w.bytes(b)
	}
	return w.sealed()
}

// DecodeEntry reads an entry of a log: a batch, or a group of them. A damaged batch is a fault
// of the whole.
func DecodeEntry(msg []byte) ([]*Batch, error) {
	if len(msg) < len(groupMagic) || string(msg[:len(groupMagic)]) != groupMagic {
		b, err := DecodeBatch(msg)
		if err != nil {
			return nil, err
		}
		return []*Batch{b}, nil
	}
	r := open("group", groupMagic, msg)
	batches := make([]*Batch, 0, r.count(uint64(r.u32()), groupLeast))
	for i := range cap(batches) {
		text := r.take(uint64(r.u32()))
		if r.err != nil {
			break
		}
		b, err := DecodeBatch(text)
		if err != nil {
			return nil, fmt.Errorf("group: batch %d: %w", i, err)
		}
		batches = append(batches, b)
	}
	if err := r.close(); err != nil {
		return nil, err
	}
	return batches, nil
}
