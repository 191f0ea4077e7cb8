// Package journal keeps the log of one shard in an object store: entry n is an object that is put
// on the condition that there is none, so that the store decides which of several writers has n.
// docs/lab/cluster.md has the protocol, and the numbers of the invariants that comments here name.
package journal

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/plaid-ir/plaid/storage/objects"
)

var (
	// ErrTaken: another writer has the next number. Read it, and append after it.
	ErrTaken = errors.New("the next entry of the log is another's")
	// ErrBehind: the log has been cut after the position, and a checkpoint after it is there. Begin
	// again with the newest checkpoint.
	ErrBehind = errors.New("the log begins after this position")
	// ErrFork: an entry does not follow the one before it, and no checkpoint has both (I2).
	ErrFork = errors.New("the log is forked or damaged")
	// ErrTooLarge: the body has more than [MaxBody]. Nothing was asked of the store.
	ErrTooLarge = errors.New("an entry is too large")
	// ErrUnknown: the store gave no answer; the entry may be in the log, now or later.
	ErrUnknown = errors.New("it is not known whether the log has the entry")
)

// Position is the place after an entry. The zero Position is the beginning of a log.
type Position struct {
	Number uint64 `json:"number"`
	Hash   Hash   `json:"hash"` // of the entry's object
	// Seen is when, by the clock of the store, the entry was known to be the last one, such as
	// when it was made; zero: not known. See [Log.Append].
	Seen time.Time `json:"-"`
}

// Entry is one of a log.
type Entry struct {
	Position
	Batches []string  // the batches whose changes it holds
	Body    []byte    // as it was given to Append
	Made    time.Time // by the clock of the store
	parent  Hash
}

// Options of a log. The zero value is a good choice.
type Options struct {
	// Grace is how long entries and checkpoints stay after they are no longer needed; 0: an hour.
	Grace time.Duration
}

// Log is the log of a shard. It is safe for concurrent use.
type Log struct {
	store       objects.Store
	logPrefix   string // the prefix of its entries, with the slash
	filesPrefix string // that of its checkpoints
	grace       time.Duration
	readAhead   int // entries that are fetched at a time
	token       func() [16]byte
	sleep       func(ctx context.Context, d time.Duration)
}

// New returns the log of a shard of a collection, by the identity of that. Nothing is read.
func New(s objects.Store, collection string, shard int, o Options) *Log {
	return &Log{
		store:       s,
		logPrefix:   fmt.Sprintf("data/%s/log/%04d/", collection, shard),
		filesPrefix: fmt.Sprintf("data/%s/files/%04d/", collection, shard),
		grace:       cmp.Or(o.Grace, time.Hour), readAhead: 8, token: newToken, sleep: sleepFor,
	}
}

// newToken makes entries of equal content differ, so that a writer knows its own.
func newToken() (t [16]byte) {
	_, _ = rand.Read(t[:])
	return t
}

