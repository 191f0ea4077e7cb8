package transformer

import (
	"errors"
	"fmt"
)

// Errors of batches; test with errors.Is.
var (
	// ErrBatch: ids or offsets that no text can have.
	ErrBatch = errors.New("unusable batch")
	// ErrNotFinite: a vector came out as infinite or NaN.
	ErrNotFinite = errors.New("vector is not finite")
)

// Batch is texts as token ids, one after the other: text i is
// IDs[Offsets[i]:Offsets[i+1]], and may be empty.
type Batch struct {
	IDs     []int32
	Offsets []int
	// Attended, where it is not nil, says for each text how many of its tokens,
	// from the first on, are attended to: one at least, and less than all where a
	// query is filled up with mask tokens that get vectors but give nothing. In local
	// layers a token may reach none that is attended to: attention then gives it 0.
	Attended []int
}

// Texts is their number.
func (b *Batch) Texts() int { return max(len(b.Offsets)-1, 0) }

// Length is the number of ids of text i.
func (b *Batch) Length(i int) int { return b.Offsets[i+1] - b.Offsets[i] }

// Attends is the number of ids of text i that are attended to.
func (b *Batch) Attends(i int) int {
	if b.Attended != nil {
		return b.Attended[i]
	}
	return b.Length(i)
}

// Check holds a batch against what it has to be, and against room for so many
// values of vectors. Errors: [ErrBatch].
func (b *Batch) Check(room, dim int) error {
	n := len(b.Offsets)
	if n == 0 || b.Offsets[0] != 0 || b.Offsets[n-1] != len(b.IDs) {
		return fmt.Errorf("%w: offsets do not span the %d ids", ErrBatch, len(b.IDs))
	}
	if b.Attended != nil && len(b.Attended) != n-1 {
		return fmt.Errorf("%w: %d texts, but lengths attended of %d", ErrBatch, n-1, len(b.Attended))
	}
	if room != len(b.IDs)*dim {
		return fmt.Errorf("%w: room for %d values, not the %d × %d of %d ids", ErrBatch, room, len(b.IDs), dim, len(b.IDs))
	}
	for i := range n - 1 {
		switch a, length := b.Attends(i), b.Length(i); {
		case length < 0:
			return fmt.Errorf("%w: text %d ends before it begins", ErrBatch, i)
		case a < min(1, length) || a > length:
			return fmt.Errorf("%w: text %d attends to %d of %d tokens", ErrBatch, i, a, length)
		}
	}
	return nil
}

// CheckKept holds ids of a batch that are kept against it, and against room for so many
// bytes of halves. Errors: [ErrBatch].
func (b *Batch) CheckKept(kept []int32, room, dim int) error {
	if room != 2*len(kept)*dim {
		return fmt.Errorf("%w: room for %d bytes, not the 2 × %d × %d of %d ids that are kept", ErrBatch, room, len(kept), dim, len(kept))
	}
	last := int32(-1)
	for i, id := range kept {
		if id <= last || int(id) >= len(b.IDs) {
			return fmt.Errorf("%w: id %d is kept behind %d, of %d; it is number %d of those", ErrBatch, id, last, len(b.IDs), i)
		}
		last = id
	}
	return nil
}

// CheckBatch holds a batch against a model of so many dimensions and words, and against
// room for so many values of vectors. Errors: [ErrBatch].
func (c *Config) CheckBatch(b *Batch, room, dim, words int) error {
	if err := b.Check(room, dim); err != nil {
		return err
	}
	for i := range b.Texts() {
		if length := b.Length(i); length > c.MaxPositions {
			return fmt.Errorf("%w: text %d has %d tokens, more than the model's %d", ErrBatch, i, length, c.MaxPositions)
		}
	}
	for i, id := range b.IDs {
		if id < 0 || int(id) >= words {
			return fmt.Errorf("%w: id %d at %d is not in the vocabulary of %d", ErrBatch, id, i, words)
		}
	}
	return nil
}
