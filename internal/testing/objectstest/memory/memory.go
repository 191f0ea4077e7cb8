// Package memory has an object store for tests that can make requests fail or wait. It is a separate
// package, since the tests of package objects import objectstest.
package memory

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plaid-ir/plaid/storage/objects"
)

// Store is an object store in memory. Its clock only moves by [Store.AdvanceClock].
type Store struct {
	*shelf
	hook   atomic.Pointer[Hook]
	listed atomic.Pointer[func([]objects.Entry) []objects.Entry]
}

// shelf holds the objects that the handles of a store share.
type shelf struct {
	mu       sync.Mutex
	objects  map[string]object
	now      time.Time
	requests int
}

type object struct {
	body []byte
	made time.Time
}

// Hook is called before a request (put, replace, get, list, delete) is performed, and may wait. If before
// is an error, the request is not performed and returns it. If after is an error, the request is performed
// and returns it. It may be called concurrently.
type Hook func(ctx context.Context, op, name string) (before, after error)

// New returns a store without objects.
func New() *Store {
	return &Store{shelf: &shelf{objects: map[string]object{}, now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}}
}

// Twin returns another handle of the same objects, with its own hooks.
func (s *Store) Twin() *Store { return &Store{shelf: s.shelf} }

// SetHook sets the hook. A nil hook removes it.
func (s *Store) SetHook(h Hook) { s.hook.Store(&h) }

// ChangeLists sets a function that changes lists. A nil function removes it.
func (s *Store) ChangeLists(change func([]objects.Entry) []objects.Entry) { s.listed.Store(&change) }

// HoldPut makes the next put, and those after it, wait until release is called. begun is closed when it
// arrives.
func (s *Store) HoldPut() (begun <-chan struct{}, release func()) {
	arrived, released := make(chan struct{}), make(chan struct{})
	hold := sync.OnceFunc(func() { close(arrived); <-released })
	s.SetHook(func(_ context.Context, op, _ string) (before, after error) {
		if op == "put" {
			hold()
		}
		return nil, nil
	})
	return arrived, func() { close(released) }
}

// Fail makes puts of objects fail if their names contain a part.
func (s *Store) Fail(part string, err error) {
	s.SetHook(func(_ context.Context, op, name string) (before, after error) {
		if op == "put" && strings.Contains(name, part) {
			return err, nil
		}
		return nil, nil
	})
}

// request calls the hook and performs a request.
func (s *Store) request(ctx context.Context, op, name string, perform func() error) error {
	var before, after error
	if h := s.hook.Load(); h != nil && *h != nil {
		before, after = (*h)(ctx, op, name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.requests++; before != nil {
		return before
	}
	if err := perform(); after == nil {
		return err
	}
	return after
}

// Put implements [objects.Store].
func (s *Store) Put(ctx context.Context, name string, r io.Reader, size int64) (made time.Time, err error) {
	body, err := io.ReadAll(r)
	if err != nil || int64(len(body)) != size {
		return made, fmt.Errorf("%d bytes of %d: %w", len(body), size, err)
	}
	err = s.request(ctx, "put", name, func() error {
		if _, exists := s.objects[name]; exists {
			return fmt.Errorf("%w: %s", objects.ErrExists, name)
		}
		made = s.now
		s.objects[name] = object{body, made}
		return nil
	})
	return made, err
}

// Replace implements [objects.Store].
func (s *Store) Replace(ctx context.Context, name string, body []byte) (made time.Time, err error) {
	err = s.request(ctx, "replace", name, func() error {
		made = s.now
		s.objects[name] = object{bytes.Clone(body), made}
		return nil
	})
	return made, err
}

// Get implements [objects.Store].
func (s *Store) Get(ctx context.Context, name string,
	from, length int64) (r io.ReadCloser, e objects.Entry, err error) {
	err = s.request(ctx, "get", name, func() error {
		o, exists := s.objects[name]
		if !exists {
			return fmt.Errorf("%w: %s", objects.ErrNotFound, name)
		}
		e = objects.Entry{Name: name, Size: int64(len(o.body)), Made: o.made}
		part := o.body[min(from, e.Size):]
		if length >= 0 {
			part = part[:min(length, int64(len(part)))]
		}
		r = io.NopCloser(bytes.NewReader(part))
		return nil
	})
	return r, e, err
}

// List implements [objects.Store].
func (s *Store) List(ctx context.Context, prefix, after string, limit int) (listed []objects.Entry, err error) {
	err = s.request(ctx, "list", prefix, func() error {
		for _, name := range slices.Sorted(maps.Keys(s.objects)) {
			if strings.HasPrefix(name, prefix) && name > after && (limit == 0 || len(listed) < limit) {
				o := s.objects[name]
				listed = append(listed, objects.Entry{Name: name, Size: int64(len(o.body)), Made: o.made})
			}
		}
		return nil
	})
	if change := s.listed.Load(); change != nil && *change != nil {
		listed = (*change)(listed)
	}
	return listed, err
}

// Delete implements [objects.Store].
func (s *Store) Delete(ctx context.Context, name string) error {
	return s.request(ctx, "delete", name, func() error { delete(s.objects, name); return nil })
}

// RemoveLeftovers implements [objects.Store].
func (s *Store) RemoveLeftovers(context.Context, time.Time) (int, error) { return 0, nil }

// Set creates or replaces an object without a request.
func (s *Store) Set(name string, body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[name] = object{bytes.Clone(body), s.now}
}

// Body returns a copy of an object.
func (s *Store) Body(name string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Clone(s.objects[name].body)
}

// Clear removes all objects.
func (s *Store) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.objects)
}

// Names returns the names of objects that have a prefix.
func (s *Store) Names(prefix string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.objects)), func(name string) bool {
		return !strings.HasPrefix(name, prefix)
	})
}

// Requests returns the number of requests so far.
func (s *Store) Requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

// Now returns the time of the store's clock.
func (s *Store) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// AdvanceClock moves the clock forward, or back if d is negative.
func (s *Store) AdvanceClock(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(d)
}