func sleepFor(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func (l *Log) objectName(number uint64) string { return fmt.Sprintf("%s%016x", l.logPrefix, number) }

// Append puts an entry after a position, and returns the position after it. batches are the ids
// by which [Log.Find] finds it. The caller has applied exactly the entries up to the position (I1).
//
// It asks the store until the outcome is known or ctx ends. A writer that may have slept ([Log.Slept]) reads a list
// before it acknowledges the entry.
//
// Errors: [ErrTaken], after which the log does not have the entry and never will; [ErrUnknown]; that of
// ctx, or [objects.ErrNotMade], if nothing was put.
func (l *Log) Append(ctx context.Context, after Position, batches []string, body []byte) (Position, error) {
	entry := Position{Number: after.Number + 1}
	object, hash, err := encode(entry.Number, after.Hash, l.token(), batches, body)
	if err != nil {
		return Position{}, err
	}
	if err := ctx.Err(); err != nil {
		return Position{}, err
	}
	entry.Hash = hash
	name, maybePut := l.objectName(entry.Number), false // asked: an earlier put may have made the object, or may make it yet
	for wait := minWait; ; wait = min(2*wait, maxWait) {
		made, err := l.store.Put(ctx, name, bytes.NewReader(object), int64(len(object)))
		switch {
		case err == nil:
			entry.Seen = made
			if l.Slept(after, entry) {
				return l.confirmEntry(ctx, entry, nil)
			}
			return entry, nil
		case errors.Is(err, objects.ErrExists) && maybePut:
			return l.confirmEntry(ctx, entry, object)
		case errors.Is(err, objects.ErrExists):
			return Position{}, fmt.Errorf("%w: %s", ErrTaken, name)
		case errors.Is(err, objects.ErrNotMade) && !maybePut:
			return Position{}, err
		}
		maybePut = true
		if err := l.waitAfterError(ctx, wait, name, err); err != nil {
			return Position{}, err
		}
	}
}

// Slept reports whether an entry may have been put so long after the one before it was known to be the last that
// the log has gone on, and been cut, meanwhile (I5).
func (l *Log) Slept(before, put Position) bool {
	return before.Seen.IsZero() || put.Seen.IsZero() || put.Seen.Sub(before.Seen).Abs() >= l.grace/4
}

const minWait, maxWait = 50 * time.Millisecond, 2 * time.Second

// waitAfterError waits after an error of the store. The error is [ErrUnknown] if ctx has ended.
func (l *Log) waitAfterError(ctx context.Context, d time.Duration, name string, err error) error {
	if ctx.Err() == nil {
		l.sleep(ctx, d)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %s: %w", ErrUnknown, name, err)
	}
	return nil
}

// confirmEntry finds out whether an own entry is in the log (I5). object is that of the entry if another's may be in
// its place; nil means that it was put there.
func (l *Log) confirmEntry(ctx context.Context, entry Position, object []byte) (Position, error) {
	name := l.objectName(entry.Number)
	for wait := minWait; ; wait = min(2*wait, maxWait) {
		mine, last, err := l.checkOwnEntry(ctx, entry, object)
		switch {
		case err == nil && !mine:
			return Position{}, fmt.Errorf("%w: %s", ErrTaken, name)
		case err == nil && !last:
			entry.Seen = time.Time{}
			return entry, nil
		case err == nil:
			return entry, nil
		case errors.Is(err, objects.ErrNotFound):
			return Position{}, fmt.Errorf("%w: %s is cut", ErrUnknown, name)
		}
		if err := l.waitAfterError(ctx, wait, name, err); err != nil {
			return Position{}, err
		}
	}
}

// checkOwnEntry reports whether an own entry is in the log, and is its last. It may have been put in the place of one that
// was cut, and another's may have been put in its place when it was cut. The last entry of a log is never cut (I4),
// and the writer of an entry has read the one before it (I1): so the next entry decides, or a list without one.
// The error is [objects.ErrNotFound] if the place was cut.
func (l *Log) checkOwnEntry(ctx context.Context, entry Position, object []byte) (mine, last bool, err error) {
	mine = true
	if object != nil {
		h, err := l.readHead(ctx, entry.Number)
		if err != nil {
			return false, false, err
		}
		mine = h.isHeadOf(object)
	}
	listed, err := l.listEntries(ctx, entry.Number, 2) // after the entry was read (I6)
	switch {
	case err != nil:
		return false, false, err
	case len(listed) == 1 && listed[0].number == entry.Number:
		return mine, true, nil
	case len(listed) < 2 || listed[0].number != entry.Number || listed[1].number != entry.Number+1:
		return false, false, objects.ErrNotFound
	}
	next, err := l.readHead(ctx, entry.Number+1)
	return next.parent == entry.Hash, false, err
}

// Cut removes the entries before a number, as [Unneeded] decides. The entry of the number stays, or one after it,
// so that the newest of a log is never removed (I4).
func (l *Log) Cut(ctx context.Context, before uint64) (removed int, err error) {
	if before <= 1 {
		return 0, nil
	}
	kept, err := l.listEntries(ctx, before, 1)
	if err != nil {
		return 0, err
	}
	if len(kept) == 0 {
		return 0, fmt.Errorf("object %s is gone, and a checkpoint has more: %w", l.objectName(before), ErrFork)
	}
	for {
		entries, err := l.listEntries(ctx, 1, 1000)
		if err != nil || len(entries) == 0 {
			return removed, err
		}
		for _, e := range entries {
			if e.number >= before {
				return removed, nil
			}
			if err := l.store.Delete(ctx, l.objectName(e.number)); err != nil {
				return removed, err
			}
			removed++
		}
	}
}
