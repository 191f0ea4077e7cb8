package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// Journal is the log of changes that the index of a collection follows ([OpenIndex]). Invariants:
//
//  1. Entries are durable. A change is appended to the log first, and then applied to the index.
//  2. Other writers append entries too. A writer appends an entry only after the last entry that its index has.
//  3. An index applies every entry, in order, and nothing else.
//
// The collection's writer calls the methods, one at a time. Each method bounds its own time.
type Journal interface {
	// Append appends an entry after the last entry that the index has, and returns it. batches are the ids of the
	// requests in it. The error wraps [ErrTaken] if another entry is in its place, [storage.ErrOutcomeUnknown] if
	// the entry may or may not be in the log, and [collection.ErrUnknown] if the collection was removed.
	Append(ctx context.Context, after storage.Applied, batches []string, body []byte) (storage.Applied, error)
	// Read calls visit for each entry after a position, in order. An error of visit ends it.
	Read(ctx context.Context, after storage.Applied, visit func(entry storage.Applied, body []byte) error) error
	// Find returns the entry of a batch among those after an entry. A nil body means that none has it.
	Find(ctx context.Context, batch string, after uint64) (entry uint64, body []byte, err error)
	// ReportFailure reports that an entry could not be applied, and that no more will be. The log stays valid, but the
	// index has to be reopened or replaced.
	ReportFailure(err error)
}

var (
	// ErrTaken means that another writer has appended an entry after the last one that the index has.
	ErrTaken = errors.New("the next entry of the log is another's")
	// ErrLate means that a change was sent so long ago that the log cannot tell any more whether it was made.
	ErrLate = errors.New("the change was sent long ago: send it again, after a newer entry")
	// ErrUndecided means that the index has no dimension yet, and that no entry of its log sets one.
	ErrUndecided = errors.New("vectors for an index without a dimension")
)

// Batch identifies a change of a collection with a [Journal].
type Batch struct {
	ID string // "" means a random one
	// Sent says that the change was sent before, with an unknown outcome. It is then looked for in the log, however
	// long that takes. After is an entry that the log had before the change was first sent: the search begins there.
	// Even without Sent the change is looked for, or refused ([ErrLate]), if it may be in an entry whose batches are
	// not remembered.
	Sent  bool
	After uint64
	// Entry is set to the entry that has the change. If there was nothing to change, it is the last entry of the
	// state in which that was found.
	Entry uint64
}

// Follow applies the entries of the log that the index does not have yet.
func (c *Collection) Follow(ctx context.Context) error {
	r := &request{kind: acting}
	r.action = func(ctx context.Context) error {
		_, err := c.worker.followJournal(ctx)
		return err
	}
	return c.submit(ctx, r)
}

// WaitForSnapshots waits a few seconds, or until ctx ends, for open snapshots, whose searches would end when the
// collection is closed. Its caller makes sure that no new ones are taken.
func (c *Collection) WaitForSnapshots(ctx context.Context) {
	c.mu.Lock()
	o := c.opened
	c.mu.Unlock()
	if o != nil {
		waitForSnapshots(ctx, o)
	}
}

// LimitDocuments sets the limit of documents of a collection with a [Journal], nil for no limit. The limit is part of
// the entries of later additions.
func (c *Collection) LimitDocuments(maxDocuments *uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cfg.MaxDocuments = maxDocuments
}

// journal returns the log of the collection, nil if it has none.
func (w *worker) journal() Journal {
	if w.c.external == nil {
		return nil
	}
	return w.c.external.Journal
}

// commitChange applies a change to the index, after appending it to the log if there is one.
func (w *worker) commitChange(ctx context.Context, o *openedIndex, ch *change) (done effect, err error) {
	j := w.journal()
	if j == nil {
		return w.applyChange(ctx, o, o.ix.Change(), ch)
	}
	// Check that the log is not sealed.
	last, err := w.lastApplied(o)
	if err != nil {
		return done, err
	}
	if w.sealed {
		return done, w.removedError()
	}
	// Append the entry.
	if err := w.noteChosenIDs(o, ch); err != nil {
		return done, err
	}
	body, err := ch.encode()
	if err != nil {
		return done, err
	}
	ids := make([]string, len(ch.Batches))
	for i := range ids {
		ids[i] = ch.Batches[i].ID
	}
	w.behind = true // until the entry is applied
	next, err := j.Append(ctx, last, ids, body)
	if err != nil {
		w.sealed = errors.Is(err, collection.ErrUnknown)
		return done, err
	}
	// Apply it.
	w.appended = next.Sequence
	if done, err = w.applyEntry(ctx, o, next, ch); err == nil {
		w.behind = false
	}
	return done, w.skipErr // the entry stays in the log, even if the index skipped it
}

