package index

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/plaid-ir/plaid/storage"
)

// Refresh checks whether the path names another file than the open one, and if so opens it: later
// snapshots show the new file. Snapshots taken before keep the old file until they are closed.
// Everything about the new file may differ, its dimension and codec too; searches need not know.
//
// After an error the index keeps the old file. A file that is locked or half written now may be
// complete the next time.
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

// startFollower refreshes the index at an interval until the follower is stopped.
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
			case ctx.Err() == nil && errorKind(err) != lastKind: // log each kind once, not at each refresh
				lastKind = errorKind(err)
				ix.log.Warn("the file at the path of the index cannot be opened; the previous file stays in use",
					"index", ix.Path(), "error", err)
			}
			if changed {
				ix.log.Info("the file of the index was replaced and has been opened", "index", ix.Path())
			}
		}
	}()
	return f
}

// errorKind returns the text of the sentinel that err wraps, or "other". The full text of an error
// would not do: it differs from try to try while the file is being written.
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

// stopAndWait returns when the last refresh is done. It may be called more than once, and on nil.
func (f *follower) stopAndWait() {
	if f != nil {
		f.cancel()
		<-f.done
	}
}
