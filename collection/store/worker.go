package store

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// worker is the one writer of a collection. It runs in one goroutine.
type worker struct {
	c *Collection

	// With a journal:
	behind   bool   // the log may have entries that the index lacks
	appended uint64 // the entry that the running group has appended. 0 means none
	recent   recentBatches
	sealed   bool  // the log takes no more changes
	skipErr  error // why the last entry was skipped, nil if it was applied

	// wasteAtFailure is how many bytes of the file were unused when a compaction failed. 0 means that none has failed.
	wasteAtFailure int64
}

// run processes requests until the queue has ended.
func (w *worker) run() {
	q := w.c.queue
	ctx := context.Background() // a request that has begun is finished
	w.runGuarded("growth", w.c.startDueTraining)
	for group := q.nextGroup(); group != nil; group = q.nextGroup() {
		start := time.Now()
		n := w.runGroup(ctx, group)
		for _, r := range group[:n] {
			w.c.store.noteDisk(r.err, r.kind == updating || r.kind == deleting && r.affected != index.Affected{})
		}
		w.c.countRequests(group[:n], time.Since(start))
		q.requeue(group[n:])
		q.finish(group[:n], time.Since(start))
		w.runGuarded("compacting", func() { w.compactIfWasteful(ctx) })
	}
}

// runGuarded runs work that belongs to no request. A panic is logged and counted.
func (w *worker) runGuarded(task string, run func()) { _ = w.c.store.runGuarded(w.c.log, task, run) }

// runGroup runs the first n requests of a group, at least one. Requests that failed because the file would outgrow its
// mapping are run once more after the file was reopened: the mapping is small if the process had little address space
// left.
func (w *worker) runGroup(ctx context.Context, group []*request) (n int) {
	n = w.tryGroup(ctx, group)
	outgrown := func(r *request) bool { return errors.Is(r.err, storage.ErrTooLarge) }
	if w.c.external != nil || !slices.ContainsFunc(group[:n], outgrown) {
		return n
	}
	if err := w.reopen(ctx); err != nil {
		w.c.log.Error("mapping the index file again failed", "error", err)
		return n
	}
	for _, r := range group[:n] {
		if outgrown(r) {
			r.err = nil
			w.tryGroup(ctx, []*request{r})
		}
	}
	return n
}

// tryGroup runs the first n requests of a group once.
func (w *worker) tryGroup(ctx context.Context, group []*request) (n int) {
	err := w.c.store.runGuarded(w.c.log, "a change", func() {
		runByKind := func(group []*request) int {
			switch group[0].kind {
			case updating:
				return w.updateDocuments(ctx, group)
			case deleting:
				return w.deleteSelected(ctx, group)
			case setting:
				w.updateMetadata(ctx, group[0])
			default:
				group[0].err = group[0].action(ctx)
			}
			return 1
		}
		if w.journal() != nil && group[0].kind != acting {
			n = w.runLogged(ctx, group, runByKind)
			w.evictAfterAdd(ctx, group[:n])
		} else {
			n = runByKind(group)
		}
	})
	if err != nil { // a panic, so that some of it may have been done
		n = len(group)
		for _, r := range group {
			r.err = fmt.Errorf("%w: %w", storage.ErrOutcomeUnknown, err)
		}
	}
	if slices.ContainsFunc(group[:n], func(r *request) bool { return r.err == nil }) {
		w.afterChange()
	}
	return n
}

// afterChange is called after each transaction with a success, before it is answered.
func (w *worker) afterChange() {
	w.runGuarded("derived data", func() { w.c.derived.syncAfterChange(context.Background(), w.c) })
	if f := w.c.store.opts.Committed; f != nil {
		w.runGuarded("the function Committed", func() { f(w.c) })
	}
	w.runGuarded("growth", w.c.startDueTraining)
}

// currentIndex returns the open index, nil if the collection has none yet.
func (w *worker) currentIndex() (*openedIndex, error) {
	w.c.mu.Lock()
	o := w.c.opened
	w.c.mu.Unlock()
	if o == nil {
		return nil, w.c.Err()
	}
	return o, nil
}

// newestSnapshot returns the index and its newest snapshot, both nil if the collection has no index yet.
func (w *worker) newestSnapshot() (*openedIndex, *index.Snapshot, error) {
	o, err := w.currentIndex()
	if o == nil {
		return nil, nil, err
	}
	snap, err := o.ix.Snapshot()
	return o, snap, err
}

