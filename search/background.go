package search

import (
	"context"
	"slices"
	"time"
)

// background is the key of contexts whose searches give way.
type background struct{}

// InBackground returns a context for searches of the least importance, with the results that others
// have. A scheduler runs one query of them at a time, on one worker that no other query waits for;
// as soon as one waits, the query gives its worker away, between two pieces of its work, and goes on
// when there is one again. Its memory is not counted in the budget. On a device it takes its turn
// as others do.
func InBackground(ctx context.Context) context.Context {
	return context.WithValue(ctx, background{}, true)
}

// acquireAside waits for a worker for a query in the background. first reports whether the query
// had one, and comes before the others that wait.
func (t *turn) acquireAside(ctx context.Context, first bool) (waited time.Duration, err error) {
	s := t.s
	w := &waiter{ready: make(chan struct{})}
	s.mu.Lock()
	place := len(s.behind)
	if first {
		place = 0
		s.idle++
		s.aside--
	}
	s.behind = slices.Insert(s.behind, place, w)
	s.admit()
	s.mu.Unlock()
	if waited, err = t.await(ctx, w); err == nil {
		return waited, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.behind, w)
	if i >= 0 {
		s.behind = slices.Delete(s.behind, i, i+1)
	}
	switch had := i < 0; {
	case first && !had: // the query releases it although it did not get it back
		s.idle--
		s.aside++
	case !first && had:
		s.idle++
		s.aside--
	}
	s.admit()
	return waited, err
}

// giveWay lets queries that wait have the worker of one in the background, which waits until there is
// one again.
func (t *turn) giveWay(ctx context.Context) error {
	t.s.mu.Lock()
	wanted := len(t.s.turns) > 0
	t.s.mu.Unlock()
	if !wanted {
		return nil
	}
	_, err := t.acquireAside(ctx, true)
	return err
}
