package storage

import (
	"errors"
	"fmt"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/storage/internal/layout"
)

// ending is a transaction that is being committed, and a read transaction of
// the state before it.
type ending struct {
	id     int
	done   chan struct{} // closed when the outcome is known, or known to be unknown
	before *readSnapshot
}

// commit runs fn in a write transaction. A commit ends with the writing of a
// meta page and a sync. What fails before that leaves nothing; but once a byte
// of the meta page has changed the transaction can be seen, here and by whoever
// opens the file next, whether the disk has kept it or not. bbolt then also takes
// its list of free pages from that meta page and would give out pages that older
// views show. So there is no going on with this handle: f is broken, and views
// show what the file held before.
func (f *File) commit(h *handle, fn func(*Tx) error) error {
	var metas metaBytes
	var e *ending
	err := func() (err error) {
		defer Guard(f.path, &err)() // also of the commit itself
		return h.db.Update(func(btx *bolt.Tx) error {
			root := btx.Bucket(layout.RootBucket)
			if root == nil {
				return corrupt(f.path, nil, "root bucket is missing")
			}
			if err := fn(&Tx{path: f.path, after: f.after, btx: btx, root: root}); err != nil {
				return err
			}
			var err error
			if metas, err = h.metaPages(); err != nil {
				return err
			}
			// Taken this late, it holds up no page that could be free by now.
			before, err := f.snapshotBefore(h)
			if err != nil {
				return err
			}
			e = &ending{id: btx.ID(), done: make(chan struct{}), before: before}
			f.setEnding(h, e, nil)
			return nil
		})
	}()
	if e == nil { // fn failed
		return f.explainWrite(err)
	}
	defer close(e.done)
	if err == nil {
		err = files.AfterSync(f.path)
	}
	if err != nil {
		if now, rerr := h.metaPages(); rerr != nil || now != metas {
			f.setEnding(h, nil, e)
			return f.breakOff(errors.Join(err, rerr))
		}
	}
	f.setEnding(h, nil, nil)
	if rerr := f.endSnapshot(h, e.before); err == nil {
		err = rerr
	}
	return f.explainWrite(err)
}

// snapshotBefore is of the state before the transaction that is under way.
func (f *File) snapshotBefore(h *handle) (*readSnapshot, error) {
	if h.mapping != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.snapshotBeside(h)
	}
	tx, err := h.db.Begin(false)
	return &readSnapshot{tx: tx}, err
}

func (f *File) setEnding(h *handle, now, unknown *ending) {
	f.mu.Lock()
	defer f.mu.Unlock()
	h.ending, h.unknown = now, unknown
}

// begin starts the read transaction of a view. It never shows what may not be
// kept: if the transaction that it would show is being committed, it waits for
// the end of that, and if the outcome of that is not known, the transaction of
// the state before is returned, which is shared.
//
// Where the writer maps the file anew there is nothing to see beside a commit, whose meta
// page could be read half written.
func (f *File) begin(h *handle) (s *readSnapshot, shared bool, err error) {
	for h.mapping != nil {
		f.mu.Lock()
		if now := h.ending; now != nil && h.unknown == nil {
			f.mu.Unlock()
			<-now.done
			continue
		}
		defer f.mu.Unlock()
		if h.unknown != nil {
			return h.unknown.before, true, nil
		}
		s, err = f.snapshotBeside(h)
		return s, false, err
	}
	for {
		tx, err := h.db.Begin(false)
		if err != nil {
			return nil, false, fmt.Errorf("%s: %w", f.path, err)
		}
		f.mu.Lock()
		now, unknown := h.ending, h.unknown
		f.mu.Unlock()
		switch {
		case unknown != nil:
			return unknown.before, true, tx.Rollback()
		case now == nil || tx.ID() < now.id:
			return &readSnapshot{tx: tx}, false, nil
		}
		if err := tx.Rollback(); err != nil {
			return nil, false, fmt.Errorf("%s: %w", f.path, err)
		}
		<-now.done
	}
}

func (f *File) explainWrite(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, bolterrors.ErrMaxSizeReached) {
		err = ErrTooLarge
	}
	return &writeError{f.path, err}
}

// breakOff lets no change follow; f.writer is held.
func (f *File) breakOff(cause error) error {
	f.cause = cause
	f.broken = fmt.Errorf("%s: %w: a change failed in its last step: %w", f.path, ErrOutcomeUnknown, cause)
	f.log.Error("the outcome of a change is not known; no more are taken until the index is opened again",
		"index", f.path, "error", cause)
	return f.broken
}