// requireIndex returns the open index. The error is [collection.ErrEmpty] if the collection has none.
func (w *worker) requireIndex() (*openedIndex, error) {
	o, err := w.currentIndex()
	if err == nil && o == nil {
		err = fmt.Errorf("%w: %q", collection.ErrEmpty, w.c.name)
	}
	return o, err
}

// storeBatch writes a batch and completes the receipts. A nil maxDocuments means no limit.
func (w *worker) storeBatch(ctx context.Context, o *openedIndex, b *batch, maxDocuments *uint64) error {
	evicted, err := 0, error(nil)
	// Write the documents: in a new index, or in the existing one.
	if o == nil {
		var src vectors.Source
		if src, err = vectors.FromDocuments(b.dim, b.docs); err != nil {
			return err
		}
		if err = w.buildIndex(ctx, src, b.dim, b.model); err == nil {
			evicted = w.evictOldest(ctx)
		}
	} else {
		if b.undecided && b.dim != 0 && !b.hasJournal {
			if err = w.setDimension(ctx, o, b.dim); err != nil {
				return err
			}
			if o, err = w.currentIndex(); err != nil {
				return err
			}
		}
		evicted, err = w.addBatch(ctx, o, b, maxDocuments)
	}
	if err != nil {
		return err
	}
	// Complete the receipts.
	_, snap, err := w.newestSnapshot()
	generation := uint64(0)
	if err == nil && snap != nil {
		generation = snap.Generation()
		err = snap.Close()
	}
	if err != nil {
		w.c.log.Error("documents were stored, but cannot be read", "error", err)
	}
	for _, r := range b.requests {
		r.receipt.Generation = generation
	}
	if !b.hasJournal {
		b.requests[0].receipt.Evicted = evicted // only once for the transaction
	}
	return nil
}

// addBatch adds the documents of a batch to an existing index, and evicts the oldest beyond the limit.
func (w *worker) addBatch(ctx context.Context, o *openedIndex, b *batch,
	maxDocuments *uint64) (evicted int, err error) {
	ch := &change{docs: b.docs, changeHead: changeHead{
		Kind:         addDocuments,
		First:        b.firstOrdinal,
		Dim:          b.dim,
		Replace:      b.replace,
		MaxDocuments: maxDocuments,
	}}
	for _, r := range b.requests {
		ch.Batches = append(ch.Batches, newOutcome(r))
	}
	done, err := w.commitChange(ctx, o, ch)
	lastID := b.docs[len(b.docs)-1].ID
	return done.evicted, w.settleOutcome(ctx, err, func(snap *index.Snapshot) (bool, error) {
		ordinal, ok, err := snap.Ordinal(lastID)
		return ok && ordinal == b.firstOrdinal+uint32(len(b.docs))-1, err
	})
}

// evictOldest deletes the oldest documents of a new index beyond the limit. The documents are stored already, so a
// failure is only logged: the next update evicts them.
func (w *worker) evictOldest(ctx context.Context) (n int) {
	o, err := w.currentIndex()
	maxDocuments := w.c.Config().MaxDocuments
	if err != nil || o == nil || maxDocuments == nil {
		return 0
	}
	removed, err := o.ix.Evict(ctx, *maxDocuments)
	if err = w.settleOutcome(ctx, err, nil); err != nil {
		w.c.log.Error("the oldest documents were not deleted", "error", err)
		return 0
	}
	return removed.Documents
}

// deleteSelected deletes the documents that a group of requests selects, in one transaction. A document that two
// requests select counts for the first.
func (w *worker) deleteSelected(ctx context.Context, group []*request) int {
	o, err := w.requireIndex()
	ch := &change{changeHead: changeHead{Kind: deleteDocuments}, chosen: roaring.New()}
	if err == nil {
		err = w.chooseDeleted(ctx, o, group, ch)
	}
	if err == nil && !ch.chosen.IsEmpty() {
		_, err = w.commitChange(ctx, o, ch)
		first := ch.chosen.Minimum()
		err = w.settleOutcome(ctx, err, func(snap *index.Snapshot) (bool, error) { return !snap.Live(first), nil })
	}
	for _, r := range group {
		switch {
		case r.entry > 0: // the log has it already
		case err != nil:
			r.affected, r.err = index.Affected{}, cmp.Or(r.err, err)
		case r.err == nil:
			r.entry = w.appended
		}
	}
	return len(group)
}

