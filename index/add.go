package index

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// AddOptions configures Add. The zero value, or nil, refuses ids that the index has.
type AddOptions struct {
	// Replace lets a document replace the one with its id, with all of its passages: it gets new
	// ordinals, and the old ones are deleted in the same transaction. Without Replace such an id is
	// [ErrDuplicateID].
	Replace bool
	// KeepPayload gives a new document or passage without a payload the payload that the index
	// stores for its id ([Snapshot.PayloadToKeep]). So a passage stays a passage, and a document
	// that had passages keeps the fields that these had in common.
	KeepPayload bool
	// Delete lists ids of documents and passages ([Snapshot.OrdinalsOfIDs]) to delete in the same
	// transaction, if documents are added. Unknown ids are ignored, and so are those of documents
	// that are added.
	Delete []string
	// MaxDocuments, if not nil, limits the documents of the index. The oldest beyond it are
	// deleted, with all of their passages, in the same transaction. If the added documents alone
	// exceed the limit, a second transaction deletes the first of them.
	MaxDocuments *uint64
	// If, if not nil, decides under the write lock whether the documents are added. It is called
	// with the newest snapshot, and its error is that of Add. So it can compare a document,
	// or the version of the index ([Snapshot.Version]), with the state that the caller has read.
	// For shards, it is called for each of them before the first is changed, and again for a shard
	// that has changed by the time of its own change.
	If func(*Snapshot) error
	// Model, if not nil, names the model that made the vectors. If the index names another one,
	// that is an error ([storage.ErrModel]).
	Model *storage.Model
	// Threads and Memory are as in [BuildOptions].
	Threads int
	Memory  int64
	// Progress, if not nil, is called with the progress of the encoding.
	Progress func(Progress)
}

// AddReport describes the result of Add.
type AddReport struct {
	// Docs counts the added documents, Replaced those of them that replaced another. Passages
	// counts the ordinals that are passages, Empty those without tokens.
	Docs, Replaced, Passages, Empty int
	// KeptPayloads counts the documents that kept the payload of the document that they replaced,
	// or of its passages. Deleted and Evicted count the documents that AddOptions.Delete and
	// AddOptions.MaxDocuments removed.
	KeptPayloads, Deleted, Evicted int
	// First is the ordinal of the first document; the others follow it.
	First uint32
	// Tokens, Zero and Clamped are as in [BuildReport].
	Tokens  int64
	Zero    int64
	Clamped int
	// RMSE is the root mean square error of the new vectors under the codec of the index, BuildRMSE
	// that of the sample that the codec was trained on (0 if unknown). Comparing them shows whether
	// new documents drift away from the codec.
	RMSE, BuildRMSE float64
}

// segmentMergePolicy decides by tokens which of the previous segments a new one absorbs.
var segmentMergePolicy = storage.MergePolicy{Largest: 4 << 20} // a variable, so that tests see large segments

// Add encodes documents with the codec of the index and makes them visible together: either all
// documents are added or none.
//
// Small segments are merged by a [storage.MergePolicy], so that their number stays low.
//
// Errors: [ErrDimension], [ErrDuplicateID], [storage.ErrModel], the errors of src, and those of
// writing.
func (ix *Index) Add(ctx context.Context, src vectors.Source, opts *AddOptions) (*AddReport, error) {
	return Entry{ix: ix}.Add(ctx, src, opts)
}

// Add does [Index.Add] as this entry.
func (e Entry) Add(ctx context.Context, src vectors.Source, opts *AddOptions) (*AddReport, error) {
	ix, o := e.ix, valueOrZero(opts)
	o.Memory = cmp.Or(o.Memory, DefaultMemory)
	o.Threads = cmp.Or(o.Threads, parallel.Processors())
	// Lock out other changes, and check the options and the source.
	c, err := e.beginChange(ctx)
	if err != nil {
		return nil, err
	}
	defer c.endChange()
	if o.If != nil {
		if err := o.If(c.snap); err != nil {
			return nil, fmt.Errorf("%s: %w", ix.Path(), err)
		}
	}
	h := c.snap.Header()
	if err := h.Model.Check(o.Model); err != nil {
		return nil, fmt.Errorf("%s: %w", ix.Path(), err)
	}
	if src.Len() == 0 {
		return &AddReport{}, c.recordEntry()
	}
	if d := src.Dim(); d != 0 && d != h.Dim {
		return nil, fmt.Errorf("%w: documents have %d, %s has %d", ErrDimension, d, ix.Path(), h.Dim)
	}
	a := &addition{change: c, options: o, src: src, admission: NewAdmission(c.snap)}
	if err := a.checkNewIDs(ctx); err != nil {
		return nil, err
	}
	// Pool, encode and store the documents.
	if err := a.poolTokens(ctx); err != nil {
		return nil, err
	}
	enc, err := a.stageAndCommit(ctx)
	if err != nil && !errors.Is(err, storage.ErrOutcomeUnknown) {
		err = errors.Join(err, ix.file.Discard())
	}
	if err := ix.afterChange(err); err != nil {
		return nil, err
	}
	report := &AddReport{
		Docs:         a.admission.docs,
		Replaced:     a.admission.replaced,
		Passages:     a.passages,
		Empty:        enc.Empty,
		KeptPayloads: a.keptPayloads,
		Deleted:      a.deletions.Documents - a.admission.replaced - a.evicted,
		Evicted:      a.evicted,
		First:        c.snap.State().Docs,
		Tokens:       enc.Tokens,
		Zero:         enc.Zero,
		Clamped:      enc.Clamped,
		RMSE:         rootMeanSquare(enc.SumSq, enc.Tokens),
		BuildRMSE:    h.Build.RMSE,
	}
	// Evict the added documents beyond the limit too.
	if a.surplus > 0 {
		evictedLater, err := a.evictSurplus(ctx)
		if err != nil {
			return nil, err
		}
		report.Evicted += evictedLater
	}
	return report, nil
}

