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

// ErrFault is what a [Store] with faults answers, and [ErrCut] what a node hears that is cut off.
var (
	ErrFault = errors.New("503 SlowDown (a fault of the test)")
	ErrCut   = errors.New("the store cannot be reached (cut off by the test)")
)

// Store is another store with the faults that networks and services have: requests that are lost,
// answers that are lost, puts that arrive long after they were given up, bodies that end too early,
// delays, and a clock that jumps. A seed decides. Nothing that it does breaks the contract of
// [objects.Store].
type Store struct {
	next objects.Store

	mu      sync.Mutex
	r       *rand.Rand
	share   float64
	most    time.Duration            // that an answer is delayed
	ahead   time.Duration            // the clock, of the clock of the other store
	made    map[string]time.Duration // what ahead was when an object was made
	counts  map[string]int           // of requests by kind, and of faults by kind
	decide  func(op, name string) Fault
	arrives sync.WaitGroup // puts and deletions that are under way still
}

// Fault is what becomes of a request.
type Fault int

// Faults. After those that say so the request is carried out.
const (
	None    Fault = iota
	Lost          // nothing is done, and the answer is an error
	Refused       // nothing is done, and the answer says so
	Mute          // it is carried out, and the answer is an error
	Late          // the answer is an error; a change is carried out some time later, unless it cannot be then
	Slow          // it is carried out before or after a delay
	Torn          // the body that is read ends too early
)

var names = [...]string{"none", "lost", "refused", "mute", "late", "slow", "torn"}

// NewStore returns a store without faults; see [Store.Faults].
func NewStore(next objects.Store, seed uint64) *Store {
	return &Store{
		next: next, r: rand.New(rand.NewPCG(seed, 39)), most: 20 * time.Millisecond,
		made: map[string]time.Duration{}, counts: map[string]int{},
	}
}

// Faults makes a share of the requests fail.
func (s *Store) Faults(share float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.share = share
}

// Decide sets what decides about each request first, by its kind (put, replace, get, list, delete)
// and the name of the object; nil: chance alone. It may wait.
func (s *Store) Decide(by func(op, name string) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.decide = by
}

// Turn sets the clock of the store forward.
func (s *Store) Turn(by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead += by
}

// Wait waits for the changes that arrive late.
func (s *Store) Wait() { s.arrives.Wait() }

// Counts are how many requests there were, and how many faults.
func (s *Store) Counts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.counts)
}

// fault decides about a request.
func (s *Store) fault(ctx context.Context, op, name string, among ...Fault) (Fault, error) {
	s.mu.Lock()
	s.counts[op]++
	f, delay, decide := None, time.Duration(0), s.decide
	if s.r.Float64() < s.share {
		f = among[s.r.IntN(len(among))]
		delay = time.Duration(s.r.Int64N(int64(s.most)))
	}
	s.mu.Unlock()
	if decide != nil {
		if g := decide(op, name); g != None {
			f = g
		}
	}
	if f != None {
		s.mu.Lock()
		s.counts["fault "+names[f]]++
		s.mu.Unlock()
	}
	switch f {
	case Slow:
		return None, sleep(ctx, delay)
	case Lost:
		return f, fmt.Errorf("%s %s: %w", op, name, ErrFault)
	case Refused:
		return f, fmt.Errorf("%s %s: %w: %w", op, name, objects.ErrNotMade, ErrFault)
	}
	return f, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// change carries out a change, and notes the time of what it makes.
func (s *Store) change(ctx context.Context, f Fault, op, name string, do func(context.Context) (time.Time, error)) (
	time.Time, error) {
	carryOut := func(ctx context.Context) (time.Time, error) {
		made, err := do(ctx)
		if err != nil {
			return made, err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.made[name] = s.ahead; op == "delete" {
			delete(s.made, name)
		}
		return made.Add(s.ahead), nil
	}
	switch f {
	case Late:
		s.mu.Lock()
		delay := time.Duration(s.r.Int64N(int64(25 * s.most)))
		s.mu.Unlock()
		s.arrives.Go(func() {
			time.Sleep(delay)
			_, _ = carryOut(context.WithoutCancel(ctx)) // the caller hears nothing
		})
	case Mute:
		if _, err := carryOut(ctx); err != nil {
			return time.Time{}, err
		}
	default:
		return carryOut(ctx)
	}
	return time.Time{}, fmt.Errorf("%s %s: the answer was lost: %w", op, name, ErrFault)
}

// Put implements [objects.Store].
func (s *Store) Put(ctx context.Context, name string, r io.Reader, size int64) (time.Time, error) {
	f, err := s.fault(ctx, "put", name, Lost, Refused, Mute, Late, Slow)
	if err != nil {
		return time.Time{}, err
	}
	if f == Late { // the reader is the caller's
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
	f, err := s.fault(ctx, "replace", name, Lost, Mute, Late, Slow)
	if err != nil {
		return time.Time{}, err
	}
	return s.change(ctx, f, "replace", name, func(ctx context.Context) (time.Time, error) {
		return s.next.Replace(ctx, name, bytes.Clone(body))
	})
}

// Delete implements [objects.Store].
func (s *Store) Delete(ctx context.Context, name string) error {
	f, err := s.fault(ctx, "delete", name, Lost, Mute, Late, Slow)
	if err != nil {
		return err
	}
	_, err = s.change(ctx, f, "delete", name, func(ctx context.Context) (time.Time, error) {
		return time.Time{}, s.next.Delete(ctx, name)
	})
	return err
}

func (s *Store) shown(e objects.Entry) objects.Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.Made = e.Made.Add(s.made[e.Name])
	return e
}

// Get implements [objects.Store].
func (s *Store) Get(ctx context.Context, name string, from, length int64) (io.ReadCloser, objects.Entry, error) {
	f, err := s.fault(ctx, "get", name, Lost, Slow, Torn)
	if err != nil {
		return nil, objects.Entry{}, err
	}
	r, e, err := s.next.Get(ctx, name, from, length)
	if err != nil {
		return nil, e, err
	}
	if f == Torn {
		left := e.Size - from
		if length >= 0 {
			left = min(left, length)
		}
		r = torn{io.LimitReader(r, left/2), r}
	}
	return r, s.shown(e), nil
}

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
	if _, err := s.fault(ctx, "list", prefix, Lost, Slow); err != nil {
		return nil, err
	}
	entries, err := s.next.List(ctx, prefix, after, limit)
	for i := range entries {
		entries[i] = s.shown(entries[i])
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
