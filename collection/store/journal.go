package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// Journal is the log of changes that the index of a collection follows ([Opened]). An entry that is
// in it is durable: each change is put into it first and then applied to the index, and others may
// put entries as well. Its methods are called by the collection's writer alone, one at a time. It
// bounds their time itself.
type Journal interface {
	// Append puts an entry after the last one that the index has, and returns the entry after which
	// the index then is. batches are the ids of the requests in it. The error wraps [ErrTaken] if
	// another entry is there, [storage.ErrOutcomeUnknown] if it may or may not be, and
	// [collection.ErrUnknown] if the log is no more.
	Append(ctx context.Context, after storage.Applied, batches []string, body []byte) (storage.Applied, error)
	// Read calls use for each entry that follows, in order; an error of use ends it.
	Read(ctx context.Context, after storage.Applied, use func(at storage.Applied, body []byte) error) error
	// Find looks for the entry of a batch among all after a number; the body is nil if there is
	// none.
	Find(ctx context.Context, batch string, after uint64) (entry uint64, body []byte, err error)
	// Failed says that the index has not taken an entry, and takes no more. What is in the log
	// stands; the index is to be opened again, or made again.
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

// Batch tells a change that is sent again from another one; only collections with a [Journal] use
// it.
type Batch struct {
	ID string // "": one at random
	// After is an entry that the log had before the change was sent first. If the batches of later ones
	// are not all known, it is looked for in the log, or refused ([ErrLate]). Sent says that it was sent
	// before, with an unknown outcome: it is then looked for, however long that takes.
	Sent  bool
	After uint64
	// Entry is set to the entry that has the change; if nothing was to be changed, to that of the state
	// of which this is so.
	Entry uint64
}

// Follow applies what the log has beyond the index.
func (c *Collection) Follow(ctx context.Context) error {
	r := &request{kind: acting}
	r.act = func(ctx context.Context) error {
		_, err := c.work.follow(ctx)
		return err
	}
	return c.do(ctx, r)
}

// Leave waits a while for views that are open, whose searches end when the collection is closed; less if
// ctx ends. Its caller lets none be taken any more.
func (c *Collection) Leave(ctx context.Context) {
	c.mu.Lock()
	o := c.opened
	c.mu.Unlock()
	if o != nil {
		waitViews(ctx, o)
	}
}

// SetMost changes how many documents stay of a collection with a [Journal]; nil: all. Later
// additions say so in the log.
func (c *Collection) SetMost(most *uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cfg.MaxDocuments = most
}

// journal is nil for a collection without one.
func (w *worker) journal() Journal {
	if w.c.given == nil {
		return nil
	}
	return w.c.given.Journal
}

// commit does a change: it puts it into the log, where there is one, and applies it.
func (w *worker) commit(ctx context.Context, o *opened, ch *change) (done applied, err error) {
	j := w.journal()
	if j == nil {
		return w.apply(ctx, o, o.ix.Change(), ch)
	}
	at, err := w.applied(o)
	if err != nil {
		return done, err
	}
	if w.sealed {
		return done, w.removed()
	}
	if err := w.name(o, ch); err != nil {
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
	w.behind = true // until the entry is applied, whatever comes between
	next, err := j.Append(ctx, at, ids, body)
	if err != nil {
		w.sealed = errors.Is(err, collection.ErrUnknown)
		return done, err
	}
	w.appended = next.Sequence
	if done, err = w.applyEntry(ctx, o, next, ch); err == nil {
		w.behind = false
	}
	return done, w.passed // else it stands, whatever becomes of the index
}

// removed is the error of changes after a [Seal].
func (w *worker) removed() error {
	return fmt.Errorf("%w: %q was removed", collection.ErrUnknown, w.c.name)
}

// applied is the last entry that the index has.
func (w *worker) applied(o *opened) (at storage.Applied, err error) {
	snap, err := o.ix.Snapshot()
	if err != nil {
		return at, err
	}
	at, err = snap.Applied()
	return at, errors.Join(err, snap.Close())
}

// applyEntry applies an entry of the log. If that fails the collection takes no more changes.
func (w *worker) applyEntry(ctx context.Context, o *opened, at storage.Applied, ch *change) (applied, error) {
	e := o.ix.Entry(at.Sequence).Marked(at.Mark)
	done, err := w.apply(ctx, o, e, ch)
	w.passed = nil
	switch {
	case errors.Is(err, index.ErrApplied): // by a change that failed after that
		err = nil
	case refused(err), w.foreign(ch) && errors.Is(err, index.ErrDimension):
		w.c.log.Error("an entry of the log cannot be done, and is passed over", "entry", at.Sequence, "error", err)
		w.passed = err
		err = e.Skip(ctx)
	}
	if err != nil {
		err = fmt.Errorf("entry %d of the log: %w", at.Sequence, err)
		w.broken(err)
		return done, err
	}
	w.recent.note(at.Sequence, ch.Batches)
	return done, nil
}

// recentBatches are those of the last entries that the index has taken, each with its entry.
type recentBatches struct {
	entries map[string]uint64
	order   []string
	after   uint64 // the batches of all later entries are there
}

// mostRecent is how many batches are remembered.
const mostRecent = 4096

func (m *recentBatches) note(entry uint64, batches []outcome) {
	if m.entries == nil {
		m.entries, m.after = map[string]uint64{}, entry-1
	}
	for i := range batches {
		m.entries[batches[i].ID] = entry
		m.order = append(m.order, batches[i].ID)
	}
	for len(m.order) > mostRecent {
		m.after = max(m.after, m.entries[m.order[0]])
		delete(m.entries, m.order[0])
		m.order = m.order[1:]
	}
}

// refused reports whether an error follows from the index and the entry alone, so that all who
// follow the log have it.
func refused(err error) bool {
	for _, e := range []error{
		index.ErrDuplicateID, index.ErrPassages, index.ErrTooMany, index.ErrOption,
		vectors.ErrID, vectors.ErrShape, vectors.ErrPayload, vectors.ErrFormat,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// broken ends the changes of a collection that cannot follow its log.
func (w *worker) broken(err error) {
	w.c.mu.Lock()
	w.c.fault = fmt.Errorf("%w: %q: %w", collection.ErrDamaged, w.c.name, err)
	w.c.mu.Unlock()
	w.journal().Failed(err)
}

// applied says what a change did.
type applied struct {
	index.Affected
	evicted int
}

// apply does a change to the index, in one transaction. All changes come here: those of requests,
// and entries of a log.
func (w *worker) apply(ctx context.Context, o *opened, e index.Entry, ch *change) (done applied, err error) {
	foreign := w.foreign(ch)
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
			Replace: ch.Replace || foreign, MaxDocuments: ch.MaxDocuments, Threads: w.c.s.o.Threads, Memory: w.c.s.o.Memory,
		})
		if err != nil {
			return done, err
		}
		if done.evicted = report.Evicted; report.First != ch.First && !foreign {
			err = fmt.Errorf("%w: documents have ordinals from %d, not %d", storage.ErrInternal, report.First, ch.First)
		}
		return done, err
	}
	return done, err
}

// follow applies the entries that others have put. It returns how many came.
func (w *worker) follow(ctx context.Context) (came int, err error) {
	o, err := w.nonEmpty()
	if err != nil {
		return 0, err
	}
	if err := w.c.Err(); err != nil {
		return 0, err
	}
	at, err := w.applied(o)
	if err != nil {
		return 0, err
	}
	w.behind = true
	err = w.journal().Read(ctx, at, func(at storage.Applied, body []byte) error {
		ch, err := decodeChange(body)
		if err != nil {
			err = fmt.Errorf("entry %d of the log: %w", at.Sequence, err)
			w.broken(err)
			return err
		}
		if _, err := w.applyEntry(ctx, o, at, ch); err != nil {
			return err
		}
		came++
		return nil
	})
	w.behind = err != nil
	return came, err
}

// logged does requests of a collection with a journal by do, until they are decided at the end of
// the log: what is refused, or finds nothing to change, may be so because entries are missing here.
func (w *worker) logged(ctx context.Context, group []*request, do func([]*request) int) (n int) {
	o, err := w.nonEmpty()
	if err != nil { // there is always an index
		group[0].err = err
		return 1
	}
	fail := func(rs []*request, err error) int {
		for _, r := range rs {
			if r.entry == 0 {
				r.err = err
			}
		}
		return len(rs)
	}
	for _, r := range group {
		if r.batch.ID == "" { // it cannot have been sent before
			r.batch.ID, r.batch.After = rand.Text(), math.MaxUint64
		}
	}
	if w.behind {
		if _, err := w.follow(ctx); err != nil {
			return fail(group, err)
		}
	}
	for {
		for i, r := range group {
			err := w.find(ctx, r)
			if err == nil {
				continue
			}
			if i == 0 && errors.Is(err, ErrLate) {
				return fail(group[:1], err)
			}
			if i == 0 {
				return fail(group[:1], fmt.Errorf("%w: looking for what was sent before: %w", storage.ErrOutcomeUnknown, err))
			}
			group = group[:i]
			break
		}
		if w.sealed {
			return fail(group, w.removed())
		}
		w.appended = 0
		if n = do(group); w.appended > 0 {
			return n
		}
		if w.sealed {
			return fail(group[:n], w.removed())
		}
		open, taken := false, false
		for _, r := range group[:n] {
			if errors.Is(r.err, storage.ErrOutcomeUnknown) {
				return n
			}
			open = open || r.entry == 0
			taken = taken || errors.Is(r.err, ErrTaken)
		}
		if !open {
			return n
		}
		came, err := w.follow(ctx)
		if err != nil {
			return fail(group[:n], err)
		}
		r := group[0]
		if came == 0 && !taken && r.batch.Sent && (r.err == nil || errors.Is(r.err, index.ErrDuplicateID)) {
			switch err := w.noteNothing(ctx, r); {
			case errors.Is(err, ErrTaken):
				taken = true
			case err != nil:
				r.err = err
				return n
			default:
				return n
			}
		}
		if came == 0 && !taken {
			at, err := w.applied(o)
			for _, r := range group[:n] {
				if err == nil {
					r.decided = at.Sequence
				}
			}
			return n
		}
		for _, r := range group[:n] {
			if r.entry == 0 {
				r.err, r.receipt, r.affected = nil, collection.Receipt{}, index.Affected{}
			}
		}
	}
}

// mostLooked is in how many entries a request is looked for that does not say that it was sent before.
const mostLooked = 256

// opened is the last entry that the index has.
func (w *worker) opened() (uint64, error) {
	o, err := w.nonEmpty()
	if err != nil {
		return 0, err
	}
	at, err := w.applied(o)
	return at.Sequence, err
}

// find answers a request that the log has already: it was sent again and overtook the first of its
// kind, or that had no answer; or it came late itself, from a socket of a process that slept for example. What comes into the log after the last entry that the index has is
// found when an entry is to be put there.
func (w *worker) find(ctx context.Context, r *request) error {
	after, remembered := w.recent.entries[r.batch.ID]
	from, err := w.recent.after, error(nil)
	if w.recent.entries == nil {
		from, err = w.opened()
	}
	switch {
	case r.entry > 0 || err != nil:
		return err
	case remembered:
		after--
	case r.batch.After >= from: // it would be remembered
		return nil
	case !r.batch.Sent && from-r.batch.After > mostLooked:
		return fmt.Errorf("%w: it came after entry %d, and %d are here", ErrLate, r.batch.After, from)
	default:
		after = r.batch.After
	}
	entry, body, err := w.journal().Find(ctx, r.batch.ID, after)
	if err != nil || body == nil {
		return err
	}
	ch, err := decodeChange(body)
	if err == nil && !ch.answer(r) {
		err = fmt.Errorf("entry %d of the log has no batch %q", entry, r.batch.ID)
	}
	if err != nil {
		return err
	}
	if _, err = w.follow(ctx); err == nil { // views see it once it is answered
		r.entry = entry
	}
	return err
}

// evictMore deletes the oldest documents beyond the limit, after additions of more than may stay: an
// entry is one transaction, and evicts none of the documents that it brings. A failure is only
// logged: the next addition evicts them.
func (w *worker) evictMore(ctx context.Context, group []*request) {
	most := w.c.Config().MaxDocuments
	if group[0].kind != updating || most == nil {
		return
	}
	err := w.evictOnce(ctx, group, *most)
	for again := 2; err != nil && again > 0; again-- {
		if _, err = w.follow(ctx); err == nil {
			err = w.evictOnce(ctx, group, *most)
		}
	}
	if err != nil {
		w.c.log.Error("the oldest documents were not deleted", "error", err)
	}
}

func (w *worker) evictOnce(ctx context.Context, group []*request, most uint64) error {
	o, snap, err := w.snapshot()
	if err != nil {
		return err
	}
	ch := &change{changeHead: changeHead{Kind: deleteDocuments}, chosen: roaring.New()}
	if uint64(snap.Documents()) > most {
		ch.chosen, err = snap.Beyond(ctx, most)
	}
	at, aerr := snap.Applied()
	if err = errors.Join(err, aerr, snap.Close()); err == nil && !ch.chosen.IsEmpty() {
		_, err = w.commit(ctx, o, ch)
		at.Sequence = w.appended
	}
	for _, r := range group {
		if r.entry > 0 && err == nil { // who reads what it has done sees no more than may stay
			r.entry = max(r.entry, at.Sequence)
		}
	}
	return err
}
