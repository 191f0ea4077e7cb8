// Package runtime runs the work of one GPU, whatever it is: it knows of streams,
// memory, device code and who waits for what, and nothing of indexes.
//
//	Device     asked by any number of goroutines: a queue of requests
//	Request    what a family of kernels wants done; says what it can be batched with
//	Runtime    what requests work with, on the device's own goroutine
//
// A family of kernels is a package of its own: requests, the structs of
// parameters that it launches kernels with (as in src), and owners of memory.
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

// Kind is the kind of the devices, the part of their names before the colon.
const Kind = "cuda"

// Device is one GPU. All calls of the driver for it are made by one goroutine,
// which is locked to its thread; any number of goroutines may ask.
//
// A panic on that goroutine is the error of the requests in hand, a
// [kernels.PanicError], and of all that come later: what the device's memory
// holds is in doubt, so that the device is not used again until it is closed,
// which gives its memory back.
type Device struct {
	info kernels.DeviceInfo

	mu      sync.Mutex
	wake    sync.Cond
	queue   []Request
	closed  bool
	failure error // what ended the context, or a panic; set by the goroutine
	done    chan struct{}

	waiters     atomic.Int64 // requests that are waited for
	hasRequests atomic.Bool  // something has come since the goroutine last looked

	live atomic.Pointer[driver.Resources]

	rt Runtime // of the goroutine alone
}

// Describe describes a device of the driver. modules has the device code.
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

// Live counts what the device's context has given out, as of the last request
// that was answered; nothing after Close.
func (d *Device) Live() driver.Resources { return *d.live.Load() }

// Close answers what is queued with [kernels.ErrDeviceClosed] and frees
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

// To put a thread to sleep and to wake it takes ten microseconds or more, a good
// part of a short search. So where there are processors enough, who asks a device
// alone stays awake for as long as such a search takes, and the device's goroutine,
// after an answer, for as long as the next question takes to come.
const (
	spinProcessors = 4
	callerSpin     = 300 * time.Microsecond
	idleSpin       = 300 * time.Microsecond
)

func canSpin() bool { return parallel.Processors() >= spinProcessors }

// waitForRequest waits until something comes, first awake if asked to. The caller holds mu,
// and looks again afterwards.
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

// answerBatch carries out requests that were taken together.
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

// endsDevice reports whether nothing more can be asked of a device after an error.
func endsDevice(err error) bool {
	var fault *kernels.PanicError
	return errors.Is(err, driver.ErrDeviceLost) || errors.As(err, &fault)
}

func (d *Device) countLive() {
	live := d.rt.Driver.Live()
	d.live.Store(&live)
}

// freeAll frees everything. Errors are those of a lost device, whose memory went
// with it, and where a panic has left what cannot be freed piece by piece it goes
// with the context.
func (d *Device) freeAll() {
	if d.rt.Driver == nil {
		return
	}
	_ = recoverPanic(d.rt.freeMemory)
	d.countLive()
	_ = d.rt.Driver.Close()
}
