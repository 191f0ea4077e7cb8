// Package dense scores plain token vectors on a device, and gives the gradients: the
// contract is package maxsim's.
//
//	format    how rows of tokens lie in the device's memory
//	work      the kernel of a call, and how its work is cut into units
//	params    the structs of the device code
//	project, launch, gradlaunch, chamferplan   kernels and their launches
//
// A call of a backend has its operands in memory of the host:
//
//	operand   batches -> packed rows; held batches
//	pieces    parts of a call that fit the device; documents cut into segments
//	score     a call, piece by piece
//	rank      the best documents of each query, kept on the device
//	head, grad, chamfer, chamfergrad   the other calls
//
// A call of a [Device] has tensors in the device's memory, and a stream of the caller:
//
//	tensor      operands, pairs and workspaces, and their checks
//	tensorplan, tensorpieces   kernels, pieces that fit the workspace, tables
//	plancache   plans, kept from one call to the next
//	tensorrows  rows where they are, or packed into the workspace
//	pairlists   the pairs of each item, listed on the device
//	tensorscore, tensorhead, tensorgrad, tensorchamfer   calls
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
	work   launchWork // of the device's goroutine
	limits callLimits
}

// New returns the backend of a device.
func New(d *runtime.Device) maxsim.Backend { return &backend{dev: d, limits: usualLimits} }

// Name implements [maxsim.Backend]: it is that of the device.
func (b *backend) Name() string { return b.dev.Info().Name }

// submit runs a call on the device's goroutine. What it had begun is over when it fails, as
// it does where an operand is a mapped file that was cut short.
func (b *backend) submit(ctx context.Context, op string, run func(context.Context, *runtime.Runtime) error) error {
	err := b.dev.Call(ctx, func(rt *runtime.Runtime) error {
		err := recoverFaults(ctx, rt, run)
		if err != nil {
			rt.Drain()
		}
		return err
	})
	if err != nil {
		return b.wrapError(op, err)
	}
	return nil
}

// recoverFaults makes faults of mapped memory errors.
func recoverFaults(
	ctx context.Context, rt *runtime.Runtime, run func(context.Context, *runtime.Runtime) error,
) (err error) {
	defer files.RecoverFault(&err, debug.SetPanicOnFault(true), func(err error) error {
		return fmt.Errorf("%w: %w", maxsim.ErrFault, err)
	})
	return run(ctx, rt)
}

func (b *backend) wrapError(op string, err error) error {
	return fmt.Errorf("%s token vectors on %s: %w", op, b.Name(), err)
}
