// Package dense scores plain token vectors on a device, and gives the gradients: the
// contract is package maxsim's.
//
//	format    how rows of tokens lie in the device's memory
//	operand   batches -> packed rows; held batches
//	work      which kernel, and who does what
//	pieces    what of a call is on the device at a time; documents cut into segments
//	score     a call, piece by piece
//	rank      the best documents of each query, kept on the device
//	head      token vectors of hidden states
//	grad      gradients
//	chamfer   Chamfer distances and their gradients
//
// The device code is in src/dense, its kernels and their structs in dense.cuh.
package dense

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// backend is the backend of a device.
type backend struct {
	dev    *runtime.Device
	work   work // of the device's goroutine
	limits limits
}

// New returns the backend of a device.
func New(d *runtime.Device) maxsim.Backend { return &backend{dev: d, limits: usualLimits} }

// Name implements [maxsim.Backend]: it is that of the device.
func (b *backend) Name() string { return b.dev.Info().Name }

// submit runs a call on the device's goroutine. What it had begun is over when it fails, as
// it does where an operand is a mapped file that was cut short.
func (b *backend) submit(ctx context.Context, what string, run func(context.Context, *runtime.Runtime) error) error {
	err := b.dev.Call(ctx, func(rt *runtime.Runtime) error {
		err := guarded(ctx, rt, run)
		if err != nil {
			rt.Drain()
		}
		return err
	})
	if err != nil {
		return b.fault(what, err)
	}
	return nil
}

// guarded makes faults of mapped memory errors.
func guarded(ctx context.Context, rt *runtime.Runtime, run func(context.Context, *runtime.Runtime) error) (err error) {
	defer files.RecoverFault(&err, debug.SetPanicOnFault(true), func(err error) error { return fmt.Errorf("%w: %w", maxsim.ErrFault, err) })
	return run(ctx, rt)
}

func (b *backend) fault(what string, err error) error {
	return fmt.Errorf("%s token vectors on %s: %w", what, b.Name(), err)
}
