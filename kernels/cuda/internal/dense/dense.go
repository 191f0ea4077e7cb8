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
	"fmt"

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

func (b *backend) fault(what string, err error) error {
	return fmt.Errorf("%s token vectors on %s: %w", what, b.Name(), err)
}
