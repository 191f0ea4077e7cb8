package journal

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/storage/objects"
)

// Read calls visit for the entries after a position, in order, until there are no more. It returns the position after
// the last entry that was visited. An error of visit ends it. knownEntry is an entry that the log is known to have, for
// example from a hint, or 0: it saves a list.
//
// Errors: [ErrBehind], [ErrFork].
func (l *Log) Read(ctx context.Context, after Position, knownEntry uint64, visit func(Entry) error) (Position, error) {
	r := &reader{l: l, visit: visit, known: knownEntry, visited: after}
	for {
		next, err := r.nextEntries(ctx)
		if err == nil && len(next) == 0 { // the list shows that the pending entry is the last one (I6)
			err = r.visitPending()
			return r.visited, err
		}
		if err == nil {
			err = r.readEntries(ctx, next)
		}
		if err != nil {
			return r.visited, err
		}
	}
}

// reader is a running [Log.Read].
//
// It keeps the entry that it has read last pending until the next entry contains its hash, or a later list shows that
// it is the last one (I6). So it never visits a stale entry, which a writer that slept has put in the place of an entry
// that was cut.
type reader struct {
	l        *Log
	visit    func(Entry) error
	known    uint64   // an entry that the log is said to have. 0 means that a list is needed
	visited  Position // of the last visited entry
	pending  *Entry   // read after it, and not visited yet, or nil
	notFound int      // consecutive entries that were not found
}

// lastRead returns the position of the last entry that was read.
func (r *reader) lastRead() Position {
	if r.pending != nil {
		return r.pending.Position
	}
	return r.visited
}

// visitPending visits the pending entry.
func (r *reader) visitPending() error {
	if r.pending == nil {
		return nil
	}
	if err := r.visit(*r.pending); err != nil {
		return err
	}
	r.visited, r.pending = r.pending.Position, nil
	return nil
}

// nextEntries returns the entries to read next, none if the log has no more.
func (r *reader) nextEntries(ctx context.Context) ([]listedEntry, error) {
	// A few entries that are known to exist need no list.
	last := r.lastRead().Number
	if r.known > last && r.known-last <= maxUnlisted {
		var next []listedEntry
		for n := last + 1; n <= r.known; n++ {
			next = append(next, listedEntry{number: n, size: math.MaxInt32}) // the size is not known
		}
		return next, nil
	}
	next, err := r.l.listEntries(ctx, max(last, 1), 1000)
	if err != nil {
		return nil, err
	}
	if len(next) == 0 {
		return nil, r.l.checkLastExists(ctx, r.visited, last)
	}
	if next[0].number == last {
		next = next[1:]
	}
	// Read up to a gap. There the log was cut, or is damaged (I2).
	for i, e := range next {
		want := last + 1 + uint64(i)
		switch {
		case e.number == want:
		case i == 0:
			return nil, r.l.brokenError(ctx, r.visited, fmt.Errorf("object %s is missing", r.l.objectName(want)))
		default:
			r.known = 0
			return next[:i], nil
		}
	}
	return next, nil
}

// maxUnlisted is how many known entries are read without a list.
const maxUnlisted = 4

// readEntries reads entries, and visits all but the last. It returns early if a list has to show whether one was cut.
func (r *reader) readEntries(ctx context.Context, entries []listedEntry) error {
	for e, err := range r.l.fetchEntries(ctx, entries) {
		switch {
		case errors.Is(err, objects.ErrNotFound) && r.notFound < 2: // a hint was wrong, or the entry was cut meanwhile
			r.notFound++
			r.known = 0
			return nil
		case errors.Is(err, objects.ErrNotFound), errors.Is(err, ErrFork):
			return r.l.brokenError(ctx, r.visited, err)
		case err != nil:
			return err
		case e.parent != r.lastRead().Hash:
			return r.l.brokenError(ctx, r.visited,
				fmt.Errorf("object %s does not follow the entry before it that was read", r.l.objectName(e.Number)))
		}
		if err := r.visitPending(); err != nil {
			return err
		}
		r.pending, r.notFound = &e, 0
	}
	return nil
}

