package nearest

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/resident"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

// errNoCentroid reports an internal error: resident vectors are finite and within the range of half
// precision, so that each of them has a nearest centroid.
var errNoCentroid = errors.New("internal error: a vector of the encoder has no nearest centroid")

// HasVectors implements [kernels.ResidentBuilder].
func (b *builder) HasVectors(v kernels.ResidentVectors) bool {
	r, ok := v.(*resident.Vectors)
	return ok && r.IsOn(b.dev)
}

// residentSource makes the rows of k-means from resident vectors. Its arrays have only the numbers
// and the scales of the rows.
type residentSource struct {
	rows    *keptRows
	vectors *resident.Vectors
	unit    bool // rows are divided by their lengths
	// Offsets in rows.mem: of the numbers of the vectors, their factors and their squared lengths.
	numbers, factors, squaredNorms int64
	done                           driver.Event // the end of the last Nearest
}

// SelectRows implements [kernels.ResidentBuilder].
func (b *builder) SelectRows(
	ctx context.Context, v kernels.ResidentVectors, numbers []uint32, unit bool,
) (kernels.ResidentRows, error) {
	vectors, ok := v.(*resident.Vectors)
	if !ok || !vectors.IsOn(b.dev) || len(numbers) > math.MaxUint32 {
		return nil, b.wrapError(fmt.Errorf("%w: %d vectors of another device", kernels.ErrShape, len(numbers)))
	}
	k := &keptRows{builder: b, rows: numbers, dim: vectors.Dim()}
	k.residents = &residentSource{rows: k, vectors: vectors, unit: unit}
	err := b.dev.Call(ctx, func(rt *runtime.Runtime) (err error) {
		k.rt = rt
		var a runtime.Arena
		n := int64(len(numbers))
		k.residents.numbers, k.residents.factors, k.residents.squaredNorms = a.Append(4*n), a.Append(8*n), a.Append(8*n)
		if k.mem, err = rt.Driver.Alloc(max(a.Size, 1)); err != nil {
			return err
		}
		rt.AddOwner(k)
		k.residents.done, err = rt.Driver.NewSleepingEvent()
		return err
	})
	for i := range parallel.Blocks(len(numbers), 1<<20) {
		if err != nil {
			break
		}
		lo, hi := parallel.Block(i, len(numbers), 1<<20)
		err = b.dev.Call(ctx, func(rt *runtime.Runtime) error {
			err := k.residents.upload(lo, hi)
			if err != nil {
				rt.Drain()
			}
			return err
		})
	}
	if err != nil {
		k.Release()
		return nil, b.wrapError(err)
	}
	return residentRows{k}, nil
}

// upload copies the numbers of the rows lo to hi, and computes the factors of their vectors.
func (p *residentSource) upload(lo, hi int) error {
	k := p.rows
	for _, r := range k.rows[lo:hi] {
		if int(r) >= p.vectors.Len() {
			return fmt.Errorf("%w: vector %d of %d", kernels.ErrShape, r, p.vectors.Len())
		}
	}
	w := &k.rt.Work
	if err := w.Reserve(runtime.WorkspaceSizes{In: 4 * int64(hi-lo)}); err != nil {
		return err
	}
	n := runtime.CopyParallel(w.HostIn, runtime.Bytes(k.rows[lo:hi]))
	if err := k.rt.Driver.ToDevice(k.mem.At(p.numbers+4*int64(lo)), w.HostIn[:n], k.rt.Stream); err != nil {
		return err
	}
	err := p.scaleRows(scaleParams{
		by:      k.mem.At(p.factors + 8*int64(lo)),
		squares: k.mem.At(p.squaredNorms + 8*int64(lo)),
	}, lo, hi-lo)
	if err != nil {
		return err
	}
	return k.rt.Sync()
}

// scaleRows launches the kernel that makes n rows from the vectors, from row first on.
func (p *residentSource) scaleRows(a scaleParams, first, n int) error {
	if a.in = p.vectors.RowPtr(0); a.in == 0 {
		return kernels.ErrDeviceClosed
	}
	a.numbers = p.numberPtr(first)
	return launchScale(p.rows.rt, a, n, p.rows.dim, true, p.unit)
}

// residentRows are kept rows whose vectors are resident.
type residentRows struct{ *keptRows }

// waitForStream waits until the work of Stream is done. It sleeps, since k-means takes long.
func (p *residentSource) waitForStream() error {
	c := p.rows.rt.Driver
	if err := c.Record(p.done, p.rows.rt.Stream); err != nil {
		return err
	}
	return c.SyncEvent(p.done)
}

// numberPtr returns the address of the number of row first.
func (p *residentSource) numberPtr(first int) driver.Ptr {
	return p.rows.mem.At(p.numbers + 4*int64(first))
}

// SquaredLengths implements [kernels.ResidentRows].
func (k residentRows) SquaredLengths(ctx context.Context, dst []float64) error {
	for i := range parallel.Blocks(len(dst), 1<<20) {
		lo, hi := parallel.Block(i, len(dst), 1<<20)
		err := k.dev.Call(ctx, func(rt *runtime.Runtime) error {
			if k.isFreed() {
				return kernels.ErrDeviceClosed
			}
			bytes := 8 * int64(hi-lo)
			if err := rt.Work.Reserve(runtime.WorkspaceSizes{Out: bytes}); err != nil {
				return err
			}
			host := rt.Work.HostOut[:bytes]
			if err := rt.Driver.ToHost(host, k.mem.At(k.residents.squaredNorms+8*int64(lo)), rt.Stream); err != nil {
				return err
			}
			if err := rt.Sync(); err != nil {
				return err
			}
			runtime.CopyParallel(runtime.Bytes(dst[lo:hi]), host)
			return nil
		})
		if err != nil {
			return k.wrapError(err)
		}
	}
	return nil
}

