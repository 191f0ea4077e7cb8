package runtime

import (
	"context"
	"time"

	"github.com/plaid-ir/plaid/kernels"
)

// Request is a unit of work for a device. Requests wait in one queue. The device's
// goroutine takes the oldest, and as many others of the queue as can share its launches
// and fit into a batch. It never waits for more requests.
type Request interface {
	// Joins reports whether another request, of any family, can be answered in
	// one batch with this one. It is called while the queue is locked.
	Joins(other Request) bool
	// BatchShare is the size of the request, and BatchLimit the maximum of the sum of the
	// sizes in a batch that begins with this request. The family chooses the unit, such as
	// groups of query tokens in the workspace.
	BatchShare() int
	BatchLimit() int
	// Run answers a batch that begins with this request. It returns once the device has
	// done all work of the batch, also after an error. The error is for all requests that
	// did not get one by [Ticket.Fail].
	Run(rt *Runtime, batch []Request) error

	ticket() *Ticket
}

// Ticket is the state of a request in the queue. Every request embeds one.
type Ticket struct {
	ctx    context.Context
	queued time.Time
	done   chan struct{} // closed when the request is answered
	err    error         // valid after done is closed
}

func (t *Ticket) ticket() *Ticket { return t }

// Context returns the context of the caller.
func (t *Ticket) Context() context.Context { return t.ctx }

// Queued returns when the request was put into the queue.
func (t *Ticket) Queued() time.Time { return t.queued }

// Fail sets the error of this request, unless it has one already.
func (t *Ticket) Fail(err error) {
	if t.err == nil {
		t.err = err
	}
}

// answer ends the request, with err unless it has an error already.
func (t *Ticket) answer(err error) {
	t.Fail(err)
	close(t.done)
}

// RunRequests puts requests into the queue at once, so that they can share a batch. It
// returns when every one has been answered, or removed from the queue because the context
// ended; memory that requests refer to is not used afterwards. It returns the first error
// of a request.
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

// call is a request that calls a function, in a batch of its own.
type call struct {
	Ticket
	fn func(rt *Runtime) error
}

func (*call) Joins(Request) bool                   { return false }
func (*call) BatchShare() int                      { return 0 }
func (*call) BatchLimit() int                      { return 0 }
func (c *call) Run(rt *Runtime, _ []Request) error { return c.fn(rt) }

// enqueue puts requests into the queue and wakes the device's goroutine.
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

// waitForAnswer returns when a request has been answered, or removed from the queue because its
// context ended.
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

// spinForAnswer polls for the answer, or the end of the context, for up to callerSpin.
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

// takeRequests removes the oldest request and those that join it from the queue. The caller
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