// checkLastExists is called when a list shows nothing from an entry on that should be the last of the log. It returns
// nil if the entry exists: a network file system may show new objects by name before it lists them.
func (l *Log) checkLastExists(ctx context.Context, after Position, number uint64) error {
	if number == 0 {
		return nil
	}
	_, err := l.readHead(ctx, number)
	if errors.Is(err, objects.ErrNotFound) {
		return l.brokenError(ctx, after, fmt.Errorf("object %s, the last of the log, is missing", l.objectName(number)))
	}
	return err
}

// brokenError returns the error of a log that does not continue after a position: [ErrBehind] if a checkpoint covers
// the gap, since the log was cut there, and [ErrFork] otherwise.
func (l *Log) brokenError(ctx context.Context, after Position, cause error) error {
	checkpoints, err := l.checkpoints(ctx, l.filesPrefix)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(checkpoints, func(c Checkpoint) bool { return c.Number > after.Number }) {
		return fmt.Errorf("%w: entry %d of %s: %w", ErrBehind, after.Number, l.logPrefix, cause)
	}
	return fmt.Errorf("%s: %w. No checkpoint has the entries after %d: restore the object from a version or a backup "+
		"of the store", strings.TrimPrefix(cause.Error(), ErrFork.Error()+": "), ErrFork, after.Number)
}

// fetchEntries reads entries, several concurrently.
func (l *Log) fetchEntries(ctx context.Context, entries []listedEntry) iter.Seq2[Entry, error] {
	in := func(yield func(listedEntry, error) bool) {
		for _, e := range entries {
			if !yield(e, nil) {
				return
			}
		}
	}
	memory := func(e listedEntry) int { return int(min(max(e.size, 128<<10), math.MaxInt32)) }
	read := func(e listedEntry) (Entry, error) { return l.ReadEntry(ctx, e.number) }
	return parallel.Map(ctx, in, min(l.readAhead, len(entries)), memory, read)
}

// ReadEntry reads the entry with a number. The error is [objects.ErrNotFound] if the log does not have it, or not any
// more.
func (l *Log) ReadEntry(ctx context.Context, number uint64) (Entry, error) {
	name := l.objectName(number)
	b, object, err := objects.Read(ctx, l.store, name, maxObject)
	if errors.Is(err, objects.ErrDamaged) {
		return Entry{}, fmt.Errorf("%w: %w", ErrFork, err)
	}
	if err != nil {
		return Entry{}, err
	}
	e, err := decode(b)
	if err == nil && e.Number != number {
		err = fmt.Errorf("it is entry %d", e.Number)
	}
	if err != nil {
		return Entry{}, fmt.Errorf("%w: object %s: %w", ErrFork, name, err)
	}
	e.Made, e.Seen = object.Made, object.Made
	return e, nil
}

// readHead reads the head of an entry.
func (l *Log) readHead(ctx context.Context, number uint64) (entryHead, error) {
	name := l.objectName(number)
	for size := int64(headReadBytes); ; {
		b, object, err := objects.ReadRange(ctx, l.store, name, 0, size)
		if err != nil {
			return entryHead{}, err
		}
		h, need, err := parseHead(b)
		if err == nil && h.number != number {
			err = fmt.Errorf("it is entry %d", h.number)
		}
		if errors.Is(err, errShort) && int64(need) > size && size < object.Size {
			size = int64(need)
			continue
		}
		if err != nil {
			return entryHead{}, fmt.Errorf("%w: object %s: %w", ErrFork, name, err)
		}
		return h, nil
	}
}

// listedEntry is an entry as a list shows it.
type listedEntry struct {
	number uint64
	size   int64
}

// listEntries lists the entries from a number on, which must not be 0. limit is that of [objects.Store].
func (l *Log) listEntries(ctx context.Context, from uint64, limit int) ([]listedEntry, error) {
	listed, err := l.store.List(ctx, l.logPrefix, l.objectName(from-1), limit)
	if err != nil {
		return nil, err
	}
	entries := make([]listedEntry, len(listed))
	for i, e := range listed {
		number, ok := hexNumber(strings.TrimPrefix(e.Name, l.logPrefix))
		if !ok || number == 0 {
			return nil, fmt.Errorf("%w: object %s is not an entry: remove it", ErrFork, e.Name)
		}
		entries[i] = listedEntry{number, e.Size}
	}
	return entries, nil
}

