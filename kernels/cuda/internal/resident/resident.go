// Package resident holds token vectors in the memory of a device: package encoder puts them
// there, package nearest builds an index of them.
package resident

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

// firstBytes is the memory that vectors get first. Where they need more they get twice as much,
// and are copied there.
var firstBytes int64 = 256 << 20 // a variable, so that tests see them grow

// Vectors are [kernels.ResidentVectors]. What is not said to be for all belongs to the device's
// goroutine.
type Vectors struct {
	dev   *runtime.Device
	rt    *runtime.Runtime
	dim   int
	mem   driver.Mem
	limit int64 // bytes that they may take: half of the memory that was free at first
	count atomic.Int64
	freed bool
}

// New makes an empty list of vectors on a device. It is safe for concurrent use.
func New(ctx context.Context, d *runtime.Device, dim int) (*Vectors, error) {
	v := &Vectors{dev: d, dim: dim}
	err := d.Call(ctx, func(rt *runtime.Runtime) error {
		free, _, err := rt.Driver.MemInfo()
		if err != nil {
			return err
		}
		v.rt, v.limit = rt, int64(free/2)
		rt.AddOwner(v)
		return nil
	})
	if err != nil {
		return nil, v.wrapError(err)
	}
	return v, nil
}

func (v *Vectors) wrapError(err error) error {
	return fmt.Errorf("vectors on %s: %w", v.dev.Info().Name, err)
}

// Dim implements [kernels.ResidentVectors], for all.
func (v *Vectors) Dim() int { return v.dim }

// Len implements [kernels.ResidentVectors], for all.
func (v *Vectors) Len() int { return int(v.count.Load()) }

// IsOn reports whether they lie on a device, for all.
func (v *Vectors) IsOn(d *runtime.Device) bool { return v.dev == d }

// RowPtr is the address of a vector, which moves when they grow.
func (v *Vectors) RowPtr(row int) driver.Ptr { return v.mem.At(v.byteSize(row)) }

func (v *Vectors) byteSize(rows int) int64 { return 2 * int64(rows) * int64(v.dim) }

// Grow makes room for the vectors before a row, and counts them. What Stream was given before is
// done then. Errors wrap [kernels.ErrDeviceMemory].
func (v *Vectors) Grow(rows int) error {
	if v.freed {
		return kernels.ErrDeviceClosed
	}
	if need := v.byteSize(rows); need > v.mem.Bytes {
		if need > v.limit {
			return fmt.Errorf("%w: %d bytes of vectors, of which there may be %d", driver.ErrOutOfMemory, need, v.limit)
		}
		if err := v.reallocate(min(max(need, 2*v.mem.Bytes, firstBytes), v.limit)); err != nil {
			return err
		}
	}
	v.count.Store(max(v.count.Load(), int64(rows)))
	return nil
}

// reallocate takes other memory for them.
func (v *Vectors) reallocate(bytes int64) error {
	c := v.rt.Driver
	mem, err := c.Alloc(bytes)
	if err != nil {
		return err
	}
	err = c.OnDevice(mem.Ptr, v.mem.Ptr, v.mem.Bytes, v.rt.Stream)
	if err == nil {
		err = v.rt.Sync()
	}
	if err != nil {
		v.rt.Drain()
		_ = c.Free(mem)
		return err
	}
	_ = c.Free(v.mem)
	v.mem = mem
	return nil
}

// rowsPerRead is how many vectors are read at a time.
const rowsPerRead = 1 << 16

// Read implements [kernels.ResidentVectors], for all.
func (v *Vectors) Read(ctx context.Context, dst []byte, numbers []uint32) error {
	size := int(v.byteSize(1))
	for i := range parallel.Blocks(len(numbers), rowsPerRead) {
		lo, hi := parallel.Block(i, len(numbers), rowsPerRead)
		err := v.dev.Call(ctx,
			func(rt *runtime.Runtime) error { return v.readRows(dst[lo*size:hi*size], numbers[lo:hi]) })
		if err != nil {
			return v.wrapError(err)
		}
	}
	return nil
}

type gatherParams struct {
	in, numbers, out driver.Ptr
	n, rowBytes      uint32
}

func (v *Vectors) readRows(dst []byte, numbers []uint32) error {
	if v.freed || v.mem.Ptr == 0 {
		return kernels.ErrDeviceClosed
	}
	for _, r := range numbers {
		if int(r) >= v.Len() {
			return fmt.Errorf("%w: vector %d of %d", kernels.ErrShape, r, v.Len())
		}
	}
	w, c, st := &v.rt.Work, v.rt.Driver, v.rt.Stream
	if err := w.Reserve(4*int64(len(numbers)), int64(len(dst)), 0, 0); err != nil {
		return err
	}
	bytes := copy(w.HostIn, runtime.Bytes(numbers))
	err := c.ToDevice(w.In.Ptr, w.HostIn[:bytes], st)
	if err == nil {
		err = runtime.Launch(v.rt, "gather_rows", runtime.CeilDiv(len(numbers), 8), 1, 1, 256, 0, &gatherParams{
			in:       v.mem.Ptr,
			numbers:  w.In.Ptr,
			out:      w.Out.Ptr,
			n:        uint32(len(numbers)),
			rowBytes: uint32(v.byteSize(1)),
		})
	}
	if err == nil {
		err = c.ToHost(w.HostOut[:len(dst)], w.Out.Ptr, st)
	}
	if err != nil {
		v.rt.Drain()
		return err
	}
	if err := v.rt.Sync(); err != nil {
		return err
	}
	runtime.CopyParallel(dst, w.HostOut[:len(dst)])
	return nil
}

// Release implements [kernels.ResidentVectors], for all.
func (v *Vectors) Release() { _ = v.dev.FreeOwner(v) }

// Free frees them on the device's goroutine.
func (v *Vectors) Free() {
	if v.freed {
		return
	}
	v.freed = true
	_ = v.rt.Driver.Free(v.mem)
	v.mem = driver.Mem{}
	v.rt.RemoveOwner(v)
}
