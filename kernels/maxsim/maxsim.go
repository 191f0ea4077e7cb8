// Package maxsim scores plain token vectors: float32, float16, bfloat16, int8 and
// FP8. It has the contract of the family (what a call is, what a backend is), and
// the float64 oracle that every backend is held to.
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
// an empty query. Masked query tokens add nothing. Values have to be finite: what
// others score is not defined, though nothing breaks.
//
// With Normalize every token vector is divided by its length first, inside the
// kernel; vectors of zeros stay zeros.
//
// # Calls
//
// A [Batch] is a matrix of tokens and how it is cut into items: packed, with
// offsets (the cu_seqlens of varlen kernels), or padded, with lengths or a mask.
// [Pairs] say which query meets which document. A [Backend] does a [Call] on them,
// and [Backend.Gradients] what training needs. [Backend.Hold] takes documents over
// once, for many calls: on a device they stay in its memory, on the processor what it
// needs of them to exclude most tokens is made ahead, and the results are the same.
//
// Backends of the processor register themselves when kernels/maxsim/cpu is
// imported. A device that has one gives it by [On].
package maxsim

import (
	"context"
	"errors"
	"fmt"

	"github.com/plaid-ir/plaid/internal/registry"
	"github.com/plaid-ir/plaid/kernels"
)

// Errors of this package, beside [kernels.ErrShape] for arrays, offsets and indices
// that do not fit each other.
var (
	// ErrUnsupported says that a backend does not do what is asked of it.
	ErrUnsupported = errors.New("maxsim: not supported by this backend")
	// ErrForeign says that an operand is held by another backend, or closed.
	ErrForeign = errors.New("maxsim: operand is not held by this backend")
	// ErrFault says that memory of an operand cannot be read: it is a mapped file that
	// was cut short.
	ErrFault = errors.New("maxsim: memory of an operand cannot be read")
)

// Backend computes scores and gradients. It is safe for concurrent use. Every
// method checks its call first, with the Check of the call, and writes nothing if
// there is an error in it; a context that ends leaves the results undefined.
type Backend interface {
	// Name is what the backend is asked for by.
	Name() string
	// Hold takes a batch over. The batch must not change before the held one is
	// closed.
	Hold(ctx context.Context, b *Batch) (Held, error)
	// Score writes scores, and argmaxima where the call has room for them.
	Score(ctx context.Context, c *Call) error
	// Gradients writes the gradients of what Score computed.
	Gradients(ctx context.Context, g *GradCall) error
}

// Operand is a [*Batch], or what a backend made of one.
type Operand interface {
	// Shape describes the tokens.
	Shape() Shape
}

// Held is a batch that a backend has taken over. It may be an operand of any
// number of calls at a time.
type Held interface {
	Operand
	// Close gives back what the backend holds; calls that run must have ended. It
	// may be called more than once.
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

// Select returns the backend of the processor of that name; "" and errors are as in
// [kernels.Select].
func Select(name string) (Backend, error) {
	return backends.Select(name, kernels.EnvCPU, "kernels/maxsim/cpu", kernels.ErrUnavailable)
}

// On returns the backend of an opened device. It is done with when the device is
// closed.
func On(d kernels.Device) (Backend, error) {
	if m, ok := d.(interface{ MaxSim() (Backend, error) }); ok {
		return m.MaxSim()
	}
	return nil, fmt.Errorf("%w: %s does not score plain vectors", kernels.ErrUnavailable, d.Info().Name)
}

// shapeErrorf is a [kernels.ErrShape] with a reason.
func shapeErrorf(format string, args ...any) error {
	return fmt.Errorf("%w: %w", kernels.ErrShape, fmt.Errorf(format, args...))
}
