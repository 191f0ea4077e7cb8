package store

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// batch collects the documents that one transaction adds, of one request or more.
type batch struct {
	dim          int // 0 means not known yet
	docs         []vectors.Document
	requests     []*request
	newIndex     bool           // the collection has no index yet
	replace      bool           // at least one request may replace documents
	firstOrdinal uint32         // of the first document of the batch
	model        *storage.Model // of the collection, nil if it is unknown
	admission    *index.Admission
	snap         *index.Snapshot // the index before the batch, nil without an index
	undecided    bool            // the index has no dimension yet
	hasJournal   bool            // the collection follows a log
}

// newBatch returns a batch without documents. A nil snap means that the collection has no index yet.
func newBatch(snap *index.Snapshot) *batch {
	if snap == nil {
		return &batch{newIndex: true, admission: index.NewAdmission()}
	}
	b := &batch{
		firstOrdinal: snap.State().Docs,
		model:        snap.Header().Model,
		snap:         snap,
		undecided:    collection.Undecided(snap),
		admission:    index.NewAdmission(snap),
	}
	if !b.undecided {
		b.dim = snap.Dim()
	}
	return b
}

// CheckUpdate returns the error with which an update would be refused in the state of the snapshot. It
// does not check vectors.
func (v *Snapshot) CheckUpdate(ctx context.Context, docs []collection.DocumentInput, o collection.UpdateOptions) error {
	r := &request{kind: updating, docs: docs, replace: o.Replace, model: o.Model}
	_, err := newBatch(v.snap).admitRequest(ctx, r)
	return err
}

// updateDocuments carries out the first n updates of a group: as many as can share a transaction, because no two of
// them name the same document.
func (w *worker) updateDocuments(ctx context.Context, group []*request) (n int) {
	o, snap, err := w.newestSnapshot()
	if err != nil {
		group[0].err = err
		return 1
	}
	// Admit requests until one of them overlaps an earlier one.
	b := newBatch(snap)
	b.hasJournal = w.journal() != nil
	for _, r := range group {
		if r.entry > 0 { // the log has it already
			n++
			continue
		}
		overlap, err := b.admitRequest(ctx, r)
		if overlap {
			break
		}
		n++
		if r.err = err; err == nil {
			b.requests = append(b.requests, r)
		}
	}
	// With a log, a receipt counts all documents that its update evicts.
	maxDocuments := w.c.Config().MaxDocuments
	if b.hasJournal && maxDocuments != nil && len(b.requests) > 0 {
		// now documents are evicted by this entry. later ones belong to the batch itself: they stay for the moment, and
		// evictAfterAdd evicts them.
		var now, later int
		if now, later, err = b.admission.Evict(ctx, *maxDocuments); err == nil {
			b.requests[0].receipt.Evicted = now + later
			limit := *maxDocuments + uint64(later)
			maxDocuments = &limit
		}
	}
	if snap != nil {
		err = errors.Join(err, snap.Close())
	}
	if err == nil && len(b.requests) > 0 {
		err = w.storeBatch(ctx, o, b, maxDocuments)
	}
	// Give every request its entry or its error.
	switch {
	case err == nil:
		for _, r := range b.requests {
			r.entry = w.appended
		}
	case len(b.requests) > 1 && !b.hasJournal && !errors.Is(err, storage.ErrOutcomeUnknown):
		// One of the requests may be at fault.
		w.c.log.Warn("a transaction of several requests failed; each is tried alone",
			"requests", len(b.requests), "error", err)
		for _, r := range b.requests {
			w.updateDocuments(ctx, []*request{r})
		}
	default:
		for _, r := range b.requests {
			r.err = toDocumentError(err, r.docs)
		}
	}
	return n
}

