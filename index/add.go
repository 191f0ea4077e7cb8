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

// AddOptions for Add. The zero value, or nil, refuses ids that are there.
type AddOptions struct {
	// Replace lets a document take the place of the one with its id, with all of its passages:
	// it gets new ordinals, and the old ones are deleted in the same transaction. Otherwise that
	// is [ErrDuplicateID].
	Replace bool
	// KeepPayload gives an ordinal that comes without a payload, and replaces another of its id,
	// the payload of the old one ([Snapshot.KeptPayload]); so a passage stays a passage, and a document
	// that had passages keeps what these had in common.
	KeepPayload bool
	// Delete lists ids of documents and passages ([Snapshot.Named]) to delete in the same
	// transaction, if documents are added. Unknown ids are ignored, and so are those of documents
	// that are added.
	Delete []string
	// MaxDocuments, if it is not nil, is the most documents that stay: the oldest beyond it are
	// deleted, with all of their passages, in the same transaction. Only if more are added than may
	// stay does a second transaction delete the first of them.
	MaxDocuments *uint64
	// If, if it is not nil, decides in the writer's turn whether documents are added: it is given the
	// newest snapshot, and its error is that of Add. So it can hold a document against what the caller
	// has read, or the version of the index ([Snapshot.Version]). Of a set, all files are asked before
	// the first is changed; one that has changed by its own turn is asked once more.
	If func(*Snapshot) error
	// Model, where set, is what made the vectors. If the index names another, that is
	// an error ([storage.ErrModel]).
	Model *storage.Model
	// Threads and Memory as for Build.
	Threads int
	Memory  int64
	// Progress, where set, is told how far the encoding is.
	Progress func(Progress)
}

// AddReport says what Add did.
type AddReport struct {
	// Docs counts the documents that were added, Replaced those of them that took the place of
	// another. Passages counts the ordinals that are passages, Empty those without tokens.
	Docs, Replaced, Passages, Empty int
	// Kept counts the documents that kept the payload of another, or that of some passages. Deleted
	// and Evicted count the documents that AddOptions.Delete and AddOptions.MaxDocuments removed.
	Kept, Deleted, Evicted int
	// First is the ordinal of the first document; the others follow it.
	First uint32
	// Tokens, Zero and Clamped are those of [BuildReport].
	Tokens  int64
	Zero    int64
	Clamped int
	// RMSE is the root mean square error of the new vectors under the codec that
	// the index has, BuildRMSE that of the sample it was trained on (0 if unknown):
	// they show whether documents drift away from it.
	RMSE, BuildRMSE float64
}

// segmentMergePolicy is when a new segment takes in those before it, by their tokens.
var segmentMergePolicy = storage.MergePolicy{Largest: 4 << 20} // a variable, so that tests see large segments

// Add encodes documents with the codec of the index and makes them visible,
// all at once. Either all documents are added or none.
//
// Small segments are merged as [storage.MergePolicy] has it, so that they stay few.
//
// Errors: [ErrDimension], [ErrDuplicateID], [storage.ErrModel], those of src, and
// what writing fails with.
func (ix *Index) Add(ctx context.Context, src vectors.Source, opts *AddOptions) (*AddReport, error) {
	return Entry{ix: ix}.Add(ctx, src, opts)
}

// Add is [Index.Add].
func (e Entry) Add(ctx context.Context, src vectors.Source, opts *AddOptions) (*AddReport, error) {
	ix, o := e.ix, valueOrZero(opts)
	o.Memory = cmp.Or(o.Memory, DefaultMemory)
	o.Threads = cmp.Or(o.Threads, parallel.Processors())
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
		Docs: a.admission.docs, Replaced: a.admission.replaced, Passages: a.passages, Empty: enc.Empty,
		Kept: a.keptPayloads, Deleted: a.deletions.Documents - a.admission.replaced - a.evicted, Evicted: a.evicted,
		First: c.snap.State().Docs, Tokens: enc.Tokens, Zero: enc.Zero, Clamped: enc.Clamped,
		RMSE: rootMeanSquare(enc.SumSq, enc.Tokens), BuildRMSE: h.Build.RMSE,
	}
	if a.surplus > 0 {
		evictedLater, err := a.evictSurplus(ctx)
		if err != nil {
			return nil, err
		}
		report.Evicted += evictedLater
	}
	return report, nil
}

// addition is an Add on its way.
type addition struct {
	*change
	options      AddOptions
	src          vectors.Source // pooled
	tokens       int64          // of it
	arrivals     []Arrival      // of it
	passages     int            // among the rows
	admission    *Admission
	deletions    *deletionPlan
	keptPayloads int    // documents with payloads of those that they replace
	lastKeeper   string // the last of them
	nextKeeps    bool   // the row that arrives next has such a payload
	evicted      int    // documents
	surplus      int    // of the documents that are added, which are more than may stay
}

