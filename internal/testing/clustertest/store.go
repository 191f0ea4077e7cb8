package clustertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/plaid-ir/plaid/storage/objects"
)

// ErrFault is the error of a [Store] with faults, and ErrCut that of a node that is cut off.
var (
	ErrFault = errors.New("503 SlowDown (a fault of the test)")
	ErrCut   = errors.New("the store cannot be reached (cut off by the test)")
)

// Store adds the faults of networks and services to another store: lost requests,
// lost answers, puts that arrive long after the caller gave up, bodies that end too early,
// delays, and a clock that jumps. A seed determines the faults. They never break the contract of
// [objects.Store].
type Store struct {
	next objects.Store

	mu            sync.Mutex
	r             *rand.Rand
	share         float64                  // of requests that fail
	maxDelay      time.Duration            // the longest delay of an answer
	ahead         time.Duration            // how much the clock is ahead of the other store's
	aheadWhenMade map[string]time.Duration // ahead at the time when each object was made
	counts        map[string]int           // requests and faults, by kinds
	decide        func(op, name string) Fault
	lateChanges   sync.WaitGroup
}

// Fault is the fault of a request.
type Fault int

// Faults. Requests with faults from Mute on are performed.
const (
	None    Fault = iota
	Lost          // it is not performed, and the answer is an error
	Refused       // it is not performed, and the answer says so
	Mute          // it is performed, and the answer is an error
	Late          // the answer is an error, and a change is performed later, if that is possible then
	Slow          // it is performed after a delay
	Torn          // the body ends too early
)

var faultNames = [...]string{"none", "lost", "refused", "mute", "late", "slow", "torn"}

// NewStore returns a store without faults; see [Store.SetFaultShare].
func NewStore(next objects.Store, seed uint64) *Store {
	return &Store{
		next: next, r: rand.New(rand.NewPCG(seed, 39)), maxDelay: 20 * time.Millisecond,
		aheadWhenMade: map[string]time.Duration{}, counts: map[string]int{},
	}
}

// SetFaultShare makes a share of the requests fail.
func (s *Store) SetFaultShare(share float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.share = share
}

// Decide sets a function that chooses the fault of each request, by its kind (put, replace, get, list,
// delete) and the name of the object. For None, and if the function is nil, faults are random. It may
// wait.
func (s *Store) Decide(decide func(op, name string) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.decide = decide
}

// AdvanceClock sets the clock of the store forward.
func (s *Store) AdvanceClock(by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead += by
}

// Wait waits for the changes that arrive late.
func (s *Store) Wait() { s.lateChanges.Wait() }

// Counts returns the numbers of requests and of faults, by kinds.
func (s *Store) Counts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.counts)
}

// drawFault counts a request and chooses its fault, at random among candidates. It delays slow requests,
// and returns the error of those that are not performed.
func (s *Store) drawFault(ctx context.Context, op, name string, candidates ...Fault) (Fault, error) {
	s.mu.Lock()
	s.counts[op]++
	f, delay, decide := None, time.Duration(0), s.decide
	if s.r.Float64() < s.share {
		f = candidates[s.r.IntN(len(candidates))]
		delay = time.Duration(s.r.Int64N(int64(s.maxDelay)))
	}
	s.mu.Unlock()
	if decide != nil {
		if g := decide(op, name); g != None {
			f = g
		}
	}
	if f != None {
		s.mu.Lock()
		s.counts["fault "+faultNames[f]]++
		s.mu.Unlock()
	}
	switch f {
	case Slow:
		return None, sleepContext(ctx, delay)
	case Lost:
		return f, fmt.Errorf("%s %s: %w", op, name, ErrFault)
	case Refused:
		return f, fmt.Errorf("%s %s: %w: %w", op, name, objects.ErrNotMade, ErrFault)
	}
	return f, nil
}

