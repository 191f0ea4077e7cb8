// Package journal keeps the log of one shard in an object store: entry n is an object that is put
// on the condition that there is none, so that the store decides which of several writers has n.
// docs/lab/cluster.md has the protocol, and the numbers of the invariants that comments here name.
package journal

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/plaid-ir/plaid/internal/parallel"
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
	store objects.Store
	log   string // the prefix of its entries, with the slash
	files string // that of its checkpoints
	grace time.Duration
	ahead int // how many entries are fetched at a time
	token func() [16]byte
	sleep func(ctx context.Context, d time.Duration)
}

// New returns the log of a shard of a collection, by the identity of that. Nothing is read.
func New(s objects.Store, collection string, shard int, o Options) *Log {
	l := &Log{
		store: s, log: fmt.Sprintf("data/%s/log/%04d/", collection, shard), files: fmt.Sprintf("data/%s/files/%04d/", collection, shard),
		grace: o.Grace, ahead: 8, token: newToken, sleep: sleep,
	}
	if l.grace <= 0 {
		l.grace = time.Hour
	}
	return l
}

// newToken makes entries of equal content differ, so that a writer knows its own.
func newToken() (t [16]byte) {
	_, _ = rand.Read(t[:])
	return t
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func (l *Log) name(number uint64) string { return fmt.Sprintf("%s%016x", l.log, number) }

// Append puts an entry after a position, and returns the position after it. batches are the ids
// by which [Log.Find] finds it. The caller has applied exactly the entries up to the position (I1).
//
// It asks the store until it knows what became of the entry or ctx ends. An entry is acknowledged
// at once only if the put was made soon after the position was known to be the end of the log; else
// a list shows first that the log has not gone on, and been cut, meanwhile (I5).
//
// Errors: [ErrTaken], after which the log does not have the entry and never will; [ErrUnknown]; that of
// ctx, or [objects.ErrNotMade], if nothing came of it.
func (l *Log) Append(ctx context.Context, after Position, batches []string, body []byte) (Position, error) {
	at := Position{Number: after.Number + 1}
	object, hash, err := encode(at.Number, after.Hash, l.token(), batches, body)
	if err != nil {
		return Position{}, err
	}
	if err := ctx.Err(); err != nil {
		return Position{}, err
	}
	at.Hash = hash
	name, asked := l.name(at.Number), false // asked: an earlier put may have made it, or may still
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		made, err := l.store.Put(ctx, name, bytes.NewReader(object), int64(len(object)))
		switch {
		case err == nil:
			at.Seen = made
			if !after.Seen.IsZero() && made.Sub(after.Seen).Abs() < l.grace/4 {
				return at, nil
			}
			return l.confirm(ctx, at, nil)
		case errors.Is(err, objects.ErrExists) && asked:
			return l.confirm(ctx, at, object)
		case errors.Is(err, objects.ErrExists):
			return Position{}, fmt.Errorf("%w: %s", ErrTaken, name)
		case errors.Is(err, objects.ErrNotMade) && !asked:
			return Position{}, err
		}
		asked = true
		if err := l.pause(ctx, wait, name, err); err != nil {
			return Position{}, err
		}
	}
}

const firstWait, lastWait = 50 * time.Millisecond, 2 * time.Second

// pause waits after an error of the store; when ctx has ended, what became of an entry is unknown.
func (l *Log) pause(ctx context.Context, d time.Duration, name string, err error) error {
	if ctx.Err() == nil {
		l.sleep(ctx, d)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %s: %w", ErrUnknown, name, err)
	}
	return nil
}

// confirm looks whether an own entry is in the log. It may have been put in the place of one that was cut,
// and another's may have been put in its place when it was cut. The last entry of a log is never cut, and
// whoever puts an entry has read the one before it: so the entry after this one decides, or a list that shows that
// there is none. object is that of the entry if what is in its place may be another's.
func (l *Log) confirm(ctx context.Context, at Position, object []byte) (Position, error) {
	name := l.name(at.Number)
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		mine, err := true, error(nil)
		if object != nil {
			var h head
			h, err = l.head(ctx, at.Number)
			mine = h.same(object)
		}
		var listed []listing
		if err == nil {
			listed, err = l.list(ctx, at.Number, 2) // after the entry was read
		}
		if err == nil && len(listed) == 2 && listed[0].number == at.Number && listed[1].number == at.Number+1 {
			var next head
			if next, err = l.head(ctx, at.Number+1); err == nil {
				mine, listed = next.parent == at.Hash, listed[:1]
				at.Seen = time.Time{}
			}
		}
		switch {
		case err == nil && (len(listed) != 1 || listed[0].number != at.Number) || errors.Is(err, objects.ErrNotFound):
			return Position{}, fmt.Errorf("%w: %s is cut", ErrUnknown, name)
		case err == nil && mine:
			return at, nil
		case err == nil:
			return Position{}, fmt.Errorf("%w: %s", ErrTaken, name)
		}
		if err := l.pause(ctx, wait, name, err); err != nil {
			return Position{}, err
		}
	}
}

