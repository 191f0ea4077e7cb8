// Package nearest finds the nearest centroids of vectors on a device, for the
// build of indexes, and encodes them: products in half precision, and those that their
// error leaves in doubt in float32, as the processor computes them, whose bits all
// results have.
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
	kernels.Backend // for everything else
	dev             *runtime.Device
}

// NewBuilder returns a backend for index builds; see [kernels.Device]. Calls of
// Nearest by several goroutines with the same prepared centroids share
// launches, so that many small calls at once are as fast as a large one.
func NewBuilder(d *runtime.Device, cpu kernels.Backend) kernels.Builder {
	return &builder{Backend: cpu, dev: d}
}

// Name is that of the backend and the device.
func (b *builder) Name() string { return b.Backend.Name() + "+" + b.dev.Info().Name }

func (b *builder) wrapError(err error) error {
	return fmt.Errorf("nearest centroids on %s: %w", b.dev.Info().Name, err)
}

// Nearest is that of [kernels.Backend].
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

// preparedCentroids is centroids on the device.
type preparedCentroids struct {
	*builder
	rt                       *runtime.Runtime
	source                   *float32 // the first of them
	k, dim, width            int      // width of a row in half precision; 0: not used
	centroids, halfCentroids driver.Mem
	maxNorm, maxHalfError    float32
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

// Nearest is that of [kernels.Backend]; centroids are those that were prepared.
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

// answerOnCPU asks the processor for the rows that the device has no centroid for. It
// gives those a number beyond the last whose error it cannot bound: components above
// 65504, of a row or of a centroid, are infinite in half precision.
func (p *preparedCentroids) answerOnCPU(
	ctx context.Context, codes []uint32, scores []float32, centroids, x []float32,
) error {
	const maxRun = 256 // rows between two looks at ctx
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

// upload brings the centroids to the device.
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

// toHalf launches the kernel that makes halves of n vectors: the pointers of a are given.
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
