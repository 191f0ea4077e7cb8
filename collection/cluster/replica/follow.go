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

// Times of a replica; variables for tests.
var (
	appendTime = 20 * time.Second // bounds the put of an entry, with all tries
	retryFirst = time.Second      // after a fault; twice as long after each
	hintTime   = time.Minute      // how long a log is read in vain for an entry that a hint spoke of
)

const (
	readTime  = 30 * time.Second // for the next of the entries that are read
	retryMost = time.Minute
)

// entryCost is the least that an entry counts for [Config.CheckpointBytes]: reading it is a request.
const entryCost = 64 << 10

// opened is a replica whose file is open. It is the [store.Journal] of its collection.
type opened struct {
	r      *Replica
	ix     *index.Index
	set    *store.Store
	col    *store.Collection
	last   journal.Position // the last that was read or put; of the collection's writer alone
	broken chan error       // capacity 1: it cannot follow any more
	cold   func()           // ends reads of the file that was fetched
}

// run opens the file, and again after each fault, until the replica ends.
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
		// A cache of no use is fetched again at once, some times.
		lost := is(err, errStale, journal.ErrBehind, journal.ErrFork, storage.ErrCorrupt, objects.ErrDamaged)
		if lost {
			r.log.Info("the cache of a shard is thrown away", "because", err)
			err = errors.Join(err, r.clear())
		}
		if r.lost++; lost && r.lost < 4 {
			continue
		}
		// Other faults need time.
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

// live opens the file and follows the log, until that fails or the replica ends.
func (r *Replica) live() (err error) {
	r.set(func() { r.phase, r.err, r.entry, r.known = Fetching, nil, 0, 0 })
	open, err := r.open(r.until)
	if err != nil {
		return err
	}
	cold := sync.OnceFunc(open.cold)
	defer func() {
		cold()
		r.set(func() { r.ready = nil })
		open.col.WaitForSnapshots(r.ctx)
		if r.left = open.close(); err == nil {
			err = r.left
		}
	}()
	r.set(func() { r.phase = CatchingUp })
	if err := open.follow(r.until); err != nil {
		return err
	}
	r.set(func() {
		r.phase, r.ready, r.lost = Ready, open, 0
		open.col.LimitDocuments(r.most)
	})
	go cold()
	return r.stayReady(open)
}

// stayReady reads the log after hints, and puts checkpoints, until the file cannot follow any more or the replica ends.
func (r *Replica) stayReady(open *opened) error {
	wait := retryFirst
	var missed time.Time // when the log was first read in vain for an entry that it should have; zero: it was not
	for {
		var retry <-chan time.Time
		if r.missing() {
			retry = time.After(wait)
		}
		r.checkpointIfDue(open)
		select {
		case <-r.until.Done():
			return nil
		case err := <-open.broken:
			return err
		case <-r.wake:
			if !r.missing() {
				continue
			}
		case <-retry:
		}
		err := open.follow(r.until)
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

// follow applies the entries that follow in the log.
func (o *opened) follow(ctx context.Context) error {
	err := o.col.Follow(ctx)
	o.note()
	return err
}

// note notes the last entry that is applied.
func (o *opened) note() {
	snap, err := o.ix.Snapshot()
	if err != nil {
		return
	}
	has, err := snap.Applied()
	_ = snap.Close()
	if err == nil {
		r := o.r
		r.set(func() { r.entry, r.known = has.Sequence, max(r.known, has.Sequence) })
	}
}

// fault ends an open file that cannot follow the log, because of an error that it returns.
func (o *opened) fault(err error) error {
	if is(err, journal.ErrBehind, journal.ErrFork) {
		o.Failed(err)
	}
	return err
}

// Failed implements [store.Journal].
func (o *opened) Failed(err error) {
	select {
	case o.broken <- err:
	default:
	}
}

// position is that of an entry which the index has.
func (o *opened) position(a storage.Applied) journal.Position {
	if o.last.Number == a.Sequence && o.last.Hash == a.Mark {
		return o.last
	}
	return journal.Position{Number: a.Sequence, Hash: a.Mark}
}

// took notes an entry that was read or put.
func (o *opened) took(body []byte) {
	o.r.mu.Lock()
	defer o.r.mu.Unlock()
	if o.r.behind += max(int64(len(body)), entryCost); o.r.writer {
		o.r.ring() // a checkpoint may be due
	}
}

// Append implements [store.Journal].
func (o *opened) Append(_ context.Context, after storage.Applied, batches []string, body []byte) (
	next storage.Applied, err error) {
	r := o.r
	ctx, cancel := context.WithTimeout(r.ctx, appendTime)
	defer cancel()
	from := o.position(after)
	put, err := r.journal.Append(ctx, from, batches, body)
	switch {
	case errors.Is(err, journal.ErrTaken):
		return next, fmt.Errorf("%w: %w", store.ErrTaken, err)
	case errors.Is(err, journal.ErrUnknown):
		return next, fmt.Errorf("%w: %w", storage.ErrOutcomeUnknown, err)
	case errors.Is(err, journal.ErrTooLarge):
		return next, fmt.Errorf("%w: send fewer documents at a time: %w", collection.ErrTooLarge, err)
	case err != nil:
		return next, o.fault(err)
	}
	o.last = put
	o.took(body)
	if r.c.Living != nil && r.journal.Slept(from, put) {
		if err := r.c.Living(ctx, r.s.Collection); errors.Is(err, collection.ErrUnknown) {
			return next, err
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
func (o *opened) Read(_ context.Context, after storage.Applied, use func(storage.Applied, []byte) error) error {
	ctx, cancel := context.WithCancelCause(o.r.ctx)
	defer cancel(nil)
	late := time.AfterFunc(readTime, func() {
		cancel(fmt.Errorf("the store did not answer within %v: %w", readTime, context.DeadlineExceeded))
	})
	defer late.Stop()
	o.r.mu.Lock()
	known := o.r.known
	o.r.mu.Unlock()
	last, err := o.r.journal.Read(ctx, o.position(after), known, func(e journal.Entry) error {
		late.Stop() // to apply an entry may take longer
		defer late.Reset(readTime)
		if o.r.ending() {
			return collection.ErrClosed
		}
		if err := use(storage.Applied{Sequence: e.Number, Mark: e.Hash}, e.Body); err != nil {
			return err
		}
		o.took(e.Body)
		o.note()
		return nil
	})
	o.last = last
	if cause := context.Cause(ctx); err != nil && cause != nil && o.r.ctx.Err() == nil {
		err = cause // it was late
	}
	return o.fault(err)
}

// Find implements [store.Journal].
func (o *opened) Find(_ context.Context, batch string, after uint64) (uint64, []byte, error) {
	ctx, cancel := context.WithTimeout(o.r.ctx, readTime)
	defer cancel()
	end, err := o.r.journal.End(ctx, journal.Position{Number: after})
	if err != nil {
		return 0, nil, err
	}
	n, found, err := o.r.journal.Find(ctx, batch, after, end)
	if err != nil || !found {
		return 0, nil, err
	}
	e, err := o.r.journal.At(ctx, n)
	return n, e.Body, err
}

// close ends the collection, and closes the file. The cache can be used again if that succeeds.
func (o *opened) close() error {
	err := o.set.Close(o.r.ctx)
	o.note()
	if cerr := o.ix.Close(); cerr != nil || len(o.broken) > 0 {
		return errors.Join(err, cerr)
	}
	return errors.Join(err, o.r.closedCleanly())
}