// Read calls use for the entries after a position, in order, as far as there are any, and returns
// how far it came. An error of use ends it. known is an entry that the log has, such as one that was
// announced, or 0: it saves a list.
//
// An entry is used when the one after it names it, or when a list that is made after it was read shows
// that it is the last (I6): what a writer that slept has put in the place of an entry that was cut
// is never used.
//
// Errors: [ErrBehind], [ErrFork].
func (l *Log) Read(ctx context.Context, after Position, known uint64, use func(Entry) error) (Position, error) {
	at, held, missed := after, (*Entry)(nil), 0 // held is read, and not used
	last := func() Position {
		if held != nil {
			return held.Position
		}
		return at
	}
	for {
		var next []listing
		if known > last().Number && known-last().Number <= 4 {
			for n := last().Number + 1; n <= known; n++ {
				next = append(next, listing{number: n, size: math.MaxInt32})
			}
		} else {
			var err error
			if next, err = l.list(ctx, max(last().Number, 1), 1000); err != nil {
				return at, err
			}
			if len(next) == 0 {
				if err := l.gone(ctx, at, last().Number); err != nil {
					return at, err
				}
			}
			if len(next) > 0 && next[0].number == last().Number {
				next = next[1:]
			}
			if len(next) == 0 {
				if held == nil {
					return at, nil
				}
				if err := use(*held); err != nil {
					return at, err
				}
				return held.Position, nil
			}
			for i, e := range next {
				if want := last().Number + 1 + uint64(i); e.number != want {
					next, known = next[:i], 0
					if i == 0 {
						return at, l.broken(ctx, at, fmt.Errorf("object %s is missing", l.name(want)))
					}
					break
				}
			}
		}
		for e, err := range l.fetch(ctx, next) {
			if errors.Is(err, objects.ErrNotFound) && missed < 2 {
				missed++
				known = 0 // a list shows whether it was cut
				break
			}
			if errors.Is(err, objects.ErrNotFound) {
				return at, l.broken(ctx, at, err)
			}
			if errors.Is(err, ErrFork) {
				return at, l.broken(ctx, at, err)
			}
			if err != nil {
				return at, err
			}
			if e.parent != last().Hash {
				return at, l.broken(ctx, at, fmt.Errorf("object %s does not follow the entry before it that was read", l.name(e.Number)))
			}
			if held != nil {
				if err := use(*held); err != nil {
					return at, err
				}
				at = held.Position
			}
			held, missed = &e, 0
		}
	}
}

// gone returns why a list that has nothing from an entry on is not the end of the log. A network file system may
// show what is new later in lists than by its name.
func (l *Log) gone(ctx context.Context, at Position, number uint64) error {
	if number == 0 {
		return nil
	}
	_, err := l.head(ctx, number)
	if errors.Is(err, objects.ErrNotFound) {
		return l.broken(ctx, at, fmt.Errorf("object %s, the last of the log, is gone", l.name(number)))
	}
	return err
}

// broken is the error of a log that does not go on after a position. A break that a checkpoint
// covers is where the log was cut.
func (l *Log) broken(ctx context.Context, at Position, what error) error {
	all, err := l.checkpoints(ctx, l.files)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(c Checkpoint) bool { return c.Number > at.Number }) {
		return fmt.Errorf("%w: entry %d of %s: %w", ErrBehind, at.Number, l.log, what)
	}
	what = fmt.Errorf("%s: %w", strings.TrimPrefix(what.Error(), ErrFork.Error()+": "), ErrFork)
	return fmt.Errorf("%w. No checkpoint has what follows entry %d: restore the object from a version or a backup of the store", what, at.Number)
}

// fetch reads entries, some at a time.
func (l *Log) fetch(ctx context.Context, of []listing) iter.Seq2[Entry, error] {
	if l.ahead <= 1 || len(of) <= 1 {
		return func(yield func(Entry, error) bool) {
			for _, e := range of {
				if !yield(l.entry(ctx, e)) {
					return
				}
			}
		}
	}
	in := func(yield func(listing, error) bool) {
		for _, e := range of {
			if !yield(e, nil) {
				return
			}
		}
	}
	return parallel.Map(ctx, in, l.ahead, func(e listing) int { return int(min(max(e.size, 128<<10), math.MaxInt32)) }, func(e listing) (Entry, error) { return l.entry(ctx, e) })
}

