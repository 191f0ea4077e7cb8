package transformer

import (
	"errors"
	"fmt"
)

// Errors of batches; test with errors.Is.
var (
	// ErrBatch is returned for ids, offsets or lengths that are out of range.
	ErrBatch = errors.New("unusable batch")
	// ErrNotFinite is returned if a computed vector has an infinite value or NaN.
	ErrNotFinite = errors.New("vector is not finite")
)

// Batch is texts as consecutive token ids: text i is IDs[Offsets[i]:Offsets[i+1]], and may be
// empty.
type Batch struct {
	IDs     []int32
	Offsets []int
	// Attended has for each text the number of its tokens, from the first on, that
	// attention reads: at least one. It is less than all for queries that are padded with
	// mask tokens, which get vectors but do not influence others. nil means all tokens. In
	// local layers a token may reach none of them; attention then gives it 0.
	Attended []int
}

// Texts returns the number of texts.
func (b *Batch) Texts() int { return max(len(b.Offsets)-1, 0) }

// Length returns the number of ids of text i.
func (b *Batch) Length(i int) int { return b.Offsets[i+1] - b.Offsets[i] }

// AttendedLength returns the number of ids of text i that attention reads.
func (b *Batch) AttendedLength(i int) int {
	if b.Attended != nil {
		return b.Attended[i]
	}
	return b.Length(i)
}

// Check checks the batch, and that room, the number of values of the caller's array, is that
// of one vector of dim values for each id. Errors wrap [ErrBatch].
func (b *Batch) Check(room, dim int) error {
	n := len(b.Offsets)
	if n == 0 || b.Offsets[0] != 0 || b.Offsets[n-1] != len(b.IDs) {
		return fmt.Errorf("%w: offsets do not span the %d ids", ErrBatch, len(b.IDs))
	}
	if b.Attended != nil && len(b.Attended) != n-1 {
		return fmt.Errorf("%w: %d texts, but attended lengths of %d", ErrBatch, n-1, len(b.Attended))
	}
	if room != len(b.IDs)*dim {
		return fmt.Errorf("%w: room for %d values, not the %d × %d of %d ids",
			ErrBatch, room, len(b.IDs), dim, len(b.IDs))
	}
	for i := range n - 1 {
		switch a, length := b.AttendedLength(i), b.Length(i); {
		case length < 0:
			return fmt.Errorf("%w: text %d ends before it begins", ErrBatch, i)
		case a < min(1, length) || a > length:
			return fmt.Errorf("%w: text %d attends to %d of %d tokens", ErrBatch, i, a, length)
		}
	}
	return nil
}

// CheckKept checks that kept lists indices of the batch's ids in ascending order, and that
// room, the number of bytes of the caller's array, is that of their vectors of dim float16.
// Errors wrap [ErrBatch].
func (b *Batch) CheckKept(kept []int32, room, dim int) error {
	if room != 2*len(kept)*dim {
		return fmt.Errorf("%w: room for %d bytes, not the 2 × %d × %d of %d kept ids",
			ErrBatch, room, len(kept), dim, len(kept))
	}
	last := int32(-1)
	for i, id := range kept {
		if id <= last || int(id) >= len(b.IDs) {
			return fmt.Errorf("%w: kept[%d] is %d after %d; want ascending indices of %d ids",
				ErrBatch, i, id, last, len(b.IDs))
		}
		last = id
	}
	return nil
}

// CheckBatch checks a batch for a model with vectors of dim values and a vocabulary of words
// ids. room is that of [Batch.Check]. Errors wrap [ErrBatch].
func (c *Config) CheckBatch(b *Batch, room, dim, words int) error {
	if err := b.Check(room, dim); err != nil {
		return err
	}
	for i := range b.Texts() {
		if length := b.Length(i); length > c.MaxPositions {
			return fmt.Errorf("%w: text %d has %d tokens, more than the model's %d",
				ErrBatch, i, length, c.MaxPositions)
		}
	}
	for i, id := range b.IDs {
		if id < 0 || int(id) >= words {
			return fmt.Errorf("%w: id %d at %d is not in the vocabulary of %d", ErrBatch, id, i, words)
		}
	}
	return nil
}
