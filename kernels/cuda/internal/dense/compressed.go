// Package dense scores plain token vectors on a device, and gives the gradients: the
// contract is package maxsim's.
//
//	format    how rows of tokens lie in the device's memory
//	operand   batches -> packed rows; held batches
//	work      which kernel, and who does what
//	pieces    what of a call is on the device at a time; documents cut into segments
//	score     a call, piece by piece
//	rank      the best documents of each query, kept on the device
//	head      token vectors of hidden states
//	grad      gradients
//	chamfer   Chamfer distances and their gradients
//
// A [Device] does the same on memory and in streams of the caller:
//
//	inplace   what calls are made of
//	shelf     plans of calls and their tables, kept from one call to the next
//	placed    rows where they are, or packed into the workspace
//	inplan    which kernel, what is on the device at a time, tables
//	inscore, inhead, ingrad, inchamfer   calls
//
// The device code is in src/dense, its kernels and their structs in dense.cuh.
package dense

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// backend is the backend of a device.
type backend struct {
	dev    *runtime.Device
	work   work // of the device's goroutine
	limits limits
}

// New returns the backend of a device.
func New(d *runtime.Device) maxsim.Backend { return &backend{dev: d, limits: usualLimits} }

// Name implements [maxsim.Backend]: it is that of the device.
func (b *backend) Name() string { return b.dev.Info().Name }

// submit runs a call on the device's goroutine. What it had begun is over when it fails, as
// it does where an operand is a mapped file that was cut short.
func (b *backend) submit(ctx context.Context, what string, run func(context.Context, *runtime.Runtime) error) error {
	err := b.dev.Call(ctx, func(rt *runtime.Runtime) error {
		err := guarded(ctx, rt, run)
		if err != nil {
			rt.Drain()
		}
		return err
	})
	if err != nil {
		return b.fault(what, err)
	}
	return nil
}

// guarded makes faults of mapped memory errors.
func guarded(ctx context.Context, rt *runtime.Runtime, run func(context.Context, *runtime.Runtime) error) (err error) {
	defer files.RecoverFault(&err, debug.SetPanicOnFault(true), func(err error) error { return fmt.Errorf("%w: %w", maxsim.ErrFault, err) })
	return run(ctx, rt)
}

func (b *backend) fault(what string, err error) error {
	return fmt.Errorf("%s token vectors on %s: %w", what, b.Name(), err)
}

// codecTables are what compressed tokens are decoded with, in the device's memory.
type codecTables struct {
	codec                                     *kernels.Codec
	weights                                   []float32
	base                                      driver.Ptr
	centroids, centroidScale, dimScale, table int64 // places
	there                                     bool
}

// layCodec takes room for the tables of a matrix; nil where it needs none.
func layCodec(a *runtime.Arena, m *maxsim.Matrix) *codecTables {
	if m.Type != maxsim.Compressed {
		return nil
	}
	c := m.Codec
	t := &codecTables{codec: c, weights: c.Codebook.Weights()}
	t.centroids = a.Take(int64(c.Centroids.K) * int64(c.Centroids.Dim) * int64(c.Centroids.Type.Size()))
	t.centroidScale, t.dimScale = place(a, c.CentroidScale), place(a, c.DimScale)
	t.table = place(a, t.weights)
	return t
}

// placedAt says where the room begins.
func (t *codecTables) placedAt(base driver.Ptr) *codecTables {
	if t != nil {
		t.base, t.there = base, false
	}
	return t
}

// bring brings the tables to the device, once. They are not page-locked, so that they
// have been read when it returns.
func (t *codecTables) bring(rt *runtime.Runtime) error {
	if t == nil || t.there {
		return nil
	}
	t.there = true
	c := t.codec
	for _, part := range []struct {
		at   int64
		data []byte
	}{
		{t.centroids, c.Centroids.Data[:c.Centroids.K*c.Centroids.Dim*c.Centroids.Type.Size()]},
		{t.centroidScale, runtime.Bytes(c.CentroidScale)}, {t.dimScale, runtime.Bytes(c.DimScale)}, {t.table, runtime.Bytes(t.weights)},
	} {
		if err := rt.Driver.ToDevice(t.base.Add(part.at), part.data, rt.Stream); err != nil {
			return err
		}
	}
	return nil
}

// params is what dense_pack decodes with.
func (t *codecTables) params(ch *kernels.Chunk) denseCodec {
	c := t.codec
	p := denseCodec{
		centroids: t.base.Add(t.centroids), weights: t.base.Add(t.table), factor: c.FactorMax / 32767,
		nbits: uint32(c.Codebook.Nbits), residualBytes: uint32(c.RowBytes()), codeBytes: uint32(ch.CodeBytes), centroidType: uint32(c.Centroids.Type),
	}
	if c.CentroidScale != nil {
		p.centroidScale = t.base.Add(t.centroidScale)
	}
	if c.DimScale != nil {
		p.dimScale = t.base.Add(t.dimScale)
	}
	return p
}
