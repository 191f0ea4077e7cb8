package cuda

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/driver"
)

// Device is one GPU. All calls of the driver for it are made by one goroutine,
// which is locked to its thread; any number of goroutines may ask.
//
// Requests wait in one queue. The goroutine takes the oldest; if that is a
// search, searches of the same attachment that can share its launches come
// along, wherever they are in the queue, up to the groups of query tokens that
// fit into the workspace. It never waits for more to come. Searches can share
// launches if they see the same documents and are restricted in the same way:
// all documents, or one and the same filter or list; probed searches run by
// themselves.
type Device struct {
	info  kernels.DeviceInfo
	props driver.Info
	api   *driver.API

	mu     sync.Mutex
	wake   sync.Cond
	queue  []*task
	closed bool
	lost   error // what ended the context
	done   chan struct{}

	live atomic.Pointer[driver.Resources]

	// Of the goroutine alone.
	ctx         *driver.Context
	kernels     *kernelSet
	attachments map[*attachment]bool
	builders    map[*prepared]bool
	work        workspace
	asm         assembler
}

// task is a request. It is answered by closing done, after which err is set.
type task struct {
	ctx     context.Context
	do      func() error // unless search
	search  *searchTask
	nearest *nearestTask
	queued  time.Time
	done    chan struct{}
	err     error
}

// newDevice opens a device and starts its goroutine.
func newDevice(ctx context.Context, api *driver.API, props driver.Info) (*Device, error) {
	d := &Device{
		api: api, props: props, info: deviceInfo(&props), done: make(chan struct{}),
		attachments: map[*attachment]bool{}, builders: map[*prepared]bool{},
	}
	d.wake.L = &d.mu
	d.live.Store(&driver.Resources{})
	if d.info.Unusable != "" {
		return nil, fmt.Errorf("%w: %s", driver.ErrUnsupported, d.info.Unusable)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ready := make(chan error)
	go d.loop(ready)
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
	d.wake.Broadcast()
	d.mu.Unlock()
	<-d.done
	return nil
}

// enqueue adds requests in one go, so that they can be taken together.
func (d *Device) enqueue(tasks ...*task) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return kernels.ErrDeviceClosed
	}
	if d.lost != nil {
		return d.lost
	}
	now := time.Now()
	for _, t := range tasks {
		t.queued, t.done = now, make(chan struct{})
	}
	d.queue = append(d.queue, tasks...)
	d.wake.Signal()
	return nil
}

// wait returns when a task has been answered, or its context ended before it
// was begun. Memory that a task refers to is not used afterwards.
func (d *Device) wait(t *task) error {
	select {
	case <-t.done:
		return t.err
	case <-t.ctx.Done():
	}
	d.mu.Lock()
	for i, q := range d.queue {
		if q == t {
			d.queue = append(d.queue[:i], d.queue[i+1:]...)
			d.mu.Unlock()
			return t.ctx.Err()
		}
	}
	d.mu.Unlock()
	<-t.done
	if t.err == nil {
		return nil
	}
	return t.err
}

// call runs fn on the device's goroutine.
func (d *Device) call(ctx context.Context, fn func() error) error {
	t := &task{ctx: ctx, do: fn}
	if err := d.enqueue(t); err != nil {
		return err
	}
	return d.wait(t)
}

func (d *Device) loop(ready chan<- error) {
	defer close(d.done)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := d.start()
	ready <- err
	if err != nil {
		return
	}
	for {
		d.mu.Lock()
		for len(d.queue) == 0 && !d.closed {
			d.wake.Wait()
		}
		if d.closed {
			rest := d.queue
			d.queue = nil
			d.mu.Unlock()
			for _, t := range rest {
				t.err = kernels.ErrDeviceClosed
				close(t.done)
			}
			d.stop()
			return
		}
		batch := d.take()
		d.mu.Unlock()
		d.answer(batch)
	}
}

// take removes the oldest request from the queue, and what can share its
// launches. The caller holds mu.
func (d *Device) take() []*task {
	first := d.queue[0]
	d.queue = d.queue[1:]
	batch := []*task{first}
	var joins func(*task) bool
	switch {
	case first.search != nil:
		groups := first.search.groups
		joins = func(t *task) bool {
			if t.search == nil || !first.search.joins(t.search) || groups+t.search.groups > first.search.at.maxGroups {
				return false
			}
			groups += t.search.groups
			return true
		}
	case first.nearest != nil:
		rows := first.nearest.rows()
		joins = func(t *task) bool {
			if t.nearest == nil || t.nearest.with != first.nearest.with || rows+t.nearest.rows() > nearestRows {
				return false
			}
			rows += t.nearest.rows()
			return true
		}
	default:
		return batch
	}
	kept := d.queue[:0]
	for _, t := range d.queue {
		if joins(t) {
			batch = append(batch, t)
		} else {
			kept = append(kept, t)
		}
	}
	clear(d.queue[len(kept):])
	d.queue = kept
	return batch
}

// answer carries out requests that were taken together.
func (d *Device) answer(batch []*task) {
	kept := batch[:0]
	for _, t := range batch {
		if t.err = t.ctx.Err(); t.err == nil {
			t.err = d.lost
		}
		if t.err != nil {
			close(t.done)
			continue
		}
		kept = append(kept, t)
	}
	if len(kept) == 0 {
		return
	}
	var err error
	switch first := kept[0]; {
	case first.search != nil:
		err = d.searchBatch(kept)
	case first.nearest != nil:
		err = d.nearestBatch(kept)
	default:
		err = first.do()
	}
	if errors.Is(err, driver.ErrDeviceLost) {
		d.mu.Lock()
		d.lost = fmt.Errorf("%s: %w", d.info.Name, err)
		d.mu.Unlock()
	}
	live := d.ctx.Live()
	d.live.Store(&live)
	for _, t := range kept {
		if t.err == nil {
			t.err = err
		}
		close(t.done)
	}
}

func (d *Device) start() (err error) {
	if d.ctx, err = driver.Open(d.api, d.props.Ordinal); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			d.stop()
		}
	}()
	if d.kernels, err = loadKernels(d.ctx, &d.props); err != nil {
		return err
	}
	return d.work.open(d.ctx)
}

// stop frees everything. Errors are those of a lost device, whose memory went
// with it.
func (d *Device) stop() {
	for a := range d.attachments {
		a.free()
	}
	for p := range d.builders {
		p.free()
	}
	d.asm.free(d.ctx)
	d.work.close(d.ctx)
	if d.kernels != nil {
		_ = d.kernels.close()
	}
	live := d.ctx.Live()
	d.live.Store(&live)
	_ = d.ctx.Close()
}

func deviceInfo(p *driver.Info) kernels.DeviceInfo {
	info := kernels.DeviceInfo{
		Name: fmt.Sprintf("%s:%d", kindName, p.Ordinal), Model: p.Name, Capability: p.Capability(), Memory: p.Memory,
		Multiprocessors: p.Multiprocessors, PCI: p.PCI, Driver: p.Driver,
	}
	if _, err := imageFor(p.Major, p.Minor); err != nil {
		info.Unusable = err.Error()
	}
	return info
}
