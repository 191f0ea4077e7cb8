package index

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// AddOptions for Add. The zero value, or nil, refuses ids that are there.
type AddOptions struct {
	// Replace lets a document take the place of one with the same id: it gets a
	// new ordinal, and the old one is deleted, in the same transaction. With its
	// passages ([vectors.Passage]) a document is one: those that are added take the
	// place of all that were there, however many, and of the document if it had none.
	// So the passages of a document are to be added together. Otherwise that is
	// [ErrDuplicateID], as for an id.
	Replace bool
	// Apart replaces and deletes by ids alone, also passages: for who has looked himself which
	// passages go, as the nodes of a cluster do.
	Apart bool
	// KeepPayload leaves a document that replaces another, and brings no payload, the
	// payload of the old one.
	KeepPayload bool
	// Delete has ids of documents that go in the same transaction, if documents are added, with
	// their passages ([Index.Delete]). Ids that name no document are passed over, and so are
	// those of documents that are added.
	Delete []string
	// deleteAlone makes Delete name single documents, without their passages.
	deleteAlone bool
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
	// Docs counts the documents that were added, Empty those of them without tokens,
	// Replaced those that took the place of another.
	Docs, Empty, Replaced int
	// Kept counts the replaced documents whose payload stayed, Deleted those of
	// AddOptions.Delete, and passages that none of the new ones replaced by its id.
	Kept, Deleted int
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

// segmentMerges is when a new segment takes in those before it, by their tokens.
var segmentMerges = storage.MergePolicy{Largest: 4 << 20} // a variable, so that tests see large segments

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
	ix, o := e.ix, given(opts)
	o.Memory = cmp.Or(o.Memory, DefaultMemory)
	o.Threads = cmp.Or(o.Threads, parallel.Processors())
	c, err := e.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer c.end()
	h := c.snap.Header()
	if err := h.Model.Check(o.Model); err != nil {
		return nil, fmt.Errorf("%s: %w", ix.Path(), err)
	}
	if src.Len() == 0 {
		return &AddReport{}, c.noteEntry()
	}
	if d := src.Dim(); d != 0 && d != h.Dim {
		return nil, fmt.Errorf("%w: documents have %d, %s has %d", ErrDimension, d, ix.Path(), h.Dim)
	}
	a := &addition{change: c, options: o, src: src}
	if err := a.lookUp(ctx); err != nil {
		return nil, err
	}
	if err := a.pool(ctx); err != nil {
		return nil, err
	}
	done, err := a.encode(ctx)
	if err != nil && !errors.Is(err, storage.ErrOutcomeUnknown) {
		err = errors.Join(err, ix.file.Discard())
	}
	if err := ix.changed(err); err != nil {
		return nil, err
	}
	return &AddReport{
		Docs: done.Doc, Empty: done.Empty, Replaced: len(a.replaced), Kept: a.kept, Deleted: len(a.removed),
		First: c.snap.State().Docs, Tokens: done.Tokens, Zero: done.Zero, Clamped: done.Clamped,
		RMSE: rmse(done.SumSq, done.Tokens), BuildRMSE: h.Build.RMSE,
	}, nil
}

// addition is an Add on its way.
type addition struct {
	*change
	options  AddOptions
	src      vectors.Source    // pooled
	tokens   int64             // of it
	replaced map[string]uint32 // by id, the ordinals of documents that are replaced
	removed  map[string]uint32 // the same of AddOptions.Delete
	kept     int               // payloads of replaced documents
	arrivals arrivals
}

// pool pools the documents as those of the index are, and counts their tokens.
func (a *addition) pool(ctx context.Context) (err error) {
	h, o := a.snap.Header(), &a.options
	p := &pooledSource{Source: a.src, pooling: poolingOf(h.Build), threads: o.Threads, normalize: h.Normalize, memory: o.Memory}
	if o.KeepPayload {
		p.payload = a.oldPayload
	}
	if a.src, err = pooled(ctx, p); err != nil {
		return err
	}
	for i := range a.src.Len() {
		a.tokens += int64(a.src.Rows(i))
	}
	return nil
}

// encode stages the documents, with those of the segments that the new one takes in, and
// commits them.
func (a *addition) encode(ctx context.Context) (*encoder, error) {
	stage, merged, err := a.ix.stageMerged(ctx, a.snap, a.tokens, a.options.Memory)
	if err != nil {
		return nil, err
	}
	e := &encoder{
		codec: a.snap.Quantizer(), backend: a.ix.backend, threads: a.options.Threads, normalize: a.snap.Header().Normalize, stage: stage,
		fresh:    func(id string) bool { _, old := a.replaced[id]; return !old },
		progress: a.options.Progress, total: a.tokens,
	}
	a.arrivals = arrivals{roaring.New(), map[string]bool{}}
	e.arrive, e.page = a.arrivals.note, poolingOf(a.snap.Header().Build).checkPage
	if a.options.KeepPayload {
		e.payload = a.keptPayload
	}
	if err := e.encodeAll(ctx, a.src, a.options.Memory); err != nil {
		return nil, err
	}
	if err := a.dropOthers(ctx); err != nil {
		return nil, err
	}
	tell(a.options.Progress, Progress{Stage: "commit"})
	return e, stage.commit(ctx, func(tx *storage.Tx, g *storage.Generation, s *storage.State) error {
		if err := a.confirm(tx, g); err != nil {
			return err
		}
		countAdded(s, e, uint32(e.Doc))
		if err := dropSegments(g, merged); err != nil {
			return err
		}
		return a.replaceOld(g, s, stage.sets)
	})
}