// poolTokens pools the documents as those of the index are, and counts their tokens.
func (a *addition) poolTokens(ctx context.Context) (err error) {
	h, o := a.snap.Header(), &a.options
	p := &pooledSource{Source: a.src, pooling: poolingFromBuild(h.Build), threads: o.Threads, normalize: h.Normalize, memory: o.Memory}
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

// stageAndCommit stages the documents, with those of the segments that the new one takes in, and
// commits them.
func (a *addition) stageAndCommit(ctx context.Context) (*encoder, error) {
	stage, merged, err := a.ix.beginAppend(ctx, a.snap, a.tokens, a.options.Memory)
	if err != nil {
		return nil, err
	}
	stage.isNewID = func(id string) bool {
		ordinals, err := a.snap.ordinalsOf(id)
		return err == nil && len(ordinals) == 0
	}
	e := &encoder{
		codec: a.snap.Quantizer(), backend: a.ix.backend, threads: a.options.Threads, normalize: a.snap.Header().Normalize, stager: stage,
		onStaged: a.recordArrival,
		progress: a.options.Progress, total: a.tokens,
	}
	e.checkPage = poolingFromBuild(a.snap.Header().Build).checkPage
	if a.options.KeepPayload {
		e.fallbackPayload = a.payloadToKeep
	}
	if err := e.encodeAll(ctx, a.src, a.options.Memory); err != nil {
		return nil, err
	}
	if err := a.admitDocuments(ctx); err != nil {
		return nil, err
	}
	reportProgress(a.options.Progress, Progress{Stage: "commit"})
	return e, stage.commit(ctx, func(tx *storage.Tx, g *storage.Generation, s *storage.State) error {
		if err := a.confirmUnchanged(tx, g); err != nil {
			return err
		}
		addToState(s, e, uint32(e.Doc))
		if err := deleteSegments(g, merged); err != nil {
			return err
		}
		return a.deletions.applyTo(g, s, stage.docSets)
	})
}

// admitDocuments decides whether the documents may be stored, and which ordinals give way to them.
func (a *addition) admitDocuments(ctx context.Context) error {
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
	if a.deletions, err = a.snap.planDeletion(ctx, a.admission.removed[0]); err != nil || a.options.MaxDocuments == nil {
		return err
	}
	if a.evicted, a.surplus, err = a.admission.markOldest(ctx, *a.options.MaxDocuments, a.deletions.Documents); err == nil && a.evicted > 0 {
		a.deletions, err = a.snap.planDeletion(ctx, a.admission.removed[0])
	}
	return err
}

// evictSurplus deletes the first of the documents that were added, if these are more than may stay.
// They are stored by then, so a failure is only logged: the next addition tries again. An error
// means that the file has to be reopened.
func (a *addition) evictSurplus(ctx context.Context) (int, error) {
	ctx = context.WithoutCancel(ctx)
	removed, err := a.deleteAfterwards(ctx, selectOldestBeyond(ctx, *a.options.MaxDocuments))
	if err != nil {
		a.ix.log.Error("the oldest documents were not deleted", "index", a.ix.Path(), "documents", a.surplus, "error", err)
	}
	if !errors.Is(err, storage.ErrOutcomeUnknown) {
		err = nil
	}
	return removed.Documents, err
}

// recordArrival is told of each row that is staged.
func (a *addition) recordArrival(row Arrival) {
	a.arrivals = append(a.arrivals, row)
	if id := row.documentID(); a.nextKeeps && id != a.lastKeeper { // passages of a document are in a row
		a.keptPayloads++
		a.lastKeeper = id
	}
	a.nextKeeps = false
}

// payloadToKeep is the payload of the document that one with this id replaces.
func (a *addition) payloadToKeep(id string) ([]byte, error) {
	payload, err := a.storedPayload(id)
	a.nextKeeps = payload != nil
	return payload, err
}

// storedPayload is the same; it counts nothing.
func (a *addition) storedPayload(id string) ([]byte, error) { return a.snap.KeptPayload(id) }

// KeptPayload returns the payload that a new document of an id takes over if it has none: the payload of
// the document or passage with this id. For a document that is stored as passages, it is the payload of
// the first one without its text ([vectors.WholePayload]). nil means that there is none.
func (s *Snapshot) KeptPayload(id string) ([]byte, error) {
	ordinals, _, err := s.findOrdinals(id)
	if err != nil || len(ordinals) == 0 {
		return nil, err
	}
	payload, err := s.Payload(ordinals[0])
	if err != nil || s.ID(ordinals[0]) == id {
		return payload, err
	}
	if payload = vectors.WholePayload(payload); vectors.NoPayload(payload) {
		return nil, nil
	}
	return payload, nil
}

// addToState adds what was encoded to the sums of a state: so many documents, without holes.
func addToState(s *storage.State, e *encoder, docs uint32) {
	s.Live += docs
	s.LiveTokens += uint64(e.Tokens)
	s.Clamped += uint64(e.Clamped)
	s.AddedTokens += uint64(e.Tokens)
	s.AddedSumSq += e.SumSq
}

// checkNewIDs refuses ids of documents that are there, unless they are replaced, before anything is
// encoded. Which rows are passages is not known yet.
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

// beginAppend begins staging behind the last segment that stays, and stages
// the documents of the segments that the new one takes in.
func (ix *Index) beginAppend(ctx context.Context, snap *Snapshot, tokens, memory int64) (*stager, []storage.Segment, error) {
	state := snap.State()
	keep := storage.KeepParts(segmentMergePolicy, state.Segments, func(s storage.Segment) uint64 { return s.Tokens }, uint64(tokens))
	merged := state.Segments[keep:]
	chunks := snap.Chunks()
	for _, g := range merged {
		chunks -= len(g.Chunks)
		state.Docs -= g.Docs
		state.Tokens -= g.Tokens
	}
	state.Segments = append([]storage.Segment(nil), state.Segments[:keep]...)
	stage := newStager(ix.file, snap.Generation(), snap.Header().Centroids, state, memory)
	stage.base, stage.docSets = snap, snap.fileSnapshot.DocSets()
	for ; chunks < snap.Chunks(); chunks++ {
		if err := stage.copyChunk(ctx, snap, chunks, false); err != nil {
			return nil, nil, err
		}
	}
	return stage, merged, nil
}

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