// admitRequest adds the documents of a request to the batch, unless one of them is refused. overlap reports that the
// request names a document of an earlier request, and therefore has to wait for it.
func (b *batch) admitRequest(ctx context.Context, r *request) (overlap bool, err error) {
	if err := b.model.Check(r.model); err != nil {
		return false, err
	}
	fault := func(i int, err error) error {
		return &collection.DocumentError{Document: i, ID: r.docs[i].ID, Token: -1, Err: err}
	}
	receipt := collection.Receipt{Numbers: make([]uint64, len(r.docs)), IDs: make([]string, len(r.docs))}
	rows := make([]index.Arrival, len(r.docs))
	requestIDs := map[string]bool{} // all ids of the request, including those of documents with passages
	payloads := make([]json.RawMessage, len(r.docs))
	setID := func(i int, id string) (err error) {
		if payloads[i], err = b.resolvePayload(&r.docs[i], id); err != nil {
			return err
		}
		passage, err := vectors.PassageFromPayload(id, payloads[i])
		if err != nil {
			return fault(i, err)
		}
		if requestIDs[id] = true; passage != nil {
			rows[i].Parent = passage.ParentID
			requestIDs[passage.ParentID] = true
		}
		rows[i].ID, receipt.IDs[i] = id, id
		return nil
	}
	// Documents with ids come first, so that the others can get ids that are still free.
	for i := range r.docs {
		d := &r.docs[i]
		if err := b.checkDim(d); err != nil {
			return false, fault(i, err)
		}
		if len(d.Vectors) == 0 {
			receipt.Empty++
		}
		if d.ID == "" {
			continue
		}
		if err := setID(i, d.ID); err != nil {
			return false, err
		}
	}
	for i, d := range r.docs {
		receipt.Numbers[i] = uint64(b.firstOrdinal) + uint64(len(b.docs)+i)
		if d.ID != "" {
			continue
		}
		id, err := b.admission.UnusedID(strconv.FormatUint(receipt.Numbers[i], 10), requestIDs)
		if err == nil {
			err = setID(i, id)
		}
		if err != nil {
			return false, err
		}
	}
	for i, d := range r.docs {
		// An entry that is in the log must not fail when it is applied: check the grid of a page image, which
		// otherwise is checked when the document is stored.
		if b.hasJournal {
			if err := b.snap.CheckPage(payloads[i], len(d.Vectors)/max(d.Dim, 1)); err != nil {
				return false, fault(i, err)
			}
		}
	}
	// Check the request against the index and the earlier requests.
	replacedBefore := b.admission.Replaced()
	overlap, err = b.admission.Admit(ctx, rows, r.replace)
	var refused *index.ArrivalError
	if errors.As(err, &refused) {
		err = fault(refused.Row, refused.Err)
	}
	if overlap || err != nil {
		return overlap, err
	}
	receipt.Stored, receipt.Replaced = countArrivals(rows), b.admission.Replaced()-replacedBefore
	r.receipt = receipt
	// The request is admitted: add its documents.
	if b.newIndex && b.model == nil {
		b.model = r.model
	}
	b.replace = b.replace || r.replace
	for i, d := range r.docs {
		b.dim = cmp.Or(b.dim, d.Dim)
		b.docs = append(b.docs, vectors.Document{ID: rows[i].ID, Tokens: d.Vectors, Payload: payloads[i]})
	}
	return false, nil
}

// resolvePayload returns the metadata of a document, which may be kept from the document that it replaces.
func (b *batch) resolvePayload(d *collection.DocumentInput, id string) (json.RawMessage, error) {
	if d.Metadata != nil || !d.KeepMetadata || b.snap == nil {
		return d.Metadata, nil
	}
	kept, err := b.snap.PayloadToKeep(id)
	return bytes.Clone(kept), err
}

// checkDim returns an error if a document has another dimension than the collection.
func (b *batch) checkDim(d *collection.DocumentInput) error {
	if b.hasJournal && b.undecided && len(d.Vectors) > 0 && d.Dim != b.snap.Dim() {
		return ErrUndecided
	}
	if b.dim != 0 && d.Dim != 0 && d.Dim != b.dim {
		return fmt.Errorf("%w: %d, not %d", index.ErrDimension, d.Dim, b.dim)
	}
	return nil
}

// countArrivals counts documents and passages. The passages of one document are next to each other.
func countArrivals(rows []index.Arrival) (n index.Affected) {
	for i, r := range rows {
		if r.Parent != "" {
			n.Passages++
		}
		if r.Parent == "" || i == 0 || r.Parent != rows[i-1].Parent {
			n.Documents++
		}
	}
	return n
}
