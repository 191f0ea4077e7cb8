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
	e    *Encoder
	most int

	mu      sync.Mutex
	running int     // goroutines
	turns   []*call // calls with waiting chunks, the next one first
}

// call is a call of the encoder.
type call struct {
	ctx    context.Context
	role   Role
	halves bool // the backend may return vectors rounded to float16
	round  bool // vectors that it did not round are rounded afterwards
	// keep receives the vectors if they stay on the device; nil means that they do not.
	keep    kernels.ResidentVectors
	waiting []*chunk // submitted and not computed yet
}

// submit queues a chunk of a call. The channel done of the chunk is closed when it is computed;
// a caller that no longer needs it may leave without waiting.
func (w *workers) submit(of *call, c *chunk) {
	w.e.hold()
	c.of = of
	w.mu.Lock()
	defer w.mu.Unlock()
	if of.waiting = append(of.waiting, c); len(of.waiting) == 1 {
		w.turns = append(w.turns, of)
	}
	if w.running < w.most {
		w.running++
		go w.work()
	}
}

// cancelWaiting removes the chunks of a call that wait in the queue.
func (w *workers) leave(of *call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.remove(of)
}

// removeLocked is cancelWaiting for callers that hold mu.
func (w *workers) remove(of *call) {
	for range of.waiting {
		w.e.end()
	}
	of.waiting = nil
	w.turns = slices.DeleteFunc(w.turns, func(o *call) bool { return o == of })
}

// runWorker computes batches until no chunk waits. It is one of the running goroutines.
func (w *workers) work() {
	for {
		batch := w.next()
		if batch == nil {
			return
		}
		w.compute(batch)
	}
}

// nextBatch removes the next chunk from the queue, together with chunks of other calls that can
// join it. nil means that no chunk waits, and that the goroutine ends.
func (w *workers) next() []*chunk {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, of := range slices.Clone(w.turns) {
		if of.ctx.Err() != nil {
			w.remove(of)
		}
	}
	if len(w.turns) == 0 {
		w.running--
		return nil
	}
	// The other workers become free too: each takes an equal share of the calls that wait.
	chosen := w.choose((len(w.turns) + w.most - 1) / w.most)
	batch := make([]*chunk, len(chosen))
	for i, of := range chosen {
		batch[i], of.waiting = of.waiting[0], of.waiting[1:]
		w.turns = slices.DeleteFunc(w.turns, func(o *call) bool { return o == of })
		if len(of.waiting) > 0 {
			w.turns = append(w.turns, of)
		}
	}
	return batch
}

// selectCalls returns the calls whose first chunks make a batch, at most limit of them.
func (w *workers) choose(share int) (chosen []*call) {
	var batch []*chunk
	for _, of := range w.turns {
		if c := of.waiting[0]; len(batch) == 0 || w.e.backend.joins(batch, c) {
			chosen, batch = append(chosen, of), append(batch, c)
		}
		if len(batch) == share {
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
			w.e.end()
		}
	}()
	fault, err := w.try(batch)
	if err == nil && fault == nil {
		return
	}
	if len(batch) == 1 {
		batch[0].fail(err, fault)
		return
	}
	for _, c := range batch {
		if err := c.of.ctx.Err(); err != nil {
			c.fail(err, nil)
		} else if fault, err := w.try([]*chunk{c}); err != nil || fault != nil {
			c.fail(err, fault)
		}
	}
}

// tryCompute computes chunks together, and returns a panic as a value. It stops once all of
// their calls have ended.
func (w *workers) try(batch []*chunk) (fault *parallel.Panic, err error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(batch[0].of.ctx))
	defer cancel()
	var left atomic.Int64
	left.Store(int64(len(batch)))
	for _, c := range batch {
		defer context.AfterFunc(c.of.ctx, func() {
			if left.Add(-1) == 0 {
				cancel()
			}
		})()
	}
	defer func() {
		if v := recover(); v != nil {
			fault = &parallel.Panic{Value: v, Stack: debug.Stack()}
		}
	}()
	if err := w.e.backend.compute(ctx, batch[0].of.role, batch); err != nil {
		return nil, err
	}
	for _, c := range batch {
		w.e.pool(c)
		if err := c.round(); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// setError records why a chunk has no vectors. Errors other than the end of the context name the
// first text, since the engine does not say which text of the chunk is at fault.
func (c *chunk) fail(err error, fault *parallel.Panic) {
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
func (e *Encoder) pool(c *chunk) {
	if !e.config.Pools() || c.of.role != Document {
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
