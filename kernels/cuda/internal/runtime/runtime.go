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

// Runtime is what requests work with. Only the device's goroutine may use it.
type Runtime struct {
	Driver *driver.Context
	Props  driver.Info
	// Stream is the order of all launches, and of copies but those of staging.
	Stream driver.Stream
	Work   Workspace

	// Copies is beside Stream: what waits for an event of the other.
	Copies  driver.Stream
	staging staging
	events  []driver.Event
	kernels kernelSet
	owners  map[Owner]bool
}

// Owner holds memory of the device from one request to the next.
type Owner interface {
	// Free gives it back, and disowns the owner. Errors are of no interest: they
	// are those of a lost device, whose memory went with it.
	Free()
}

// AddOwner makes an owner known, so that it is freed with the device.
func (rt *Runtime) AddOwner(o Owner) { rt.owners[o] = true }

// FreeOwner has an owner freed on the device's goroutine. A device that is closed or lost,
// or that a panic has ended, has freed it or will.
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

// RemoveOwner forgets an owner, which has nothing more. With the last one goes the
// memory that batches and uploads share.
func (rt *Runtime) RemoveOwner(o Owner) {
	delete(rt.owners, o)
	if len(rt.owners) == 0 {
		rt.Work.Release()
		rt.staging.freeBuffers(rt.Driver)
	}
}

// RecordPoint puts a point, a small number, after what Stream has been given so far.
func (rt *Runtime) RecordPoint(point int) error {
	for len(rt.events) <= point {
		e, err := rt.Driver.NewEvent(true)
		if err != nil {
			return err
		}
		rt.events = append(rt.events, e)
	}
	return rt.Driver.Record(rt.events[point], rt.Stream)
}

// SyncPoint waits until the device has come to a point that was marked.
func (rt *Runtime) SyncPoint(point int) error { return rt.Driver.SyncEvent(rt.events[point]) }

// Elapsed is the time between two points that the device has passed.
func (rt *Runtime) Elapsed(from, to int) (time.Duration, error) {
	ms, err := rt.Driver.Elapsed(rt.events[from], rt.events[to])
	return time.Duration(ms * 1e6), err
}

// Sync waits until the device has done what Stream was given.
func (rt *Runtime) Sync() error { return rt.Driver.Sync(rt.Stream) }

// Drain waits, after an error, until the device has nothing to do: nothing may
// use memory that is given back next.
func (rt *Runtime) Drain() {
	_ = rt.Driver.Sync(rt.Copies)
	_ = rt.Sync()
}

// open makes the device's context, loads its code and makes the streams.
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

// Borrow is a runtime without a device of its own, for work of one family in the streams of
// others: it has no workspace, no staging and no marks, and Stream is the caller's to set. It
// makes the primary context current to this thread.
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

// CloseBorrowed unloads the code of a borrowed runtime, and gives the context back, which is current.
func (rt *Runtime) CloseBorrowed() error {
	return errors.Join(rt.kernels.unload(rt.Driver), rt.Driver.Close())
}

// freeMemory gives back all but the context.
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

// recoverPanic calls fn and makes an error of a panic.
func recoverPanic(fn func() error) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *parallel.Panic: // of another goroutine, whose stack it has
			err = &kernels.PanicError{Value: r.Value, Stack: r.Stack}
		default:
			err = &kernels.PanicError{Value: r, Stack: debug.Stack()}
		}
	}()
	return fn()
}

// Arena lays arrays out one after another, each at a multiple of [ArenaAlign].
type Arena struct{ Size int64 }

// ArenaAlign is what arrays on the device are aligned to, in bytes.
const ArenaAlign = 256

// Append gives the offset of the next array.
func (a *Arena) Append(bytes int64) (offset int64) {
	offset = a.Size
	a.Size += CeilDiv(bytes, ArenaAlign) * ArenaAlign
	return offset
}

// CeilDiv is a/b, rounded up.
func CeilDiv[T int | int64 | uint32 | uint64](a, b T) T { return (a + b - 1) / b }

// RoundUp is a little more than v, for what rounding took from a bound.
func RoundUp(v float32) float32 { return math.Nextafter32(v*(1+1e-5), float32(math.Inf(1))) }

// Bytes is the memory of s, numbers or structs of numbers, as the device wants it:
// both are little-endian.
func Bytes[T any](s []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), int(unsafe.Sizeof(zero))*len(s))
}

// CopyParallel is copy by several goroutines, which one is too slow for. Where src is of a
// mapped file that was cut short it panics (debug.SetPanicOnFault).
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
