// Package maxsim scores plain token vectors: float32, float16, bfloat16, int8 and
// FP8. It defines calls, the interface of backends, and the float64 oracle that every
// backend is tested against.
//
// # Score
//
// A query is a matrix of token vectors, and so is a document. Their score is
//
//	MaxSim(Q, D) = Σ_s weight_s · max_{t∈D} ⟨q_s, d_t⟩
//
// with maxima that start at −∞: a token that is masked never wins, and negative
// maxima stay negative. Of tokens with the same product the first wins. An empty
// document, or one whose tokens are all masked, scores 0 and has no argmax; so does
// an empty query. Masked query tokens add nothing. Scores of vectors with infinite values
// or NaN are undefined, but computing them is safe.
//
// With Normalize every token vector is divided by its length first, inside the
// kernel; vectors of zeros stay zeros.
//
// # Calls
//
// A [Batch] is a matrix of tokens, and their division into items: packed, with
// offsets (the cu_seqlens of varlen kernels), or padded, with lengths or a mask.
// [Pairs] select the query and the document of each score. A [Backend] executes a [Call]
// on them; [Backend.Gradients] computes the gradients for training. [Backend.Prepare] prepares
// documents once for many calls: a device stores them in its memory, the processor rounds
// them for screening. Results are the same.
//
// Backends of the processor register themselves when kernels/maxsim/cpu is
// imported. [OnDevice] returns the backend of a device.
package maxsim

import (
	"context"
	"errors"
	"fmt"

	"github.com/plaid-ir/plaid/internal/registry"
	"github.com/plaid-ir/plaid/kernels"
)

// Errors of this package. Others wrap [kernels.ErrShape], for arrays, offsets and indices
// that contradict each other.
var (
	// ErrUnsupported is returned where a backend does not implement a computation.
	ErrUnsupported = errors.New("maxsim: not supported by this backend")
	// ErrForeign is returned for an operand that another backend prepared, or that is closed.
	ErrForeign = errors.New("maxsim: operand is not held by this backend")
	// ErrFault is returned where memory of an operand cannot be read, because it is a
	// mapped file that was truncated.
	ErrFault = errors.New("maxsim: memory of an operand cannot be read")
)

// Backend computes scores and gradients. It is safe for concurrent use. Every
// method checks its call first, with the call's own Check, and writes nothing if that
// fails. If the context is canceled, results are undefined.
type Backend interface {
	// Name returns the name by which [Select] finds the backend.
	Name() string
	// Prepare prepares a batch for many calls. The batch must not change until the prepared
	// batch is closed.
	Prepare(ctx context.Context, b *Batch) (PreparedBatch, error)
	// Score writes scores, and argmaxima if the call's Argmax is not nil.
	Score(ctx context.Context, c *Call) error
	// Gradients writes the gradients of scores that Score computed.
	Gradients(ctx context.Context, g *GradCall) error
}

// Operand is a [*Batch] or a [PreparedBatch].
type Operand interface {
	// Shape describes the tokens.
	Shape() Shape
}

// PreparedBatch is a batch that a backend has prepared. Any number of calls may use it at the
// same time.
type PreparedBatch interface {
	Operand
	// Close releases the backend's memory. All calls with the operand must have
	// returned. It may be called more than once.
	Close() error
}

var backends = new(registry.Registry[Backend])

// Register makes a backend of the processor available; see [kernels.Register].
func Register(b Backend, rank int) {
	if !backends.Add(b, rank) {
		panic("maxsim: backend registered twice: " + b.Name())
	}
}

// Backends lists the registered names, sorted.
func Backends() []string { return backends.Names() }

// Select returns the backend of the processor with that name. "" and errors are those of
// [kernels.Select].
func Select(name string) (Backend, error) {
	return backends.Select(name, kernels.EnvCPU, "kernels/maxsim/cpu", kernels.ErrUnavailable)
}

// OnDevice returns the backend of an opened device. It is valid until the device is closed. The
// error wraps [kernels.ErrUnavailable] if the device has none.
func OnDevice(d kernels.Device) (Backend, error) {
	if m, ok := d.(interface{ MaxSim() (Backend, error) }); ok {
		return m.MaxSim()
	}
	return nil, fmt.Errorf("%w: %s does not score plain vectors", kernels.ErrUnavailable, d.Info().Name)
}

// shapeErrorf returns a formatted error that wraps [kernels.ErrShape].
func shapeErrorf(format string, args ...any) error {
	return fmt.Errorf("%w: %w", kernels.ErrShape, fmt.Errorf(format, args...))
}
