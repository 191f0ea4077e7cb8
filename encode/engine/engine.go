// Package engine defines the contract between encode and the engines, which compute
// unit vectors from token ids.
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
	// Chunk is about how many ids are best for a call of Encode.
	Chunk() int
	// Workers is how many concurrent calls of Encode are useful. 0 means any number.
	Workers() int
	// Encode writes the unit vectors of all ids of a batch to dst, Dim values each.
	// Errors: [ErrBatch], [ErrNotFinite], and those of the context.
	Encode(ctx context.Context, dst []float32, b Batch) error
	// Close waits for running calls of Encode, and releases the memory and
	// handles of the engine. Later calls fail.
	Close() error
}

// Errors of engines; test with errors.Is.
var (
	// ErrBatch reports ids or offsets that no text can have.
	ErrBatch = transformer.ErrBatch
	// ErrNotFinite reports a vector that is infinite or NaN.
	ErrNotFinite = transformer.ErrNotFinite
	// ErrBackend reports an unknown backend, or options of another backend.
	ErrBackend = errors.New("unusable backend")
	// ErrNotBuiltIn reports a program that was built without the backend, or for a platform
	// that the backend does not support.
	ErrNotBuiltIn = errors.New("backend is not built in")
	// ErrLibrary reports that the library of a backend cannot be used. See [LibraryError].
	ErrLibrary = errors.New("unusable library")
	// ErrDevice reports a device that cannot run the model.
	ErrDevice = errors.New("unusable device")
)

// LibraryError reports why the library of a backend cannot be used. It wraps
// [ErrLibrary].
type LibraryError struct {
	Path   string // "" means that no path was named
	Found  string // the version. "" means unknown
	Wanted string // the versions that the backend supports
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

// Unwrap returns ErrLibrary and the cause.
func (e *LibraryError) Unwrap() []error { return []error{ErrLibrary, e.Err} }

// Batch holds texts as token ids, one after the other.
type Batch = transformer.Batch
