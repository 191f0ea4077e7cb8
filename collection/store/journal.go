package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// Journal is the log of changes that the index of a collection follows ([Opened]). Its entries are
// durable: each change is put into it first and then applied to the index, and other writers put
// entries as well. The writer of the collection calls its methods, one at a time. They bound their
// time themselves.
type Journal interface {
	// Append puts an entry after the last one that the index has, and returns it. batches are the
	// ids of the requests in it. The error wraps [ErrTaken] if another entry is there,
	// [storage.ErrOutcomeUnknown] if the entry may or may not be there, and [collection.ErrUnknown]
	// if the log was removed.
	Append(ctx context.Context, after storage.Applied, batches []string, body []byte) (storage.Applied, error)
	// Read calls use for each entry that follows, in order; an error of use ends it.
	Read(ctx context.Context, after storage.Applied, use func(at storage.Applied, body []byte) error) error
	// Find looks for the entry of a batch after an entry; a nil body means that there is none.
	Find(ctx context.Context, batch string, after uint64) (entry uint64, body []byte, err error)
	// Failed says that an entry could not be applied, and that no more are. The log stands; the
	// index is to be opened again, or made again.
	Failed(err error)
}

var (
	// ErrTaken: the log has another entry at the place of one that was to be put.
	ErrTaken = errors.New("the next entry of the log is another's")
	// ErrLate: a change was sent so long ago that it is not known whether it was done since.
	ErrLate = errors.New("the change was sent long ago: send it again, after a newer entry")
	// ErrUndecided: the index has no dimension yet, and an entry of its log gives it none.
	ErrUndecided = errors.New("vectors for an index without a dimension")
)

// Batch identifies a change, for collections with a [Journal].
type Batch struct {
	ID string // "": one at random
	// After is an entry that the log had before the change was sent first. If the batches of later
	// entries are not all known, the change is looked for in the log, or refused ([ErrLate]). Sent says
	// that it was sent before, with an unknown outcome: it is then looked for, however long that takes.
	Sent  bool
	After uint64
	// Entry is set to the entry that has the change; if there was nothing to change, to the last
	// entry of the state that shows this.
	Entry uint64
}

// Follow applies the entries of the log that the index lacks.
func (c *Collection) Follow(ctx context.Context) error {
	r := &request{kind: acting}
	r.action = func(ctx context.Context) error {
		_, err := c.worker.followJournal(ctx)
		return err
	}
	return c.submit(ctx, r)
}

// WaitForSnapshots waits a while, or until ctx ends, for open views: their searches end when the collection is
// closed. Its caller has no more taken.
func (c *Collection) WaitForSnapshots(ctx context.Context) {
	c.mu.Lock()
	o := c.opened
	c.mu.Unlock()
	if o != nil {
		waitForSnapshots(ctx, o)
	}
}

// LimitDocuments sets the largest number of documents of a collection with a [Journal]; nil means no limit. The
// entries of later additions have it.
func (c *Collection) LimitDocuments(most *uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cfg.MaxDocuments = most
}

// journal is nil for a collection without one.
func (w *worker) journal() Journal {
	if w.c.external == nil {
		return nil
	}
	return w.c.external.Journal
}

// commitChange puts a change into the log, where there is one, and applies it.
func (w *worker) commitChange(ctx context.Context, o *openedIndex, ch *change) (done effect, err error) {
	j := w.journal()
	if j == nil {
		return w.applyChange(ctx, o, o.ix.Change(), ch)
	}
	last, err := w.lastApplied(o)
	if err != nil {
		return done, err
	}
	if w.sealed {
		return done, w.removedError()
	}
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
	w.appended = next.Sequence
	if done, err = w.applyEntry(ctx, o, next, ch); err == nil {
		w.behind = false
	}
	return done, w.skipErr // the entry stands, also if it was not applied
}

// removedError is the error of changes after a [Seal].
func (w *worker) removedError() error {
	return fmt.Errorf("%w: %q was removed", collection.ErrUnknown, w.c.name)
}

// lastApplied is the last entry that the index has.
func (w *worker) lastApplied(o *openedIndex) (last storage.Applied, err error) {
	snap, err := o.ix.Snapshot()
	if err != nil {
		return last, err
	}
	last, err = snap.Applied()
	return last, errors.Join(err, snap.Close())
}

