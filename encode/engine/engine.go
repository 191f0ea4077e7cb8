// Package engine is the contract between encode and what computes: token ids
// in, unit vectors out.
package engine

import (
	"context"
	"errors"
	"fmt"
)

// Engine computes the vectors of token ids. It is safe for concurrent use.
type Engine interface {
	// Dim is the dimension of the vectors.
	Dim() int
	// Chunk is about how many ids a call of Encode is best given.
	Chunk() int
	// Workers is how many calls of Encode at once are of use; 0: any number.
	Workers() int
	// Encode writes the unit vectors of all ids of a batch to dst, Dim values each.
	// Errors: [ErrBatch], [ErrNotFinite], those of the context.
	Encode(ctx context.Context, dst []float32, b Batch) error
	// Close waits for calls of Encode that are under way, and gives back what the
	// engine holds. Calls after it fail.
	Close() error
}

// Errors of engines; test with errors.Is.
var (
	// ErrBatch: ids or offsets that no text can have.
	ErrBatch = errors.New("unusable batch")
	// ErrNotFinite: a vector came out as infinite or NaN.
	ErrNotFinite = errors.New("vector is not finite")
	// ErrBackend: no backend of that name, or options that are another one's.
	ErrBackend = errors.New("unusable backend")
	// ErrNotBuiltIn: the program was built without the backend, or for a platform
	// that it does not run on.
	ErrNotBuiltIn = errors.New("backend is not built in")
	// ErrLibrary: the library of a backend cannot be used. See [LibraryError].
	ErrLibrary = errors.New("unusable library")
	// ErrDevice: no such device, or one that the library cannot use.
	ErrDevice = errors.New("unusable device")
)

// LibraryError tells why the library of a backend cannot be used. It is an
// [ErrLibrary].
type LibraryError struct {
	Path   string // "" if none was named
	Found  string // the version; "" if it is not known
	Wanted string // the versions that can be used
	Err    error
}

// Error reads like: /opt/libx.so: unusable library: found version 1.2, want 1.12 or later.
func (e *LibraryError) Error() string {
	s := ErrLibrary.Error() + ": " + e.Err.Error()
	if e.Path != "" {
		s = e.Path + ": " + s
	}
	if e.Found != "" {
		s += fmt.Sprintf(": found version %s, want %s", e.Found, e.Wanted)
	}
	return s
}

// Unwrap gives the kind and the cause.
func (e *LibraryError) Unwrap() []error { return []error{ErrLibrary, e.Err} }

// Batch is texts as token ids, one after the other: text i is
// IDs[Offsets[i]:Offsets[i+1]], and may be empty.
type Batch struct {
	IDs     []int32
	Offsets []int
	// Attended, where it is not nil, says for each text how many of its tokens,
	// from the first on, are attended to: one at least, and less than all where a
	// query is filled up with mask tokens that get vectors but give nothing.
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
