// Package cpu scores plain vectors on the processor: a backend for each tier that the
// processor can run ("generic" is plain Go on any). Tiers differ in the inner loops
// only and give the same bits; package tier has those. Import it to have the
// backends registered, as database drivers are.
//
// The files follow the data: panels.go lays the queries out in columns, rows.go brings
// documents to float32, or, with head.go, what a head makes of them, score.go cuts the
// work in pieces and finds the maxima, segments.go those of one long document,
// gradients.go and pull.go go back, and chamfer.go uses the same maxima for distances.
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

// held is a batch that was checked.
type held struct {
	owner  *backend
	batch  *maxsim.Batch
	levels *rounded // nil: it is not screened, or rounded in each call
	closed atomic.Bool
}

// Shape implements [maxsim.Operand].
func (h *held) Shape() maxsim.Shape { return h.batch.Shape() }

// Close implements [maxsim.Held].
func (h *held) Close() error {
	h.closed.Store(true)
	return nil
}

// Hold implements [maxsim.Backend].
func (b *backend) Hold(ctx context.Context, batch *maxsim.Batch) (_ maxsim.Held, err error) {
	defer files.RecoverFault(&err, debug.SetPanicOnFault(true), faultError)
	if err := batch.Validate(); err != nil {
		return nil, err
	}
	levels, err := b.roundBatch(ctx, batch)
	if err != nil {
		return nil, err
	}
	return &held{owner: b, batch: batch, levels: levels}, nil
}

// operand is the batch of an operand.
func (b *backend) operand(o maxsim.Operand) (*maxsim.Batch, error) {
	switch o := o.(type) {
	case *maxsim.Batch:
		return o, nil
	case *held:
		if o.owner == b && !o.closed.Load() {
			return o.batch, nil
		}
	}
	return nil, fmt.Errorf("%w: %s", maxsim.ErrForeign, b.Name())
}

// operands are those of two operands.
func (b *backend) operands(x, y maxsim.Operand) (xb, yb *maxsim.Batch, err error) {
	if xb, err = b.operand(x); err == nil {
		yb, err = b.operand(y)
	}
	return xb, yb, err
}

// resize returns x with n values, which are not kept.
func resize[T any](x []T, n int) []T {
	if cap(x) < n {
		return make([]T, n)
	}
	return x[:n]
}

// faultError is the error of a call whose operands cannot be read any more. Operands may be
// mapped files, which another program may cut short: goroutines that read them make such
// faults panics.
func faultError(err error) error { return fmt.Errorf("%w: %w", maxsim.ErrFault, err) }