// chooseDeleted adds the documents that a group of deletions selects to the change, and counts them for each request.
func (w *worker) chooseDeleted(ctx context.Context, o *openedIndex, group []*request, ch *change) error {
	snap, err := o.ix.Snapshot()
	if err != nil {
		return err
	}
	defer func() { _ = snap.Close() }()
	for _, r := range group {
		if r.entry > 0 {
			continue
		}
		var chosen *roaring.Bitmap
		if chosen, r.err = selectDocuments(r.ctx, snap, &r.selection); r.err != nil {
			continue
		}
		more := roaring.AndNot(chosen, ch.chosen)
		ch.chosen.Or(chosen)
		if r.affected, r.err = snap.CountDeleted(ctx, more, ch.chosen); r.err != nil {
			return r.err
		}
		if !more.IsEmpty() {
			ch.Batches = append(ch.Batches, newOutcome(r))
		}
	}
	return nil
}

// settleOutcome finds out whether the file has a change that failed in its last step: it reopens the file and looks.
// hasChange reports whether a snapshot has the change. A nil hasChange stands for a change that every snapshot of the
// reopened file has. Other errors are returned as they are, and so are those of collections with a journal, which
// look in the log.
func (w *worker) settleOutcome(ctx context.Context, err error,
	hasChange func(*index.Snapshot) (bool, error)) error {
	if !errors.Is(err, storage.ErrOutcomeUnknown) || w.journal() != nil {
		return err
	}
	if rerr := w.reopen(ctx); rerr != nil {
		return errors.Join(err, rerr)
	}
	_, snap, serr := w.newestSnapshot()
	if serr != nil || snap == nil {
		return errors.Join(err, serr)
	}
	done, checkErr := true, error(nil)
	if hasChange != nil {
		done, checkErr = hasChange(snap)
	}
	if checkErr = errors.Join(checkErr, snap.Close()); checkErr != nil {
		return errors.Join(err, checkErr)
	}
	w.c.log.Warn("a change failed in its last step; the file was opened again", "done", done, "error", err)
	if done {
		return nil
	}
	if full := diskFullError(err); full != nil {
		return fmt.Errorf("not done: %w: %v", full, err)
	}
	return fmt.Errorf("not done: %v", err) // %v: the outcome is known now, so the error must not say otherwise
}

// updateMetadata sets fields of the selected documents. The caller's context can cancel it until the new payloads are
// known.
func (w *worker) updateMetadata(ctx context.Context, r *request) {
	if r.entry > 0 { // the log has it already
		return
	}
	o, err := w.requireIndex()
	if err != nil {
		r.err = err
		return
	}
	// The last document that is changed, and its new payload: they show whether the file has the change.
	var lastOrdinal uint32
	var lastPayload []byte
	ch := &change{changeHead: changeHead{Kind: setFields}, fields: r.fields}
	ch.check = func(ordinal uint32, p []byte) error {
		if lastOrdinal, lastPayload = ordinal, p; len(p) > collection.MaxMetadata {
			return fmt.Errorf("%w: %d bytes, at most %d are possible",
				collection.ErrMetadata, len(p), collection.MaxMetadata)
		}
		return r.ctx.Err()
	}
	if ch.chosen, err = w.chooseUpdated(o, r, ch); err != nil || ch.chosen.IsEmpty() {
		r.err = err
		return
	}
	done, err := w.commitChange(ctx, o, ch)
	err = w.settleOutcome(ctx, err, func(snap *index.Snapshot) (bool, error) {
		stored, err := snap.Payload(lastOrdinal)
		return bytes.Equal(stored, lastPayload), err
	})
	if r.err = err; err == nil {
		r.entry = w.appended
	}
	if w.journal() == nil && err == nil {
		r.affected = done.Affected
	}
}

// chooseUpdated returns the documents whose fields are set. With a log the update is tried here, because an entry must
// not fail when it is applied; without a log, the change itself checks it.
func (w *worker) chooseUpdated(o *openedIndex, r *request, ch *change) (*roaring.Bitmap, error) {
	snap, err := o.ix.Snapshot()
	if err != nil {
		return nil, err
	}
	defer func() { _ = snap.Close() }()
	chosen, err := selectDocuments(r.ctx, snap, &r.selection)
	if err != nil || w.journal() == nil {
		return chosen, err
	}
	r.affected, err = snap.CheckUpdate(r.ctx, chosen, ch.fields.WithNullRemoving(), ch.check)
	ch.check, ch.Batches = nil, []outcome{newOutcome(r)}
	if r.affected == (index.Affected{}) {
		chosen = roaring.New()
	}
	return chosen, err
}
