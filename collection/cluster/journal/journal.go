// Package journal keeps the log of one shard in an object store. Entry n is an object that is put only if it does not
// exist, so the store decides which of several writers gets number n. docs/lab/cluster.md has the protocol and its
// invariants. These concern the log, and comments here name them:
//
//	I1  one entry per number: it is put by a writer that has applied the entries before it
//	I2  a chain: an entry contains the hash of its predecessor; a gap or a fork is an error
//	I4  what may be cut: never the newest entry, and others only if two checkpoints have them
//	I5  a writer that slept: it reads a list before it acknowledges an entry
//	I6  the end of a log: only a list that was made after an entry was read shows that the entry is the last
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
	// ErrTaken means that another writer has the next number. Read its entry, and append after it.
	ErrTaken = errors.New("the next entry of the log is another's")
	// ErrBehind means that the log was cut after the position, and that a later checkpoint exists. Start again from the
	// newest checkpoint.
	ErrBehind = errors.New("the log begins after this position")
	// ErrFork means that an entry does not follow the one before it, and that no checkpoint covers both (I2).
	ErrFork = errors.New("the log is forked or damaged")
	// ErrTooLarge means that the body is larger than [MaxBody]. Nothing was sent to the store.
	ErrTooLarge = errors.New("an entry is too large")
	// ErrUnknown means that the store gave no answer: the entry may be in the log, now or later.
	ErrUnknown = errors.New("it is not known whether the log has the entry")
)

// Position is the place after an entry. The zero Position is the beginning of a log.
type Position struct {
	Number uint64 `json:"number"`
	Hash   Hash   `json:"hash"` // of the entry's object
	// Seen is a time, by the clock of the store, at which the entry was known to be the last one, such as when it was
	// put. Zero means not known. See [Log.Append].
	Seen time.Time `json:"-"`
}

// Entry is an entry of a log.
type Entry struct {
	Position
	Batches []string  // ids of the batches in it
	Body    []byte    // as it was passed to Append
	Made    time.Time // when it was put, by the clock of the store
	parent  Hash      // hash of the previous entry
}

// Options are the options of a log. The zero value is a good choice.
type Options struct {
	// Grace is how long entries and checkpoints stay after they are no longer needed. 0 means an hour.
	Grace time.Duration
}

// Log is the log of a shard. It is safe for concurrent use.
type Log struct {
	store       objects.Store
	logPrefix   string // begins the names of entries; it ends with a slash
	filesPrefix string // begins the names of checkpoints
	grace       time.Duration
	readAhead   int // entries that are fetched concurrently
	token       func() [16]byte
	sleep       func(ctx context.Context, d time.Duration)
}

// New returns the log of a shard of a collection, which its id names. It reads nothing.
func New(s objects.Store, collection string, shard int, o Options) *Log {
	return &Log{
		store:       s,
		logPrefix:   fmt.Sprintf("data/%s/log/%04d/", collection, shard),
		filesPrefix: fmt.Sprintf("data/%s/files/%04d/", collection, shard),
		grace:       cmp.Or(o.Grace, time.Hour),
		readAhead:   8,
		token:       newToken,
		sleep:       sleepFor,
	}
}

// newToken returns a random token, which makes entries with equal content differ, so that a writer recognizes its own.
func newToken() (t [16]byte) {
	_, _ = rand.Read(t[:])
	return t
}

// sleepFor waits for a time, or until ctx ends.
func sleepFor(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// objectName returns the name of the object of an entry.
func (l *Log) objectName(number uint64) string { return fmt.Sprintf("%s%016x", l.logPrefix, number) }

// Append puts an entry after a position, and returns the position after it. [Log.Find] finds the entry by the ids in
// batches. The caller must have applied exactly the entries up to the position (I1).
//
// Append tries until the outcome is known or ctx ends. If the writer may have slept ([Log.MayHaveSlept]), it reads a
// list before it acknowledges the entry (I5).
//
// Errors: [ErrTaken], after which the log does not have the entry and never will; [ErrUnknown]; and if nothing was put,
// [objects.ErrNotMade] or that of ctx.
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
	// maybePut says that an earlier try may have put the object, or may still put it.
	name, maybePut := l.objectName(entry.Number), false
	for wait := minWait; ; wait = min(2*wait, maxWait) {
		made, err := l.store.Put(ctx, name, bytes.NewReader(object), int64(len(object)))
		switch {
		case err == nil:
			entry.Seen = made
			if l.MayHaveSlept(after, entry) {
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

// MayHaveSlept reports whether an entry may have been put so long after the previous entry was known to be the last
// that the log has gone on, and has been cut, in between (I5).
func (l *Log) MayHaveSlept(before, put Position) bool {
	return before.Seen.IsZero() || put.Seen.IsZero() || put.Seen.Sub(before.Seen).Abs() >= l.grace/4
}

const minWait, maxWait = 50 * time.Millisecond, 2 * time.Second

// waitAfterError waits after an error of the store. It returns [ErrUnknown] if ctx has ended.
func (l *Log) waitAfterError(ctx context.Context, d time.Duration, name string, err error) error {
	if ctx.Err() == nil {
		l.sleep(ctx, d)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %s: %w", ErrUnknown, name, err)
	}
	return nil
}

// confirmEntry finds out whether the writer's own entry is in the log (I5). object is the entry's object if another
// writer's object may be in its place. A nil object means that the entry was certainly put there.
func (l *Log) confirmEntry(ctx context.Context, entry Position, object []byte) (Position, error) {
	name := l.objectName(entry.Number)
	for wait := minWait; ; wait = min(2*wait, maxWait) {
		isOwn, last, err := l.checkOwnEntry(ctx, entry, object)
		switch {
		case err == nil && !isOwn:
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

// checkOwnEntry reports whether the writer's own entry is in the log, and whether it is the last one.
//
// A name alone does not tell: the entry may have been put in the place of an entry that was cut, or another writer's
// entry may have been put in its place after it was cut. But the last entry of a log is never cut (I4), and the writer
// of an entry has read the previous one (I1). So the next entry decides by its parent hash, or a list that has none.
// The error is [objects.ErrNotFound] if the place was cut.
func (l *Log) checkOwnEntry(ctx context.Context, entry Position, object []byte) (isOwn, last bool, err error) {
	isOwn = true
	if object != nil {
		h, err := l.readHead(ctx, entry.Number)
		if err != nil {
			return false, false, err
		}
		isOwn = h.isHeadOf(object)
	}
	listed, err := l.listEntries(ctx, entry.Number, 2) // after the entry was read (I6)
	switch {
	case err != nil:
		return false, false, err
	case len(listed) == 1 && listed[0].number == entry.Number:
		return isOwn, true, nil
	case len(listed) < 2 || listed[0].number != entry.Number || listed[1].number != entry.Number+1:
		return false, false, objects.ErrNotFound
	}
	next, err := l.readHead(ctx, entry.Number+1)
	return next.parent == entry.Hash, false, err
}

// Cut removes the entries before a number, as [SelectRemovable] decides. It requires that an entry with that number or
// a later one exists, so that the newest entry of a log is never removed (I4).
func (l *Log) Cut(ctx context.Context, before uint64) (removed int, err error) {
	if before <= 1 {
		return 0, nil
	}
	kept, err := l.listEntries(ctx, before, 1)
	if err != nil {
		return 0, err
	}
	if len(kept) == 0 {
		return 0, fmt.Errorf("object %s is missing, and a checkpoint has later entries: %w",
			l.objectName(before), ErrFork)
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
