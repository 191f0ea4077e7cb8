package storage

import (
	"errors"
	"fmt"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/storage/internal/layout"
)

// pendingCommit is a transaction that is being committed.
type pendingCommit struct {
	txID        int
	metasBefore metaBytes     // the meta pages before the commit
	before      *readSnapshot // a read transaction of the state before the commit
	done        chan struct{} // closed when the commit has succeeded, failed, or become unknown
}

// commit runs change in a write transaction and makes it durable. bbolt ends a commit by writing
// a meta page and syncing the file:
//
//  1. A failure before the meta page is written leaves the file as it was. The next change may follow.
//  2. Once a byte of the meta page has changed, this process and the next one to open the file see the
//     transaction, whether or not the disk has kept it. bbolt then also reads its list of free pages
//     from that meta page and would reuse pages that older snapshots show. So after such a failure f
//     refuses further changes, and snapshots show the state before the commit.
func (f *File) commit(h *handle, change func(*Tx) error) error {
	// Run the change, and let bbolt write its pages, the meta page, and sync.
	pending, err := f.writeChange(h, change)
	if pending == nil { // it failed before bbolt wrote anything
		return f.toWriteError(err)
	}
	defer close(pending.done)
	if err == nil {
		err = files.AfterSync(f.path)
	}
	// After an error, unchanged meta pages prove that the file still holds the state before.
	if err != nil {
		if metas, rerr := h.metaPages(); rerr != nil || metas != pending.metasBefore {
			f.setPendingCommit(h, nil, pending)
			return f.refuseChanges(errors.Join(err, rerr))
		}
	}
	// The outcome is known: new snapshots show the committed state.
	f.setPendingCommit(h, nil, nil)
	if rerr := f.endSnapshot(h, pending.before); err == nil {
		err = rerr
	}
	return f.toWriteError(err)
}

// writeChange runs change in a transaction of bbolt and commits that. pending is nil if the
// transaction failed before bbolt began to write; otherwise err is the error of the commit.
func (f *File) writeChange(h *handle, change func(*Tx) error) (pending *pendingCommit, err error) {
	defer Guard(f.path, &err)() // the commit may panic, too
	err = h.db.Update(func(btx *bolt.Tx) error {
		root := btx.Bucket(layout.RootBucket)
		if root == nil {
			return corruptError(f.path, nil, "root bucket is missing")
		}
		if err := change(&Tx{path: f.path, minGeneration: f.minGeneration, btx: btx, root: root}); err != nil {
			return err
		}
		metas, err := h.metaPages()
		if err != nil {
			return err
		}
		// This read transaction begins after the change, so that it keeps no page from being
		// reused that the change could still use.
		before, err := f.beginReadBefore(h)
		if err != nil {
			return err
		}
		pending = &pendingCommit{txID: btx.ID(), metasBefore: metas, before: before, done: make(chan struct{})}
		f.setPendingCommit(h, pending, nil)
		return nil // bbolt commits now
	})
	return pending, err
}

// beginReadBefore begins a read transaction of the state before the current write transaction.
func (f *File) beginReadBefore(h *handle) (*readSnapshot, error) {
	if h.remapLock != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.snapshotInSecondMapping(h)
	}
	tx, err := h.db.Begin(false)
	return &readSnapshot{tx: tx}, err
}

// setPendingCommit sets the commit that is in progress, or nil, and the one whose outcome is unknown,
// or nil.
func (f *File) setPendingCommit(h *handle, pending, unknown *pendingCommit) {
	f.mu.Lock()
	defer f.mu.Unlock()
	h.pending, h.unknown = pending, unknown
}

// beginRead begins the read transaction of a snapshot. It never shows a state that the disk may lose:
//
//  1. If the latest state is still being committed, beginRead waits for the end of that commit.
//  2. If the outcome of a commit is unknown, beginRead returns the transaction of the state before it.
//     Snapshots share that transaction (shared is true) and do not end it.
//
// Where the writer remaps the file (see h.remapLock) beginRead waits for every commit, since it could
// read a half-written meta page.
func (f *File) beginRead(h *handle) (s *readSnapshot, shared bool, err error) {
	for h.remapLock != nil {
		f.mu.Lock()
		if pending := h.pending; pending != nil && h.unknown == nil {
			f.mu.Unlock()
			<-pending.done
			continue
		}
		defer f.mu.Unlock()
		if h.unknown != nil {
			return h.unknown.before, true, nil
		}
		s, err = f.snapshotInSecondMapping(h)
		return s, false, err
	}
	for {
		tx, err := h.db.Begin(false)
		if err != nil {
			return nil, false, fmt.Errorf("%s: %w", f.path, err)
		}
		f.mu.Lock()
		pending, unknown := h.pending, h.unknown
		f.mu.Unlock()
		switch {
		case unknown != nil:
			return unknown.before, true, tx.Rollback()
		case pending == nil || tx.ID() < pending.txID: // tx shows a state that is committed
			return &readSnapshot{tx: tx}, false, nil
		}
		if err := tx.Rollback(); err != nil {
			return nil, false, fmt.Errorf("%s: %w", f.path, err)
		}
		<-pending.done
	}
}

// toWriteError adds the path of the file to an error of writing it. nil stays nil.
func (f *File) toWriteError(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, bolterrors.ErrMaxSizeReached) {
		err = ErrTooLarge
	}
	return &writeError{f.path, err}
}

// refuseChanges makes the file refuse all further changes, and returns the error with which it does.
// The caller holds f.writer.
func (f *File) refuseChanges(cause error) error {
	f.cause = cause
	f.broken = fmt.Errorf("%s: %w: a change failed in its last step: %w", f.path, ErrOutcomeUnknown, cause)
	f.log.Error("the outcome of a change is unknown; close and open the index before further changes",
		"index", f.path, "error", cause)
	return f.broken
}
