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

// batch are the documents that one transaction adds, of one request or of more.
type batch struct {
	dim       int // 0: not known
	docs      []vectors.Document
	requests  []*request
	fresh     bool           // the collection has no index yet
	replace   bool           // a request may replace documents
	first     uint32         // ordinal
	model     *storage.Model // of the collection; nil if it is unknown
	admission *index.Admission
	snap      *index.Snapshot // before the batch, while it is admitted; nil without an index
	undecided bool            // the index has no dimension yet
	logged    bool            // there is a journal
}

// newBatch is a batch without documents; snap is nil without an index.
func newBatch(snap *index.Snapshot) *batch {
	b := &batch{fresh: snap == nil, admission: index.NewAdmission()}
	if snap != nil {
		b.dim, b.first, b.model = snap.Dim(), snap.State().Docs, snap.Header().Model
		if b.snap, b.undecided = snap, collection.Undecided(snap); b.undecided {
			b.dim = 0
		}
		b.admission = index.NewAdmission(snap)
	}
	return b
}

// Admits finds out whether an update of the state of the view would be refused, and why; vectors are
// not looked at.
func (v *View) Admits(ctx context.Context, docs []collection.Document, o collection.UpdateOptions) error {
	_, err := newBatch(v.snap).admit(ctx, &request{kind: updating, docs: docs, replace: o.Replace, model: o.Model})
	return err
}

// update does as many updates of a group as can share a transaction: those in which
// no document is named twice.
func (w *worker) update(ctx context.Context, group []*request) (n int) {
	o, snap, err := w.snapshot()
	if err != nil {
		group[0].err = err
		return 1
	}
	b := newBatch(snap)
	b.logged = w.journal() != nil
	for _, r := range group {
		if r.entry > 0 { // it was done before
			n++
			continue
		}
		overlap, err := b.admit(ctx, r)
		if overlap {
			break
		}
		n++
		if r.err = err; err == nil {
			b.requests = append(b.requests, r)
		}
	}
	most, more := w.c.Config().MaxDocuments, 0
	if b.logged && most != nil && len(b.requests) > 0 { // the receipts are in the log, and so complete
		r := &b.requests[0].receipt
		if r.Evicted, more, err = b.admission.Evict(ctx, *most); err == nil && more > 0 {
			r.Evicted += more
			stay := *most + uint64(more)
			most = &stay
		}
	}
	if snap != nil {
		err = errors.Join(err, snap.Close())
	}
	if err == nil && len(b.requests) > 0 {
		err = w.store(ctx, o, b, most)
	}
	switch {
	case err == nil:
		for _, r := range b.requests {
			r.entry = w.appended
		}
		return n
	case len(b.requests) > 1 && !b.logged && !errors.Is(err, storage.ErrOutcomeUnknown): // whose fault is it?
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

// admit adds the documents of a request, unless one of them is faulty. overlap reports that the
// request names a document of an earlier one, and has to wait for it.
func (b *batch) admit(ctx context.Context, r *request) (overlap bool, err error) {
	if err := b.model.Check(r.model); err != nil {
		return false, err
	}
	fault := func(i int, err error) error {
		return &collection.DocumentError{Document: i, ID: r.docs[i].ID, Token: -1, Err: err}
	}
	receipt := collection.Receipt{Numbers: make([]uint64, len(r.docs)), IDs: make([]string, len(r.docs))}
	rows := make([]index.Arrival, len(r.docs))
	own := map[string]bool{} // ids of the request
	payloads := make([]json.RawMessage, len(r.docs))
	name := func(i int, id string) (err error) {
		if payloads[i] = r.docs[i].Metadata; payloads[i] == nil && r.docs[i].KeepMetadata && b.snap != nil {
			if payloads[i], err = b.snap.KeptPayload(id); err != nil {
				return err
			}
			payloads[i] = bytes.Clone(payloads[i])
		}
		passage, err := vectors.PassageOf(id, payloads[i])
		if err != nil {
			return fault(i, err)
		}
		if own[id] = true; passage != nil {
			rows[i].Parent = passage.Of
			own[passage.Of] = true
		}
		rows[i].ID, receipt.IDs[i] = id, id
		return nil
	}
	for i, d := range r.docs {
		if len(d.Vectors) == 0 {
			receipt.Empty++
		}
		if b.logged && b.undecided && len(d.Vectors) > 0 && d.Dim != b.snap.Dim() {
			return false, fault(i, ErrUndecided)
		}
		if b.dim != 0 && d.Dim != 0 && d.Dim != b.dim {
			return false, fault(i, fmt.Errorf("%w: %d, not %d", index.ErrDimension, d.Dim, b.dim))
		}
		if d.ID == "" {
			continue
		}
		if err := name(i, d.ID); err != nil {
			return false, err
		}
	}
	for i, d := range r.docs {
		receipt.Numbers[i] = uint64(b.first) + uint64(len(b.docs)+i)
		if d.ID != "" {
			continue
		}
		id, err := b.admission.Free(strconv.FormatUint(receipt.Numbers[i], 10), own)
		if err == nil {
			err = name(i, id)
		}
		if err != nil {
			return false, err
		}
	}
	for i, d := range r.docs {
		if b.logged { // an entry of the log has to be possible
			if err := b.snap.CheckPage(payloads[i], len(d.Vectors)/max(d.Dim, 1)); err != nil {
				return false, fault(i, err)
			}
		}
	}
	for i := range rows {
		if rows[i].Parent != "" {
			receipt.Stored.Passages++
		}
		if rows[i].Parent == "" || i == 0 || rows[i].Parent != rows[i-1].Parent { // its passages are in a row
			receipt.Stored.Documents++
		}
	}
	before := b.admission.Replaced()
	overlap, err = b.admission.Admit(ctx, rows, r.replace)
	var refused *index.ArrivalError
	if errors.As(err, &refused) {
		err = fault(refused.Row, refused.Err)
	}
	if overlap || err != nil {
		return overlap, err
	}
	if b.fresh && b.model == nil {
		b.model = r.model
	}
	b.replace = b.replace || r.replace
	receipt.Replaced = b.admission.Replaced() - before
	r.receipt = receipt
	for i, d := range r.docs {
		b.dim = cmp.Or(b.dim, d.Dim)
		b.docs = append(b.docs, vectors.Document{ID: rows[i].ID, Tokens: d.Vectors, Payload: payloads[i]})
	}
	return false, nil
}
