// Package resident keeps token vectors in the memory of a device: package encoder writes them
// there, and package nearest builds an index from them.
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

// firstBytes is the size of the first allocation. Larger lists are copied to an allocation of twice
// the size. It is a variable so that tests can make lists grow.
var firstBytes int64 = 256 << 20

// Vectors are [kernels.ResidentVectors]. Only methods that say so are safe for concurrent use; the
// others are called on the device's goroutine.
type Vectors struct {
	dev   *runtime.Device
	rt    *runtime.Runtime
	dim   int
	mem   driver.Mem
	limit int64 // maximum of bytes: half of the memory that was free in New
	count atomic.Int64
	freed bool
}

// New returns an empty list of vectors on a device. It is safe for concurrent use.
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

// wrapError adds the device to an error.
func (v *Vectors) wrapError(err error) error {
	return fmt.Errorf("vectors on %s: %w", v.dev.Info().Name, err)
}

// Dim implements [kernels.ResidentVectors]; it is safe for concurrent use.
func (v *Vectors) Dim() int { return v.dim }

// Len implements [kernels.ResidentVectors]; it is safe for concurrent use.
func (v *Vectors) Len() int { return int(v.count.Load()) }

// IsOn reports whether the vectors are on a device; it is safe for concurrent use.
func (v *Vectors) IsOn(d *runtime.Device) bool { return v.dev == d }

// RowPtr returns the address of a vector. It is valid until the next Grow.
func (v *Vectors) RowPtr(row int) driver.Ptr { return v.mem.At(v.byteSize(row)) }

// byteSize returns the bytes of a number of vectors of half precision.
func (v *Vectors) byteSize(rows int) int64 { return 2 * int64(rows) * int64(v.dim) }

// Grow makes the list at least rows long. If it has to be copied to a larger allocation, Grow waits for
// the work of Stream. Errors wrap [kernels.ErrDeviceMemory].
func (v *Vectors) Grow(rows int) error {
	if v.freed {
		return kernels.ErrDeviceClosed
	}
	if need := v.byteSize(rows); need > v.mem.Bytes {
		if need > v.limit {
			return fmt.Errorf("%w: %d bytes of vectors, and the limit is %d, half of the memory that was free",
				driver.ErrOutOfMemory, need, v.limit)
		}
		if err := v.reallocate(min(max(need, 2*v.mem.Bytes, firstBytes), v.limit)); err != nil {
			return err
		}
	}
	v.count.Store(max(v.count.Load(), int64(rows)))
	return nil
}

// reallocate copies the vectors to a new allocation.
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

// rowsPerRead is how many vectors a request reads.
const rowsPerRead = 1 << 16

// Read implements [kernels.ResidentVectors]; it is safe for concurrent use.
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

// readRows copies the vectors with the given numbers to dst.
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
	if err := w.Reserve(runtime.WorkspaceSizes{In: 4 * int64(len(numbers)), Out: int64(len(dst))}); err != nil {
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

// Release implements [kernels.ResidentVectors]; it is safe for concurrent use.
func (v *Vectors) Release() { _ = v.dev.FreeOwner(v) }

// Free implements [runtime.Owner].
func (v *Vectors) Free() {
	if v.freed {
		return
	}
	v.freed = true
	_ = v.rt.Driver.Free(v.mem)
	v.mem = driver.Mem{}
	v.rt.RemoveOwner(v)
}
