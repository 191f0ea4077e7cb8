package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// worker is the one writer of a collection. All of it runs in one goroutine.
type worker struct {
	c *Collection
	// oldest is an ordinal below which no document lives.
	oldest uint32
}

// run does what is queued until the queue has ended.
func (w *worker) run() {
	q := w.c.queue
	ctx := context.Background() // what has begun is finished
	w.beside("growth", w.c.grow)
	for group := q.take(); group != nil; group = q.take() {
		start := time.Now()
		n := w.do(ctx, group)
		for _, r := range group[:n] {
			w.c.s.noteDisk(r.err, r.kind == updating || r.kind == deleting && r.count > 0)
		}
		w.c.counted(group[:n], time.Since(start))
		q.giveBack(group[n:])
		q.answered(group[:n], time.Since(start))
		w.beside("tidying up", func() { w.tidy(ctx) })
	}
}

// beside does what is no part of a request: a panic of it is logged and counted.
func (w *worker) beside(what string, do func()) { _ = w.c.s.guard(w.c.log, what, do) }

// do does the first n requests of a group, at least one.
func (w *worker) do(ctx context.Context, group []*request) (n int) {
	err := w.c.s.guard(w.c.log, "a change", func() {
		switch group[0].kind {
		case updating:
			n = w.update(ctx, group)
		case deleting:
			n = w.delete(ctx, group)
		default:
			group[0].err = group[0].act(ctx)
			n = 1
		}
	})
	if err != nil { // nobody knows how far it came
		n = len(group)
		for _, r := range group {
			r.err = fmt.Errorf("%w: %w", storage.ErrOutcomeUnknown, err)
		}
	}
	for _, r := range group[:n] {
		if r.err == nil {
			w.changed()
			break
		}
	}
	return n
}

// changed is called after each transaction, before it is answered.
func (w *worker) changed() {
	w.beside("derived data", func() { w.c.derived.follow(context.Background(), w.c) })
	if f := w.c.s.o.Committed; f != nil {
		w.beside("what hears of changes", func() { f(w.c) })
	}
	w.beside("growth", w.c.grow)
}

// snapshot is what the collection holds; nil if nothing yet.
func (w *worker) snapshot() (*opened, *index.Snapshot, error) {
	w.c.mu.Lock()
	o := w.c.opened
	w.c.mu.Unlock()
	if o == nil {
		return nil, nil, w.c.Err()
	}
	snap, err := o.ix.Snapshot()
	return o, snap, err
}

// documents is snapshot where there has to be something.
func (w *worker) documents() (*opened, *index.Snapshot, error) {
	o, snap, err := w.snapshot()
	if err == nil && o == nil {
		err = fmt.Errorf("%w: %q", collection.ErrEmpty, w.c.name)
	}
	return o, snap, err
}

// batch are the documents that one transaction adds, of one request or of more.
type batch struct {
	dim      int
	docs     []vectors.Document
	taken    map[string]bool // ids, and those of the documents that passages are of
	requests []*request
	first    uint32         // ordinal
	model    *storage.Model // of the collection; nil: nobody has said
	evicted  []string       // ids of the oldest documents, which go in the same transaction
}

// update does as many updates of a group as can share a transaction: those in which
// no id is named twice.
func (w *worker) update(ctx context.Context, group []*request) (n int) {
	o, snap, err := w.snapshot()
	if err != nil {
		group[0].err = err
		return 1
	}
	b := &batch{taken: map[string]bool{}}
	if snap != nil {
		b.dim, b.first, b.model = snap.Dim(), snap.State().Docs, snap.Header().Model
	}
	for _, r := range group {
		if n > 0 && b.overlaps(r) {
			break
		}
		n++
		if r.err = b.admit(ctx, r, snap); r.err == nil {
			b.requests = append(b.requests, r)
		}
	}
	if snap != nil {
		b.evicted, err = w.oldestBeyond(ctx, snap, b)
		err = errors.Join(err, snap.Close())
	}
	if err == nil && len(b.requests) > 0 {
		err = w.store(ctx, o, b)
	}
	switch {
	case err == nil:
		return n
	case len(b.requests) > 1 && !errors.Is(err, storage.ErrOutcomeUnknown): // whose fault is it?
		w.c.log.Warn("a transaction of several requests failed; each is tried alone", "requests", len(b.requests), "error", err)
		for _, r := range b.requests {
			w.update(ctx, []*request{r})
		}
	default:
		for _, r := range b.requests {
			r.err = errorOf(err, r.docs)
		}
	}
	return n
}

