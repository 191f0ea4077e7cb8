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

// acquireInBackground waits for a worker for a background query. A query that is resuming still has
// its worker: it releases that first, and waits ahead of the other background queries.
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
	// The wait was canceled, perhaps just after the query was admitted. A resuming query must hold
	// a worker when it returns, because its caller releases one; a new query must not.
	i := slices.Index(s.waitingBackground, w)
	if i >= 0 {
		s.waitingBackground = slices.Delete(s.waitingBackground, i, i+1)
	}
	switch admitted := i < 0; {
	case resuming && !admitted:
		s.idleWorkers--
		s.runningBackground++
	case !resuming && admitted:
		s.idleWorkers++
		s.runningBackground--
	}
	s.admitWaiting()
	return waited, err
}

// yieldWorker lends the worker of a background query to queries that wait, and returns when a
// worker is idle again. It returns at once if no query waits.
func (t *callSlots) yieldWorker(ctx context.Context) error {
	t.scheduler.mu.Lock()
	callsWait := len(t.scheduler.waitingCalls) > 0
	t.scheduler.mu.Unlock()
	if !callsWait {
		return nil
	}
	_, err := t.acquireInBackground(ctx, true)
	return err
}