// hexNumber parses a number as names have it.
func hexNumber(s string) (uint64, bool) {
	n, err := strconv.ParseUint(s, 16, 64)
	return n, err == nil && fmt.Sprintf("%016x", n) == s
}

// End returns the number of the last entry. It lists the entries after a position once. The error is [ErrBehind] if the
// entry after the position is missing.
func (l *Log) End(ctx context.Context, after Position) (uint64, error) {
	entries, err := l.listEntries(ctx, max(after.Number, 1), 0)
	if err != nil {
		return 0, err
	}
	end := after.Number
	for _, e := range entries {
		if e.number > end+1 {
			return 0, l.brokenError(ctx, after, fmt.Errorf("object %s is missing", l.objectName(end+1)))
		}
		end = e.number
	}
	if len(entries) == 0 {
		return end, l.checkLastExists(ctx, after, end)
	}
	return end, nil
}

// Bytes returns the size of the entries after a number, at the cost of a list. Each entry counts at least minSize.
func (l *Log) Bytes(ctx context.Context, after uint64, minSize int64) (n int64, err error) {
	entries, err := l.listEntries(ctx, after+1, 0)
	for _, e := range entries {
		n += max(e.size, minSize)
	}
	return n, err
}

// Last returns the last entry of the log, or the zero Entry if the log is empty. It never returns a stale entry. If the
// entry is damaged or missing, the error is [ErrFork], and the Entry has only its number.
func (l *Log) Last(ctx context.Context) (Entry, error) {
	for try := 0; ; try++ {
		checkpoints, err := l.checkpoints(ctx, l.filesPrefix)
		if err != nil {
			return Entry{}, err
		}
		covered := uint64(0)
		for _, c := range checkpoints {
			covered = max(covered, c.Number)
		}
		entries, err := l.listEntries(ctx, max(covered, 1), 0)
		switch {
		case err != nil:
			return Entry{}, err
		case len(entries) == 0 && covered > 0: // the newest entry is never cut (I4)
			return Entry{Position: Position{Number: covered}},
				fmt.Errorf("object %s is missing, and a checkpoint has it: %w", l.objectName(covered), ErrFork)
		case len(entries) == 0:
			return Entry{}, nil
		}
		number := entries[len(entries)-1].number
		e, err := l.ReadEntry(ctx, number)
		if errors.Is(err, ErrFork) {
			e.Number = number
		}
		if !errors.Is(err, objects.ErrNotFound) || try > 1 { // otherwise it was cut meanwhile: list again
			return e, err
		}
	}
}

// Find looks for the entry of a batch among the entries with numbers in (after, upTo]. found is false if none has it.
//
// It reads the heads of the entries, and then makes sure that the first of them is in the log (I6). Entries are cut in
// order, so none of the others was cut either, or replaced by a stale one. The error is [ErrBehind] if one was cut.
func (l *Log) Find(ctx context.Context, batch string, after, upTo uint64) (entry uint64, found bool, err error) {
	if upTo <= after {
		return 0, false, nil
	}
	hasBatch := make([]bool, upTo-after)
	err = parallel.Do(ctx, len(hasBatch), l.readAhead, func(i int) error {
		h, err := l.readHead(ctx, after+1+uint64(i))
		hasBatch[i] = err == nil && slices.Contains(h.batches, batch)
		return err
	})
	i := slices.Index(hasBatch, true)
	if err == nil || i >= 0 {
		var first Entry
		if first, err = l.ReadEntry(ctx, after+1); err == nil {
			_, err = l.confirmEntry(ctx, first.Position, nil)
		}
	}
	switch {
	case errors.Is(err, objects.ErrNotFound), errors.Is(err, ErrTaken), errors.Is(err, ErrUnknown) && ctx.Err() == nil:
		return 0, false, fmt.Errorf("%w: %w", ErrBehind, err)
	case err != nil || i < 0:
		return 0, false, err
	}
	return after + 1 + uint64(i), true, nil
}
