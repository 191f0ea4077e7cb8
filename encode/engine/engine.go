// Package engine is the contract between encode and what computes: token ids
// in, unit vectors out.
package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/plaid-ir/plaid/kernels/transformer"
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
	ErrBatch = transformer.ErrBatch
	// ErrNotFinite: a vector came out as infinite or NaN.
	ErrNotFinite = transformer.ErrNotFinite
	// ErrBackend: no backend of that name, or options that are another one's.
	ErrBackend = errors.New("unusable backend")
	// ErrNotBuiltIn: the program was built without the backend, or for a platform
	// that it does not run on.
	ErrNotBuiltIn = errors.New("backend is not built in")
	// ErrLibrary: the library of a backend cannot be used. See [LibraryError].
	ErrLibrary = errors.New("unusable library")
	// ErrDevice: the device cannot run the model.
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

// Batch is texts as token ids, one after the other.
type Batch = transformer.Batch
