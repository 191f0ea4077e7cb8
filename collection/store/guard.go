package store

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/plaid-ir/plaid/storage"
)

// guard does something, and makes an error ([storage.ErrInternal]) of a panic in it, which
// is logged and counted: it is a fault of one request or collection, and no reason to end
// all others.
func (s *Store) guard(log *slog.Logger, what string, do func()) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			s.panics.Add(1)
			log.Error("a panic", "in", what, "panic", fault, "stack", string(debug.Stack()))
			err = fmt.Errorf("%w: a panic in %s: %v", storage.ErrInternal, what, fault)
		}
	}()
	do()
	return nil
}

// noteGuarded counts a panic that is an error already.
func (s *Store) noteGuarded(err error) {
	if errors.Is(err, storage.ErrInternal) {
		s.panics.Add(1)
	}
}

// Panics is how many panics there were in work that is no request's own goroutine.
func (s *Store) Panics() uint64 { return s.panics.Load() }
