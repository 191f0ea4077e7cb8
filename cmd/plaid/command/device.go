package command

import (
	"cmp"
	"context"
	"errors"
	"os"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/quality"
)

// openDevice opens a device, or returns the one that the command has opened before. Nil means the
// processor. The device is closed when the command ends.
func (op *opener) openDevice(ctx context.Context, d *flags.Device) (kernels.Device, error) {
	if dev, ok := op.devices[d.Name]; ok {
		return dev, nil
	}
	dev, note, err := kernels.OpenDevice(ctx, d.Name)
	if err != nil {
		return nil, err
	}
	if op.devices == nil {
		op.devices = map[string]kernels.Device{}
	}
	op.devices[d.Name] = dev
	if note != "" {
		op.printHint("%s", note)
	}
	return dev, nil
}

// closeDevices closes the devices that the command has opened.
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

// deviceOpener returns a function that opens the device of the flags for an encoder.
func (op *opener) deviceOpener(d *flags.Device) flags.DeviceOpener {
	return func(ctx context.Context) (flags.OpenedDevice, error) {
		dev, err := op.openDevice(ctx, d)
		return flags.OpenedDevice{Device: dev, Auto: deviceIsAuto(d), Note: op.printHint}, err
	}
}

// deviceIsAuto reports whether the device is chosen automatically, and not named by the user. The
// processor then does whatever the device cannot.
func deviceIsAuto(d *flags.Device) bool {
	return cmp.Or(d.Name, os.Getenv(kernels.EnvDevice)) == kernels.AutoDevice
}

// searcher answers queries, and explains the answers.
type searcher interface {
	quality.Traced
	Explain(ctx context.Context, q search.Query, id string, o search.Options) (*search.Explanation, error)
}

// withSearcher opens a searcher for the target and hands it to use. It searches on the device that
// d names; the processor searches if d is nil.
func (op *opener) withSearcher(ctx context.Context, target *searchTarget, threads int, d *flags.Device,
	use func(searcher) error) (err error) {
	var dev kernels.Device
	if d != nil {
		if dev, err = op.openDevice(ctx, d); err != nil {
			return err
		}
	}
	if target.hasSeveralFiles() {
		o := &search.MultiOptions{Threads: threads, Logger: op.logger()}
		if dev != nil {
			o.Devices = kernels.MemberDevices(dev)
		}
		m, err := search.NewMultiAt(ctx, target.shardsSnapshot, o)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, m.Close()) }()
		return use(m)
	}
	e, err := search.NewAt(ctx, target.snap, &search.EngineOptions{Threads: threads, Device: dev, Logger: op.logger()})
	if dev != nil && deviceIsAuto(d) && errors.Is(err, kernels.ErrDeviceMemory) {
		op.printHint("the processor searches: %v", err)
		e, err = search.NewAt(ctx, target.snap, &search.EngineOptions{Threads: threads, Logger: op.logger()})
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	description, err := e.Describe(ctx)
	if err != nil {
		return err
	}
	if m := description.Memory; m != nil {
		op.logger().Info("index on device", "device", description.Device, "resident", m.Resident, "pieces", m.Pieces,
			"bytes", m.Index(), "limit", m.Limit)
	}
	return use(e)
}
