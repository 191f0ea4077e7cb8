// Package dense computes scores of plain token vectors, and their gradients, on a device. Package
// maxsim defines the interface.
//
//	format    the layout of rows of tokens in device memory
//	work      the choice of the kernel of a call, and the division of its work into units
//	params    the structs of the device code
//	project, launch, gradlaunch, chamferplan   kernels and their launches
//
// A call of a backend has its operands in host memory:
//
//	operand   batches -> packed rows; held batches
//	pieces    divides a call into pieces that fit on the device, and documents into segments
//	score     a call, piece by piece
//	results   copies the results of pieces to the caller
//	rank      the best documents of each query, kept on the device
//	head, grad, chamfer, chamfergrad   the other calls
//
// A call of a [Device] has tensors in device memory, and a stream of the caller:
//
//	tensor      operands, pairs and workspaces, and their validation
//	tensorplan, tensorpieces   kernels, pieces that fit into the workspace, tables
//	plancache   plans, kept from one call to the next
//	tensorrows  rows in the caller's memory, or packed into the workspace
//	pairlists   the pairs of each item, listed on the device
//	tensorscore, tensorhead, tensorgrad, tensorchamfer   calls
//
// The device code is in src/dense; dense.cuh documents its kernels and their structs.
package dense

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// backend implements the backends of package maxsim on a device.
type backend struct {
	dev    *runtime.Device
	work   launchWork // of the device's goroutine
	limits callLimits
}

// New returns the backend of a device.
func New(d *runtime.Device) maxsim.Backend { return &backend{dev: d, limits: usualLimits} }

// Name implements [maxsim.Backend]: it returns the name of the device.
func (b *backend) Name() string { return b.dev.Info().Name }

// submit runs a call on the device's goroutine. If it fails, submit waits for the work that it has
// started. It fails if an operand is a mapped file that was truncated, among other reasons.
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

// recoverFaults calls run, and returns a fault of mapped memory as [maxsim.ErrFault].
func recoverFaults(
	ctx context.Context, rt *runtime.Runtime, run func(context.Context, *runtime.Runtime) error,
) (err error) {
	defer files.RecoverFault(&err, debug.SetPanicOnFault(true), func(err error) error {
		return fmt.Errorf("%w: %w", maxsim.ErrFault, err)
	})
	return run(ctx, rt)
}

// wrapError adds the operation, such as "scoring", and the device to an error.
func (b *backend) wrapError(op string, err error) error {
	return fmt.Errorf("%s token vectors on %s: %w", op, b.Name(), err)
}
