package replica

import (
	"cmp"
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

// Times of a replica; variables for tests.
var (
	appendTime = 20 * time.Second // for what the store has to say of an entry that is put
	retryFirst = time.Second      // after a fault; twice as long after each
	hintTime   = time.Minute      // how long a log is read in vain for an entry that a hint spoke of
)

const (
	readTime  = 30 * time.Second // for the next of the entries that are read
	retryMost = time.Minute
)

// entryCost is what an entry counts at least, in bytes, for [Config.CheckpointBytes]: to read it is a
// request.
const entryCost = 64 << 10

// opened is a replica whose file is open. It is the [store.Journal] of its collection.
type opened struct {
	r      *Replica
	ix     *index.Index
	set    *store.Store
	col    *store.Collection
	last   journal.Position // that the log is known to have ended with; of the collection's writer alone
	broken chan error       // capacity 1: it cannot follow any more
	cold   func()           // ends what was read while the file was fetched
}

// run opens the file, and again after each fault, until the replica is to end.
func (r *Replica) run() {
	defer close(r.ended)
	defer r.background.Wait()
	again := retryFirst
	for {
		begun := time.Now()
		err := r.live()
		if r.ending() {
			return
		}
		lost := is(err, errStale, journal.ErrBehind, journal.ErrFork, storage.ErrCorrupt, objects.ErrDamaged)
		if lost {
			r.log.Info("the cache of a shard is thrown away", "because", err)
			err = errors.Join(err, r.clear())
		}
		if r.lost++; lost && r.lost < 4 {
			continue
		}
		if time.Since(begun) > retryMost {
			again = retryFirst
		}
		r.set(func() { r.phase, r.err = Failed, err })
		r.log.Error("a shard cannot be read on this node, which tries again", "error", err, "in", again)
		select {
		case <-time.After(again):
		case <-r.until.Done():
			return
		}
		again = min(2*again, retryMost)
	}
}

func (r *Replica) ending() bool { return r.until.Err() != nil }

// live opens the file and follows the log, until that fails or the replica is to end.
func (r *Replica) live() (err error) {
	r.set(func() { r.phase, r.err, r.entry, r.known = Fetching, nil, 0, 0 })
	at, err := r.open(r.until)
	if err != nil {
		return err
	}
	cold := sync.OnceFunc(at.cold)
	defer func() {
		cold()
		r.set(func() { r.at = nil })
		at.col.Leave(r.ctx)
		if r.left = at.close(); err == nil {
			err = r.left
		}
	}()
	r.set(func() { r.phase = CatchingUp })
	if err := at.follow(r.until); err != nil {
		return err
	}
	r.set(func() {
		r.phase, r.at, r.lost = Ready, at, 0
		at.col.SetMost(r.most)
	})
	go cold()
	wait := retryFirst
	var missed time.Time // when the log was first read in vain for an entry that it should have; zero: it was not
	for {
		var retry <-chan time.Time
		if r.missing() {
			retry = time.After(wait)
		}
		r.checkpointIfDue(at)
		select {
		case <-r.until.Done():
			return nil
		case err := <-at.broken:
			return err
		case <-r.wake:
			if !r.missing() {
				continue
			}
		case <-retry:
		}
		err := at.follow(r.until)
		if err != nil {
			r.log.Warn("the log of a shard was not read, which is tried again", "error", err)
		}
		if !r.missing() {
			wait, missed = retryFirst, time.Time{}
			continue
		}
		wait = min(2*wait, retryMost)
		if missed.IsZero() {
			missed = time.Now()
		} else if err == nil && time.Since(missed) >= hintTime {
			wait, missed = retryFirst, time.Time{}
			r.set(func() { r.known = r.entry })
			if r.c.Misled != nil {
				r.c.Misled(r.s)
			}
		}
	}
}

// missing reports whether the log is known to have more.
func (r *Replica) missing() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known > r.entry
}

// follow applies what the log has, and notes how far that came.
func (at *opened) follow(ctx context.Context) error {
	err := at.col.Follow(ctx)
	at.note()
	return err
}

// note notes the last entry that is applied.
func (at *opened) note() {
	snap, err := at.ix.Snapshot()
	if err != nil {
		return
	}
	has, err := snap.Applied()
	_ = snap.Close()
	if err == nil {
		r := at.r
		r.set(func() { r.entry, r.known = has.Sequence, max(r.known, has.Sequence) })
	}
}

