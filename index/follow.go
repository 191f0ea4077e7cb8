package index

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/plaid-ir/plaid/storage"
)

// Refresh looks whether the path names another file than the one that is open,
// and if so opens that: later snapshots are of it. Snapshots taken before keep
// the old file until they are closed. Everything about the new file may differ,
// its dimension and codec too; whoever searches need not know.
//
// After an error the index stays the one it was. A file that is locked or half
// written now may be sound the next time.
//
// Errors: [ErrOption] if the index is open for writing, and those of [Open].
func (ix *Index) Refresh(ctx context.Context) (changed bool, err error) {
	if ix.file.Writes() {
		return false, fmt.Errorf("%w: %s is open for writing; only readers follow a path", ErrOption, ix.Path())
	}
	if err := ix.writeLock.lock(ctx); err != nil {
		return false, err
	}
	defer ix.writeLock.unlock()
	if err := ctx.Err(); err != nil {
		return false, err
	}
	ix.stateMu.Lock()
	defer ix.stateMu.Unlock()
	var newState *snapshotState
	changed, err = ix.file.Refresh(ctx, func(v *storage.Snapshot) (err error) {
		newState, err = ix.readState(v, nil)
		return err
	})
	if !changed {
		return false, err
	}
	return true, errors.Join(err, ix.setCurrent(newState))
}

// follower refreshes an index until it is stopped.
type follower struct {
	cancel context.CancelFunc
	done   chan struct{}
}

func (ix *Index) startFollower(interval time.Duration) *follower {
	ctx, cancel := context.WithCancel(context.Background())
	f := &follower{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(f.done)
		tick := time.NewTicker(interval)
		defer tick.Stop()
		lastKind := ""
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			changed, err := ix.Refresh(ctx)
			switch {
			case err == nil:
				lastKind = ""
			case ctx.Err() == nil && errorKind(err) != lastKind: // not at each look
				lastKind = errorKind(err)
				ix.log.Warn("the file at the index's path cannot be opened; the one before it stays in use", "index", ix.Path(), "error", err)
			}
			if changed {
				ix.log.Info("the index was replaced, and opened anew", "index", ix.Path())
			}
		}
	}()
	return f
}

// errorKind says what kind an error is of; a file that is being written gives
// another text each time.
func errorKind(err error) string {
	for _, kind := range []error{
		storage.ErrLocked, storage.ErrCorrupt, storage.ErrVersion, storage.ErrNotIndex, storage.ErrUnfinished,
		fs.ErrNotExist, fs.ErrPermission,
	} {
		if errors.Is(err, kind) {
			return kind.Error()
		}
	}
	return "other"
}

// stopAndWait returns when the last refresh is done. It may be called more than once.
func (f *follower) stopAndWait() {
	if f != nil {
		f.cancel()
		<-f.done
	}
}