// sleepContext sleeps until the context ends.
func sleepContext(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// change performs a change with a fault, and records the clock of the object that it makes.
func (s *Store) change(
	ctx context.Context, f Fault, op, name string, perform func(context.Context) (time.Time, error),
) (time.Time, error) {
	performNow := func(ctx context.Context) (time.Time, error) {
		made, err := perform(ctx)
		if err != nil {
			return made, err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.aheadWhenMade[name] = s.ahead; op == "delete" {
			delete(s.aheadWhenMade, name)
		}
		return made.Add(s.ahead), nil
	}
	switch f {
	case Late:
		s.mu.Lock()
		delay := time.Duration(s.r.Int64N(int64(25 * s.maxDelay)))
		s.mu.Unlock()
		s.lateChanges.Go(func() {
			time.Sleep(delay)
			_, _ = performNow(context.WithoutCancel(ctx)) // the caller has its error already
		})
	case Mute:
		if _, err := performNow(ctx); err != nil {
			return time.Time{}, err
		}
	default:
		return performNow(ctx)
	}
	return time.Time{}, fmt.Errorf("%s %s: the answer was lost: %w", op, name, ErrFault)
}

// Put implements [objects.Store].
func (s *Store) Put(ctx context.Context, name string, r io.Reader, size int64) (time.Time, error) {
	f, err := s.drawFault(ctx, "put", name, Lost, Refused, Mute, Late, Slow)
	if err != nil {
		return time.Time{}, err
	}
	if f == Late { // the caller may close the reader
		body, err := io.ReadAll(io.LimitReader(r, size))
		if err != nil {
			return time.Time{}, err
		}
		r = bytes.NewReader(body)
	}
	return s.change(ctx, f, "put", name, func(ctx context.Context) (time.Time, error) {
		return s.next.Put(ctx, name, r, size)
	})
}

// Replace implements [objects.Store].
func (s *Store) Replace(ctx context.Context, name string, body []byte) (time.Time, error) {
	f, err := s.drawFault(ctx, "replace", name, Lost, Mute, Late, Slow)
	if err != nil {
		return time.Time{}, err
	}
	return s.change(ctx, f, "replace", name, func(ctx context.Context) (time.Time, error) {
		return s.next.Replace(ctx, name, bytes.Clone(body))
	})
}

// Delete implements [objects.Store].
func (s *Store) Delete(ctx context.Context, name string) error {
	f, err := s.drawFault(ctx, "delete", name, Lost, Mute, Late, Slow)
	if err != nil {
		return err
	}
	_, err = s.change(ctx, f, "delete", name, func(ctx context.Context) (time.Time, error) {
		return time.Time{}, s.next.Delete(ctx, name)
	})
	return err
}

// withClock returns an entry with the time of this store's clock.
func (s *Store) withClock(e objects.Entry) objects.Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.Made = e.Made.Add(s.aheadWhenMade[e.Name])
	return e
}

// Get implements [objects.Store].
func (s *Store) Get(ctx context.Context, name string, from, length int64) (io.ReadCloser, objects.Entry, error) {
	f, err := s.drawFault(ctx, "get", name, Lost, Slow, Torn)
	if err != nil {
		return nil, objects.Entry{}, err
	}
	r, e, err := s.next.Get(ctx, name, from, length)
	if err != nil {
		return nil, e, err
	}
	if f == Torn {
		bodyBytes := e.Size - from
		if length >= 0 {
			bodyBytes = min(bodyBytes, length)
		}
		r = torn{io.LimitReader(r, bodyBytes/2), r}
	}
	return r, s.withClock(e), nil
}

// torn is a body that ends too early, with an error.
type torn struct {
	io.Reader
	io.Closer
}

func (t torn) Read(p []byte) (int, error) {
	n, err := t.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("the body was cut: %w", io.ErrUnexpectedEOF)
	}
	return n, err
}

// List implements [objects.Store].
func (s *Store) List(ctx context.Context, prefix, after string, limit int) ([]objects.Entry, error) {
	if _, err := s.drawFault(ctx, "list", prefix, Lost, Slow); err != nil {
		return nil, err
	}
	entries, err := s.next.List(ctx, prefix, after, limit)
	for i := range entries {
		entries[i] = s.withClock(entries[i])
	}
	return entries, err
}

// RemoveLeftovers implements [objects.Store].
func (s *Store) RemoveLeftovers(ctx context.Context, before time.Time) (int, error) {
	s.mu.Lock()
	ahead := s.ahead
	s.mu.Unlock()
	return s.next.RemoveLeftovers(ctx, before.Add(-ahead))
}
