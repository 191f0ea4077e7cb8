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

	mu    sync.Mutex
	idle  int     // workers
	free  int64   // bytes
	turns []*turn // calls with queries that wait, the next one first
	// Of queries in the background behind has those that wait for a worker, one that gave its own
	// away first, and aside counts those that have one.
	behind []*waiter
	aside  int
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
	return &Scheduler{workers: workers, bytes: bytes, idle: workers, free: bytes}
}

// processScheduler is that of engines which are not given one.
var processScheduler = sync.OnceValue(func() *Scheduler { return NewScheduler(0, 0) })

// keep is how large the buffers of a query may be to be kept for another one: so
// that those of all workers together take half of the budget.
func (s *Scheduler) keep() int64 { return s.bytes / 2 / int64(s.workers) }

// turn is a call, whose queries wait for each other.
type turn struct {
	s       *Scheduler
	end     context.Context // of the engine; ends all waiting, with ErrClosed
	waiting []*waiter
	aside   bool // the call is in the background
}

// fresh returns a turn of the same call for other queries.
func (t *turn) fresh() turn { return turn{s: t.s, end: t.end, aside: t.aside} }

// waiter is a query that waits.
type waiter struct {
	bytes int64
	ready chan struct{} // closed when it may run
}

// acquire waits until a query may run that needs so many bytes, and says how long
// it waited. What it takes is given back with release.
func (t *turn) acquire(ctx context.Context, bytes int64) (waited time.Duration, err error) {
	s := t.s
	if t.aside {
		return t.acquireAside(ctx, false)
	}
	bytes = min(bytes, s.bytes)
	s.mu.Lock()
	if len(s.turns) == 0 && s.idle > 0 && bytes <= s.free {
		s.idle--
		s.free -= bytes
		s.mu.Unlock()
		return 0, nil
	}
	w := &waiter{bytes, make(chan struct{})}
	if t.waiting = append(t.waiting, w); len(t.waiting) == 1 {
		s.turns = append(s.turns, t)
	}
	s.mu.Unlock()
	if waited, err = t.await(ctx, w); err == nil {
		return waited, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(t.waiting, w); i >= 0 {
		if t.waiting = slices.Delete(t.waiting, i, i+1); len(t.waiting) == 0 {
			s.turns = slices.DeleteFunc(s.turns, func(o *turn) bool { return o == t })
		}
	} else { // it was let through in the same moment
		s.idle++
		s.free += bytes
	}
	s.admit() // those behind it may need less
	return waited, err
}

// await waits until a waiter is let through, or the search or the engine ends.
func (t *turn) await(ctx context.Context, w *waiter) (waited time.Duration, err error) {
	start := time.Now()
	select {
	case <-w.ready:
	case <-ctx.Done():
		err = ctx.Err()
	case <-t.end.Done():
		err = ErrClosed
	}
	return time.Since(start), err
}

// inTurn runs fn once a worker and this many bytes are free.
func (t *turn) inTurn(ctx context.Context, bytes int64, fn func() error) (waited time.Duration, err error) {
	if waited, err = t.acquire(ctx, bytes); err != nil {
		return waited, err
	}
	defer t.release(bytes)
	return waited, fn()
}

// release gives back what acquire took.
func (t *turn) release(bytes int64) {
	s := t.s
	s.mu.Lock()
	s.idle++
	if t.aside {
		s.aside--
	} else {
		s.free += min(bytes, s.bytes)
	}
	s.admit()
	s.mu.Unlock()
}

// borrow takes up to n idle workers, none while a query waits for one. They are
// given back with giveBack.
func (t *turn) borrow(n int) int {
	if n <= 0 || t.aside {
		return 0
	}
	s := t.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.turns) > 0 {
		return 0
	}
	n = max(min(n, s.idle), 0)
	s.idle -= n
	return n
}

func (t *turn) giveBack(n int) {
	if n == 0 {
		return
	}
	s := t.s
	s.mu.Lock()
	s.idle += n
	s.admit()
	s.mu.Unlock()
}

// admit lets queries through, one of each call in turn. None overtakes one that
// waits for bytes, however little it needs: a large one would wait for ever.
func (s *Scheduler) admit() {
	for len(s.turns) > 0 && s.idle > 0 {
		t := s.turns[0]
		w := t.waiting[0]
		if w.bytes > s.free {
			return
		}
		s.idle--
		s.free -= w.bytes
		close(w.ready)
		t.waiting = slices.Delete(t.waiting, 0, 1)
		s.turns = slices.Delete(s.turns, 0, 1)
		if len(t.waiting) > 0 {
			s.turns = append(s.turns, t)
		}
	}
	if len(s.turns) == 0 && s.idle > 0 && s.aside == 0 && len(s.behind) > 0 {
		s.idle--
		s.aside++
		close(s.behind[0].ready)
		s.behind = slices.Delete(s.behind, 0, 1)
	}
}
