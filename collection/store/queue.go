package store

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/storage"
)

// request is one change that waits, or runs.
type request struct {
	kind    kind
	docs    []collection.DocumentInput // of an update
	replace bool
	model   *storage.Model
	chosen  collection.Selection // of a deletion
	ctx     context.Context      // of who asks, heard until it is known what is chosen
	fields  condition.Fields     // that are set
	action  func(context.Context) error
	bytes   int64 // bytes
	batch   Batch // with a journal

	// The answer.
	receipt   collection.Receipt
	affected  index.Affected
	entry     uint64 // of the journal, that has the change
	decidedAt uint64 // of the journal, in whose state nothing was to be changed
	err       error
	done      chan struct{} // closed when the rest stands
}

type kind uint8

const (
	updating kind = iota
	deleting
	setting
	acting
)

// queue holds the requests of one collection in order.
type queue struct {
	limits QueueLimits

	mu          sync.Mutex
	waiting     []*request
	documents   int // that wait or are being written
	bytes       int64
	running     int // requests
	closedErr   error
	drainingErr error         // no more are taken, what waits is done
	wake        chan struct{} // capacity 1
	// pace is the moving average of the time that a document takes.
	documentTime time.Duration
}

func newQueue(limits QueueLimits) *queue {
	return &queue{limits: limits, wake: make(chan struct{}, 1)}
}

// put queues a request; the error is a [*collection.BusyError], or why the queue has ended.
func (q *queue) put(r *request) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closedErr != nil:
		return q.closedErr
	case q.drainingErr != nil:
		return q.drainingErr
	}
	r.done = make(chan struct{})
	if len(q.waiting)+q.running > 0 && (q.documents+len(r.docs) > q.limits.Documents || q.bytes+r.bytes > q.limits.Bytes || len(q.waiting) >= q.limits.Documents) {
		return q.busyError()
	}
	q.waiting = append(q.waiting, r)
	q.documents += len(r.docs)
	q.bytes += r.bytes
	q.notify()
	return nil
}

// busyError says when there will be room, about.
func (q *queue) busyError() *collection.BusyError {
	wait := q.documentTime * time.Duration(q.documents) / 2
	return &collection.BusyError{Documents: q.documents, Bytes: q.bytes, RetryAfter: min(max(wait.Round(time.Second), time.Second), time.Minute)}
}

func (q *queue) notify() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// withdraw takes a request out of the queue again; ok is false when it has begun.
func (q *queue) withdraw(r *request) (ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting, r)
	if i < 0 {
		return false
	}
	q.waiting = slices.Delete(q.waiting, i, i+1)
	q.documents -= len(r.docs)
	q.bytes -= r.bytes
	q.notify() // a drained queue may be empty now
	return true
}

// Bounds of what one transaction takes.
const (
	maxGroupDocuments = 8192
	maxGroupBytes     = 64 << 20
)

// nextGroup waits for requests and returns the first ones, which are of one kind and can
// share a transaction; nil when the queue has ended.
func (q *queue) nextGroup() []*request {
	for {
		q.mu.Lock()
		if n := q.groupLen(); n > 0 {
			group := slices.Clone(q.waiting[:n])
			q.waiting = slices.Delete(q.waiting, 0, n)
			q.running = n
			q.mu.Unlock()
			return group
		}
		ended := q.closedErr != nil || q.drainingErr != nil
		q.mu.Unlock()
		if ended {
			return nil
		}
		<-q.wake
	}
}

func (q *queue) groupLen() int {
	docs, bytes := 0, int64(0)
	for i, r := range q.waiting {
		docs += len(r.docs)
		bytes += r.bytes
		if i > 0 && (r.kind != q.waiting[0].kind || r.kind >= setting || docs > maxGroupDocuments || bytes > maxGroupBytes ||
			r.batch.Sent || q.waiting[0].batch.Sent) {
			return i
		}
	}
	return len(q.waiting)
}

// requeue puts requests that were taken, but not begun, before all others.
func (q *queue) requeue(rs []*request) {
	if len(rs) == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = slices.Insert(q.waiting, 0, rs...)
	q.running -= len(rs)
	q.notify()
}

// finish ends requests that were taken, in order.
func (q *queue) finish(rs []*request, took time.Duration) {
	q.mu.Lock()
	docs := 0
	for _, r := range rs {
		docs += len(r.docs)
		q.bytes -= r.bytes
	}
	q.documents -= docs
	q.running -= len(rs)
	if docs > 0 {
		q.documentTime += (took/time.Duration(docs) - q.documentTime) / 8
	}
	q.mu.Unlock()
	for _, r := range rs {
		close(r.done)
	}
}

// refuseNew takes no more requests; those that wait are still done.
func (q *queue) refuseNew(why error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.drainingErr == nil {
		q.drainingErr = why
	}
	q.notify()
}

// refuseAll refuses what waits and what comes.
func (q *queue) refuseAll(why error) {
	q.mu.Lock()
	if q.closedErr == nil {
		q.closedErr = why
	}
	refused := q.waiting
	q.waiting = nil
	for _, r := range refused {
		q.documents -= len(r.docs)
		q.bytes -= r.bytes
		r.err = q.closedErr
	}
	q.notify()
	q.mu.Unlock()
	for _, r := range refused {
		close(r.done)
	}
}

func (q *queue) statistics() collection.QueueStats {
	q.mu.Lock()
	defer q.mu.Unlock()
	return collection.QueueStats{Requests: len(q.waiting) + q.running, Documents: q.documents, Bytes: q.bytes}
}