// SumRows implements [kernels.ResidentRows]. The sums overwrite the prepared centroids on the device,
// which are released afterwards.
func (k residentRows) SumRows(ctx context.Context, dst []float32, order []uint32, starts []int) error {
	defer k.releaseCentroids()
	return k.reduceByCentroid(ctx, "cluster_sums", dst, order, starts)
}

// outputSlot has the events of one of two halves of the output: one half is copied to the host
// while kernels write the other.
type outputSlot struct{ computed, copied driver.Event }

// createEvents creates both events.
func (s *outputSlot) createEvents(rt *runtime.Runtime) (err error) {
	if s.computed, err = rt.Driver.NewEvent(); err == nil {
		s.copied, err = rt.Driver.NewSleepingEvent()
	}
	return err
}

// freeEvents destroys both events.
func (s *outputSlot) freeEvents(rt *runtime.Runtime) {
	_ = rt.Driver.FreeEvent(s.computed)
	_ = rt.Driver.FreeEvent(s.copied)
	*s = outputSlot{}
}

// EncodeResident implements [kernels.ResidentEncoder].
func (e *encoder) EncodeResident(
	ctx context.Context, dst kernels.EncodedTokens, v kernels.ResidentVectors, first int,
) error {
	vectors, ok := v.(*resident.Vectors)
	if !ok || !vectors.IsOn(e.dev) || vectors.Dim() != e.dim || first < 0 || first+len(dst.Codes) > v.Len() {
		return e.wrapError(fmt.Errorf("%w: the vectors are of another device or dimension, or out of range",
			kernels.ErrShape))
	}
	err := e.dev.Call(ctx, func(rt *runtime.Runtime) error {
		err := e.encodeResident(ctx, dst, vectors, first)
		if err != nil {
			rt.Drain()
		}
		return err
	})
	if err != nil {
		return e.wrapError(err)
	}
	return nil
}

// encodeResident encodes on the device's goroutine. While a block is computed, the previous one is
// copied to the host.
func (e *encoder) encodeResident(ctx context.Context, dst kernels.EncodedTokens, v *resident.Vectors, first int) error {
	if e.centroids.Ptr == 0 || v.RowPtr(0) == 0 {
		return kernels.ErrDeviceClosed
	}
	n := len(dst.Codes)
	largest := e.layout(min(n, maxRows), e, true)
	w, blocks := &e.rt.Work, parallel.Blocks(n, maxRows)
	if err := w.Reserve(runtime.WorkspaceSizes{Out: 2 * largest.out.Size, Scratch: largest.scratch.Size}); err != nil {
		return err
	}
	var layouts [2]layout
	for i := range blocks + 1 {
		// 1. Launch block i into one half of the output.
		if i < blocks {
			lo, hi := parallel.Block(i, n, maxRows)
			l := e.layout(hi-lo, e, true)
			l.outOffset, l.rows, l.halves = int64(i%2)*largest.out.Size, w.Scratch.At(l.vectors), v.RowPtr(first+lo)
			layouts[i%2] = l
			if err := e.launchBlock(&l, &e.slots[i%2]); err != nil {
				return err
			}
		}
		if i == 0 {
			continue
		}
		// 2. Take the results of block i−1 from the other half.
		if err := e.rt.Driver.SyncEvent(e.slots[(i-1)%2].copied); err != nil {
			return err
		}
		lo, hi := parallel.Block(i-1, n, maxRows)
		l := &layouts[(i-1)%2]
		l.copyResults(&request{
			codes:  dst.Codes[lo:hi],
			tokens: e.tokensBetween(dst, lo, hi),
		}, w.HostOut[l.outOffset:], 0)
		for _, code := range dst.Codes[lo:hi] {
			if int64(code) >= int64(e.k) {
				return errNoCentroid
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// launchBlock launches the kernels for a block of vectors, and the copy of their results to the host.
func (e *encoder) launchBlock(l *layout, s *outputSlot) error {
	rt := e.rt
	if err := launchScale(rt, scaleParams{in: l.halves, x: l.rows}, l.n, e.dim, true, e.unit); err != nil {
		return err
	}
	if err := e.launchNearest(l); err != nil {
		return err
	}
	if err := e.encode(l); err != nil {
		return err
	}
	if err := rt.Driver.Record(s.computed, rt.Stream); err != nil {
		return err
	}
	if err := rt.Driver.Wait(rt.Copies, s.computed); err != nil {
		return err
	}
	if err := rt.Driver.ToHost(rt.Work.HostOut[l.outOffset:l.outOffset+l.out.Size], rt.Work.Out.At(l.outOffset),
		rt.Copies); err != nil {
		return err
	}
	return rt.Driver.Record(s.copied, rt.Copies)
}

// tokensBetween returns the parts of dst, except codes, for the tokens lo to hi.
func (e *encoder) tokensBetween(dst kernels.EncodedTokens, lo, hi int) kernels.EncodedTokens {
	return kernels.EncodedTokens{
		Residuals: dst.Residuals[lo*e.rowBytes : hi*e.rowBytes], Factors: dst.Factors[lo:hi], Errors: dst.Errors[lo:hi],
	}
}
