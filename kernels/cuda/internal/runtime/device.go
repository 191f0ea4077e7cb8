// Package runtime runs the work of one GPU. It manages streams, memory, device code and a
// queue of requests, and is independent of indexes.
//
//	Device     a queue of requests from any number of goroutines
//	Request    a unit of work of a family of kernels; says which others it can share a batch with
//	Runtime    context, streams, memory and kernels, for requests on the device's goroutine
//
// A family of kernels is a package: its requests, the parameter structs of its kernels
// (as in src), and its owners of memory.
package runtime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
)

// Kind is the kind of the devices: the part of their names before the colon.
const Kind = "cuda"

// Device is one GPU. It is safe for concurrent use: one goroutine, locked to its thread,
// makes all calls of the driver.
//
// A panic on that goroutine becomes a [kernels.PanicError], which the current requests and
// all later ones return: the content of the device's memory is unknown then, so that the
// device cannot be used any more. Close frees its memory.
type Device struct {
	info kernels.DeviceInfo

	mu      sync.Mutex
	wake    sync.Cond
	queue   []Request
	closed  bool
	failure error // the error that ended the context, or a panic; set by the goroutine
	done    chan struct{}

	waiters     atomic.Int64 // callers that wait for an answer
	hasRequests atomic.Bool  // a request or Close has come since the goroutine began to spin

	live atomic.Pointer[driver.Resources]

	rt Runtime // used by the device's goroutine only
}

// Describe converts the description of a device. Unusable is set if modules, the device code, has none for it.
func Describe(p *driver.Info, modules fs.FS) kernels.DeviceInfo {
	info := kernels.DeviceInfo{
		Name:            fmt.Sprintf("%s:%d", Kind, p.Ordinal),
		Model:           p.Name,
		Capability:      p.Capability(),
		Memory:          p.Memory,
		Multiprocessors: p.Multiprocessors,
		PCI:             p.PCI,
		Driver:          p.Driver,
	}
	if _, err := imageFor(modules, mainModule, p.Major, p.Minor); err != nil {
		info.Unusable = err.Error()
	}
	return info
}

// Open opens a device of the driver and starts its goroutine.
func Open(ctx context.Context, api *driver.API, props driver.Info, modules fs.FS) (*Device, error) {
	d := &Device{info: Describe(&props, modules), done: make(chan struct{})}
	d.wake.L = &d.mu
	d.live.Store(&driver.Resources{})
	if d.info.Unusable != "" {
		return nil, fmt.Errorf("%w: %s", driver.ErrUnsupported, d.info.Unusable)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ready := make(chan error)
	go d.serveRequests(ready, func() error { return d.rt.open(api, props, modules) })
	if err := <-ready; err != nil {
		<-d.done
		return nil, err
	}
	return d, nil
}

// Info describes the device.
func (d *Device) Info() kernels.DeviceInfo { return d.info }

// Live counts the allocations of the device's context, as of the last answered
// request. They are 0 after Close.
func (d *Device) Live() driver.Resources { return *d.live.Load() }

// Close answers queued requests with [kernels.ErrDeviceClosed] and frees
// everything. It may be called more than once.
func (d *Device) Close() error {
	d.mu.Lock()
	d.closed = true
	d.hasRequests.Store(true)
	d.wake.Broadcast()
	d.mu.Unlock()
	<-d.done
	return nil
}

// serveRequests is the device's goroutine: it calls start, sends its error to ready, and then
// answers requests until the device is closed.
func (d *Device) serveRequests(ready chan<- error, start func() error) {
	defer close(d.done)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := recoverPanic(start)
	if err != nil {
		d.freeAll()
	}
	ready <- err
	if err != nil {
		return
	}
	for {
		d.mu.Lock()
		for spin := true; len(d.queue) == 0 && !d.closed; spin = false {
			d.waitForRequest(spin)
		}
		if d.closed {
			unanswered := d.queue
			d.queue = nil
			d.mu.Unlock()
			for _, r := range unanswered {
				r.ticket().answer(kernels.ErrDeviceClosed)
			}
			d.freeAll()
			return
		}
		batch := d.takeRequests()
		d.mu.Unlock()
		d.answerBatch(batch)
	}
}

// Putting a thread to sleep and waking it takes ten microseconds or more, a large part
// of a short search. If there are enough processors, a single caller therefore polls for
// as long as such a search takes, and the device's goroutine, after an answer, for as long
// as a caller usually takes to send its next request.
const (
	spinProcessors = 4
	callerSpin     = 300 * time.Microsecond
	idleSpin       = 300 * time.Microsecond
)

// canSpin reports whether there are enough processors to poll instead of sleeping.
func canSpin() bool { return parallel.Processors() >= spinProcessors }

// waitForRequest waits until a request or Close comes. With spin it polls for a while and may
// return before one has come. The caller holds mu, and checks the queue again afterwards.
func (d *Device) waitForRequest(spin bool) {
	if !spin || !canSpin() {
		d.wake.Wait()
		return
	}
	d.hasRequests.Store(false)
	d.mu.Unlock()
	for until := time.Now().Add(idleSpin); !d.hasRequests.Load() && time.Now().Before(until); {
	}
	d.mu.Lock()
}

// answerBatch runs a batch, except the requests whose context has ended, and answers all of them.
func (d *Device) answerBatch(batch []Request) {
	kept := batch[:0]
	for _, r := range batch {
		err := r.ticket().ctx.Err()
		if err == nil {
			err = d.failure
		}
		if err != nil {
			r.ticket().answer(err)
			continue
		}
		kept = append(kept, r)
	}
	if len(kept) == 0 {
		return
	}
	err := recoverPanic(func() error { return kept[0].Run(&d.rt, kept) })
	for _, r := range kept {
		if r.ticket().Fail(err); endsDevice(r.ticket().err) {
			d.mu.Lock()
			d.failure = r.ticket().err
			d.mu.Unlock()
		}
	}
	d.countLive()
	for _, r := range kept {
		r.ticket().answer(nil)
	}
}

// endsDevice reports whether a device cannot be used any more after an error.
func endsDevice(err error) bool {
	var fault *kernels.PanicError
	return errors.Is(err, driver.ErrDeviceLost) || errors.As(err, &fault)
}

// countLive publishes the current counts of allocations for Live.
func (d *Device) countLive() {
	live := d.rt.Driver.Live()
	d.live.Store(&live)
}

// freeAll frees everything. It ignores errors: they are those of a lost device, whose
// memory is freed with it. Memory that a panic has left inconsistent is freed with the context.
func (d *Device) freeAll() {
	if d.rt.Driver == nil {
		return
	}
	_ = recoverPanic(d.rt.freeMemory)
	d.countLive()
	_ = d.rt.Driver.Close()
}
