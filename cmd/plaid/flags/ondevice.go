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
func (e *Encoder) OpenWith(ctx context.Context, dir string, o *encode.Options, on DeviceOpener) (*encode.Encoder, error) {
	enc, err := e.openOn(ctx, dir, o, on)
	return enc, e.Explain(err)
}

// Explain names the flag whose length a model does not take, and the key of --model-settings that
// decides where files leave something open or contradict each other.
func (e *Encoder) Explain(err error) error {
	var of *modeldir.ModelError
	var length *modeldir.LengthError
	if errors.As(err, &of) && errors.As(err, &length) {
		for _, flag := range []string{"query-length", "document-length"} {
			if of.Field == strings.ReplaceAll(flag, "-", "_") && e.changed(flag) {
				return Usagef("--%s %w", flag, length)
			}
		}
	}
	if of != nil && of.Setting != "" {
		return fmt.Errorf("%w; %s in a file of --model-settings decides", err, of.Setting)
	}
	return err
}

func (e *Encoder) openOn(ctx context.Context, dir string, o *encode.Options, on DeviceOpener) (*encode.Encoder, error) {
	if o.Backend != "" && o.Backend != encode.Device {
		return e.openHere(ctx, dir, o)
	}
	var d OpenedDevice
	if on != nil {
		var err error
		if d, err = on(ctx); err != nil {
			return nil, err
		}
	}
	if d.Device == nil {
		return e.openHere(ctx, dir, o)
	}
	if o.Precision != encode.F16 && (o.Precision == encode.Int8 || e.changed("precision")) {
		if d.Auto && o.Backend == "" {
			d.Note("texts are encoded by the processor: %s computes in f16, not in %v", d.Info().Name, o.Precision)
			return e.openHere(ctx, dir, o)
		}
		return nil, Usagef("precision %v is the processor's, %s computes in f16: --encoder native encodes on the processor, and leaves the rest to the device", o.Precision, d.Info().Name)
	}
	own := *o
	own.Backend, own.Precision, own.On, own.DeviceMemory = encode.Device, encode.F16, d.Device, d.Memory
	enc, err := encode.OpenContext(ctx, dir, &own)
	cannot := errors.Is(err, kernels.ErrUnavailable) || errors.Is(err, modeldir.ErrFamily) || errors.Is(err, kernels.ErrDeviceMemory)
	if d.Auto && o.Backend == "" && cannot {
		d.Note("texts are encoded by the processor: %v", err)
		return e.openHere(ctx, dir, o)
	}
	return enc, err
}

// openHere opens what needs no device.
func (e *Encoder) openHere(ctx context.Context, dir string, o *encode.Options) (*encode.Encoder, error) {
	if o.Backend == encode.Device {
		return nil, Usagef("--encoder %s needs a device: --device or PLAID_DEVICE names one (plaid info --devices lists them)", encode.Device)
	}
	if o.Precision == encode.F16 {
		if e.changed("precision") {
			return nil, Usagef("precision %v is that of devices: --device names one", encode.F16)
		}
		o.Precision = encode.F32 // that of the index is near it
	}
	return encode.OpenContext(ctx, dir, o)
}
