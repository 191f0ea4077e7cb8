package command

import (
	"context"
	"errors"
	"time"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
)

// opener opens indexes, and what searches them, as the global flags say.
type opener struct {
	stdio
	lockTimeout time.Duration
	// devices are those that the command has opened, by the names that it was given.
	devices map[string]kernels.Device
}

// lockStep is how long an attempt to get a lock lasts at most, between looks
// at the context.
const lockStep = 200 * time.Millisecond

// locked calls attempt, which opens an index, until it gets the lock or
// --lock-timeout has passed.
func (op *opener) locked(ctx context.Context, attempt func(wait time.Duration) error) error {
	deadline := time.Now().Add(op.lockTimeout)
	for first := true; ; first = false {
		left := time.Until(deadline)
		err := attempt(min(max(left, 0), lockStep))
		if err == nil || !errors.Is(err, storage.ErrLocked) || left <= 0 {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if first {
			op.logger().Info("waiting for the lock", "for", op.lockTimeout)
		}
	}
}

// open opens an index and hands it to use.
func (op *opener) open(ctx context.Context, path string, write bool, use func(*index.Index) error) (err error) {
	var ix *index.Index
	begin := op.now()
	err = op.locked(ctx, func(wait time.Duration) (err error) {
		ix, err = index.Open(ctx, path, &index.Options{Write: write, LockTimeout: wait, Logger: op.logger()})
		return err
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ix.Close()) }()
	if op.verbose {
		if err := op.logOpened(ix, op.now().Sub(begin)); err != nil {
			return err
		}
	}
	return use(ix)
}

// openSnapshot opens an index for reading and hands its content to use.
func (op *opener) openSnapshot(ctx context.Context, path string, use func(*index.Index, *index.Snapshot) error) error {
	return op.open(ctx, path, false, func(ix *index.Index) (err error) {
		snap, err := ix.Snapshot()
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, snap.Close()) }()
		return use(ix, snap)
	})
}