func (l *Log) entry(ctx context.Context, of listing) (Entry, error) {
	name := l.name(of.number)
	b, found, err := objects.Read(ctx, l.store, name, maxObject)
	if errors.Is(err, objects.ErrDamaged) {
		return Entry{}, fmt.Errorf("%w: %w", ErrFork, err)
	}
	if err != nil {
		return Entry{}, err
	}
	e, err := decode(b)
	if err == nil && e.Number != of.number {
		err = fmt.Errorf("it is entry %d", e.Number)
	}
	if err != nil {
		return Entry{}, fmt.Errorf("%w: object %s: %w", ErrFork, name, err)
	}
	e.Made, e.Seen = found.Made, found.Made
	return e, nil
}

// head reads the head of an entry.
func (l *Log) head(ctx context.Context, number uint64) (head, error) {
	name := l.name(number)
	for size := int64(headRead); ; {
		b, found, err := objects.ReadRange(ctx, l.store, name, 0, size)
		if err != nil {
			return head{}, err
		}
		h, need, err := parseHead(b)
		if err == nil && h.number != number {
			err = fmt.Errorf("it is entry %d", h.number)
		}
		if errors.Is(err, errShort) && int64(need) > size && size < found.Size {
			size = int64(need)
			continue
		}
		if err != nil {
			return head{}, fmt.Errorf("%w: object %s: %w", ErrFork, name, err)
		}
		return h, nil
	}
}

// listing is an entry as a list shows it.
type listing struct {
	number uint64
	size   int64
}

// list returns the entries from a number on, which is not 0; limit is as in [objects.Store].
func (l *Log) list(ctx context.Context, from uint64, limit int) ([]listing, error) {
	found, err := l.store.List(ctx, l.log, l.name(from-1), limit)
	if err != nil {
		return nil, err
	}
	of := make([]listing, len(found))
	for i, e := range found {
		number, ok := hexNumber(strings.TrimPrefix(e.Name, l.log))
		if !ok || number == 0 {
			return nil, fmt.Errorf("%w: object %s is no entry: remove it", ErrFork, e.Name)
		}
		of[i] = listing{number, e.Size}
	}
	return of, nil
}

// hexNumber reads a number as it is in names.
func hexNumber(s string) (uint64, bool) {
	n, err := strconv.ParseUint(s, 16, 64)
	return n, err == nil && fmt.Sprintf("%016x", n) == s
}

// End returns the number of the last entry, at the cost of one list of what follows a position.
// The error is [ErrBehind] if the entry after the position is missing.
func (l *Log) End(ctx context.Context, after Position) (uint64, error) {
	of, err := l.list(ctx, max(after.Number, 1), 0)
	if err != nil {
		return 0, err
	}
	end := after.Number
	for _, e := range of {
		if e.number > end+1 {
			return 0, l.broken(ctx, after, fmt.Errorf("object %s is missing", l.name(end+1)))
		}
		end = e.number
	}
	if len(of) == 0 {
		return end, l.gone(ctx, after, end)
	}
	return end, nil
}

// Last returns the last entry of the log, which is never stale; the zero Entry if there is none.
func (l *Log) Last(ctx context.Context) (Entry, error) {
	for try := 0; ; try++ {
		all, err := l.checkpoints(ctx, l.files)
		if err != nil {
			return Entry{}, err
		}
		covered := uint64(0) // the newest entry stays, so that it is not before that
		for _, c := range all {
			covered = max(covered, c.Number)
		}
		of, err := l.list(ctx, max(covered, 1), 0)
		switch {
		case err != nil:
			return Entry{}, err
		case len(of) == 0 && covered > 0:
			return Entry{}, fmt.Errorf("object %s is gone, and a checkpoint has it: %w", l.name(covered), ErrFork)
		case len(of) == 0:
			return Entry{}, nil
		}
		e, err := l.entry(ctx, of[len(of)-1])
		if !errors.Is(err, objects.ErrNotFound) || try > 1 { // else it was cut meanwhile
			return e, err
		}
	}
}

// Cut removes the entries before a number, of which a checkpoint that is older
// than the grace has all: [Unneeded] decides that. The entry of the number stays, or one after it, so that the
// newest of a log is never removed (I4).
func (l *Log) Cut(ctx context.Context, before uint64) (removed int, err error) {
	if before <= 1 {
		return 0, nil
	}
	stay, err := l.list(ctx, before, 1)
	if err == nil && len(stay) == 0 {
		err = fmt.Errorf("object %s is gone, and a checkpoint has more: %w", l.name(before), ErrFork)
	}
	for err == nil {
		var of []listing
		if of, err = l.list(ctx, 1, 1000); err != nil {
			return removed, err
		}
		for _, e := range of {
			if e.number >= before {
				return removed, nil
			}
			if err := l.store.Delete(ctx, l.name(e.number)); err != nil {
				return removed, err
			}
			removed++
		}
	}
	return removed, err
}
