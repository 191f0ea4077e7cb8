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

// DeviceOpener opens the device of a command. A zero OpenedDevice.Device means the processor.
type DeviceOpener func(context.Context) (OpenedDevice, error)

// OpenedDevice is a device that stays open while a command runs.
type OpenedDevice struct {
	kernels.Device
	// Memory is the number of bytes of the device that may be used. 0 means all that is free.
	Memory int64
	// Auto reports that the device was found, not named by the user: the processor then does
	// whatever the device cannot.
	Auto bool
	// Note tells the user which of the two was chosen, and why.
	Note func(format string, args ...any)
}

// OpenWith opens an encoder: on the device that openDevice returns, unless the flags name another
// encoder or openDevice returns none. It is an error if the device cannot encode what the flags ask
// for, unless the device was chosen automatically.
func (e *Encoder) OpenWith(ctx context.Context, dir string, o *encode.Options,
	openDevice DeviceOpener) (*encode.Encoder, error) {
	enc, err := e.openOnDevice(ctx, dir, o, openDevice)
	return enc, e.Explain(err)
}

// Explain adds the cure to an error of a model: the flag whose length the model does not take, or
// the key of --model-settings that decides where the model's files leave something open or
// contradict each other.
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

// openOnDevice opens the encoder on the device, or on the processor if openDevice returns none or if an
// automatically chosen device cannot do it.
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
		return nil, Usagef("precision %v needs the processor, since %s computes in f16: --encoder native encodes "+
			"on the "+
			"processor, and leaves the rest to the device", o.Precision, device.Info().Name)
	}
	deviceOptions := *o
	deviceOptions.Backend, deviceOptions.Precision = encode.Device, encode.F16
	deviceOptions.OpenedDevice, deviceOptions.DeviceMemory = device.Device, device.Memory
	enc, err := encode.OpenContext(ctx, dir, &deviceOptions)
	unsupported := errors.Is(err, kernels.ErrUnavailable) || errors.Is(err, modeldir.ErrFamily) ||
		errors.Is(err, kernels.ErrDeviceMemory)
	if device.Auto && o.Backend == "" && unsupported {
		device.Note("texts are encoded by the processor: %v", err)
		return e.openOnProcessor(ctx, dir, o)
	}
	return enc, err
}

// openOnProcessor opens an encoder that needs no device.
func (e *Encoder) openOnProcessor(ctx context.Context, dir string, o *encode.Options) (*encode.Encoder, error) {
	if o.Backend == encode.Device {
		return nil, Usagef("--encoder %s needs a device: --device or PLAID_DEVICE names one (plaid info --devices "+
			"lists them)", encode.Device)
	}
	if o.Precision == encode.F16 {
		if e.changed("precision") {
			return nil, Usagef("precision %v needs a device: --device names one", encode.F16)
		}
		o.Precision = encode.F32 // its vectors are nearly those of an index in f16
	}
	return encode.OpenContext(ctx, dir, o)
}