func (b *batch) overlaps(r *request) bool {
	for i := range r.docs {
		of, _ := vectors.SplitPassageID(r.docs[i].ID)
		if b.taken[r.docs[i].ID] || b.taken[of] {
			return true
		}
	}
	return false
}

// admit adds the documents of a request, unless something is wrong with one of them.
func (b *batch) admit(ctx context.Context, r *request, snap *index.Snapshot) error {
	if err := b.model.Check(r.model); err != nil {
		return err
	}
	for i, d := range r.docs {
		fault := func(err error) error { return &collection.DocumentError{Document: i, ID: d.ID, Token: -1, Err: err} }
		if b.dim != 0 && d.Dim != b.dim {
			return fault(fmt.Errorf("%w: %d, not %d", index.ErrDimension, d.Dim, b.dim))
		}
		if d.ID == "" || r.replace || snap == nil {
			continue
		}
		names := []string{d.ID}
		if p, err := vectors.PassageOf(d.ID, d.Metadata); err != nil {
			return fault(err)
		} else if p != nil {
			names = append(names, p.Of)
		}
		if there, _, err := snap.Named(ctx, names); err != nil {
			return err
		} else if !there.IsEmpty() {
			return fault(fmt.Errorf("%w: %.100q", index.ErrDuplicateID, d.ID))
		}
	}
	if snap == nil && b.model == nil {
		b.model = r.model
	}
	r.receipt = collection.Receipt{Numbers: make([]uint64, len(r.docs)), IDs: make([]string, len(r.docs))}
	for _, d := range r.docs {
		if d.ID != "" {
			of, _ := vectors.SplitPassageID(d.ID)
			b.taken[d.ID], b.taken[of] = true, true
		}
	}
	for i, d := range r.docs {
		b.dim = d.Dim
		ordinal := b.first + uint32(len(b.docs))
		id := d.ID
		if id == "" {
			var err error
			if id, err = b.free(ctx, ordinal, snap); err != nil {
				return err
			}
			b.taken[id] = true
		}
		r.receipt.Numbers[i], r.receipt.IDs[i] = uint64(ordinal), id
		b.docs = append(b.docs, vectors.Document{ID: id, Tokens: d.Vectors, Payload: d.Metadata})
	}
	return nil
}

// free is an id for a document that was given none.
func (b *batch) free(ctx context.Context, ordinal uint32, snap *index.Snapshot) (string, error) {
	plain := strconv.FormatUint(uint64(ordinal), 10)
	id := plain
	for n := 1; ; n++ {
		there := b.taken[id]
		if !there && snap != nil {
			docs, _, err := snap.Named(ctx, []string{id})
			if err != nil {
				return "", err
			}
			there = !docs.IsEmpty()
		}
		if !there {
			return id, nil
		}
		id = plain + "-" + strconv.Itoa(n)
	}
}

// store writes a batch and completes the receipts.
func (w *worker) store(ctx context.Context, o *opened, b *batch) error {
	src, err := vectors.FromDocuments(b.dim, b.docs)
	if err != nil {
		return err
	}
	if o == nil {
		err = w.build(ctx, src, b.model)
	} else {
		err = w.add(ctx, o, src, b)
	}
	if err != nil {
		return err
	}
	evicted := len(b.evicted) + w.evict(ctx)
	_, snap, err := w.snapshot()
	generation := uint64(0)
	if err == nil && snap != nil {
		generation = snap.Generation()
		err = snap.Close()
	}
	if err != nil {
		w.c.log.Error("documents were stored, but cannot be read", "error", err)
	}
	for _, r := range b.requests {
		r.receipt.Generation, r.receipt.Evicted = generation, evicted
	}
	return nil
}

