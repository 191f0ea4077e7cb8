package parallel

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"sync"
	"sync/atomic"
)

// Limits of Map: the items and bytes of a batch, and the bytes of all batches that are not yielded yet.
// They bound memory for items of any size.
const (
	mapItems = 64
	mapBytes = 128 << 10
	mapAhead = 32 << 20
)

// mapBatch is consecutive items of Map.
type mapBatch[T, U any] struct {
	items       []T
	bytes       int64
	results     []U
	itemErr     error // of the item after the results
	sequenceErr error // of the sequence, after the items
	done        chan struct{}
}

// Map yields the results of f for the items of a sequence, in order. f runs on up to threads
// goroutines, ahead of the consumer, and the sequence on its own goroutine. At most about 32 MiB of
// items, by size, and at least one item are in flight. With one thread everything runs on the
// goroutine of the caller.
//
// The first error, of the sequence, of f or of the context, ends the results, after all results before
// it. A panic is raised again on the goroutine of the caller. When Map returns, none of its goroutines
// run any more: it waits for a sequence that blocks.
func Map[T, U any](
	ctx context.Context, in iter.Seq2[T, error], threads int, size func(T) int, f func(T) (U, error),
) iter.Seq2[U, error] {
	return func(yield func(U, error) bool) {
		const manyItems = 1 << 30 // their number is unknown
		if threads = Threads(threads, manyItems); threads == 1 {
			mapSerially(in, f, yield)
			return
		}
		m := &parallelMap[T, U]{
			in:      in,
			size:    size,
			f:       f,
			ordered: make(chan *mapBatch[T, U], 4*threads),
			work:    make(chan *mapBatch[T, U], 4*threads),
			freed:   make(chan struct{}, 1),
		}
		var wg sync.WaitGroup
		defer wg.Wait()
		var cancel context.CancelFunc
		m.ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		wg.Go(m.read)
		for range threads {
			wg.Go(m.applyBatches)
		}
		if err := m.yieldResults(yield); err != nil {
			if p := (*Panic)(nil); errors.As(err, &p) {
				panic(p)
			}
			var none U
			yield(none, err)
		}
	}
}

// mapSerially is Map on one goroutine.
func mapSerially[T, U any](in iter.Seq2[T, error], f func(T) (U, error), yield func(U, error) bool) {
	for item, err := range in {
		var u U
		if err == nil {
			u, err = f(item)
		}
		if !yield(u, err) || err != nil {
			return
		}
	}
}

// parallelMap is the state of Map on several goroutines.
type parallelMap[T, U any] struct {
	ctx           context.Context
	in            iter.Seq2[T, error]
	size          func(T) int
	f             func(T) (U, error)
	ordered       chan *mapBatch[T, U] // all batches, in the order in which they are yielded
	work          chan *mapBatch[T, U] // batches that f has not run on yet
	bytesInFlight atomic.Int64         // of all batches in flight
	freed         chan struct{}        // has an element after bytesInFlight fell
}

// read reads the sequence and enqueues batches.
func (m *parallelMap[T, U]) read() {
	defer close(m.work)
	defer close(m.ordered)
	newBatch := func() *mapBatch[T, U] { return &mapBatch[T, U]{done: make(chan struct{})} }
	batch := newBatch()
	batch.sequenceErr = catchPanic(func() error {
		for item, err := range m.in {
			if err != nil {
				return err
			}
			batch.items, batch.bytes = append(batch.items, item), batch.bytes+int64(m.size(item))
			if len(batch.items) < mapItems && batch.bytes < mapBytes {
				continue
			}
			if !m.enqueue(batch) {
				return m.ctx.Err()
			}
			batch = newBatch()
		}
		return nil
	})
	m.enqueue(batch)
}

// enqueue waits until a batch fits the limit, and sends it on. It returns false if the context
// ends.
func (m *parallelMap[T, U]) enqueue(batch *mapBatch[T, U]) bool {
	for m.bytesInFlight.Load() > mapAhead {
		select {
		case <-m.freed:
		case <-m.ctx.Done():
			return false
		}
	}
	m.bytesInFlight.Add(batch.bytes)
	for _, channel := range []chan *mapBatch[T, U]{m.ordered, m.work} {
		select {
		case channel <- batch:
		case <-m.ctx.Done():
			return false
		}
	}
	return true
}

// applyBatches runs f on the items of batches.
func (m *parallelMap[T, U]) applyBatches() {
	for batch := range m.work {
		batch.itemErr = catchPanic(func() error {
			batch.results = make([]U, 0, len(batch.items))
			for _, item := range batch.items {
				u, err := m.f(item)
				if err != nil {
					return err
				}
				batch.results = append(batch.results, u)
			}
			return m.ctx.Err()
		})
		close(batch.done)
	}
}

// yieldResults yields results until the last one, until yield returns false, or until an error,
// which it returns.
func (m *parallelMap[T, U]) yieldResults(yield func(U, error) bool) error {
	for batch := range m.ordered {
		select {
		case <-batch.done:
		case <-m.ctx.Done():
			return m.ctx.Err()
		}
		for _, u := range batch.results {
			if !yield(u, nil) {
				return nil
			}
		}
		if err := cmp.Or(batch.itemErr, batch.sequenceErr); err != nil {
			return err
		}
		m.bytesInFlight.Add(-batch.bytes)
		select {
		case m.freed <- struct{}{}:
		default:
		}
	}
	return m.ctx.Err()
}
