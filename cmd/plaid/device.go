package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/search"
)

// deviceFlags choose the device that computes.
type deviceFlags struct {
	name   string
	memory int64
}

func (d *deviceFlags) register(f *pflag.FlagSet) {
	f.StringVar(&d.name, "device", "", "`NAME` of the device to compute on: cpu, cuda:0 and so on, or auto for a GPU if there is one (default: PLAID_DEVICE, or cpu; plaid info --devices lists them)")
}

func (d *deviceFlags) registerMemory(f *pflag.FlagSet) {
	f.Var(newSize(&d.memory, 0), "device-memory", "how much of the device's memory to use (0: what is free); an index that does not fit is streamed through")
}

// open opens the device and hands it to use; nil for the processor.
func (d *deviceFlags) open(ctx context.Context, a *app, use func(kernels.Device) error) (err error) {
	dev, note, err := kernels.OpenDevice(ctx, d.name)
	if err != nil {
		return err
	}
	if note != "" && !a.quiet {
		fmt.Fprintf(a.console, "plaid: %s\n", note)
	}
	if dev == nil {
		return use(nil)
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	return use(dev)
}

// with hands an engine that searches on the device to use.
func (d *deviceFlags) with(ctx context.Context, a *app, e *search.Engine, use func() error) error {
	return d.open(ctx, a, func(dev kernels.Device) (err error) {
		if dev == nil {
			return use()
		}
		if err := e.UseDevice(ctx, dev, kernels.AttachOptions{Memory: d.memory}); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, e.Close()) }()
		if p, ok := e.DevicePlan(); ok {
			a.logger().Info("index on device", "device", dev.Info().Name, "resident", p.Resident, "pieces", p.Pieces, "bytes", p.Index(), "limit", p.Limit)
		}
		return use()
	})
}

// deviceReport is what `plaid info --devices --json` prints.
type deviceReport struct {
	Devices []kernels.DeviceInfo `json:"devices"`
	// Absent says for each kind without devices why there is none.
	Absent []string `json:"absent"`
}

func (a *app) listDevices() error {
	r := deviceReport{Devices: []kernels.DeviceInfo{}, Absent: []string{}}
	found, why := kernels.Devices()
	r.Devices = append(r.Devices, found...)
	for _, err := range why {
		r.Absent = append(r.Absent, err.Error())
	}
	return a.report(r, func(b *bytes.Buffer) {
		w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "cpu\tthe processor (plaid info --cpu)")
		for _, d := range r.Devices {
			fmt.Fprintf(w, "%s\t%s, compute capability %s, %s, PCI %s, driver for CUDA %s", d.Name, d.Model, d.Capability, formatBytes(int64(d.Memory)), d.PCI, d.Driver)
			if d.Unusable != "" {
				fmt.Fprintf(w, "; not usable: %s", d.Unusable)
			}
			fmt.Fprintln(w)
		}
		_ = w.Flush() // to memory
		for _, reason := range r.Absent {
			fmt.Fprintln(b, reason)
		}
	})
}