func (w *worker) add(ctx context.Context, o *opened, src vectors.Source, b *batch) error {
	report, err := o.ix.Add(ctx, src, &index.AddOptions{Replace: true, Delete: b.evicted, Threads: w.c.s.o.Threads, Memory: w.c.s.o.Memory})
	if err == nil && report.First != b.first {
		err = fmt.Errorf("%w: documents have ordinals from %d, not %d", storage.ErrInternal, report.First, b.first)
	}
	last := b.docs[len(b.docs)-1].ID
	return w.settle(ctx, err, func(snap *index.Snapshot) (bool, error) {
		at, ok, err := snap.Ordinal(last)
		return ok && at == b.first+uint32(len(b.docs))-1, err
	})
}

// delete deletes what a group of requests has chosen, in one transaction. What two of
// them have chosen counts for the first.
func (w *worker) delete(ctx context.Context, group []*request) int {
	o, snap, err := w.documents()
	if err != nil {
		for _, r := range group {
			r.err = err
		}
		return len(group)
	}
	all := roaring.New()
	var able []*request
	for _, r := range group {
		var chosen *roaring.Bitmap
		if chosen, r.err = resolve(r.ctx, snap, &r.chosen); r.err != nil {
			continue
		}
		chosen.AndNot(all)
		r.count = int(chosen.GetCardinality())
		all.Or(chosen)
		able = append(able, r)
	}
	ids := make([]string, 0, all.GetCardinality())
	for it := all.Iterator(); it.HasNext(); {
		ids = append(ids, snap.ID(it.Next()))
	}
	err = errors.Join(snap.Close(), w.deleteIDs(ctx, o, ids))
	if err != nil {
		for _, r := range able {
			r.count, r.err = 0, err
		}
	}
	return len(group)
}

func (w *worker) deleteIDs(ctx context.Context, o *opened, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	_, _, err := o.ix.Delete(ctx, ids)
	return w.settle(ctx, err, func(snap *index.Snapshot) (bool, error) {
		_, ok, err := snap.Ordinal(ids[0])
		return !ok, err
	})
}

// oldestBeyond are the ids of the oldest documents that are to go for those of a batch:
// not more than there are, though the batch may bring more than may stay.
func (w *worker) oldestBeyond(ctx context.Context, snap *index.Snapshot, b *batch) (ids []string, err error) {
	most := w.c.Config().MaxDocuments
	if most == nil || len(b.docs) == 0 {
		return nil, nil
	}
	names := make([]string, 0, len(b.docs))
	for i := range b.docs {
		d := &b.docs[i]
		names = append(names, d.ID)
		if p, err := vectors.PassageOf(d.ID, d.Payload); err == nil && p != nil {
			names = append(names, p.Of)
		}
	}
	replaced, _, err := snap.Named(ctx, names) // with passages, as [index.Index.Add] does
	if err != nil {
		return nil, err
	}
	live := snap.Len() + len(b.docs) - int(replaced.GetCardinality())
	ids, _ = w.beyond(snap, live, *most, replaced)
	return ids, nil
}

// beyond are the ids of the oldest of so many documents that are more than may stay, and the
// ordinal behind them. Those of a set do not count.
func (w *worker) beyond(snap *index.Snapshot, live int, most uint64, replaced *roaring.Bitmap) (ids []string, next uint32) {
	next = w.oldest
	for left := uint64(live); left > most && next < snap.State().Docs; next++ {
		if snap.Live(next) && !replaced.Contains(next) {
			ids = append(ids, snap.ID(next))
			left--
		}
	}
	return ids, next
}