// applyEntry applies an entry of the log. If that fails the collection takes no more changes.
func (w *worker) applyEntry(ctx context.Context, o *openedIndex, entry storage.Applied, ch *change) (effect, error) {
	e := o.ix.Entry(entry.Sequence).Marked(entry.Mark)
	done, err := w.applyChange(ctx, o, e, ch)
	w.skipErr = nil
	switch {
	case errors.Is(err, index.ErrApplied): // by a change that failed after that
		err = nil
	case isRefusal(err), w.fromOtherBase(ch) && errors.Is(err, index.ErrDimension):
		w.c.log.Error("an entry of the log cannot be done, and is passed over", "entry", entry.Sequence, "error", err)
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

// recentBatches are the batches of the last entries that were applied.
type recentBatches struct {
	entries map[string]uint64 // of each batch
	order   []string
	after   uint64 // the batches of all later entries are there
}

// maxRecent is the number of batches that are remembered.
const maxRecent = 4096

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

// refusals are errors that follow from the index and the entry alone: each index that follows the log has them.
var refusals = []error{
	index.ErrDuplicateID, index.ErrPassages, index.ErrTooMany, index.ErrOption,
	vectors.ErrID, vectors.ErrShape, vectors.ErrPayload, vectors.ErrFormat,
}

func isRefusal(err error) bool {
	return slices.ContainsFunc(refusals, func(e error) bool { return errors.Is(err, e) })
}

// failJournal ends the changes of a collection that cannot follow its log.
func (w *worker) failJournal(err error) {
	w.c.mu.Lock()
	w.c.failure = fmt.Errorf("%w: %q: %w", collection.ErrDamaged, w.c.name, err)
	w.c.mu.Unlock()
	w.journal().Failed(err)
}

// effect is the effect of a change.
type effect struct {
	index.Affected
	evicted int
}

// applyChange does a change to the index, in one transaction. All changes come here: those of requests,
// and entries of a log.
func (w *worker) applyChange(ctx context.Context, o *openedIndex, e index.Entry, ch *change) (done effect, err error) {
	foreign := w.fromOtherBase(ch)
	choose := func(snap *index.Snapshot) (chosen *roaring.Bitmap, err error) {
		if foreign {
			chosen, _, err = snap.Named(ctx, ch.IDs)
			return chosen, err
		}
		return ch.chosen, nil
	}
	switch ch.Kind {
	case sealLog:
		w.sealed = true
		return done, e.Skip(ctx)
	case deleteDocuments:
		done.Affected, err = e.DeleteChosen(ctx, choose)
	case setFields:
		done.Affected, err = e.UpdateChosen(ctx, choose, ch.fields.NullRemoves(), ch.check)
	default:
		src, err := vectors.FromDocuments(ch.Dim, ch.docs)
		if err != nil {
			return done, err
		}
		report, err := e.Add(ctx, src, &index.AddOptions{
			Replace: ch.Replace || foreign, MaxDocuments: ch.MaxDocuments, Threads: w.c.store.opts.Threads, Memory: w.c.store.opts.Memory,
		})
		if err != nil {
			return done, err
		}
		if done.evicted = report.Evicted; report.First != ch.First && !foreign {
			return done, fmt.Errorf("%w: documents have ordinals from %d, not %d", storage.ErrInternal, report.First, ch.First)
		}
	}
	return done, err
}

// followJournal applies the entries that other writers have put, and returns their number.
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

// runLogged does requests of a collection with a journal by do, until they are decided at the end of
// the log: a request that is refused, or finds nothing to change, may lack entries of others.
func (w *worker) runLogged(ctx context.Context, group []*request, do func([]*request) int) (n int) {
	if _, err := w.requireIndex(); err != nil { // there is always an index
		return failGroup(group[:1], err)
	}
	for _, r := range group {
		if r.batch.ID == "" { // it cannot have been sent before
			r.batch.ID, r.batch.After = rand.Text(), math.MaxUint64
		}
	}
	if w.behind {
		if _, err := w.followJournal(ctx); err != nil {
			return failGroup(group, err)
		}
	}
	for {
		// Requests that the log has already are answered.
		found, err := w.answerFromLog(ctx, group)
		if group = group[:found]; err != nil {
			return failGroup(group, err)
		}
		if w.sealed {
			return failGroup(group, w.removedError())
		}
		// The others, as many as fit into an entry.
		w.appended = 0
		if n = do(group); w.appended > 0 {
			return n
		}
		group = group[:n]
		if w.sealed {
			return failGroup(group, w.removedError())
		}
		undecided, taken := false, false
		for _, r := range group {
			if errors.Is(r.err, storage.ErrOutcomeUnknown) {
				return n
			}
			undecided = undecided || r.entry == 0
			taken = taken || errors.Is(r.err, ErrTaken)
		}
		if !undecided {
			return n
		}
		// Those without an entry are decided if the log has no more; else they are done again.
		applied, err := w.followJournal(ctx)
		if err != nil {
			return failGroup(group, err)
		}
		r := group[0]
		if applied == 0 && !taken && r.batch.Sent && (r.err == nil || refusalName(r.err) != "") {
			switch err := w.logNoChange(ctx, r); {
			case errors.Is(err, ErrTaken):
				taken = true
			case err != nil:
				r.err = err
				return n
			default:
				return n
			}
		}
		if applied == 0 && !taken {
			if last, err := w.lastEntry(); err == nil {
				for _, r := range group {
					r.decidedAt = last
				}
			}
			return n
		}
		for _, r := range group {
			if r.entry == 0 {
				r.err, r.receipt, r.affected = nil, collection.Receipt{}, index.Affected{}
			}
		}
	}
}

// failGroup gives an error to the requests of a group that have no entry.
func failGroup(group []*request, err error) (n int) {
	for _, r := range group {
		if r.entry == 0 {
			r.err = err
		}
	}
	return len(group)
}

// answerFromLog answers the requests of a group that the log has, and returns the number of those that can be done now: all,
// or those before the first that fails. An error is that of the first request of the group.
func (w *worker) answerFromLog(ctx context.Context, group []*request) (n int, err error) {
	for i, r := range group {
		err := w.findInLog(ctx, r)
		switch {
		case err == nil:
		case i > 0:
			return i, nil
		case errors.Is(err, ErrLate):
			return 1, err
		default:
			return 1, fmt.Errorf("%w: looking for what was sent before: %w", storage.ErrOutcomeUnknown, err)
		}
	}
	return len(group), nil
}

// maxLookback is the number of entries in which a request is looked for that does not say that it was sent before.
const maxLookback = 256

// lastEntry is the number of the last entry that the index has.
func (w *worker) lastEntry() (uint64, error) {
	o, err := w.requireIndex()
	if err != nil {
		return 0, err
	}
	last, err := w.lastApplied(o)
	return last.Sequence, err
}

// findInLog answers a request that the log has already (I11): it was sent again, and overtook the first one or followed
// one without an answer; or it comes late, from a socket of a process that slept for example. An entry that comes
// into the log after the last one of the index is found when the request's own is put there.
func (w *worker) findInLog(ctx context.Context, r *request) error {
	if r.entry > 0 {
		return nil
	}
	after, remembered := w.recent.entries[r.batch.ID]
	from, err := w.recent.after, error(nil)
	if w.recent.entries == nil {
		from, err = w.lastEntry()
	}
	switch {
	case err != nil:
		return err
	case remembered:
		after--
	case r.batch.After >= from: // it would be remembered
		return nil
	case !r.batch.Sent && from-r.batch.After > maxLookback:
		return fmt.Errorf("%w: it came after entry %d, and %d are here", ErrLate, r.batch.After, from)
	default:
		after = r.batch.After
	}
	entry, body, err := w.journal().Find(ctx, r.batch.ID, after)
	if err != nil || body == nil {
		return err
	}
	ch, err := decodeChange(body)
	if err == nil && !ch.answerRequest(r) {
		err = fmt.Errorf("entry %d of the log has no batch %q", entry, r.batch.ID)
	}
	if err != nil {
		return err
	}
	if _, err = w.followJournal(ctx); err == nil { // views have the change once it is answered
		r.entry = entry
	}
	return err
}

// evictAfterAdd deletes the oldest documents beyond the limit, after additions of more than may stay: an
// entry is one transaction, and evicts none of its own documents. A failure is only logged: the next
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

func (w *worker) evictOnce(ctx context.Context, group []*request, maxDocuments uint64) error {
	o, snap, err := w.newestSnapshot()
	if err != nil {
		return err
	}
	ch := &change{changeHead: changeHead{Kind: deleteDocuments}, chosen: roaring.New()}
	if uint64(snap.Documents()) > maxDocuments {
		ch.chosen, err = snap.Beyond(ctx, maxDocuments)
	}
	last, lastErr := snap.Applied()
	entry := last.Sequence
	if err = errors.Join(err, lastErr, snap.Close()); err == nil && !ch.chosen.IsEmpty() {
		_, err = w.commitChange(ctx, o, ch)
		entry = w.appended
	}
	for _, r := range group {
		if r.entry > 0 && err == nil { // readers of the change see no more documents than may stay
			r.entry = max(r.entry, entry)
		}
	}
	return err
}
