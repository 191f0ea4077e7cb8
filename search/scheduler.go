package search

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/plaid-ir/plaid/internal/parallel"
)

// A Scheduler limits what the searches of some engines do at a time.
//
// Goals, in this order:
//
//   - A thousand searches at once take the memory of a few: the tables of the queries
//     that run stay within a budget of bytes. A query that needs more runs alone.
//   - No search starves. Calls take turns, a query each.
//   - All processors work. A query has one of them for as long as it runs. While no
//     query waits it borrows more for each of its stages, as many as its engine
//     allows.
//
// It does not limit the number of calls, which cost little while they wait, nor what a
// device does. Searches of less importance give way to all others ([InBackground]).
type Scheduler struct {
	workers int
	bytes   int64

	mu           sync.Mutex
	idleWorkers  int          // workers
	freeBytes    int64        // bytes
	waitingCalls []*callSlots // calls with queries that wait, the next one first
	// Of queries in the background behind has those that wait for a worker, one that gave its own
	// away first, and aside counts those that have one.
	waitingBackground []*waiter
	runningBackground int
}

// bytesOfWorker is the budget of a scheduler for each worker, where none is given.
const bytesOfWorker = 256 << 20

// NewScheduler returns a scheduler of so many workers (0: one a processor) and
// bytes (0: 256 MiB a worker, at least 1 GiB).
func NewScheduler(workers int, bytes int64) *Scheduler {
	if workers <= 0 {
		workers = parallel.Processors()
	}
	if bytes <= 0 {
		bytes = max(int64(workers)*bytesOfWorker, 1<<30)
	}
	return &Scheduler{workers: workers, bytes: bytes, idleWorkers: workers, freeBytes: bytes}
}

// processScheduler is that of engines which are not given one.
var processScheduler = sync.OnceValue(func() *Scheduler { return NewScheduler(0, 0) })

// maxKeptBytes is how large the buffers of a query may be to be kept for another one: so
// that those of all workers together take half of the budget.
func (s *Scheduler) maxKeptBytes() int64 { return s.bytes / 2 / int64(s.workers) }

// callSlots is a call, whose queries wait for each other.
type callSlots struct {
	scheduler  *Scheduler
	lifetime   context.Context // of the engine; ends all waiting, with ErrClosed
	waiting    []*waiter
	background bool // the call is in the background
}

// newSlots returns a turn of the same call for other queries.
func (t *callSlots) newSlots() callSlots {
	return callSlots{scheduler: t.scheduler, lifetime: t.lifetime, background: t.background}
}

// waiter is a query that waits.
type waiter struct {
	bytes int64
	ready chan struct{} // closed when it may run
}

// acquire waits until a query may run that needs so many bytes, and says how long
// it waited. What it takes is given back with release.
func (t *callSlots) acquire(ctx context.Context, bytes int64) (waited time.Duration, err error) {
	s := t.scheduler
	if t.background {
		return t.acquireInBackground(ctx, false)
	}
	bytes = min(bytes, s.bytes)
	s.mu.Lock()
	if len(s.waitingCalls) == 0 && s.idleWorkers > 0 && bytes <= s.freeBytes {
		s.idleWorkers--
		s.freeBytes -= bytes
		s.mu.Unlock()
		return 0, nil
	}
	w := &waiter{bytes, make(chan struct{})}
	if t.waiting = append(t.waiting, w); len(t.waiting) == 1 {
		s.waitingCalls = append(s.waitingCalls, t)
	}
	s.mu.Unlock()
	if waited, err = t.wait(ctx, w); err == nil {
		return waited, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(t.waiting, w); i >= 0 {
		if t.waiting = slices.Delete(t.waiting, i, i+1); len(t.waiting) == 0 {
			s.waitingCalls = slices.DeleteFunc(s.waitingCalls, func(o *callSlots) bool { return o == t })
		}
	} else { // it was let through in the same moment
		s.idleWorkers++
		s.freeBytes += bytes
	}
	s.admitWaiting() // those behind it may need less
	return waited, err
}

// wait waits until a waiter is let through, or the search or the engine ends.
func (t *callSlots) wait(ctx context.Context, w *waiter) (waited time.Duration, err error) {
	start := time.Now()
	select {
	case <-w.ready:
	case <-ctx.Done():
		err = ctx.Err()
	case <-t.lifetime.Done():
		err = ErrClosed
	}
	return time.Since(start), err
}

// withSlot runs fn once a worker and this many bytes are free.
func (t *callSlots) withSlot(ctx context.Context, bytes int64, fn func() error) (waited time.Duration, err error) {
	if waited, err = t.acquire(ctx, bytes); err != nil {
		return waited, err
	}
	defer t.release(bytes)
	return waited, fn()
}

// release gives back what acquire took.
func (t *callSlots) release(bytes int64) {
	s := t.scheduler
	s.mu.Lock()
	s.idleWorkers++
	if t.background {
		s.runningBackground--
	} else {
		s.freeBytes += min(bytes, s.bytes)
	}
	s.admitWaiting()
	s.mu.Unlock()
}

// borrowWorkers takes up to n idle workers, none while a query waits for one. They are
// given back with giveBack.
func (t *callSlots) borrowWorkers(n int) int {
	if n <= 0 || t.background {
		return 0
	}
	s := t.scheduler
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waitingCalls) > 0 {
		return 0
	}
	n = max(min(n, s.idleWorkers), 0)
	s.idleWorkers -= n
	return n
}

func (t *callSlots) returnWorkers(n int) {
	if n == 0 {
		return
	}
	s := t.scheduler
	s.mu.Lock()
	s.idleWorkers += n
	s.admitWaiting()
	s.mu.Unlock()
}

// admitWaiting lets queries through, one of each call in turn. None overtakes one that
// waits for bytes, however little it needs: a large one would wait for ever.
func (s *Scheduler) admitWaiting() {
	for len(s.waitingCalls) > 0 && s.idleWorkers > 0 {
		t := s.waitingCalls[0]
		w := t.waiting[0]
		if w.bytes > s.freeBytes {
			return
		}
		s.idleWorkers--
		s.freeBytes -= w.bytes
		close(w.ready)
		t.waiting = slices.Delete(t.waiting, 0, 1)
		s.waitingCalls = slices.Delete(s.waitingCalls, 0, 1)
		if len(t.waiting) > 0 {
			s.waitingCalls = append(s.waitingCalls, t)
		}
	}
	if len(s.waitingCalls) == 0 && s.idleWorkers > 0 && s.runningBackground == 0 && len(s.waitingBackground) > 0 {
		s.idleWorkers--
		s.runningBackground++
		close(s.waitingBackground[0].ready)
		s.waitingBackground = slices.Delete(s.waitingBackground, 0, 1)
	}
}
