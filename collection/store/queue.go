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

// request is one change that is waiting or running.
type request struct {
	kind      kind
	docs      []collection.DocumentInput // to store, of an update
	replace   bool                       // of an update: documents with the same ids are replaced
	model     *storage.Model             // of an update: the model of the vectors
	selection collection.Selection       // of a deletion or a change of metadata
	ctx       context.Context            // the caller's; it cancels the search for the chosen documents
	fields    condition.Fields           // to set, of a change of metadata
	action    func(context.Context) error
	bytes     int64 // that the request occupies in the queue
	batch     Batch // with a journal

	// The answer.
	receipt   collection.Receipt
	affected  index.Affected
	entry     uint64 // entry of the journal that has the change
	decidedAt uint64 // last entry of the state in which there was nothing to change
	err       error
	done      chan struct{} // closed when the answer is complete
}

// kind is the kind of a request. Only updates and deletions share a transaction with others of their kind.
type kind uint8

const (
	updating kind = iota // adds or replaces documents
	deleting             // deletes documents
	setting              // sets fields of metadata
	acting               // runs request.action between changes
)

// queue holds the requests of one collection in order.
type queue struct {
	limits QueueLimits

	mu          sync.Mutex
	waiting     []*request
	documents   int           // of waiting and running requests
	bytes       int64         // of waiting and running requests
	running     int           // number of running requests
	closedErr   error         // why all requests are refused, nil if they are not
	drainingErr error         // why new requests are refused, while waiting ones are done, or nil
	wake        chan struct{} // capacity 1: signals that the queue has changed
	// documentTime is the moving average of the time to write a document.
	documentTime time.Duration
}

func newQueue(limits QueueLimits) *queue {
	return &queue{limits: limits, wake: make(chan struct{}, 1)}
}

// enqueue queues a request. The error is a [*collection.BusyError], or says why the queue has ended. A request that is
// larger than the limits is accepted if the queue is empty.
func (q *queue) enqueue(r *request) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closedErr != nil:
		return q.closedErr
	case q.drainingErr != nil:
		return q.drainingErr
	}
	r.done = make(chan struct{})
	full := q.documents+len(r.docs) > q.limits.Documents || q.bytes+r.bytes > q.limits.Bytes ||
		len(q.waiting) >= q.limits.Documents
	if len(q.waiting)+q.running > 0 && full {
		return q.busyError()
	}
	q.waiting = append(q.waiting, r)
	q.documents += len(r.docs)
	q.bytes += r.bytes
	q.notify()
	return nil
}

// busyError returns the error of a full queue, with an estimate of when half of it will be written.
func (q *queue) busyError() *collection.BusyError {
	wait := q.documentTime * time.Duration(q.documents) / 2
	return &collection.BusyError{
		Documents:  q.documents,
		Bytes:      q.bytes,
		RetryAfter: min(max(wait.Round(time.Second), time.Second), time.Minute),
	}
}

// notify wakes nextGroup.
func (q *queue) notify() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// withdraw removes a waiting request from the queue. ok is false if it has begun.
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
	q.notify() // an ending queue may be empty now
	return true
}

// Limits of one transaction.
const (
	maxGroupDocuments = 8192
	maxGroupBytes     = 64 << 20
)

// nextGroup waits for requests and returns the first ones, which are of one kind and can share a transaction. It
// returns nil when the queue has ended.
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

// groupLen returns how many of the first waiting requests can share a transaction. A request that sets fields or
// runs an action runs alone, and so does one that was sent before.
func (q *queue) groupLen() int {
	docs, bytes := 0, int64(0)
	for i, r := range q.waiting {
		docs += len(r.docs)
		bytes += r.bytes
		alone := r.kind >= setting || r.batch.Sent || q.waiting[0].batch.Sent
		tooMuch := docs > maxGroupDocuments || bytes > maxGroupBytes
		if i > 0 && (r.kind != q.waiting[0].kind || alone || tooMuch) {
			return i
		}
	}
	return len(q.waiting)
}

// requeue returns requests of the last group, which have not begun, to the front of the queue.
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

// finish ends requests of the last group, and completes their answers. took is the time for all of them.
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
		// A moving average, in which a group has the weight 1/8.
		q.documentTime += (took/time.Duration(docs) - q.documentTime) / 8
	}
	q.mu.Unlock()
	for _, r := range rs {
		close(r.done)
	}
}

// refuseNew refuses new requests; waiting ones are still written.
func (q *queue) refuseNew(why error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.drainingErr == nil {
		q.drainingErr = why
	}
	q.notify()
}

// refuseAll refuses waiting and new requests.
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

// statistics describes the waiting and running requests.
func (q *queue) statistics() collection.QueueStats {
	q.mu.Lock()
	defer q.mu.Unlock()
	return collection.QueueStats{Requests: len(q.waiting) + q.running, Documents: q.documents, Bytes: q.bytes}
}