// evict deletes the oldest documents beyond the limit, where an update could not: it has
// brought more than may stay. It is done by then, so that a fault is worth no more than a
// word: the next update tries again.
func (w *worker) evict(ctx context.Context) (n int) {
	most := w.c.Config().MaxDocuments
	o, snap, err := w.snapshot()
	if err != nil || snap == nil {
		return 0
	}
	var ids []string
	if most != nil {
		ids, w.oldest = w.beyond(snap, snap.Len(), *most, roaring.New())
	}
	if err := errors.Join(snap.Close(), w.deleteIDs(ctx, o, ids)); err != nil {
		w.oldest = 0
		w.c.log.Error("the oldest documents were not deleted", "error", err)
		return 0
	}
	return len(ids)
}

// settle finds out what became of a change that failed in its last step: it opens the
// file again and looks. done says whether a state has the change; nil: it does not matter.
func (w *worker) settle(ctx context.Context, err error, done func(*index.Snapshot) (bool, error)) error {
	if !errors.Is(err, storage.ErrOutcomeUnknown) {
		return err
	}
	if rerr := w.reopen(ctx); rerr != nil {
		return errors.Join(err, rerr)
	}
	_, snap, serr := w.snapshot()
	if serr != nil || snap == nil {
		return errors.Join(err, serr)
	}
	ok, derr := done == nil, error(nil)
	if done != nil {
		ok, derr = done(snap)
	}
	if derr = errors.Join(derr, snap.Close()); derr != nil {
		return errors.Join(err, derr)
	}
	w.c.log.Warn("a change failed in its last step; the file was opened again", "done", ok, "error", err)
	if ok {
		return nil
	}
	if full := diskFull(err); full != nil {
		return fmt.Errorf("not done: %w: %v", full, err)
	}
	return fmt.Errorf("not done: %v", err) // no longer of unknown outcome
}

// updateMetadata sets fields of the documents that are chosen. Until it is known what they
// will be, it ends with the context of who asks.
func (w *worker) updateMetadata(ctx, asks context.Context, chosen collection.Selection, set condition.Fields) (int, error) {
	o, snap, err := w.documents()
	if err != nil {
		return 0, err
	}
	payloads, err := merged(asks, snap, chosen, set)
	if err = errors.Join(err, snap.Close()); err != nil || len(payloads) == 0 {
		return 0, err
	}
	_, _, err = o.ix.SetPayload(ctx, payloads)
	err = w.settle(ctx, err, func(snap *index.Snapshot) (bool, error) {
		for id, want := range payloads {
			at, _, err := snap.Ordinal(id)
			if err != nil {
				return false, err
			}
			if got, err := snap.Payload(at); err != nil || !bytes.Equal(got, want) {
				return false, err
			}
		}
		return true, nil
	})
	if err != nil {
		return 0, err
	}
	return len(payloads), nil
}

// merged is the metadata that the chosen documents will have, by id.
func merged(ctx context.Context, snap *index.Snapshot, chosen collection.Selection, set condition.Fields) (map[string][]byte, error) {
	docs, err := resolve(ctx, snap, &chosen)
	if err != nil {
		return nil, err
	}
	payloads := make(map[string][]byte, docs.GetCardinality())
	if len(set) == 0 {
		return payloads, nil
	}
	set = set.NullRemoves()
	for it := docs.Iterator(); it.HasNext(); {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		ordinal := it.Next()
		id := snap.ID(ordinal)
		was, err := snap.Payload(ordinal)
		if err != nil {
			return nil, err
		}
		now, err := set.Merge(was)
		if err != nil {
			return nil, fmt.Errorf("document %q: %w", id, err)
		}
		if len(now) > collection.MaxMetadata {
			return nil, fmt.Errorf(
				"document %q: %w: %d bytes, at most %d are possible", id, collection.ErrMetadata, len(now), collection.MaxMetadata)
		}
		payloads[id] = now
	}
	return payloads, nil
}
