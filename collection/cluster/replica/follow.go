package replica

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/cluster/journal"
	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/storage/objects"
)

// Times of a replica; variables, so that tests can change them.
var (
	appendTimeout = 20 * time.Second // limits putting an entry, with all tries
	minRetry      = time.Second      // wait after a first fault; it doubles after each further one
	hintTimeout   = time.Minute      // how long to look for a hinted entry that the log does not have
)

const (
	readTimeout = 30 * time.Second // limits the wait for each entry that is read
	maxRetry    = time.Minute
)

// minEntryBytes is the least that an entry counts for [Config.CheckpointBytes], since reading it takes a request.
const minEntryBytes = 64 << 10

// openShard is a replica whose file is open. It is the [store.Journal] of its collection.
type openShard struct {
	r            *Replica
	ix           *index.Index
	store        *store.Store
	collection   *store.Collection
	lastPosition journal.Position // last entry that was read or put; used by the collection's writer only
	broken       chan error       // capacity 1: why the file cannot follow the log any more
	endReads     func()           // ends reads of the file that was being fetched
}

// keepOpen opens the file, and again after each fault, until the replica ends.
func (r *Replica) keepOpen() {
	defer close(r.ended)
	defer r.background.Wait()
	retryDelay := minRetry
	for {
		begun := time.Now()
		err := r.openAndFollow()
		if r.isEnding() {
			return
		}
		// A useless cache is removed and fetched again, the first few times at once.
		useless := wrapsAny(err, errStale, journal.ErrBehind, journal.ErrFork, storage.ErrCorrupt, objects.ErrDamaged)
		if useless {
			r.log.Info("the cache of a shard is removed", "because", err)
			err = errors.Join(err, r.clearCache())
		}
		if r.attempts++; useless && r.attempts < 4 {
			continue
		}
		// After other faults, wait.
		if time.Since(begun) > maxRetry {
			retryDelay = minRetry
		}
		r.changeState(func() { r.phase, r.err = Failed, err })
		r.log.Error("a shard cannot be read on this node; it will be tried again", "error", err, "in", retryDelay)
		select {
		case <-time.After(retryDelay):
		case <-r.running.Done():
			return
		}
		retryDelay = min(2*retryDelay, maxRetry)
	}
}

// isEnding reports whether the replica is being closed.
func (r *Replica) isEnding() bool { return r.running.Err() != nil }

// openAndFollow opens the file and follows the log, until that fails or the replica ends.
func (r *Replica) openAndFollow() (err error) {
	r.changeState(func() { r.phase, r.err, r.entry, r.known = Fetching, nil, 0, 0 })
	open, err := r.open(r.running)
	if err != nil {
		return err
	}
	endReads := sync.OnceFunc(open.endReads)
	defer func() {
		endReads()
		r.changeState(func() { r.ready = nil })
		open.collection.WaitForSnapshots(r.ctx)
		if r.closeErr = open.close(); err == nil {
			err = r.closeErr
		}
	}()
	r.changeState(func() { r.phase = CatchingUp })
	if err := open.followLog(r.running); err != nil {
		return err
	}
	r.changeState(func() {
		r.phase, r.ready, r.attempts = Ready, open, 0
		open.collection.LimitDocuments(r.maxDocuments)
	})
	go endReads()
	return r.stayReady(open)
}

// stayReady reads the log after hints and puts checkpoints, until the file cannot follow the log or the replica ends.
func (r *Replica) stayReady(open *openShard) error {
	wait := minRetry
	var missed time.Time // when a known entry was first not found in the log, zero without such an entry
	for {
		var retry <-chan time.Time
		if r.lagsBehind() {
			retry = time.After(wait)
		}
		r.checkpointIfDue(open)
		select {
		case <-r.running.Done():
			return nil
		case err := <-open.broken:
			return err
		case <-r.wake:
			if !r.lagsBehind() {
				continue
			}
		case <-retry:
		}
		err := open.followLog(r.running)
		if err != nil {
			r.log.Warn("the log of a shard was not read; it will be tried again", "error", err)
		}
		if !r.lagsBehind() {
			wait, missed = minRetry, time.Time{}
			continue
		}
		// A hinted entry is not there: look again later, and forget the hint after some time.
		wait = min(2*wait, maxRetry)
		if missed.IsZero() {
			missed = time.Now()
		} else if err == nil && time.Since(missed) >= hintTimeout {
			wait, missed = minRetry, time.Time{}
			r.changeState(func() { r.known = r.entry })
			if r.cfg.HintFailed != nil {
				r.cfg.HintFailed(r.shard)
			}
		}
	}
}

// lagsBehind reports whether the log is said to have entries that the file does not have.
func (r *Replica) lagsBehind() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known > r.entry
}

// followLog applies the entries of the log that the file lacks.
func (o *openShard) followLog(ctx context.Context) error {
	err := o.collection.Follow(ctx)
	o.noteApplied()
	return err
}

// noteApplied notes the last entry that the file has.
func (o *openShard) noteApplied() {
	snap, err := o.ix.Snapshot()
	if err != nil {
		return
	}
	applied, err := snap.Applied()
	_ = snap.Close()
	if err == nil {
		r := o.r
		r.changeState(func() { r.entry, r.known = applied.Sequence, max(r.known, applied.Sequence) })
	}
}

