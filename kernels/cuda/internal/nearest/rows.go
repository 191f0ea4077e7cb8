package nearest

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

// keptRows are the rows of k-means on the device.
type keptRows struct {
	*builder
	rt      *runtime.Runtime
	mem     driver.Mem
	vectors []float32
	rows    []uint32 // numbers in vectors, or in the resident vectors
	dim     int
	// residents has the rows if they are resident vectors: then vectors is nil, and mem has the
	// arrays of residents instead of the rows.
	residents *residentSource

	centroids *preparedCentroids // of the last Nearest, nil before it
	release   func()             // frees centroids
}

// UploadRows uploads rows. It is an error if they need more than half of the free memory; see
// [kernels.RowUploader].
func (b *builder) UploadRows(ctx context.Context, x []float32, dim int, rows []uint32) (kernels.DeviceRows, error) {
	k := &keptRows{
		builder: b,
		vectors: x,
		rows:    rows,
		dim:     dim,
	}
	err := b.dev.Call(ctx, func(rt *runtime.Runtime) error {
		k.rt = rt
		free, _, err := rt.Driver.MemInfo()
		if err != nil {
			return err
		}
		size := 4 * int64(len(rows)) * int64(dim)
		if uint64(size) > free/2 || len(rows) > math.MaxUint32 {
			return fmt.Errorf("%w: %d bytes of vectors, and half of the %d free bytes may be used",
				driver.ErrOutOfMemory, size, free)
		}
		if k.mem, err = rt.Driver.Alloc(max(size, 1)); err != nil {
			return err
		}
		rt.AddOwner(k)
		return nil
	})
	for i := range parallel.Blocks(len(rows), maxRows) {
		if err != nil {
			break
		}
		lo, hi := parallel.Block(i, len(rows), maxRows)
		err = b.dev.Call(ctx, func(rt *runtime.Runtime) error { return k.upload(lo, hi) })
	}
	if err != nil {
		k.Release()
		return nil, b.wrapError(err)
	}
	return k, nil
}

