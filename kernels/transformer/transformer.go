// Package transformer is the contract of text encoders: what a model is, its sizes, forms
// and tensors, what a batch of texts is, and what computes. encode/native computes on the
// processor, kernels/cuda on devices.
//
//	config    sizes, forms and tensors
//	check     whether they belong together
//	rotary    the angles of rotary positions
//	batch     texts as ids, their check
package transformer

import (
	"context"
	"errors"
	"fmt"

	"github.com/plaid-ir/plaid/kernels"
)

// Model is a model on a device. It is safe for concurrent use.
type Model interface {
	// About says what it takes.
	About() About
	// Encode writes the unit vectors of all ids of a batch to dst, [About.Dim] values each.
	// They have the same bits whatever the company and the order, on the same kind of
	// device. Errors: [ErrBatch], [ErrNotFinite], those of the device and the context.
	Encode(ctx context.Context, dst []float32, b Batch) error
	// EncodeHalves is Encode of those ids of a batch alone that kept names, ascending, and
	// writes their vectors rounded to float16: [About.Dim] times two bytes each, little-endian.
	// A vector that is not kept may be not finite.
	EncodeHalves(ctx context.Context, dst []byte, b Batch, kept []int32) error
	// Close waits for calls that are under way, and gives back what the model holds.
	// Calls after it are [kernels.ErrDeviceClosed].
	Close() error
}

// Keeper is a [Model] that can leave vectors on its device.
type Keeper interface {
	// NewVectors makes an empty list of vectors on the device. They may take half of the memory
	// that is free.
	NewVectors(ctx context.Context) (kernels.ResidentVectors, error)
	// EncodeResident is EncodeHalves, whose vectors become those of the list from first on. An
	// error that wraps [kernels.ErrDeviceMemory] says that they have no room.
	EncodeResident(ctx context.Context, to kernels.ResidentVectors, first int, b Batch, kept []int32) error
}

// About describes a model on a device.
type About struct {
	Device    kernels.DeviceInfo `json:"device"`
	Precision Precision          `json:"precision"`
	Dim       int                `json:"dim"` // of the vectors
	// Tokens is how many go through the layers together, at most.
	Tokens int `json:"tokens"`
	// Weights and Batches are bytes of the device's memory.
	Weights int64 `json:"weights"`
	Batches int64 `json:"batches"`
}

// Options say how a model is put on a device.
type Options struct {
	// Memory is how many bytes of the device's memory the weights and batches may take; 0:
	// what is free.
	Memory int64
	// Tokens is how many go through the layers together; 0: as many as the device is best
	// given and the memory holds.
	Tokens int
}

// device is a device that runs models.
type device interface {
	Transformer(ctx context.Context, c Config, w *Weights, o Options) (Model, error)
}

// On puts a model on an opened device, on each of several. It is done with when the
// device is closed. Errors: [ErrConfig], [ErrWeights], [kernels.ErrUnavailable] where the
// device runs no models, and those of the device, such as that its memory is full.
func On(ctx context.Context, d kernels.Device, c Config, w *Weights, o Options) (Model, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	if err := w.Check(&c); err != nil {
		return nil, err
	}
	parts := kernels.MemberDevices(d)
	if len(parts) == 1 {
		return onDevice(ctx, d, c, w, o)
	}
	var model several
	for _, part := range parts {
		m, err := onDevice(ctx, part, c, w, o)
		if err != nil {
			return nil, errors.Join(err, model.Close())
		}
		model.models = append(model.models, m)
	}
	model.loads, model.info = make([]int, len(parts)), d.Info()
	return &model, nil
}

func onDevice(ctx context.Context, d kernels.Device, c Config, w *Weights, o Options) (Model, error) {
	if t, ok := d.(device); ok {
		return t.Transformer(ctx, c, w, o)
	}
	return nil, fmt.Errorf("%w: %s does not run models", kernels.ErrUnavailable, d.Info().Name)
}
