package encode

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels"
)

// workers compute the chunks of all calls of an encoder. Calls alternate, chunk by chunk,
// so that a query waits for one chunk of a long stream and not for all of it. Small chunks of
// different calls are computed together.
type workers struct {
	encoder *Encoder
	limit   int // of running

	mu      sync.Mutex
	running int           // goroutines
	queue   []*encodeCall // calls with waiting chunks, the next one first
}

// encodeCall is a call of the encoder.
type encodeCall struct {
	ctx           context.Context
	role          Role
	acceptsHalves bool // the backend may return vectors rounded to float16
	mustRound     bool // vectors that it did not round are rounded afterwards
	// resident receives the vectors if they stay on the device. A nil value means that they do not.
	resident kernels.ResidentVectors
	waiting  []*chunk // submitted and not computed yet
}

// submit queues a chunk of a call. The channel done of the chunk is closed when it is computed;
// a caller that no longer needs it may leave without waiting.
func (w *workers) submit(call *encodeCall, c *chunk) {
	w.encoder.acquireBackend()
	c.call = call
	w.mu.Lock()
	defer w.mu.Unlock()
	if call.waiting = append(call.waiting, c); len(call.waiting) == 1 {
		w.queue = append(w.queue, call)
	}
	if w.running < w.limit {
		w.running++
		go w.runWorker()
	}
}

// cancelWaiting removes the chunks of a call that wait in the queue.
func (w *workers) cancelWaiting(call *encodeCall) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.removeLocked(call)
}

// removeLocked is cancelWaiting for callers that hold mu.
func (w *workers) removeLocked(call *encodeCall) {
	for range call.waiting {
		w.encoder.releaseBackend()
	}
	call.waiting = nil
	w.queue = slices.DeleteFunc(w.queue, func(o *encodeCall) bool { return o == call })
}

// runWorker computes batches until no chunk waits. It is one of the running goroutines.
func (w *workers) runWorker() {
	for {
		batch := w.nextBatch()
		if batch == nil {
			return
		}
		w.compute(batch)
	}
}

// nextBatch removes the next chunk from the queue, together with chunks of other calls that can
// join it. nil means that no chunk waits, and that the goroutine ends.
func (w *workers) nextBatch() []*chunk {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, call := range slices.Clone(w.queue) {
		if call.ctx.Err() != nil {
			w.removeLocked(call)
		}
	}
	if len(w.queue) == 0 {
		w.running--
		return nil
	}
	// The other workers become free too: each takes an equal share of the calls that wait.
	chosen := w.selectCalls((len(w.queue) + w.limit - 1) / w.limit)
	batch := make([]*chunk, len(chosen))
	for i, call := range chosen {
		batch[i], call.waiting = call.waiting[0], call.waiting[1:]
		w.queue = slices.DeleteFunc(w.queue, func(o *encodeCall) bool { return o == call })
		if len(call.waiting) > 0 {
			w.queue = append(w.queue, call)
		}
	}
	return batch
}

// selectCalls returns the calls whose first chunks make a batch, at most limit of them.
func (w *workers) selectCalls(limit int) (chosen []*encodeCall) {
	var batch []*chunk
	for _, call := range w.queue {
		if c := call.waiting[0]; len(batch) == 0 || w.encoder.backend.canJoin(batch, c) {
			chosen, batch = append(chosen, call), append(batch, c)
		}
		if len(batch) == limit {
			break
		}
	}
	return chosen
}

// compute computes a batch. If it fails or panics, its chunks are computed again one by one, so
// that only the call of the faulty chunk fails.
func (w *workers) compute(batch []*chunk) {
	defer func() {
		for _, c := range batch {
			close(c.done)
			w.encoder.releaseBackend()
		}
	}()
	fault, err := w.tryCompute(batch)
	if err == nil && fault == nil {
		return
	}
	if len(batch) == 1 {
		batch[0].setError(err, fault)
		return
	}
	for _, c := range batch {
		if err := c.call.ctx.Err(); err != nil {
			c.setError(err, nil)
		} else if fault, err := w.tryCompute([]*chunk{c}); err != nil || fault != nil {
			c.setError(err, fault)
		}
	}
}

// tryCompute computes chunks together, and returns a panic as a value. It stops once all of
// their calls have ended.
func (w *workers) tryCompute(batch []*chunk) (fault *parallel.Panic, err error) {
	// The batch has the values of one call's context, but not its end, which must not end the other calls.
	ctx, cancel := context.WithCancel(context.WithoutCancel(batch[0].call.ctx))
	defer cancel()
	var waitingCalls atomic.Int64
	waitingCalls.Store(int64(len(batch)))
	for _, c := range batch {
		defer context.AfterFunc(c.call.ctx, func() {
			if waitingCalls.Add(-1) == 0 {
				cancel()
			}
		})()
	}
	defer func() {
		if v := recover(); v != nil {
			fault = &parallel.Panic{Value: v, Stack: debug.Stack()}
		}
	}()
	if err := w.encoder.backend.compute(ctx, batch[0].call.role, batch); err != nil {
		return nil, err
	}
	for _, c := range batch {
		w.encoder.poolVectors(c)
		if err := c.roundVectors(); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// setError records why a chunk has no vectors. Errors other than the end of the context name the
// first text, since the engine does not say which text of the chunk is at fault.
func (c *chunk) setError(err error, fault *parallel.Panic) {
	c.err, c.panic = err, fault
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return
	}
	first := c.texts[0]
	c.err = &TextError{
		Row: first.row,
		ID:  first.text.ID,
		Err: fmt.Errorf("in one of the %d texts from this one on: %w", len(c.texts), err),
	}
}

// poolVectors pools the vectors of documents: first as the model requires, then as
// [Options.Pool] does.
func (e *Encoder) poolVectors(c *chunk) {
	if !e.config.Pools() || c.call.role != Document {
		return
	}
	for i := range c.texts {
		t := &c.texts[i]
		// Pooled vectors are never more than the originals, so they fit into the same memory.
		if h := e.config.Pooling; h != nil {
			c.pooled = c.pooler.Hierarchy(c.pooled[:0], t.vectors, e.Dim(), h)
			t.vectors = t.vectors[:copy(t.vectors, c.pooled)]
		}
		if e.config.Pool > 1 {
			c.pooled = c.pooler.Pool(c.pooled[:0], t.vectors, e.Dim(), e.config.Pool)
			t.vectors = t.vectors[:copy(t.vectors, c.pooled)]
		}
	}
}
