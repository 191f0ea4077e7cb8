package nearest

import (
	"context"
	"errors"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

// encoder encodes tokens on the device, with prepared centroids and the scales of a codec.
type encoder struct {
	*preparedCentroids
	codec                   *kernels.Codec
	unit                    bool
	rowBytes                int
	dimScale, centroidScale driver.Mem
	slots                   [2]outputSlot // of EncodeResident
}

// PrepareEncoder uploads a codec; see [kernels.EncoderPreparer].
func (b *builder) PrepareEncoder(
	ctx context.Context, c *kernels.Codec, centroids []float32, unit bool,
) (kernels.TokenEncoder, func(), error) {
	backend, release, err := b.Prepare(ctx, centroids, c.Dim())
	if err != nil {
		return nil, nil, err
	}
	p, ok := backend.(*preparedCentroids)
	if !ok || !c.Codebook.Uniform() {
		release()
		return nil, nil, b.wrapError(errors.New("it encodes only with equally spaced levels; this codec has others"))
	}
	e := &encoder{
		preparedCentroids: p,
		codec:             c,
		unit:              unit,
		rowBytes:          c.RowBytes(),
	}
	err = b.dev.Call(ctx, func(rt *runtime.Runtime) error {
		rt.AddOwner(e)
		err := e.uploadScales()
		for i := range e.slots {
			if err == nil {
				err = e.slots[i].createEvents(rt)
			}
		}
		if err != nil {
			e.Free()
		}
		return err
	})
	if err != nil {
		release()
		return nil, nil, b.wrapError(err)
	}
	return e, func() {
		_ = b.dev.FreeOwner(e)
		release()
	}, nil
}

// uploadScales copies the scales of the codec, if it has any, to the device.
func (e *encoder) uploadScales() error {
	d := e.rt.Driver
	for _, s := range []struct {
		mem    *driver.Mem
		scales []float32
	}{{&e.dimScale, e.codec.DimScale}, {&e.centroidScale, e.codec.CentroidScale}} {
		if s.scales == nil {
			continue
		}
		var err error
		if *s.mem, err = d.Alloc(4 * int64(len(s.scales))); err != nil {
			return err
		}
		if err := d.ToDevice(s.mem.Ptr, runtime.Bytes(s.scales), e.rt.Stream); err != nil {
			return err
		}
	}
	return e.rt.Sync()
}

// Free frees the scales on the device's goroutine.
func (e *encoder) Free() {
	_ = e.rt.Driver.Free(e.dimScale)
	_ = e.rt.Driver.Free(e.centroidScale)
	for i := range e.slots {
		e.slots[i].freeEvents(e.rt)
	}
	e.dimScale, e.centroidScale = driver.Mem{}, driver.Mem{}
	e.rt.RemoveOwner(e)
}

// EncodeTokens implements [kernels.TokenEncoder].
func (e *encoder) EncodeTokens(ctx context.Context, dst kernels.EncodedTokens, x []float32) error {
	n := len(dst.Codes)
	var requests []*request
	for i := range parallel.Blocks(n, maxRows) {
		lo, hi := parallel.Block(i, n, maxRows)
		requests = append(requests, &request{
			centroids: e.preparedCentroids,
			encoder:   e,
			vectors:   x[lo*e.dim : hi*e.dim],
			codes:     dst.Codes[lo:hi],
			tokens:    e.tokensBetween(dst, lo, hi),
		})
	}
	if err := runtime.RunRequests(ctx, e.dev, requests); err != nil {
		return e.wrapError(err)
	}
	return nil
}

type scaleParams struct {
	in, numbers, x, by, squares driver.Ptr
	n, dim, rows, half, unit    uint32
}

type encodeParams struct {
	x, codes, centroids, dimScale, centroidScale, residuals, factors, errors driver.Ptr
	step, factorMax                                                          float32
	n, k, dim, rows, nbits, rowBytes                                         uint32
}

// blockRows returns how many tokens a block of scale_rows and encode_tokens has, and the pitch of its
// arrays in shared memory: the distance from one dimension to the next, odd to avoid bank conflicts.
func blockRows(dim int) (rows, pitch int) {
	rows = 32
	for rows > 1 && rows*dim > kernels.MaxDim {
		rows /= 2
	}
	return rows, rows | 1
}

// launchScale launches the kernel that makes float32 rows of n vectors: of half precision if half, and
// divided by their lengths if unit. The caller sets the pointers of a.
func launchScale(rt *runtime.Runtime, a scaleParams, n, dim int, half, unit bool) error {
	rows, pitch := blockRows(dim)
	a.n, a.dim, a.rows = uint32(n), uint32(dim), uint32(rows)
	if half {
		a.half = 1
	}
	if unit {
		a.unit = 1
	}
	return runtime.Launch(rt, "scale_rows", runtime.CeilDiv(n, rows), 1, 1, 256, 4*dim*pitch, &a)
}

// encode launches the kernel that encodes the rows of a batch, whose codes have been found.
func (e *encoder) encode(l *layout) error {
	if e.codec.DimScale != nil && e.dimScale.Ptr == 0 {
		return kernels.ErrDeviceClosed
	}
	w := &e.rt.Work
	rows, pitch := blockRows(e.dim)
	return runtime.Launch(e.rt, "encode_tokens", runtime.CeilDiv(l.n, rows), 1, 1, 288, 13*e.dim*pitch+4*e.dim,
		&encodeParams{
			x:             l.rows,
			codes:         w.Out.At(l.outOffset + l.codes),
			centroids:     e.centroids.Ptr,
			dimScale:      e.dimScale.Ptr,
			centroidScale: e.centroidScale.Ptr,
			residuals:     w.Out.At(l.outOffset + l.residuals),
			factors:       w.Out.At(l.outOffset + l.factors),
			errors:        w.Out.At(l.outOffset + l.errors),
			step:          e.codec.Codebook.Step,
			factorMax:     e.codec.FactorMax,
			n:             uint32(l.n),
			k:             uint32(e.k),
			dim:           uint32(e.dim),
			rows:          uint32(rows),
			nbits:         uint32(e.codec.Codebook.Nbits),
			rowBytes:      uint32(e.rowBytes),
		})
}
