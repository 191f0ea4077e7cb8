// Package transformer defines text encoders: the architecture and the tensors of a model,
// batches of texts, and the interface of models. encode/native implements models on the
// processor, kernels/cuda on devices.
//
//	config    architecture and tensors
//	check     checks that they match
//	rotary    angles of rotary positions
//	batch     texts as ids, and their checks
package transformer

import (
	"context"
	"errors"
	"fmt"

	"github.com/plaid-ir/plaid/kernels"
)

// Model is a model on a device. It is safe for concurrent use.
type Model interface {
	// About describes the model on its device.
	About() About
	// Encode writes the unit vectors of all ids of a batch to dst, [About.Dim] values each.
	// On devices of one kind, the vectors of a text have the same bits whatever the other
	// texts and their order. Errors wrap [ErrBatch], [ErrNotFinite], or those of the device
	// or the context.
	Encode(ctx context.Context, dst []float32, b Batch) error
	// EncodeHalves writes the vectors of the ids whose indices kept lists, in ascending
	// order, rounded to float16: [About.Dim] times two bytes each, little-endian. Other
	// vectors may have infinite values. Errors are those of Encode.
	EncodeHalves(ctx context.Context, dst []byte, b Batch, kept []int32) error
	// Close waits for running calls, and frees the model's memory. Later calls return
	// [kernels.ErrDeviceClosed].
	Close() error
}

// ResidentModel is a [Model] that can leave vectors in its device's memory.
type ResidentModel interface {
	// NewVectors returns an empty list of vectors on the device. It may grow to half of the
	// free memory.
	NewVectors(ctx context.Context) (kernels.ResidentVectors, error)
	// EncodeResident is EncodeHalves, but writes the vectors to the list, from number first
	// on. The error wraps [kernels.ErrDeviceMemory] if they do not fit.
	EncodeResident(ctx context.Context, to kernels.ResidentVectors, first int, b Batch, kept []int32) error
}

// About describes a model on a device.
type About struct {
	Device    kernels.DeviceInfo `json:"device"`
	Precision Precision          `json:"precision"`
	Dim       int                `json:"dim"` // of the vectors
	// Tokens is the largest number of tokens that go through the layers together.
	Tokens int `json:"tokens"`
	// Weights and Batches are bytes of the device's memory.
	Weights int64 `json:"weights"`
	Batches int64 `json:"batches"`
}

// Options configure [OnDevice].
type Options struct {
	// Memory limits the bytes of the device's memory for weights and batches. 0 means the
	// free memory.
	Memory int64
	// Tokens is the number of tokens that go through the layers together. 0 means the
	// number with which the device is fastest, as far as they fit into its memory.
	Tokens int
}

// device is a device that runs models.
type device interface {
	Transformer(ctx context.Context, c Config, w *Weights, o Options) (Model, error)
}

// OnDevice loads a model onto an opened device, or onto every device that
// [kernels.CombineDevices] combined. The model is valid until the device is closed. Errors
// wrap [ErrConfig], [ErrWeights], [kernels.ErrUnavailable] if the device runs no models, or
// errors of the device, such as full memory.
func OnDevice(ctx context.Context, d kernels.Device, c Config, w *Weights, o Options) (Model, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	if err := w.Check(&c); err != nil {
		return nil, err
	}
	members := kernels.MemberDevices(d)
	if len(members) == 1 {
		return onDevice(ctx, d, c, w, o)
	}
	var model several
	for _, member := range members {
		m, err := onDevice(ctx, member, c, w, o)
		if err != nil {
			return nil, errors.Join(err, model.Close())
		}
		model.models = append(model.models, m)
	}
	model.loads, model.info = make([]int, len(members)), d.Info()
	return &model, nil
}

// onDevice loads a checked model onto one device.
func onDevice(ctx context.Context, d kernels.Device, c Config, w *Weights, o Options) (Model, error) {
	if t, ok := d.(device); ok {
		return t.Transformer(ctx, c, w, o)
	}
	return nil, fmt.Errorf("%w: %s does not run models", kernels.ErrUnavailable, d.Info().Name)
}