// addition is an Add in progress.
type addition struct {
	*change
	options      AddOptions
	src          vectors.Source // pooled
	tokens       int64          // of src
	arrivals     []Arrival      // of src, as they are staged
	passages     int            // among the arrivals
	admission    *Admission
	deletions    *deletionPlan
	keptPayloads int    // number of documents that got the payload of the one that they replace
	lastKeeper   string // id of the last such document
	nextKeeps    bool   // the next arrival has a kept payload
	evicted      int    // number of documents
	surplus      int    // number of added documents beyond MaxDocuments
}

// poolTokens pools the documents as the documents of the index were pooled, and counts their
// tokens.
func (a *addition) poolTokens(ctx context.Context) (err error) {
	h, o := a.snap.Header(), &a.options
	p := &pooledSource{
		Source:    a.src,
		pooling:   poolingFromBuild(h.Build),
		threads:   o.Threads,
		normalize: h.Normalize,
		memory:    o.Memory,
	}
	if o.KeepPayload {
		p.fallbackPayload = a.storedPayload
	}
	if a.src, err = newPooledSource(ctx, p); err != nil {
		return err
	}
	for i := range a.src.Len() {
		a.tokens += int64(a.src.Rows(i))
	}
	return nil
}

// stageAndCommit stages the documents, together with those of the segments that the new segment
// absorbs, and commits them.
func (a *addition) stageAndCommit(ctx context.Context) (*encoder, error) {
	// Stage the documents of the absorbed segments.
	stager, merged, err := a.ix.beginAppend(ctx, a.snap, a.tokens, a.options.Memory)
	if err != nil {
		return nil, err
	}
	stager.isNewID = func(id string) bool {
		ordinals, err := a.snap.ordinalsOf(id)
		return err == nil && len(ordinals) == 0
	}
	// Encode and stage the new documents.
	e := &encoder{
		codec:     a.snap.Quantizer(),
		backend:   a.ix.backend,
		threads:   a.options.Threads,
		normalize: a.snap.Header().Normalize,
		stager:    stager,
		onStaged:  a.recordArrival,
		progress:  a.options.Progress,
		total:     a.tokens,
	}
	e.checkPage = poolingFromBuild(a.snap.Header().Build).checkPage
	if a.options.KeepPayload {
		e.fallbackPayload = a.useStoredPayload
	}
	if err := e.encodeAll(ctx, a.src, a.options.Memory); err != nil {
		return nil, err
	}
	// The payloads, which tell passages from documents, have been read: check the ids, and find the
	// ordinals to delete.
	if err := a.admitDocuments(ctx); err != nil {
		return nil, err
	}
	// Commit the new documents, and the deletions.
	reportProgress(a.options.Progress, Progress{Stage: "commit"})
	return e, stager.commit(ctx, func(tx *storage.Tx, g *storage.Generation, s *storage.State) error {
		if err := a.confirmUnchanged(tx, g); err != nil {
			return err
		}
		addToState(s, e, uint32(e.Doc))
		if err := deleteSegments(g, merged); err != nil {
			return err
		}
		return a.deletions.applyTo(g, s, stager.docSets)
	})
}

// admitDocuments checks that the documents may be stored, and plans the deletion of the ordinals
// that they replace or evict.
func (a *addition) admitDocuments(ctx context.Context) error {
	// Documents of AddOptions.Delete make room for arrivals with the same ids.
	if _, err := a.admission.markRemoved(ctx, a.options.Delete, a.arrivals); err != nil {
		return err
	}
	if _, err := a.admission.Admit(ctx, a.arrivals, a.options.Replace); err != nil {
		return err
	}
	for i := range a.arrivals {
		if a.arrivals[i].Parent != "" {
			a.passages++
		}
	}
	var err error
	a.deletions, err = a.snap.planDeletion(ctx, a.admission.removed[0]) // of the only snapshot of the admission
	if err != nil || a.options.MaxDocuments == nil {
		return err
	}
	// Evict the oldest documents beyond the limit. surplus is the number of arrivals that exceed it
	// themselves: they are deleted after the commit.
	a.evicted, a.surplus, err = a.admission.markOldest(ctx, *a.options.MaxDocuments, a.deletions.Documents)
	if err == nil && a.evicted > 0 {
		a.deletions, err = a.snap.planDeletion(ctx, a.admission.removed[0])
	}
	return err
}

