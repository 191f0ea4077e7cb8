// Package nearest finds the nearest centroids of vectors on a device, for the
// build of indexes, and encodes the vectors. It computes products in half precision, and
// repeats in float32 those whose error leaves the nearest centroid in doubt. All results
// have the bits that the CPU computes.
package nearest

import (
	"context"
	"fmt"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

// builder is a backend that finds nearest centroids on the device.
type builder struct {
	kernels.Backend // of the CPU, for all other methods
	dev             *runtime.Device
}

// NewBuilder returns a backend for index builds; see [kernels.Device]. Calls of
// Nearest by several goroutines with the same prepared centroids share
// launches, so that many small calls at once are as fast as a large one.
func NewBuilder(d *runtime.Device, cpu kernels.Backend) kernels.Builder {
	return &builder{Backend: cpu, dev: d}
}

// Name returns the names of the CPU's backend and of the device, joined by a plus sign.
func (b *builder) Name() string { return b.Backend.Name() + "+" + b.dev.Info().Name }

// wrapError adds the operation and the device to an error.
func (b *builder) wrapError(err error) error {
	return fmt.Errorf("nearest centroids on %s: %w", b.dev.Info().Name, err)
}

// Nearest implements [kernels.Backend].
func (b *builder) Nearest(
	ctx context.Context, codes []uint32, scores []float32, centroids, x []float32, dim int,
) error {
	p, release, err := b.Prepare(ctx, centroids, dim)
	if err != nil {
		return err
	}
	defer release()
	return p.Nearest(ctx, codes, scores, centroids, x, dim)
}

// Prepare uploads centroids; see [kernels.Preparer].
func (b *builder) Prepare(ctx context.Context, centroids []float32, dim int) (kernels.Backend, func(), error) {
	if len(centroids) < dim {
		return b.Backend, func() {}, nil
	}
	p := &preparedCentroids{
		builder: b,
		source:  &centroids[0],
		k:       len(centroids) / dim,
		dim:     dim,
	}
	err := b.dev.Call(ctx, func(rt *runtime.Runtime) error {
		p.rt = rt
		rt.AddOwner(p)
		err := p.upload(centroids)
		if err != nil {
			p.Free()
		}
		return err
	})
	if err != nil {
		return nil, nil, b.wrapError(err)
	}
	return p, func() { _ = b.dev.FreeOwner(p) }, nil
}

// preparedCentroids are centroids on the device, in float32 and, if they have at most 128
// dimensions, in half precision.
type preparedCentroids struct {
	*builder
	rt                       *runtime.Runtime
	source                   *float32 // address of the caller's first centroid
	k, dim                   int
	width                    int // values of a row of halfCentroids, 0 if these are not used
	centroids, halfCentroids driver.Mem
	maxNorm                  float32 // upper bound of the lengths of the centroids
	maxHalfError             float32 // upper bound of the lengths of their rounding errors in half precision
}

// Prepare returns the same backend for the same centroids.
func (p *preparedCentroids) Prepare(
	ctx context.Context, centroids []float32, dim int,
) (kernels.Backend, func(), error) {
	if len(centroids) == p.k*p.dim && dim == p.dim && &centroids[0] == p.source {
		return p, func() {}, nil
	}
	return p.builder.Prepare(ctx, centroids, dim)
}

// Nearest implements [kernels.Backend]; centroids are those that were prepared.
func (p *preparedCentroids) Nearest(
	ctx context.Context, codes []uint32, scores []float32, centroids, x []float32, dim int,
) error {
	n := min(len(codes), len(x)/dim)
	var requests []*request
	for i := range parallel.Blocks(n, maxRows) {
		lo, hi := parallel.Block(i, n, maxRows)
		r := &request{centroids: p, vectors: x[lo*dim : hi*dim], codes: codes[lo:hi]}
		if scores != nil {
			r.scores = scores[lo:hi]
		}
		requests = append(requests, r)
	}
	if err := runtime.RunRequests(ctx, p.dev, requests); err != nil {
		return p.wrapError(err)
	}
	return p.answerOnCPU(ctx, codes[:n], scores, centroids, x)
}

// answerOnCPU finds the centroids of the rows for which the device found none. The device
// returns a code of k or more if it cannot bound the error of a row's products: components above
// 65504, of a row or of a centroid, are infinite in half precision.
func (p *preparedCentroids) answerOnCPU(
	ctx context.Context, codes []uint32, scores []float32, centroids, x []float32,
) error {
	const maxRun = 256 // rows between two checks of ctx
	for lo := 0; lo < len(codes); lo++ {
		hi := lo
		for hi < min(len(codes), lo+maxRun) && int64(codes[hi]) >= int64(p.k) {
			hi++
		}
		if hi == lo {
			continue
		}
		if err := ctx.Err(); err != nil {
			return p.wrapError(err)
		}
		var s []float32
		if scores != nil {
			s = scores[lo:hi]
		}
		if err := p.Backend.Nearest(ctx, codes[lo:hi], s, centroids, x[lo*p.dim:hi*p.dim], p.dim); err != nil {
			return p.wrapError(err)
		}
		lo = hi - 1
	}
	return nil
}

// upload copies the centroids to the device, converts them to half precision, and bounds
// the lengths of the centroids and of their rounding errors.
func (p *preparedCentroids) upload(centroids []float32) (err error) {
	c, st := p.rt.Driver, p.rt.Stream
	if p.centroids, err = c.Alloc(4 * int64(p.k*p.dim)); err != nil {
		return err
	}
	if err := c.ToDevice(p.centroids.Ptr, runtime.Bytes(centroids[:p.k*p.dim]), st); err != nil {
		return err
	}
	switch {
	case p.dim <= 64:
		p.width = 64
	case p.dim <= 128:
		p.width = 128
	default:
		return p.rt.Sync()
	}
	rows := runtime.CeilDiv(p.k, 128) * 128
	if p.halfCentroids, err = c.Alloc(2 * int64(rows*p.width)); err != nil {
		return err
	}
	norms := make([]float32, 2*p.k)
	tmp, err := c.Alloc(8 * int64(p.k))
	if err != nil {
		return err
	}
	defer func() {
		if ferr := c.Free(tmp); err == nil {
			err = ferr
		}
	}()
	if err := p.toHalf(halfParams{
		in:     p.centroids.Ptr,
		out:    p.halfCentroids.Ptr,
		norms:  tmp.Ptr,
		errors: tmp.At(4 * int64(p.k)),
	}, p.k, rows); err != nil {
		return err
	}
	if err := c.ToHost(runtime.Bytes(norms), tmp.Ptr, st); err != nil {
		return err
	}
	if err := p.rt.Sync(); err != nil {
		return err
	}
	for i := range p.k {
		p.maxNorm, p.maxHalfError = max(p.maxNorm, norms[i]), max(p.maxHalfError, norms[p.k+i])
	}
	p.maxNorm, p.maxHalfError = runtime.RoundUp(p.maxNorm), runtime.RoundUp(p.maxHalfError)
	return nil
}

type halfParams struct {
	in, halves, numbers, out, norms, errors driver.Ptr
	n, rows, dim, width                     uint32
}

// toHalf launches the kernel that converts n vectors to rows of half precision, with zeros up to
// the given number of rows. The caller sets the pointers of a.
func (p *preparedCentroids) toHalf(a halfParams, n, rows int) error {
	a.n, a.rows, a.dim, a.width = uint32(n), uint32(rows), uint32(p.dim), uint32(p.width)
	return runtime.Launch(p.rt, "to_half", runtime.CeilDiv(rows, 8), 1, 1, 256, 0, &a)
}

// Free frees the centroids on the device's goroutine.
func (p *preparedCentroids) Free() {
	_ = p.rt.Driver.Free(p.centroids)
	_ = p.rt.Driver.Free(p.halfCentroids)
	p.centroids, p.halfCentroids = driver.Mem{}, driver.Mem{}
	p.rt.RemoveOwner(p)
}