// fault notes an error after which the file cannot follow the log.
func (at *opened) fault(err error) error {
	if is(err, journal.ErrBehind, journal.ErrFork) {
		at.Failed(err)
	}
	return err
}

// Failed implements [store.Journal].
func (at *opened) Failed(err error) {
	select {
	case at.broken <- err:
	default:
	}
}

// position is that of an entry which the index has.
func (at *opened) position(a storage.Applied) journal.Position {
	if at.last.Number == a.Sequence && at.last.Hash == a.Mark {
		return at.last
	}
	return journal.Position{Number: a.Sequence, Hash: a.Mark}
}

// took notes an entry that was read or put.
func (at *opened) took(body []byte) {
	at.r.mu.Lock()
	defer at.r.mu.Unlock()
	if at.r.behind += max(int64(len(body)), entryCost); at.r.writer {
		at.r.ring() // a checkpoint may be due
	}
}

// Append implements [store.Journal].
func (at *opened) Append(_ context.Context, after storage.Applied, batches []string, body []byte) (
	next storage.Applied, err error) {
	r := at.r
	ctx, cancel := context.WithTimeout(r.ctx, appendTime)
	defer cancel()
	from := at.position(after)
	put, err := r.journal.Append(ctx, from, batches, body)
	switch {
	case errors.Is(err, journal.ErrTaken):
		return next, fmt.Errorf("%w: %w", store.ErrTaken, err)
	case errors.Is(err, journal.ErrUnknown):
		return next, fmt.Errorf("%w: %w", storage.ErrOutcomeUnknown, err)
	case errors.Is(err, journal.ErrTooLarge):
		return next, fmt.Errorf("%w: send fewer documents at a time: %w", collection.ErrTooLarge, err)
	case err != nil:
		return next, at.fault(err)
	}
	at.last = put
	at.took(body)
	if slept := from.Seen.IsZero() || put.Seen.IsZero() || put.Seen.Sub(from.Seen).Abs() >= cmp.Or(r.c.Grace, time.Hour)/4; slept && r.c.Living != nil {
		if err := r.c.Living(ctx, r.s.Collection); errors.Is(err, collection.ErrUnknown) {
			return next, at.fault(err)
		} else if err != nil {
			return next, fmt.Errorf("%w: is the collection there? %w", storage.ErrOutcomeUnknown, err)
		}
	}
	if told := r.c.Appended; told != nil {
		told(r.s, put.Number)
	}
	return storage.Applied{Sequence: put.Number, Mark: put.Hash}, nil
}

// Read implements [store.Journal].
func (at *opened) Read(_ context.Context, after storage.Applied, use func(storage.Applied, []byte) error) error {
	ctx, cancel := context.WithCancelCause(at.r.ctx)
	defer cancel(nil)
	late := time.AfterFunc(readTime, func() {
		cancel(fmt.Errorf("the store did not answer within %v: %w", readTime, context.DeadlineExceeded))
	})
	defer late.Stop()
	at.r.mu.Lock()
	known := at.r.known
	at.r.mu.Unlock()
	last, err := at.r.journal.Read(ctx, at.position(after), known, func(e journal.Entry) error {
		late.Stop() // what is done here takes its time
		defer late.Reset(readTime)
		if at.r.ending() {
			return collection.ErrClosed
		}
		if err := use(storage.Applied{Sequence: e.Number, Mark: e.Hash}, e.Body); err != nil {
			return err
		}
		at.took(e.Body)
		at.note()
		return nil
	})
	if at.last = last; err != nil && context.Cause(ctx) != nil && at.r.ctx.Err() == nil {
		err = context.Cause(ctx)
	}
	return at.fault(err)
}

// Find implements [store.Journal].
func (at *opened) Find(_ context.Context, batch string, after uint64) (uint64, []byte, error) {
	ctx, cancel := context.WithTimeout(at.r.ctx, readTime)
	defer cancel()
	end, err := at.r.journal.End(ctx, journal.Position{Number: after})
	if err != nil {
		return 0, nil, err
	}
	n, found, err := at.r.journal.Find(ctx, batch, after, end)
	if err != nil || !found {
		return 0, nil, err
	}
	e, err := at.r.journal.At(ctx, n)
	return n, e.Body, err
}

// close ends the collection, and closes the file. The cache can be used again if that succeeds.
func (at *opened) close() error {
	err := at.set.Close(at.r.ctx)
	at.note()
	if cerr := at.ix.Close(); cerr != nil || len(at.broken) > 0 {
		return errors.Join(err, cerr)
	}
	return errors.Join(err, at.r.closedCleanly())
}
