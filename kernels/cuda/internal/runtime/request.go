package runtime

import (
	"context"
	"time"

	"github.com/plaid-ir/plaid/kernels"
)

// Request is what a caller wants of a device. Requests wait in one queue. The
// goroutine takes the oldest, and with it those that can share its launches,
// wherever they are in the queue, as far as they fit. It never waits for more to
// come.
type Request interface {
	// Joins reports whether another request, of any family, can be answered in
	// one batch with this one. It is asked while the queue is locked.
	Joins(other Request) bool
	// Size is the request's share of what bounds a batch, and Room how much of it
	// there is for a batch that begins with this request. Both are in a unit of
	// the family's own, such as groups of query tokens in the workspace.
	BatchShare() int
	BatchLimit() int
	// Run answers a batch that begins with this request. It returns when the
	// device has nothing more to do for it, after an error as well. The error is
	// that of all requests which have none of their own.
	Run(rt *Runtime, batch []Request) error

	ticket() *Ticket
}

// Ticket is a request's place in the queue. Every request embeds one.
type Ticket struct {
	ctx    context.Context
	queued time.Time
	done   chan struct{} // closed when the request is answered
	err    error         // after that
}

func (t *Ticket) ticket() *Ticket { return t }

// Context is that of the caller.
func (t *Ticket) Context() context.Context { return t.ctx }

// Queued is when the request came.
func (t *Ticket) Queued() time.Time { return t.queued }

// Fail makes an error that of this request, unless it has one.
func (t *Ticket) Fail(err error) {
	if t.err == nil {
		t.err = err
	}
}

func (t *Ticket) answer(err error) {
	t.Fail(err)
	close(t.done)
}

// RunRequests asks for requests, in one go so that they can be taken together, and
// returns when every one has been answered, or its context ended before it was
// begun. Memory that requests refer to is not used afterwards. The error is that
// of the first request that has one.
func RunRequests[R Request](ctx context.Context, d *Device, requests []R) error {
	if len(requests) == 0 {
		return nil
	}
	if err := enqueue(ctx, d, requests); err != nil {
		return err
	}
	var first error
	for _, r := range requests {
		if err := d.waitForAnswer(r); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// Call runs fn on the device's goroutine.
func (d *Device) Call(ctx context.Context, fn func(rt *Runtime) error) error {
	return RunRequests(ctx, d, []*call{{fn: fn}})
}

// call is a request that shares nothing.
type call struct {
	Ticket
	fn func(rt *Runtime) error
}

func (*call) Joins(Request) bool                   { return false }
func (*call) BatchShare() int                      { return 0 }
func (*call) BatchLimit() int                      { return 0 }
func (c *call) Run(rt *Runtime, _ []Request) error { return c.fn(rt) }

func enqueue[R Request](ctx context.Context, d *Device, requests []R) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return kernels.ErrDeviceClosed
	}
	if d.failure != nil {
		return d.failure
	}
	now := time.Now()
	for _, r := range requests {
		*r.ticket() = Ticket{ctx: ctx, queued: now, done: make(chan struct{})}
		d.queue = append(d.queue, r)
	}
	d.hasRequests.Store(true)
	d.wake.Signal()
	return nil
}

// waitForAnswer returns when a request has been answered, or its context ended before it
// was begun.
func (d *Device) waitForAnswer(r Request) error {
	t := r.ticket()
	if d.waiters.Add(1) == 1 && canSpin() {
		t.spinForAnswer()
	}
	defer d.waiters.Add(-1)
	select {
	case <-t.done:
		return t.err
	case <-t.ctx.Done():
	}
	d.mu.Lock()
	for i, q := range d.queue {
		if q.ticket() == t {
			d.queue = append(d.queue[:i], d.queue[i+1:]...)
			d.mu.Unlock()
			return t.ctx.Err()
		}
	}
	d.mu.Unlock()
	<-t.done
	return t.err
}

// spinForAnswer waits awake for the answer, or the end of the context, for a while.
func (t *Ticket) spinForAnswer() {
	for until := time.Now().Add(callerSpin); time.Now().Before(until); {
		select {
		case <-t.done:
			return
		case <-t.ctx.Done():
			return
		default:
		}
	}
}

// takeRequests removes the oldest request from the queue, and what joins it. The caller
// holds mu.
func (d *Device) takeRequests() []Request {
	first := d.queue[0]
	d.queue = d.queue[1:]
	batch := []Request{first}
	size, room := first.BatchShare(), first.BatchLimit()
	kept := d.queue[:0]
	for _, r := range d.queue {
		if first.Joins(r) && size+r.BatchShare() <= room {
			batch = append(batch, r)
			size += r.BatchShare()
		} else {
			kept = append(kept, r)
		}
	}
	clear(d.queue[len(kept):])
	d.queue = kept
	return batch
}
