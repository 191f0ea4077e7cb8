package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// Update stores documents, all of them or none. When it returns, they are on the disk and can be searched. Faults of
// single documents are found before the request is queued. An id that is in use, and a first document of another
// dimension, are found when the request is written.
//
// If ctx ends while the request is waiting, the request is withdrawn and nothing is stored. A request whose writing
// has begun is finished, whatever ctx does. So an error of ctx always means that nothing was stored.
//
// Errors: [*collection.DocumentError], [*collection.BusyError], [storage.ErrModel],
// [collection.ErrUnknown], [collection.ErrDamaged], [collection.ErrClosed], that of ctx, and
// those of writing. After [storage.ErrOutcomeUnknown], which a failing disk causes and which is rare,
// the documents may be stored or not.
func (c *Collection) Update(ctx context.Context, docs []collection.DocumentInput,
	o collection.UpdateOptions) (collection.Receipt, error) {
	return c.UpdateBatch(ctx, &Batch{}, docs, o)
}

// UpdateBatch is [Collection.Update] for a change that a [Batch] identifies.
func (c *Collection) UpdateBatch(ctx context.Context, b *Batch, docs []collection.DocumentInput,
	o collection.UpdateOptions) (collection.Receipt, error) {
	dim, err := c.dimension(ctx)
	if err != nil {
		return collection.Receipt{}, err
	}
	docs, err = collection.CheckDocuments(docs, dim)
	if err != nil {
		return collection.Receipt{}, err
	}
	if len(docs) == 0 {
		return collection.Receipt{}, nil
	}
	if err := o.Model.Validate(); err != nil {
		return collection.Receipt{}, fmt.Errorf("%w: %w", collection.ErrConfig, err)
	}
	r := &request{kind: updating, docs: docs, replace: o.Replace, model: o.Model, batch: *b}
	for i := range docs {
		r.bytes += documentBytes(&docs[i])
	}
	if err := c.submit(ctx, r); err != nil {
		return collection.Receipt{}, err
	}
	b.Entry = max(r.entry, r.decidedAt)
	return r.receipt, nil
}

// Delete deletes the documents of a selection, which is evaluated when the request is written, and returns their
// count. ctx can cancel the request until the documents are found; see [Collection.Update].
//
// Errors: [collection.ErrSelection], [*condition.Error], [collection.ErrEmpty], [*collection.BusyError],
// [collection.ErrUnknown], [collection.ErrDamaged], [collection.ErrClosed], that of ctx, and those of writing.
func (c *Collection) Delete(ctx context.Context, chosen collection.Selection) (index.Affected, error) {
	return c.DeleteBatch(ctx, &Batch{}, chosen)
}

// DeleteBatch is [Collection.Delete] for a change that a [Batch] identifies.
func (c *Collection) DeleteBatch(ctx context.Context, b *Batch, chosen collection.Selection) (index.Affected, error) {
	if err := chosen.CheckExactlyOne(); err != nil {
		return index.Affected{}, err
	}
	r := &request{kind: deleting, selection: chosen, ctx: ctx, bytes: selectionBytes(&chosen), batch: *b}
	if err := c.submit(ctx, r); err != nil {
		return index.Affected{}, err
	}
	b.Entry = max(r.entry, r.decidedAt)
	return r.affected, nil
}

// UpdateMetadata sets fields of the metadata of the selected documents, and leaves their other fields
// and their vectors alone. It returns their count.
//
// Errors: [collection.ErrMetadata], and those of [Collection.Delete].
func (c *Collection) UpdateMetadata(ctx context.Context, chosen collection.Selection,
	set map[string]json.RawMessage) (index.Affected, error) {
	return c.UpdateMetadataBatch(ctx, &Batch{}, chosen, set)
}

// UpdateMetadataBatch is [Collection.UpdateMetadata] for a change that a [Batch] identifies.
func (c *Collection) UpdateMetadataBatch(ctx context.Context, b *Batch, chosen collection.Selection,
	set map[string]json.RawMessage) (index.Affected, error) {
	if err := collection.CheckFields(set); err != nil {
		return index.Affected{}, err
	}
	if err := chosen.CheckExactlyOne(); err != nil {
		return index.Affected{}, err
	}
	r := &request{kind: setting, selection: chosen, fields: set, ctx: ctx, bytes: selectionBytes(&chosen), batch: *b}
	if err := c.submit(ctx, r); err != nil {
		return index.Affected{}, err
	}
	b.Entry = max(r.entry, r.decidedAt)
	return r.affected, nil
}

// documentBytes estimates the memory of a document in the queue.
func documentBytes(d *collection.DocumentInput) int64 {
	return int64(4*len(d.Vectors) + len(d.Metadata) + len(d.ID) + 64)
}

// toDocumentError turns an error about a document of a source into a [collection.DocumentError] of the request.
// Errors that name no document stay as they are.
func toDocumentError(err error, docs []collection.DocumentInput) error {
	if fe, ok := errors.AsType[*vectors.FileError](err); ok && fe.Doc >= 0 && fe.Doc < len(docs) {
		return &collection.DocumentError{Document: fe.Doc, ID: docs[fe.Doc].ID, Token: fe.Token, Err: fe.Err}
	}
	return err
}

// snapshotGrace is how long snapshots may stay open before the file is reopened and their searches are ended.
const snapshotGrace = 5 * time.Second

// waitForSnapshots waits until open snapshots are closed, for at most snapshotGrace.
func waitForSnapshots(ctx context.Context, o *openedIndex) {
	closed := make(chan struct{})
	go func() {
		o.snapshots.Wait()
		close(closed)
	}()
	select {
	case <-closed:
	case <-ctx.Done():
	case <-time.After(snapshotGrace):
	}
}

// reopen closes the index file and opens it again.
//
// The file can be locked only after its snapshots are closed. Therefore new snapshots wait, background work such as
// trainings and backups is ended at once, and open snapshots get snapshotGrace before their searches end.
func (w *worker) reopen(ctx context.Context) error {
	c := w.c
	if c.external != nil {
		return fmt.Errorf("collection %q: its program has to close the index and open it again", c.name)
	}
	c.mu.Lock()
	o := c.opened
	reopened := make(chan struct{})
	c.opened, c.reopening = nil, reopened
	c.endFileContext(collection.ErrReopened)
	c.fileContext, c.endFileContext = context.WithCancelCause(context.Background())
	c.mu.Unlock()
	c.stopTraining()
	defer func() { // let waiting snapshots go on
		c.mu.Lock()
		c.reopening = nil
		c.mu.Unlock()
		close(reopened)
	}()
	waitForSnapshots(ctx, o)
	err := o.close()
	// Other processes cannot have the file, so a lock is held by an old snapshot: wait for it.
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		next, oerr := c.openIndex(ctx)
		if oerr == nil && next == nil {
			oerr = fmt.Errorf("%s: %w", c.indexPath(), storage.ErrCorrupt)
		}
		if oerr == nil {
			c.mu.Lock()
			c.opened = next
			c.mu.Unlock()
			return nil
		}
		if !errors.Is(oerr, storage.ErrLocked) {
			err = errors.Join(err, oerr)
			break
		}
		select {
		case <-c.lifetime.Done():
			return errors.Join(err, oerr, context.Cause(c.lifetime))
		case <-time.After(wait):
		}
	}
	// The file cannot be opened: the collection is unusable from now on.
	c.mu.Lock()
	c.failure = fmt.Errorf("%w: %q: %w", collection.ErrDamaged, c.name, err)
	c.mu.Unlock()
	c.log.Error("the collection cannot be opened again", "error", err)
	return err
}
