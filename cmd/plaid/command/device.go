package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/cli/flags"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/search"
)

// openDevice opens a device and hands it to use; nil for the processor.
func (op *opener) openDevice(ctx context.Context, d *flags.Device, use func(kernels.Device) error) (err error) {
	dev, note, err := kernels.OpenDevice(ctx, d.Name)
	if err != nil {
		return err
	}
	if note != "" && !op.quiet {
		fmt.Fprintf(op.console, "plaid: %s\n", note)
	}
	if dev == nil {
		return use(nil)
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	return use(dev)
}

// withEngine makes an engine for a snapshot, on a device if there are flags that
// name one, and hands it to use.
func (op *opener) withEngine(ctx context.Context, snap *index.Snapshot, o search.EngineOptions, d *flags.Device, use func(*search.Engine) error) error {
	o.Logger = op.logger()
	if d == nil {
		return op.useEngine(ctx, snap, &o, use)
	}
	return op.openDevice(ctx, d, func(dev kernels.Device) error {
		o.Device, o.Attach.Memory = dev, d.Memory
		return op.useEngine(ctx, snap, &o, use)
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