// removedError returns the error of changes after a [Seal].
func (w *worker) removedError() error {
	return fmt.Errorf("%w: %q was removed", collection.ErrUnknown, w.c.name)
}

// lastApplied returns the last entry that the index has.
func (w *worker) lastApplied(o *openedIndex) (last storage.Applied, err error) {
	snap, err := o.ix.Snapshot()
	if err != nil {
		return last, err
	}
	last, err = snap.Applied()
	return last, errors.Join(err, snap.Close())
}

// applyEntry applies an entry of the log. An entry that every index refuses is skipped, and w.skipErr says why. After
// another failure the collection takes no more changes.
func (w *worker) applyEntry(ctx context.Context, o *openedIndex, entry storage.Applied, ch *change) (effect, error) {
	e := o.ix.Entry(entry.Sequence).WithMark(entry.Mark)
	done, err := w.applyChange(ctx, o, e, ch)
	w.skipErr = nil
	switch {
	case errors.Is(err, index.ErrApplied): // the index has the entry: a later step of that transaction failed
		err = nil
	case isRefusal(err), w.fromOtherBase(ch) && errors.Is(err, index.ErrDimension): // its index had another dimension
		w.c.log.Error("an entry of the log cannot be applied, and is skipped", "entry", entry.Sequence, "error", err)
		w.skipErr = err
		err = e.Skip(ctx)
	}
	if err != nil {
		err = fmt.Errorf("entry %d of the log: %w", entry.Sequence, err)
		w.failJournal(err)
		return done, err
	}
	w.recent.addBatches(entry.Sequence, ch.Batches)
	return done, nil
}

// recentBatches remembers the batches of the last entries that were applied.
type recentBatches struct {
	entries map[string]uint64 // entry by batch id, nil until an entry is applied
	order   []string          // batch ids, the oldest first
	after   uint64            // all batches of entries after this one are remembered
}

// maxRecent is how many batches are remembered.
const maxRecent = 4096

// addBatches remembers the batches of an entry, and forgets the oldest beyond maxRecent.
func (m *recentBatches) addBatches(entry uint64, batches []outcome) {
	if m.entries == nil {
		m.entries, m.after = map[string]uint64{}, entry-1
	}
	for i := range batches {
		m.entries[batches[i].ID] = entry
		m.order = append(m.order, batches[i].ID)
	}
	for len(m.order) > maxRecent {
		m.after = max(m.after, m.entries[m.order[0]])
		delete(m.entries, m.order[0])
		m.order = m.order[1:]
	}
}

// refusals are errors that depend only on the index and the entry: every index that follows the log gives them.
var refusals = []error{
	index.ErrDuplicateID, index.ErrPassages, index.ErrTooMany, index.ErrOption,
	vectors.ErrID, vectors.ErrShape, vectors.ErrPayload, vectors.ErrFormat,
}

// isRefusal reports whether every index that follows the log refuses the entry with this error.
func isRefusal(err error) bool {
	return slices.ContainsFunc(refusals, func(e error) bool { return errors.Is(err, e) })
}

// failJournal marks the collection as damaged, because its index cannot follow the log any more.
func (w *worker) failJournal(err error) {
	w.c.mu.Lock()
	w.c.failure = fmt.Errorf("%w: %q: %w", collection.ErrDamaged, w.c.name, err)
	w.c.mu.Unlock()
	w.journal().ReportFailure(err)
}

// effect counts what a change did.
type effect struct {
	index.Affected     // documents that were deleted or whose fields were set
	evicted        int // documents beyond the limit that were deleted
}

