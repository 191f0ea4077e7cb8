package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/search"
)

// openDevice opens a device, unless the command has done so, and hands it to use; nil for
// the processor. It is closed when the command ends.
func (op *opener) openDevice(ctx context.Context, d *flags.Device, use func(kernels.Device) error) error {
	dev, ok := op.devices[d.Name]
	if !ok {
		var note string
		var err error
		if dev, note, err = kernels.OpenDevice(ctx, d.Name); err != nil {
			return err
		}
		if op.devices == nil {
			op.devices = map[string]kernels.Device{}
		}
		op.devices[d.Name] = dev
		if note != "" {
			op.note("%s", note)
		}
	}
	return use(dev)
}

// note tells what was decided for who runs the command.
func (op *opener) note(format string, args ...any) {
	if !op.quiet {
		fmt.Fprintf(op.console, "plaid: "+format+"\n", args...)
	}
}

// closeDevices closes what the command has opened.
func (op *opener) closeDevices() error {
	var errs []error
	for _, d := range op.devices {
		if d != nil {
			errs = append(errs, d.Close())
		}
	}
	op.devices = nil
	return errors.Join(errs...)
}

// on is how an encoder gets the device that flags name.
func (op *opener) on(d *flags.Device) flags.DeviceOpener {
	return func(ctx context.Context) (opened flags.OpenedDevice, err error) {
		opened = flags.OpenedDevice{Auto: found(d), Note: op.note}
		err = op.openDevice(ctx, d, func(dev kernels.Device) error {
			opened.Device = dev
			return nil
		})
		return opened, err
	}
}

// found says that a device is the one that was found, and not one that was named: what it
// cannot do the processor does.
func found(d *flags.Device) bool {
	return cmp.Or(d.Name, os.Getenv(kernels.EnvDevice)) == kernels.AutoDevice
}

// withEngine makes an engine for a snapshot, on a device if there are flags that
// name one, and hands it to use.
func (op *opener) withEngine(ctx context.Context, snap *index.Snapshot, o search.EngineOptions, d *flags.Device, use func(*search.Engine) error) error {
	o.Logger = op.logger()
	if d == nil {
		return op.useEngine(ctx, snap, &o, use)
	}
	return op.openDevice(ctx, d, func(dev kernels.Device) error {
		here, used := o, false
		here.Device = dev
		err := op.useEngine(ctx, snap, &here, func(e *search.Engine) error {
			used = true
			return use(e)
		})
		if dev != nil && !used && found(d) && errors.Is(err, kernels.ErrDeviceMemory) {
			op.note("the processor searches: %v", err)
			return op.useEngine(ctx, snap, &o, use)
		}
		return err
	})
}

func (op *opener) useEngine(ctx context.Context, snap *index.Snapshot, o *search.EngineOptions, use func(*search.Engine) error) (err error) {
	e, err := search.NewAt(ctx, snap, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	about, err := e.Describe(ctx)
	if err != nil {
		return err
	}
	if m := about.Memory; m != nil {
		op.logger().Info("index on device", "device", about.Device, "resident", m.Resident, "pieces", m.Pieces, "bytes", m.Index(), "limit", m.Limit)
	}
	return use(e)
}
