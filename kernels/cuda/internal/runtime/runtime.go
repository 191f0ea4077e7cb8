package runtime

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"runtime/debug"
	"time"
	"unsafe"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
)

// Runtime has the context, the streams, the memory and the kernels that requests use. Only the
// device's goroutine may use it.
type Runtime struct {
	Driver *driver.Context
	Props  driver.Info
	// Stream orders all launches, and all copies except those of staging.
	Stream driver.Stream
	Work   Workspace

	// Copies is a second stream, whose copies run at the same time as the work of Stream and
	// are ordered by events.
	Copies  driver.Stream
	staging staging
	events  []driver.Event
	kernels kernelSet
	owners  map[Owner]bool
}

// Owner holds device memory from one request to the next.
type Owner interface {
	// Free frees the memory and calls [Runtime.RemoveOwner]. It returns no error, since the only
	// possible ones are those of a lost device, whose memory is freed with it.
	Free()
}

// AddOwner registers an owner, so that it is freed with the device.
func (rt *Runtime) AddOwner(o Owner) { rt.owners[o] = true }

// FreeOwner frees an owner on the device's goroutine. It is not an error if the device is closed
// or lost, or ended by a panic: it frees its owners itself.
func (d *Device) FreeOwner(o Owner) error {
	err := d.Call(context.Background(), func(*Runtime) error {
		o.Free()
		return nil
	})
	if errors.Is(err, kernels.ErrDeviceClosed) || endsDevice(err) {
		return nil
	}
	return err
}

// RemoveOwner removes an owner that holds no memory any more. With the last one, the
// memory that batches and uploads share is freed too.
func (rt *Runtime) RemoveOwner(o Owner) {
	delete(rt.owners, o)
	if len(rt.owners) == 0 {
		rt.Work.Release()
		rt.staging.freeBuffers(rt.Driver)
	}
}

// RecordPoint marks the work that Stream has received so far with a small number, the point.
func (rt *Runtime) RecordPoint(point int) error {
	for len(rt.events) <= point {
		e, err := rt.Driver.NewTimedEvent()
		if err != nil {
			return err
		}
		rt.events = append(rt.events, e)
	}
	return rt.Driver.Record(rt.events[point], rt.Stream)
}

// SyncPoint waits until the device has passed a recorded point.
func (rt *Runtime) SyncPoint(point int) error { return rt.Driver.SyncEvent(rt.events[point]) }

// Elapsed returns the time between two points that the device has passed.
func (rt *Runtime) Elapsed(from, to int) (time.Duration, error) {
	ms, err := rt.Driver.Elapsed(rt.events[from], rt.events[to])
	return time.Duration(ms * 1e6), err
}

// Sync waits until the device has done the work of Stream.
func (rt *Runtime) Sync() error { return rt.Driver.Sync(rt.Stream) }

// Drain waits, after an error, until the device has done the work of both streams, so that
// memory which that work uses can be freed.
func (rt *Runtime) Drain() {
	_ = rt.Driver.Sync(rt.Copies)
	_ = rt.Sync()
}

// open opens the device's context, loads its code and creates the streams.
func (rt *Runtime) open(api *driver.API, props driver.Info, modules fs.FS) (err error) {
	c, err := driver.Open(api, props.Ordinal)
	if err != nil {
		return err
	}
	*rt = Runtime{Driver: c, Props: props, owners: map[Owner]bool{}}
	rt.Work.rt = rt
	if err := rt.kernels.load(c, &props, modules, mainModule); err != nil {
		return err
	}
	if rt.Stream, err = c.NewStream(); err != nil {
		return err
	}
	rt.Copies, err = c.NewStream()
	return err
}

// Borrow returns a runtime without a [Device], for the kernels of one family in streams of the
// caller. It has no workspace, no staging and no points, and the caller sets Stream. Borrow makes
// the primary context current to this thread.
func Borrow(api *driver.API, props driver.Info, modules fs.FS, family string) (*Runtime, error) {
	c, err := driver.Open(api, props.Ordinal)
	if err != nil {
		return nil, err
	}
	rt := &Runtime{Driver: c, Props: props}
	if err := c.Relaxed(func() error { return rt.kernels.load(c, &props, modules, family) }); err != nil {
		_ = c.Close()
		return nil, err
	}
	return rt, nil
}

// CloseBorrowed unloads the code of a borrowed runtime, and releases its context, which must be current.
func (rt *Runtime) CloseBorrowed() error {
	return errors.Join(rt.kernels.unload(rt.Driver), rt.Driver.Close())
}

// freeMemory frees everything except the context.
func (rt *Runtime) freeMemory() error {
	for o := range rt.owners {
		o.Free()
	}
	rt.staging.freeBuffers(rt.Driver)
	rt.Work.Release()
	for _, e := range rt.events {
		_ = rt.Driver.FreeEvent(e)
	}
	_ = rt.Driver.FreeStream(rt.Copies)
	_ = rt.Driver.FreeStream(rt.Stream)
	_ = rt.kernels.unload(rt.Driver)
	return nil
}

// recoverPanic calls fn, and returns a panic of it as a [kernels.PanicError].
func recoverPanic(fn func() error) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *parallel.Panic: // has the stack of the goroutine that panicked
			err = &kernels.PanicError{Value: r.Value, Stack: r.Stack}
		default:
			err = &kernels.PanicError{Value: r, Stack: debug.Stack()}
		}
	}()
	return fn()
}

// Arena lays out arrays one after another, each at a multiple of [ArenaAlign]. Size is the end
// of the last one, in bytes.
type Arena struct{ Size int64 }

// ArenaAlign is the alignment of arrays on the device, in bytes.
const ArenaAlign = 256

// Append adds an array of a number of bytes, and returns its offset.
func (a *Arena) Append(bytes int64) (offset int64) {
	offset = a.Size
	a.Size += CeilDiv(bytes, ArenaAlign) * ArenaAlign
	return offset
}

// CeilDiv returns a/b, rounded up.
func CeilDiv[T int | int64 | uint32 | uint64](a, b T) T { return (a + b - 1) / b }

// RoundUp returns a number a little above v: an upper bound whose computation was rounded stays one.
func RoundUp(v float32) float32 { return math.Nextafter32(v*(1+1e-5), float32(math.Inf(1))) }

// Bytes returns the memory of s, whose elements are numbers or structs of numbers. The device reads
// it without conversion: both are little-endian.
func Bytes[T any](s []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), int(unsafe.Sizeof(zero))*len(s))
}

// CopyParallel copies with several goroutines, since one does not use the memory's bandwidth. It
// returns the number of bytes. If src is a mapped file that was truncated, it panics
// (debug.SetPanicOnFault).
func CopyParallel(dst, src []byte) int64 {
	const block = 1 << 20
	n := parallel.Blocks(len(src), block)
	_ = parallel.Do(context.Background(), n, parallel.Threads(0, n/4), func(i int) error {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		lo, hi := parallel.Block(i, len(src), block)
		copy(dst[lo:hi], src[lo:hi])
		return nil
	})
	return int64(len(src))
}
