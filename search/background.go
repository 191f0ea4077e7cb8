package search

import (
	"context"
	"slices"
	"time"
)

// backgroundKey is the key of contexts whose searches give way.
type backgroundKey struct{}

// InBackground returns a context for searches of the least importance, with the results that others
// have. A scheduler runs one query of them at a time, on one worker that no other query waits for;
// as soon as one waits, the query gives its worker away, between two pieces of its work, and goes on
// when there is one again. Its memory is not counted in the budget. On a device it takes its turn
// as others do.
func InBackground(ctx context.Context) context.Context {
	return context.WithValue(ctx, backgroundKey{}, true)
}

// acquireInBackground waits for a worker for a query in the background. first reports whether the query
// had one, and comes before the others that wait.
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
	case resuming && !admitted: // the query releases it although it did not get it back
		s.idleWorkers--
		s.runningBackground++
	case !resuming && admitted:
		s.idleWorkers++
		s.runningBackground--
	}
	s.admitWaiting()
	return waited, err
}

// yieldWorker lets queries that wait have the worker of one in the background, which waits until there is
// one again.
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