// upload copies the rows from lo to hi, on the device's goroutine.
func (k *keptRows) upload(lo, hi int) error {
	if k.mem.Ptr == 0 {
		return kernels.ErrDeviceClosed
	}
	w := &k.rt.Work
	bytes := int64(4 * k.dim * (hi - lo))
	if err := w.Reserve(runtime.WorkspaceSizes{In: bytes}); err != nil {
		return err
	}
	err := parallel.Do(context.Background(), parallel.Blocks(hi-lo, 1024), 0, func(i int) error {
		from, before := parallel.Block(i, hi-lo, 1024)
		for j := from; j < before; j++ {
			copy(w.HostIn[4*j*k.dim:], runtime.Bytes(k.sourceRow(lo+j)))
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := k.rt.Driver.ToDevice(k.mem.At(4*int64(lo)*int64(k.dim)), w.HostIn[:bytes], k.rt.Stream); err != nil {
		return err
	}
	return k.rt.Sync()
}

// sourceRow returns row i in the caller's vectors.
func (k *keptRows) sourceRow(i int) []float32 {
	r := int(k.rows[i])
	return k.vectors[r*k.dim : (r+1)*k.dim]
}

// Nearest implements [kernels.DeviceRows].
func (k *keptRows) Nearest(
	ctx context.Context, codes []uint32, scores, centroids []float32, tick func(rows int),
) error {
	k.releaseCentroids()
	backend, release, err := k.Prepare(ctx, centroids, k.dim)
	if err != nil {
		return err
	}
	k.release = release
	k.centroids, _ = backend.(*preparedCentroids)
	if k.centroids == nil {
		return k.wrapError(fmt.Errorf("%w: %d values are no centroid of dimension %d", kernels.ErrShape,
			len(centroids), k.dim))
	}
	for i := range parallel.Blocks(len(k.rows), maxRows) {
		lo, hi := parallel.Block(i, len(k.rows), maxRows)
		if err := k.dev.Call(ctx,
			func(*runtime.Runtime) error { return k.nearest(codes[lo:hi], scores[lo:hi], lo) }); err != nil {
			return k.wrapError(err)
		}
		for j := lo; j < hi; j++ {
			if int64(codes[j]) < int64(k.centroids.k) {
				continue
			}
			if k.residents != nil {
				return k.wrapError(errNoCentroid)
			}
			// The device cannot bound the error of its products: see answerOnCPU.
			if err := k.Backend.Nearest(ctx, codes[j:j+1], scores[j:j+1], centroids, k.sourceRow(j),
				k.dim); err != nil {
				return err
			}
		}
		tick(hi - lo)
	}
	return nil
}

// nearest finds the centroids of len(codes) rows from first on, on the device's goroutine.
func (k *keptRows) nearest(codes []uint32, scores []float32, first int) error {
	p := k.centroids
	if k.isFreed() || p.centroids.Ptr == 0 {
		return kernels.ErrDeviceClosed
	}
	l := p.layout(len(codes), nil, k.residents != nil)
	w := &k.rt.Work
	if err := w.Reserve(runtime.WorkspaceSizes{Out: l.out.Size, Scratch: l.scratch.Size}); err != nil {
		return err
	}
	err := error(nil)
	if k.residents != nil {
		l.rows, l.halves = w.Scratch.At(l.vectors), k.residents.vectors.RowPtr(0)
		l.numbers = k.residents.numberPtr(first)
		err = k.residents.scaleRows(scaleParams{x: l.rows}, first, len(codes))
	} else {
		l.rows = k.mem.At(4 * int64(first) * int64(k.dim))
	}
	if err == nil {
		err = p.launchNearest(&l)
	}
	if err == nil {
		err = k.rt.Driver.ToHost(w.HostOut[:l.out.Size], w.Out.Ptr, k.rt.Stream)
	}
	if err != nil {
		k.rt.Drain()
		return err
	}
	wait := k.rt.Sync
	if k.residents != nil {
		wait = k.residents.waitForStream
	}
	if err := wait(); err != nil {
		return err
	}
	l.copyResults(&request{codes: codes, scores: scores}, w.HostOut, 0)
	return nil
}

// isFreed reports whether the rows were released, or freed with the device.
func (k *keptRows) isFreed() bool { return k.mem.Ptr == 0 }

type meansParams struct {
	x, halves, numbers, by, order, starts, centroids driver.Ptr
	k, dim                                           uint32
}

// UpdateCentroids implements [kernels.DeviceRows].
func (k *keptRows) UpdateCentroids(ctx context.Context, centroids []float32, order []uint32, starts []int) error {
	return k.reduceByCentroid(ctx, "cluster_means", centroids, order, starts)
}

// reduceByCentroid runs a kernel over the rows of each centroid, and copies its results to dst. The rows
// of centroid i are order[starts[i]:starts[i+1]].
func (k *keptRows) reduceByCentroid(
	ctx context.Context, kernel string, dst []float32, order []uint32, starts []int,
) error {
	p := k.centroids
	if p == nil || len(dst) != p.k*p.dim || len(starts) != p.k+1 || len(order) != len(k.rows) {
		return k.wrapError(fmt.Errorf("%w: the rows were not assigned to these centroids", kernels.ErrShape))
	}
	err := k.dev.Call(ctx, func(rt *runtime.Runtime) error {
		err := k.launchReduction(kernel, dst, order, starts)
		if err != nil {
			rt.Drain()
		}
		return err
	})
	if err != nil {
		return k.wrapError(err)
	}
	return nil
}

// launchReduction is reduceByCentroid on the device's goroutine. The results replace the
// prepared centroids on the device.
func (k *keptRows) launchReduction(kernel string, dst []float32, order []uint32, starts []int) error {
	p, w, c, st := k.centroids, &k.rt.Work, k.rt.Driver, k.rt.Stream
	if k.isFreed() || p.centroids.Ptr == 0 {
		return kernels.ErrDeviceClosed
	}
	var in runtime.Arena
	orderOffset, startsOffset := in.Append(4*int64(len(order))), in.Append(4*int64(len(starts)))
	if err := w.Reserve(runtime.WorkspaceSizes{In: in.Size}); err != nil {
		return err
	}
	runtime.CopyParallel(w.HostIn[orderOffset:], runtime.Bytes(order))
	for i, s := range starts {
		binary.LittleEndian.PutUint32(w.HostIn[startsOffset+4*int64(i):], uint32(s))
	}
	if err := c.ToDevice(w.In.Ptr, w.HostIn[:in.Size], st); err != nil {
		return err
	}
	a := &meansParams{
		x:         k.mem.Ptr,
		order:     w.In.At(orderOffset),
		starts:    w.In.At(startsOffset),
		centroids: p.centroids.Ptr,
		k:         uint32(p.k),
		dim:       uint32(p.dim),
	}
	if k.residents != nil {
		a.x, a.halves = 0, k.residents.vectors.RowPtr(0)
		a.numbers, a.by = k.mem.At(k.residents.numbers), k.mem.At(k.residents.factors)
	}
	if err := runtime.Launch(k.rt, kernel, p.k, 1, 1, 128, 8*p.dim, a); err != nil {
		return err
	}
	if err := c.ToHost(runtime.Bytes(dst), p.centroids.Ptr, st); err != nil {
		return err
	}
	return k.rt.Sync()
}

// releaseCentroids frees the centroids of the last Nearest, if there are any.
func (k *keptRows) releaseCentroids() {
	if k.release != nil {
		k.release()
	}
	k.centroids, k.release = nil, nil
}

// Release frees the rows, and the centroids they were last assigned to.
func (k *keptRows) Release() {
	k.releaseCentroids()
	_ = k.dev.FreeOwner(k)
}

// Free frees the rows on the device's goroutine.
func (k *keptRows) Free() {
	if k.rt == nil {
		return
	}
	_ = k.rt.Driver.Free(k.mem)
	k.mem = driver.Mem{}
	if k.residents != nil {
		_ = k.rt.Driver.FreeEvent(k.residents.done)
		k.residents.done = driver.Event{}
	}
	k.rt.RemoveOwner(k)
}