// keptPayload is the payload of the document that one with this id replaces.
func (a *addition) keptPayload(id string) ([]byte, error) {
	payload, err := a.oldPayload(id)
	if payload != nil {
		a.kept++
	}
	return payload, err
}

// oldPayload is the same; it counts nothing.
func (a *addition) oldPayload(id string) ([]byte, error) {
	if old, ok := a.replaced[id]; ok {
		return a.snap.Payload(old)
	}
	return nil, nil
}

// countAdded adds what was encoded to the sums of a state: so many documents, without holes.
func countAdded(s *storage.State, e *encoder, docs uint32) {
	s.Live += docs
	s.LiveTokens += uint64(e.Tokens)
	s.Clamped += uint64(e.Clamped)
	s.AddedTokens += uint64(e.Tokens)
	s.AddedSumSq += e.SumSq
}

// lookUp finds the ids of the documents in the index, before anything is encoded: which
// ones are replaced, if that may be, and which of AddOptions.Delete there are.
func (a *addition) lookUp(ctx context.Context) error {
	a.replaced, a.removed = map[string]uint32{}, map[string]uint32{}
	for i := range a.src.Len() {
		if err := ctx.Err(); err != nil {
			return err
		}
		id := a.src.ID(i)
		ordinal, ok, err := a.snap.Ordinal(id)
		switch {
		case err != nil:
			return err
		case !ok:
			continue
		case !a.options.Replace:
			return fmt.Errorf("document %d: %w: %q", i, ErrDuplicateID, id)
		}
		if _, twice := a.replaced[id]; twice {
			return fmt.Errorf("document %d: %w: %q twice in the input", i, ErrDuplicateID, id)
		}
		a.replaced[id] = ordinal
	}
	if len(a.options.Delete) == 0 {
		return nil
	}
	named, _, err := a.snap.named(ctx, a.options.Delete, !a.options.Apart && !a.options.deleteAlone)
	if err != nil {
		return err
	}
	for it := named.Iterator(); it.HasNext(); {
		ordinal := it.Next()
		id := a.snap.ID(ordinal)
		if _, replaced := a.replaced[id]; !replaced {
			a.removed[id] = ordinal
		}
	}
	return nil
}

// stageMerged begins staging behind the last segment that stays, and stages
// the documents of the segments that the new one takes in.
func (ix *Index) stageMerged(ctx context.Context, snap *Snapshot, tokens, memory int64) (*stager, []storage.Segment, error) {
	state := snap.State()
	keep := storage.KeepParts(segmentMerges, state.Segments, func(s storage.Segment) uint64 { return s.Tokens }, uint64(tokens))
	merged := state.Segments[keep:]
	chunks := snap.Chunks()
	for _, g := range merged {
		chunks -= len(g.Chunks)
		state.Docs -= g.Docs
		state.Tokens -= g.Tokens
	}
	state.Segments = append([]storage.Segment(nil), state.Segments[:keep]...)
	stage := newStager(ix.file, snap.Generation(), snap.Header().Centroids, state, memory)
	stage.before, stage.sets = snap, snap.view.DocSets()
	for ; chunks < snap.Chunks(); chunks++ {
		if err := stage.copyChunk(ctx, snap, chunks, false); err != nil {
			return nil, nil, err
		}
	}
	return stage, merged, nil
}

func dropSegments(g *storage.Generation, segments []storage.Segment) error {
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

// replaceOld points the ids of replaced documents to the new ones, and deletes the old
// ones and those that are removed.
func (a *addition) replaceOld(g *storage.Generation, s *storage.State, sets storage.DocSets) error {
	first := s.Docs - uint32(a.src.Len())
	for i := range a.src.Len() {
		id := a.src.ID(i)
		old, ok := a.replaced[id]
		if !ok {
			continue
		}
		if err := g.PutID(id, first+uint32(i)); err != nil {
			return err
		}
		if err := bury(g, s, sets, a.snap, old); err != nil {
			return err
		}
	}
	for _, id := range slices.Sorted(maps.Keys(a.removed)) {
		if err := g.DeleteID(id); err != nil {
			return err
		}
		if err := bury(g, s, sets, a.snap, a.removed[id]); err != nil {
			return err
		}
	}
	return nil
}

// bury marks a live document deleted and forgets its payload.
func bury(g *storage.Generation, s *storage.State, sets storage.DocSets, snap *Snapshot, ordinal uint32) error {
	chunk, doc, _ := snap.Locate(ordinal)
	_, offsets := snap.ChunkDocs(chunk)
	sets.Deleted.Add(ordinal)
	sets.Payload.Remove(ordinal)
	s.Live--
	s.LiveTokens -= uint64(offsets[doc+1] - offsets[doc])
	return g.DeletePayload(ordinal)
}
