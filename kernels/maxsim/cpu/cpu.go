// Package cpu scores plain vectors on the processor. It has a backend for each tier of
// instructions that the processor can run; "generic", in plain Go, runs on any. Tiers
// differ only in the inner loops, which package tier has, and give the same bits.
// Importing the package registers the backends, as database drivers are.
//
// The files follow the data.
//
//	panels.go     query tokens as columns
//	rows.go       document tokens as float32, block by block
//	head.go       token vectors of hidden states
//	score.go      divides a call among goroutines, and finds the maxima
//	screen.go     excludes tokens that cannot win by products of fewer bits
//	segments.go   one long document on several goroutines
//	gradients.go  divides the gradients of a call among goroutines
//	pull.go       sums up the rows of a gradient
//	chamfer.go    Chamfer distances, by the same maxima
package cpu

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/kernels/internal/tier"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

func init() {
	for rank, t := range tier.Available {
		maxsim.Register(&backend{tier: t}, rank)
	}
}

// backend implements [maxsim.Backend] with the loops of a tier.
type backend struct {
	tier                         *tier.Tier
	scorers, gradients, chamfers sync.Pool
}

// Name implements [maxsim.Backend].
func (b *backend) Name() string { return b.tier.Name }

// preparedBatch is a batch that [backend.Prepare] validated and, where that pays, rounded.
type preparedBatch struct {
	owner  *backend
	batch  *maxsim.Batch
	levels *rounded // nil means that calls do not screen it
	closed atomic.Bool
}

// Shape implements [maxsim.Operand].
func (h *preparedBatch) Shape() maxsim.Shape { return h.batch.Shape() }

// Close implements [maxsim.PreparedBatch].
func (h *preparedBatch) Close() error {
	h.closed.Store(true)
	return nil
}

// Prepare implements [maxsim.Backend].
func (b *backend) Prepare(ctx context.Context, batch *maxsim.Batch) (_ maxsim.PreparedBatch, err error) {
	defer files.RecoverFault(&err, debug.SetPanicOnFault(true), faultError)
	if err := batch.Validate(); err != nil {
		return nil, err
	}
	levels, err := b.roundBatch(ctx, batch)
	if err != nil {
		return nil, err
	}
	return &preparedBatch{owner: b, batch: batch, levels: levels}, nil
}

// operand returns the batch of an operand. The error for one that another backend has
// prepared, or that is closed, wraps [maxsim.ErrForeign].
func (b *backend) operand(o maxsim.Operand) (*maxsim.Batch, error) {
	switch o := o.(type) {
	case *maxsim.Batch:
		return o, nil
	case *preparedBatch:
		if o.owner == b && !o.closed.Load() {
			return o.batch, nil
		}
	}
	return nil, fmt.Errorf("%w: %s", maxsim.ErrForeign, b.Name())
}

// operands returns the batches of two operands.
func (b *backend) operands(x, y maxsim.Operand) (xb, yb *maxsim.Batch, err error) {
	if xb, err = b.operand(x); err == nil {
		yb, err = b.operand(y)
	}
	return xb, yb, err
}

// resize returns a slice of n values with undefined contents: x itself, resliced, if its
// capacity allows.
func resize[T any](x []T, n int) []T {
	if cap(x) < n {
		return make([]T, n)
	}
	return x[:n]
}

// faultError converts the fault of a call whose operands cannot be read any more. Operands
// may be mapped files, which another program may truncate: debug.SetPanicOnFault turns such
// faults into panics, which files.RecoverFault recovers.
func faultError(err error) error { return fmt.Errorf("%w: %w", maxsim.ErrFault, err) }