// applyChange applies a change to the index in one transaction. All changes go through it: those of requests and those
// of the log.
func (w *worker) applyChange(ctx context.Context, o *openedIndex, e index.Entry, ch *change) (done effect, err error) {
	foreign := w.fromOtherBase(ch)
	// choose returns the documents to delete or to update. A change from an index with other ordinals names them by
	// ids.
	choose := func(snap *index.Snapshot) (chosen *roaring.Bitmap, err error) {
		if foreign {
			chosen, _, err = snap.OrdinalsOfIDs(ctx, ch.IDs)
			return chosen, err
		}
		return ch.chosen, nil
	}
	switch ch.Kind {
	case sealLog:
		w.sealed = true
		return done, e.Skip(ctx)
	case deleteDocuments:
		done.Affected, err = e.DeleteSelected(ctx, choose)
	case setFields:
		done.Affected, err = e.UpdateSelected(ctx, choose, ch.fields.WithNullRemoving(), ch.check)
	default:
		src, err := vectors.FromDocuments(ch.Dim, ch.docs)
		if err != nil {
			return done, err
		}
		report, err := e.Add(ctx, src, &index.AddOptions{
			Replace:      ch.Replace || foreign,
			MaxDocuments: ch.MaxDocuments,
			Threads:      w.c.store.opts.Threads,
			Memory:       w.c.store.opts.Memory,
		})
		if err != nil {
			return done, err
		}
		if done.evicted = report.Evicted; report.First != ch.First && !foreign {
			return done, fmt.Errorf("%w: documents have ordinals from %d, not %d",
				storage.ErrInternal, report.First, ch.First)
		}
	}
	return done, err
}

// followJournal applies the entries that other writers have appended, and returns their number.
func (w *worker) followJournal(ctx context.Context) (applied int, err error) {
	o, err := w.requireIndex()
	if err != nil {
		return 0, err
	}
	if err := w.c.Err(); err != nil {
		return 0, err
	}
	last, err := w.lastApplied(o)
	if err != nil {
		return 0, err
	}
	w.behind = true
	err = w.journal().Read(ctx, last, func(e storage.Applied, body []byte) error {
		ch, err := decodeChange(body)
		if err != nil {
			err = fmt.Errorf("entry %d of the log: %w", e.Sequence, err)
			w.failJournal(err)
			return err
		}
		if _, err := w.applyEntry(ctx, o, e, ch); err != nil {
			return err
		}
		applied++
		return nil
	})
	w.behind = err != nil
	return applied, err
}

// evictAfterAdd deletes the oldest documents beyond the limit after additions. It is needed when an entry adds more
// documents than the limit, since a transaction never evicts its own documents. A failure is only logged: the next
// addition evicts them.
func (w *worker) evictAfterAdd(ctx context.Context, group []*request) {
	maxDocuments := w.c.Config().MaxDocuments
	if group[0].kind != updating || maxDocuments == nil {
		return
	}
	err := w.evictOnce(ctx, group, *maxDocuments)
	for retries := 2; err != nil && retries > 0; retries-- {
		if _, err = w.followJournal(ctx); err == nil {
			err = w.evictOnce(ctx, group, *maxDocuments)
		}
	}
	if err != nil {
		w.c.log.Error("the oldest documents were not deleted", "error", err)
	}
}

// evictOnce appends an entry that deletes the oldest documents beyond the limit. Requests of the group then name that
// entry, so that readers of their change see no more documents than the limit.
func (w *worker) evictOnce(ctx context.Context, group []*request, maxDocuments uint64) error {
	o, snap, err := w.newestSnapshot()
	if err != nil {
		return err
	}
	ch := &change{changeHead: changeHead{Kind: deleteDocuments}, chosen: roaring.New()}
	if uint64(snap.Documents()) > maxDocuments {
		ch.chosen, err = snap.OldestBeyond(ctx, maxDocuments)
	}
	last, lastErr := snap.Applied()
	entry := last.Sequence
	if err = errors.Join(err, lastErr, snap.Close()); err == nil && !ch.chosen.IsEmpty() {
		_, err = w.commitChange(ctx, o, ch)
		entry = w.appended
	}
	for _, r := range group {
		if r.entry > 0 && err == nil { // the log has the request
			r.entry = max(r.entry, entry)
		}
	}
	return err
}