// evictSurplus deletes the first of the added documents, which exceed the limit. All of them are
// stored by then, so a failure is only logged: the next addition tries again. An error means that
// the file must be reopened.
func (a *addition) evictSurplus(ctx context.Context) (int, error) {
	ctx = context.WithoutCancel(ctx)
	removed, err := a.deleteAfterwards(ctx, selectOldestBeyond(ctx, *a.options.MaxDocuments))
	if err != nil {
		a.ix.log.Error("the oldest documents were not deleted",
			"index", a.ix.Path(), "documents", a.surplus, "error", err)
	}
	if !errors.Is(err, storage.ErrOutcomeUnknown) {
		err = nil
	}
	return removed.Documents, err
}

// recordArrival records an ordinal that is staged, and counts kept payloads.
func (a *addition) recordArrival(arrival Arrival) {
	a.arrivals = append(a.arrivals, arrival)
	if id := arrival.documentID(); a.nextKeeps && id != a.lastKeeper { // passages of a document are in a row
		a.keptPayloads++
		a.lastKeeper = id
	}
	a.nextKeeps = false
}

// useStoredPayload returns the payload of the document that one with this id replaces, and notes for
// recordArrival whether there is one.
func (a *addition) useStoredPayload(id string) ([]byte, error) {
	payload, err := a.storedPayload(id)
	a.nextKeeps = payload != nil
	return payload, err
}

// storedPayload returns the payload of the document that one with this id replaces.
func (a *addition) storedPayload(id string) ([]byte, error) { return a.snap.PayloadToKeep(id) }

// PayloadToKeep returns the payload that a new document of an id takes over if it has none: the
// payload of the document or passage with this id. For a document that is stored as passages, it is
// the payload of the first one without its text ([vectors.DocumentPayload]). It is nil if the id has
// no payload.
func (s *Snapshot) PayloadToKeep(id string) ([]byte, error) {
	ordinals, _, err := s.findOrdinals(id)
	if err != nil || len(ordinals) == 0 {
		return nil, err
	}
	payload, err := s.Payload(ordinals[0])
	if err != nil || s.ID(ordinals[0]) == id {
		return payload, err
	}
	if payload = vectors.DocumentPayload(payload); vectors.IsEmptyPayload(payload) {
		return nil, nil
	}
	return payload, nil
}

// addToState adds the encoded documents to the counters of a state. docs is their number without
// holes.
func addToState(s *storage.State, e *encoder, docs uint32) {
	s.Live += docs
	s.LiveTokens += uint64(e.Tokens)
	s.Clamped += uint64(e.Clamped)
	s.AddedTokens += uint64(e.Tokens)
	s.AddedSumSq += e.SumSq
}

// checkNewIDs refuses ids that the index has, unless they may be replaced or deleted, before
// anything is encoded. Passages cannot be told from documents yet: admitDocuments checks the rest.
func (a *addition) checkNewIDs(ctx context.Context) error {
	if a.options.Replace || len(a.options.Delete) > 0 {
		return nil
	}
	for i := range a.src.Len() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if taken, err := a.snap.ordinalsOf(a.src.ID(i)); err != nil {
			return err
		} else if len(taken) > 0 {
			return fmt.Errorf("document %d: %w: %q", i, ErrDuplicateID, a.src.ID(i))
		}
	}
	return nil
}

// beginAppend returns a stager for a new segment of the given number of tokens. The segment absorbs
// the last segments of the index, which are returned in merged: their documents are staged again.
func (ix *Index) beginAppend(
	ctx context.Context, snap *Snapshot, tokens, memory int64,
) (stager *stager, merged []storage.Segment, err error) {
	state := snap.State()
	tokensOf := func(s storage.Segment) uint64 { return s.Tokens }
	keep := storage.UnmergedCount(segmentMergePolicy, state.Segments, tokensOf, uint64(tokens))
	merged = state.Segments[keep:]
	chunk := snap.Chunks()
	for _, seg := range merged {
		chunk -= len(seg.Chunks)
		state.Docs -= seg.Docs
		state.Tokens -= seg.Tokens
	}
	state.Segments = append([]storage.Segment(nil), state.Segments[:keep]...)
	stager = newStager(ix.file, snap.Generation(), snap.Header().Centroids, state, memory)
	stager.base, stager.docSets = snap, snap.fileSnapshot.CloneDocSets()
	for ; chunk < snap.Chunks(); chunk++ {
		if err := stager.copyChunk(ctx, snap, chunk, sameFile); err != nil {
			return nil, nil, err
		}
	}
	return stager, merged, nil
}

// deleteSegments deletes the chunks and postings of segments.
func deleteSegments(g *storage.Generation, segments []storage.Segment) error {
	for _, seg := range segments {
		for _, c := range seg.Chunks {
			if err := g.DeleteChunk(c); err != nil {
				return err
			}
		}
		if err := g.DeletePostings(seg.ID); err != nil {
			return err
		}
	}
	return nil
}
