package search

import (
	"context"
	"slices"
	"time"
)

// backgroundKey is the key of contexts whose searches run in the background.
type backgroundKey struct{}

// InBackground returns a context for searches that yield to all others. Their results are the same.
// A scheduler runs one background query at a time, on a worker that no other query waits for. As
// soon as one waits, the background query yields its worker between two jobs and continues when a
// worker is idle again. Its memory is not counted in the budget. On a device it queues like any
// other search.
func InBackground(ctx context.Context) context.Context {
	return context.WithValue(ctx, backgroundKey{}, true)
}

// acquireInBackground waits for a worker for a background query. A query that is resuming has a
// worker: it gives it back, and goes ahead of the others that wait.
func (t *callSlots) acquireInBackground(ctx context.Context, resuming bool) (waited time.Duration, err error) {
	s := t.scheduler
	w := &waiter{ready: make(chan struct{})}
	s.mu.Lock()
	position := len(s.waitingBackground)
	if resuming {
		position = 0
		s.idleWorkers++
		s.runningBackground--
	}
	s.waitingBackground = slices.Insert(s.waitingBackground, position, w)
	s.admitWaiting()
	s.mu.Unlock()
	if waited, err = t.wait(ctx, w); err == nil {
		return waited, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.waitingBackground, w)
	if i >= 0 {
		s.waitingBackground = slices.Delete(s.waitingBackground, i, i+1)
	}
	switch admitted := i < 0; {
	case resuming && !admitted: // the query will release a worker that it did not get back
		s.idleWorkers--
		s.runningBackground++
	case !resuming && admitted:
		s.idleWorkers++
		s.runningBackground--
	}
	s.admitWaiting()
	return waited, err
}

// yieldWorker lends the worker of a background query to queries that wait, and returns when there
// is an idle one again.
func (t *callSlots) yieldWorker(ctx context.Context) error {
	t.scheduler.mu.Lock()
	wanted := len(t.scheduler.waitingCalls) > 0
	t.scheduler.mu.Unlock()
	if !wanted {
		return nil
	}
	_, err := t.acquireInBackground(ctx, true)
	return err
}
