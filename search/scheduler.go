package search

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/plaid-ir/plaid/internal/parallel"
)

// A Scheduler limits how many queries of its engines run at the same time.
//
// Its goals, in this order:
//
//  1. A thousand concurrent searches use the memory of a few: the tables of running queries stay
//     within a budget of bytes. A query that needs more than the budget runs alone.
//  2. No search starves. Calls take turns, one query each.
//  3. All processors are busy. A query has one worker for as long as it runs. While no query
//     waits, it borrows more for each of its stages, as many as its engine allows.
//
// It does not limit the number of calls, which cost little while they wait, nor the work of
// devices. Searches in the background yield to all others ([InBackground]).
type Scheduler struct {
	workers int   // in all
	bytes   int64 // the budget

	mu           sync.Mutex
	idleWorkers  int
	freeBytes    int64
	waitingCalls []*callSlots // calls with waiting queries, the next one first
	// waitingBackground has background queries that wait for a worker, first those that yielded
	// theirs. runningBackground counts background queries that have a worker.
	waitingBackground []*waiter
	runningBackground int
}

// bytesPerWorker is the default budget of a scheduler for each worker.
const bytesPerWorker = 256 << 20

// NewScheduler returns a scheduler with a number of workers (0 means one a processor) and a budget
// of bytes (0 means 256 MiB a worker, at least 1 GiB).
func NewScheduler(workers int, bytes int64) *Scheduler {
	if workers <= 0 {
		workers = parallel.Processors()
	}
	if bytes <= 0 {
		bytes = max(int64(workers)*bytesPerWorker, 1<<30)
	}
	return &Scheduler{workers: workers, bytes: bytes, idleWorkers: workers, freeBytes: bytes}
}

// processScheduler returns the scheduler of all engines that have none of their own.
var processScheduler = sync.OnceValue(func() *Scheduler { return NewScheduler(0, 0) })

// maxKeptBytes is the size up to which the buffers of a query are kept for the next: those of all
// workers together use half of the budget at most.
func (s *Scheduler) maxKeptBytes() int64 { return s.bytes / 2 / int64(s.workers) }

// callSlots is the queue of one call: its queries wait here for the right to run.
type callSlots struct {
	scheduler  *Scheduler
	lifetime   context.Context // of the engine; its end ends all waiting with ErrClosed
	waiting    []*waiter
	background bool // the call is in the background
}

// newSlots returns an empty queue for other queries of the same call.
func (t *callSlots) newSlots() callSlots {
	return callSlots{scheduler: t.scheduler, lifetime: t.lifetime, background: t.background}
}

// waiter is a query that waits.
type waiter struct {
	bytes int64
	ready chan struct{} // closed when it may run
}

// acquire waits until a query that needs this many bytes may run, and returns how long it waited.
// The caller calls release.
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
	} else { // admitted at the same moment
		s.idleWorkers++
		s.freeBytes += bytes
	}
	s.admitWaiting() // queries behind it may need less
	return waited, err
}

// wait blocks until a waiter is admitted, or the search or the engine ends.
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

// withSlot calls work while it holds a slot and this many bytes.
func (t *callSlots) withSlot(ctx context.Context, bytes int64, work func() error) (waited time.Duration, err error) {
	if waited, err = t.acquire(ctx, bytes); err != nil {
		return waited, err
	}
	defer t.release(bytes)
	return waited, work()
}

// release returns the worker and the bytes of acquire.
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

// borrowWorkers acquires up to n idle workers, or none while a query waits for one. The caller
// calls returnWorkers.
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

// returnWorkers releases borrowed workers.
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

// admitWaiting admits queries, one of each call in turn. No query overtakes one that waits for
// bytes, even if it needs few: otherwise a large query could wait forever.
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
