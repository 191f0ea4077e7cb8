package flags

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/encode/modeldir"
	"github.com/plaid-ir/plaid/kernels"
)

// DeviceOpener opens the device of a command; nil for the processor.
type DeviceOpener func(context.Context) (OpenedDevice, error)

// OpenedDevice is a device that is open for as long as a command runs.
type OpenedDevice struct {
	kernels.Device
	Memory int64 // that may be used; 0: what is free
	// Auto: nobody named the device, so that what it cannot do the processor does.
	Auto bool
	Note func(format string, args ...any) // tells what was decided
}

// OpenWith opens what computes: on a device, where there is one and no other encoder was
// named. What was named and cannot be is an error.
func (e *Encoder) OpenWith(ctx context.Context, dir string, o *encode.Options,
	openDevice DeviceOpener) (*encode.Encoder, error) {
	enc, err := e.openOnDevice(ctx, dir, o, openDevice)
	return enc, e.Explain(err)
}

// Explain names the flag whose length a model does not take, and the key of --model-settings that
// decides where files leave something open or contradict each other.
func (e *Encoder) Explain(err error) error {
	var modelError *modeldir.ModelError
	var lengthError *modeldir.LengthError
	if errors.As(err, &modelError) && errors.As(err, &lengthError) {
		for _, flag := range []string{"query-length", "document-length"} {
			if modelError.Field == strings.ReplaceAll(flag, "-", "_") && e.changed(flag) {
				return Usagef("--%s %w", flag, lengthError)
			}
		}
	}
	if modelError != nil && modelError.Setting != "" {
		return fmt.Errorf("%w; %s in a file of --model-settings decides", err, modelError.Setting)
	}
	return err
}

func (e *Encoder) openOnDevice(ctx context.Context, dir string, o *encode.Options,
	openDevice DeviceOpener) (*encode.Encoder, error) {
	if o.Backend != "" && o.Backend != encode.Device {
		return e.openOnProcessor(ctx, dir, o)
	}
	var device OpenedDevice
	if openDevice != nil {
		var err error
		if device, err = openDevice(ctx); err != nil {
			return nil, err
		}
	}
	if device.Device == nil {
		return e.openOnProcessor(ctx, dir, o)
	}
	if o.Precision != encode.F16 && (o.Precision == encode.Int8 || e.changed("precision")) {
		if device.Auto && o.Backend == "" {
			device.Note("texts are encoded by the processor: %s computes in f16, not in %v", device.Info().Name,
				o.Precision)
			return e.openOnProcessor(ctx, dir, o)
		}
		return nil, Usagef("precision %v is the processor's, %s computes in f16: --encoder native encodes on the "+
			"processor, and leaves the rest to the device", o.Precision, device.Info().Name)
	}
	deviceOptions := *o
	deviceOptions.Backend, deviceOptions.Precision, deviceOptions.On, deviceOptions.DeviceMemory = encode.Device,
		encode.F16, device.Device, device.Memory
	enc, err := encode.OpenContext(ctx, dir, &deviceOptions)
	unsupported := errors.Is(err, kernels.ErrUnavailable) || errors.Is(err, modeldir.ErrFamily) ||
		errors.Is(err, kernels.ErrDeviceMemory)
	if device.Auto && o.Backend == "" && unsupported {
		device.Note("texts are encoded by the processor: %v", err)
		return e.openOnProcessor(ctx, dir, o)
	}
	return enc, err
}

// openOnProcessor opens what needs no device.
func (e *Encoder) openOnProcessor(ctx context.Context, dir string, o *encode.Options) (*encode.Encoder, error) {
	if o.Backend == encode.Device {
		return nil, Usagef("--encoder %s needs a device: --device or PLAID_DEVICE names one (plaid info --devices "+
			"lists them)", encode.Device)
	}
	if o.Precision == encode.F16 {
		if e.changed("precision") {
			return nil, Usagef("precision %v is that of devices: --device names one", encode.F16)
		}
		o.Precision = encode.F32 // that of the index is near it
	}
	return encode.OpenContext(ctx, dir, o)
}
