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

// workers compute the chunks of all calls of an encoder. Calls take turns, a chunk each,
// so that a query waits for one chunk of a long stream and not for all of it. What is
// small is computed together with what other calls have at that time.
type workers struct {
	e    *Encoder
	most int

	mu      sync.Mutex
	running int     // goroutines
	turns   []*call // with chunks that wait, the next one first
}

// call is a call of the encoder.
type call struct {
	ctx    context.Context
	role   Role
	halves bool // vectors may come rounded to float16
	round  bool // and otherwise are rounded
	// keep, where set, has the vectors, which stay on the device.
	keep    kernels.ResidentVectors
	waiting []*chunk
}

// submit queues a chunk of a call. Its done is closed when it is computed; whoever has no
// use for it any more need not wait for that.
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

// leave takes what a call has in the queue out of it.
func (w *workers) leave(of *call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.remove(of)
}

func (w *workers) remove(of *call) {
	for range of.waiting {
		w.e.end()
	}
	of.waiting = nil
	w.turns = slices.DeleteFunc(w.turns, func(o *call) bool { return o == of })
}

// work is a goroutine, which ends when nothing waits.
func (w *workers) work() {
	for {
		batch := w.next()
		if batch == nil {
			return
		}
		w.compute(batch)
	}
}

// next takes what is best computed now: the next chunk, and with it those of other calls,
// as many as it may. None: the goroutine is to end.
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
	// The other workers come free too: each takes its share of the calls that wait.
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

// choose says whose first chunks make a batch, which are no more than share.
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

// compute computes a batch. What fails, or panics, is computed again chunk by chunk, so
// that it fails its own call only.
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

// try computes chunks, and gives up once all of their calls have ended.
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

// fail notes why a chunk has no vectors.
func (c *chunk) fail(err error, fault *parallel.Panic) {
	c.err, c.panic = err, fault
	if first := c.texts[0]; err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		c.err = &TextError{Row: first.row, ID: first.text.ID, Err: fmt.Errorf("in one of the %d texts from this one on: %w", len(c.texts), err)}
	}
}

// pool pools the vectors of documents: as the model does, then as the encoder is to.
func (e *Encoder) pool(c *chunk) {
	if !e.config.Pools() || c.of.role != Document {
		return
	}
	for i := range c.texts {
		t := &c.texts[i]
		// Pooled vectors take the place of the first ones: there are no more of them.
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
