package encode

import (
	"context"
	"fmt"

	"github.com/plaid-ir/plaid/encode/engine"
	"github.com/plaid-ir/plaid/encode/modeldir"
	"github.com/plaid-ir/plaid/encode/weights"
	"github.com/plaid-ir/plaid/kernels/transformer"
)

// onDevice is the engine of a model on a device.
type onDevice struct {
	transformer.Model
	about transformer.About
}

// halver is an engine that gives the vectors of some ids alone, as float16; see
// [transformer.Model].
type halver interface {
	EncodeHalves(ctx context.Context, dst []byte, b engine.Batch, kept []int32) error
}

// A device is best given many ids at once, in several calls: while it computes one
// batch, the vectors of the one before leave it and the next one is made.
const (
	deviceChunk   = 8192
	deviceWorkers = 8
)

func (d *onDevice) Dim() int     { return d.about.Dim }
func (d *onDevice) Chunk() int   { return min(deviceChunk, d.about.Tokens) }
func (d *onDevice) Workers() int { return deviceWorkers }

// openDevice brings the weights to the device.
func (l *local) openDevice(ctx context.Context, dir string, o *Options) (*transformer.About, error) {
	c, w, err := weights.Load(l.config)
	if err != nil {
		return nil, err
	}
	m, err := transformer.On(ctx, o.On, c, w, transformer.Options{Memory: o.DeviceMemory})
	if err != nil {
		if kind := kindOf(err); kind != err {
			return nil, &modeldir.ModelError{Path: dir, Err: kind}
		}
		return nil, fmt.Errorf("%w: %s on %s: %w", engine.ErrDevice, dir, o.On.Info().Name, err)
	}
	d := &onDevice{m, m.About()}
	l.engine = d
	if err := l.dimFrom("weights"); err != nil {
		_ = m.Close()
		return nil, err
	}
	return &d.about, nil
}