// endOnFault makes the file unusable if an error says that it cannot follow the log. It returns the error.
func (o *openShard) endOnFault(err error) error {
	if wrapsAny(err, journal.ErrBehind, journal.ErrFork) {
		o.ReportFailure(err)
	}
	return err
}

// ReportFailure implements [store.Journal].
func (o *openShard) ReportFailure(err error) {
	select {
	case o.broken <- err:
	default:
	}
}

// position returns the position of an entry that the index has. The last one that was read or put also has its time.
func (o *openShard) position(a storage.Applied) journal.Position {
	if o.lastPosition.Number == a.Sequence && o.lastPosition.Hash == a.Mark {
		return o.lastPosition
	}
	return journal.Position{Number: a.Sequence, Hash: a.Mark}
}

// noteEntry adds the size of an entry that was read or put to the entries after the newest checkpoint.
func (o *openShard) noteEntry(body []byte) {
	o.r.mu.Lock()
	defer o.r.mu.Unlock()
	if o.r.behind += max(int64(len(body)), minEntryBytes); o.r.writer {
		o.r.wakeUp() // a checkpoint may be due
	}
}

// Append implements [store.Journal].
func (o *openShard) Append(_ context.Context, after storage.Applied, batches []string,
	body []byte) (next storage.Applied, err error) {
	r := o.r
	ctx, cancel := context.WithTimeout(r.ctx, appendTimeout)
	defer cancel()
	// Put the entry.
	from := o.position(after)
	appended, err := r.journal.Append(ctx, from, batches, body)
	switch {
	case errors.Is(err, journal.ErrTaken):
		return next, fmt.Errorf("%w: %w", store.ErrTaken, err)
	case errors.Is(err, journal.ErrUnknown):
		return next, fmt.Errorf("%w: %w", storage.ErrOutcomeUnknown, err)
	case errors.Is(err, journal.ErrTooLarge):
		return next, fmt.Errorf("%w: send fewer documents at a time: %w", collection.ErrTooLarge, err)
	case err != nil:
		return next, o.endOnFault(err)
	}
	// A writer that may have slept checks that the collection still exists.
	o.lastPosition = appended
	o.noteEntry(body)
	if r.cfg.CheckExists != nil && r.journal.MayHaveSlept(from, appended) {
		if err := r.cfg.CheckExists(ctx, r.shard.Collection); errors.Is(err, collection.ErrUnknown) {
			return next, err
		} else if err != nil {
			return next, fmt.Errorf("%w: whether the collection exists could not be found out: %w",
				storage.ErrOutcomeUnknown, err)
		}
	}
	if announce := r.cfg.Appended; announce != nil {
		announce(r.shard, appended.Number)
	}
	return storage.Applied{Sequence: appended.Number, Mark: appended.Hash}, nil
}

// Read implements [store.Journal].
func (o *openShard) Read(_ context.Context, after storage.Applied, visit func(storage.Applied, []byte) error) error {
	ctx, cancel := context.WithCancelCause(o.r.ctx)
	defer cancel(nil)
	timeout := time.AfterFunc(readTimeout, func() {
		cancel(fmt.Errorf("the store did not answer within %v: %w", readTimeout, context.DeadlineExceeded))
	})
	defer timeout.Stop()
	o.r.mu.Lock()
	known := o.r.known
	o.r.mu.Unlock()
	last, err := o.r.journal.Read(ctx, o.position(after), known, func(e journal.Entry) error {
		timeout.Stop() // the timeout is for reading, not for applying
		defer timeout.Reset(readTimeout)
		if o.r.isEnding() {
			return collection.ErrClosed
		}
		if err := visit(storage.Applied{Sequence: e.Number, Mark: e.Hash}, e.Body); err != nil {
			return err
		}
		o.noteEntry(e.Body)
		o.noteApplied()
		return nil
	})
	o.lastPosition = last
	if cause := context.Cause(ctx); err != nil && cause != nil && o.r.ctx.Err() == nil {
		err = cause // the timeout is the cause
	}
	return o.endOnFault(err)
}

// Find implements [store.Journal].
func (o *openShard) Find(_ context.Context, batch string, after uint64) (uint64, []byte, error) {
	ctx, cancel := context.WithTimeout(o.r.ctx, readTimeout)
	defer cancel()
	end, err := o.r.journal.End(ctx, journal.Position{Number: after})
	if err != nil {
		return 0, nil, err
	}
	entry, found, err := o.r.journal.Find(ctx, batch, after, end)
	if err != nil || !found {
		return 0, nil, err
	}
	e, err := o.r.journal.ReadEntry(ctx, entry)
	return entry, e.Body, err
}

// close closes the collection and the file. If that succeeds, the cache can be used again.
func (o *openShard) close() error {
	err := o.store.Close(o.r.ctx)
	o.noteApplied()
	if cerr := o.ix.Close(); cerr != nil || len(o.broken) > 0 {
		return errors.Join(err, cerr)
	}
	return errors.Join(err, o.r.markClosed())
}
