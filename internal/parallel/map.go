package parallel

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"sync"
	"sync/atomic"
)

// What Map hands to a goroutine at a time, and how much of it waits to be yielded, so that
// memory is bounded whatever the items are.
const (
	mapItems = 64
	mapBytes = 128 << 10
	mapAhead = 32 << 20
)

// mapBatch is items of Map that lie one after the other.
type mapBatch[T, U any] struct {
	items       []T
	bytes       int64
	results     []U
	itemErr     error // of the item after the results
	sequenceErr error // of the sequence, after the items
	done        chan struct{}
}

// Map yields what f makes of the items of a sequence, in their order. f runs on up to
// threads goroutines, ahead of what is asked for, and the sequence on one of its own;
// about 32 MiB of items, by size, are under way, and one at least. With one thread all
// runs on the goroutine of the caller.
//
// The first error, of the sequence, of f or of the context, ends the results, after those
// before it, and a panic of either appears on the goroutine of the caller. When Map has
// ended nothing of it runs any more: a sequence that blocks holds up its end.
func Map[T, U any](ctx context.Context, in iter.Seq2[T, error], threads int, size func(T) int, f func(T) (U, error)) iter.Seq2[U, error] {
	return func(yield func(U, error) bool) {
		if threads = Threads(threads, 1<<30); threads == 1 {
			mapSerially(in, f, yield)
			return
		}
		m := &parallelMap[T, U]{
			in: in, size: size, f: f, ordered: make(chan *mapBatch[T, U], 4*threads), work: make(chan *mapBatch[T, U], 4*threads),
			freed: make(chan struct{}, 1),
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

type parallelMap[T, U any] struct {
	ctx           context.Context
	in            iter.Seq2[T, error]
	size          func(T) int
	f             func(T) (U, error)
	ordered       chan *mapBatch[T, U] // all of them
	work          chan *mapBatch[T, U] // those that nobody has taken
	bytesInFlight atomic.Int64         // of all that are under way
	freed         chan struct{}        // some are no longer
}

// read goes through the sequence.
func (m *parallelMap[T, U]) read() {
	defer close(m.work)
	defer close(m.ordered)
	next := func() *mapBatch[T, U] { return &mapBatch[T, U]{done: make(chan struct{})} }
	r := next()
	r.sequenceErr = catchPanic(func() error {
		for item, err := range m.in {
			if err != nil {
				return err
			}
			r.items, r.bytes = append(r.items, item), r.bytes+int64(m.size(item))
			if len(r.items) < mapItems && r.bytes < mapBytes {
				continue
			}
			if !m.enqueue(r) {
				return m.ctx.Err()
			}
			r = next()
		}
		return nil
	})
	m.enqueue(r)
}

// enqueue hands a run on once there is room, unless the context ends.
func (m *parallelMap[T, U]) enqueue(r *mapBatch[T, U]) bool {
	for m.bytesInFlight.Load() > mapAhead {
		select {
		case <-m.freed:
		case <-m.ctx.Done():
			return false
		}
	}
	m.bytesInFlight.Add(r.bytes)
	for _, to := range []chan *mapBatch[T, U]{m.ordered, m.work} {
		select {
		case to <- r:
		case <-m.ctx.Done():
			return false
		}
	}
	return true
}

func (m *parallelMap[T, U]) applyBatches() {
	for r := range m.work {
		r.itemErr = catchPanic(func() error {
			r.results = make([]U, 0, len(r.items))
			for _, item := range r.items {
				u, err := m.f(item)
				if err != nil {
					return err
				}
				r.results = append(r.results, u)
			}
			return m.ctx.Err()
		})
		close(r.done)
	}
}

// yieldResults yields until there are none, or nobody wants them, or returns the error.
func (m *parallelMap[T, U]) yieldResults(yield func(U, error) bool) error {
	for r := range m.ordered {
		select {
		case <-r.done:
		case <-m.ctx.Done():
			return m.ctx.Err()
		}
		for _, u := range r.results {
			if !yield(u, nil) {
				return nil
			}
		}
		if err := cmp.Or(r.itemErr, r.sequenceErr); err != nil {
			return err
		}
		m.bytesInFlight.Add(-r.bytes)
		select {
		case m.freed <- struct{}{}:
		default:
		}
	}
	return m.ctx.Err()
}
