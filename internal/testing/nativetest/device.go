// Package nativetest has a device for tests that runs models on the processor.
package nativetest

import (
	"cmp"
	"context"
	"sync/atomic"

	"github.com/plaid-ir/plaid/encode/native"
	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
	"github.com/plaid-ir/plaid/kernels/transformer"
)

// Device runs models on the processor, and reports half precision.
type Device struct {
	kerneltest.Device
	// Tokens, Weights and Batches are the limits and sizes that models report. 0 means 500 tokens, no
	// weights, and batches of the memory in their options.
	Tokens           int
	Weights, Batches int64
	// Refuses returns an error for models that do not fit on the device. It may be nil.
	Refuses func(transformer.Options) error
	// Floats and Halves count the vectors that were copied from the device.
	Floats, Halves atomic.Int64
}

// Transformer implements transformer.On.
func (d *Device) Transformer(
	_ context.Context, c transformer.Config, w *transformer.Weights, o transformer.Options,
) (transformer.Model, error) {
	if d.Refuses != nil {
		if err := d.Refuses(o); err != nil {
			return nil, err
		}
	}
	m, err := native.New(c, w, native.Options{})
	return &model{m, d, cmp.Or(d.Batches, o.Memory)}, err
}

type model struct {
	*native.Model
	device  *Device
	batches int64
}

// About implements [transformer.Model].
func (m *model) About() transformer.About {
	return transformer.About{
		Device:    m.device.Info(),
		Precision: transformer.F16,
		Dim:       m.Dim(),
		Tokens:    cmp.Or(m.device.Tokens, 500),
		Weights:   m.device.Weights,
		Batches:   m.batches,
	}
}

// Encode implements [transformer.Model].
func (m *model) Encode(ctx context.Context, dst []float32, b transformer.Batch) error {
	m.device.Floats.Add(int64(len(b.IDs)))
	return m.Model.Encode(ctx, dst, b)
}

// EncodeHalves implements [transformer.Model].
func (m *model) EncodeHalves(ctx context.Context, dst []byte, b transformer.Batch, kept []int32) error {
	m.device.Halves.Add(int64(len(kept)))
	return kerneltest.EncodeHalves(ctx, m.Model.Encode, m.Dim(), dst, b, kept)
}
