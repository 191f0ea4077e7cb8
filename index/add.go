package index

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// AddOptions for Add. The zero value, or nil, refuses ids that are there.
type AddOptions struct {
	// Replace lets a document take the place of one with the same id: it gets a
	// new ordinal, and the old one is deleted, in the same transaction.
	Replace bool
	// KeepPayload leaves a document that replaces another, and brings no payload, the
	// payload of the old one.
	KeepPayload bool
	// Delete has ids of documents that go in the same transaction, if documents are
	// added. Ids that name no document are passed over, and so are those of documents
	// that are added.
	Delete []string
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
	// AddOptions.Delete.
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

// mergeTokens is the size above which a segment is left alone by additions.
const mergeTokens = 4 << 20

// Add encodes documents with the codec of the index and makes them visible,
// all at once. Either all documents are added or none.
//
// Small segments are merged as the logarithmic method has it (Bentley and Saxe,
// 1980): a new segment takes in the ones before it that are at most twice as
// large as itself. So each segment is more than twice as large as the next,
// their number is logarithmic in the size of the index (up to the size from
// which on they are left alone), and a token that is rewritten finds itself in
// a segment at least half as large again.
//
// Errors: [ErrDimension], [ErrDuplicateID], [storage.ErrModel], those of src, and
// what writing fails with.
func (ix *Index) Add(ctx context.Context, src vectors.Source, opts *AddOptions) (*AddReport, error) {
	return ix.add(ctx, src, opts, nil)
}

func (ix *Index) add(ctx context.Context, src vectors.Source, opts *AddOptions, log *entry) (r *AddReport, err error) {
	o := AddOptions{}
	if opts != nil {
		o = *opts
	}
	if o.Memory == 0 {
		o.Memory = DefaultMemory
	}
	if o.Threads == 0 {
		o.Threads = runtime.GOMAXPROCS(0)
	}
	if err := ix.write.begin(ctx); err != nil {
		return nil, err
	}
	defer ix.write.end()
	snap, err := ix.beginChange()
	if err != nil {
		return nil, err
	}
	defer snap.Close()
	if err := snap.Header().Model.Check(o.Model); err != nil {
		return nil, fmt.Errorf("%s: %w", ix.Path(), err)
	}
	if err := log.check(snap); err != nil {
		return nil, err
	}
	if src.Len() == 0 {
		return &AddReport{}, ix.note(log, snap)
	}
	if d := src.Dim(); d != 0 && d != snap.Dim() {
		return nil, fmt.Errorf("%w: documents have %d, %s has %d", ErrDimension, d, ix.Path(), snap.Dim())
	}
	src = pooled(src, snap.Header().Build.Pool, o.Threads, snap.Header().Normalize, o.Memory)
	r = &AddReport{}
	replaced, tokens, err := checkIDs(ctx, src, snap, o.Replace)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil && !errors.Is(err, storage.ErrOutcomeUnknown) {
			err = errors.Join(err, ix.file.Discard())
		}
		err = ix.changed(err)
	}()

	stage, merged, err := ix.stageMerged(ctx, snap, tokens, o.Memory)
	if err != nil {
		return nil, err
	}
	e := &encoder{codec: snap.Quantizer(), backend: ix.backend, threads: o.Threads, normalize: snap.Header().Normalize, stage: stage}
	if len(replaced) > 0 {
		e.fresh = func(id string) bool { _, old := replaced[id]; return !old }
		if o.KeepPayload {
			e.payload = func(id string) ([]byte, error) {
				old, ok := replaced[id]
				if !ok {
					return nil, nil
				}
				p, err := snap.Payload(old)
				if p != nil {
					r.Kept++
				}
				return p, err
			}
		}
	}
	removed, err := removals(ctx, src, snap, o.Delete)
	if err != nil {
		return nil, err
	}
	if o.Progress != nil {
		e.progress = func(done int64) { o.Progress(Progress{"encode", done, tokens, "tokens"}) }
	}
	if err := e.all(ctx, src, o.Memory); err != nil {
		return nil, err
	}
	committing(o.Progress)
	err = stage.commit(ctx, func(tx *storage.Tx, g *storage.Generation, s *storage.State) error {
		if err := follows(g, snap); err != nil {
			return err
		}
		if err := log.put(tx, snap.Generation()); err != nil {
			return err
		}
		s.Live += uint32(e.docs)
		s.LiveTokens += uint64(e.done)
		s.Clamped += uint64(e.clamped)
		s.AddedTokens += uint64(e.done)
		s.AddedSumSq += e.sumSq
		if err := dropSegments(g, merged); err != nil {
			return err
		}
		return replaceOld(g, s, snap, src, replaced, removed)
	})
	if err != nil {
		return nil, err
	}
	r.Docs, r.Empty, r.Replaced, r.Tokens = e.docs, e.empty, len(replaced), e.done
	r.First = snap.State().Docs
	r.Zero, r.Deleted = e.zero, len(removed)
	r.Clamped, r.RMSE, r.BuildRMSE = e.clamped, rmse(e.sumSq, e.done), snap.Header().Build.RMSE
	return r, nil
}

// beginChange returns what is to be changed, free of what an addition that
// failed may have left because removing it failed as well, as on a full disk.
func (ix *Index) beginChange() (*Snapshot, error) {
	if err := ix.file.Discard(); err != nil {
		return nil, ix.changed(err)
	}
	return ix.Snapshot()
}

// follows makes sure that a change goes on from what its snapshot shows.
func follows(g *storage.Generation, snap *Snapshot) error {
	s, err := g.State()
	if err == nil && !reflect.DeepEqual(s, snap.State()) {
		err = fmt.Errorf("%s: %w: the index has changed under a change", snap.Path(), storage.ErrInternal)
	}
	return err
}

// checkIDs finds ids that are taken before anything is encoded. It returns the
// ordinals that are to be replaced, by id, and the number of new tokens.
func checkIDs(ctx context.Context, src vectors.Source, snap *Snapshot, replace bool) (map[string]uint32, int64, error) {
	replaced := map[string]uint32{}
	tokens := int64(0)
	for i := range src.Len() {
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		tokens += int64(src.Rows(i))
		id := src.ID(i)
		ordinal, ok, err := snap.Ordinal(id)
		switch {
		case err != nil:
			return nil, 0, err
		case !ok:
			continue
		case !replace:
			return nil, 0, fmt.Errorf("document %d: %w: %q", i, ErrDuplicateID, id)
		}
		if _, twice := replaced[id]; twice {
			return nil, 0, fmt.Errorf("document %d: %w: %q twice in the input", i, ErrDuplicateID, id)
		}
		replaced[id] = ordinal
	}
	return replaced, tokens, nil
}

// stageMerged begins staging behind the last segment that stays, and stages
// the documents of the segments that the new one takes in.
func (ix *Index) stageMerged(ctx context.Context, snap *Snapshot, tokens, memory int64) (*stager, []storage.Segment, error) {
	state := snap.State()
	keep := len(state.Segments)
	size := uint64(tokens)
	for keep > 0 {
		last := state.Segments[keep-1]
		if last.Tokens > 2*size || last.Tokens > mergeTokens {
			break
		}
		size += last.Tokens
		keep--
	}
	merged := state.Segments[keep:]
	chunks := snap.Chunks()
	for _, g := range merged {
		chunks -= len(g.Chunks)
		state.Docs -= g.Docs
		state.Tokens -= g.Tokens
	}
	state.Segments = append([]storage.Segment(nil), state.Segments[:keep]...)
	stage := newStager(ix.file, snap.Generation(), snap.Header().Centroids, state, memory)
	stage.before = snap
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

// removals finds the documents of AddOptions.Delete, by id.
func removals(ctx context.Context, src vectors.Source, snap *Snapshot, ids []string) (map[string]uint32, error) {
	removed := map[string]uint32{}
	for _, id := range ids {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		ordinal, ok, err := snap.Ordinal(id)
		if err != nil {
			return nil, err
		}
		if ok {
			removed[id] = ordinal
		}
	}
	for i := 0; len(removed) > 0 && i < src.Len(); i++ {
		delete(removed, src.ID(i))
	}
	return removed, nil
}

// replaceOld points the ids of replaced documents to the new ones, and deletes the old
// ones and those that are removed.
func replaceOld(g *storage.Generation, s *storage.State, snap *Snapshot, src vectors.Source, replaced, removed map[string]uint32) error {
	if len(replaced)+len(removed) == 0 {
		return nil
	}
	tombstones := snap.Tombstones().Clone()
	first := s.Docs - uint32(src.Len())
	for i := range src.Len() {
		id := src.ID(i)
		old, ok := replaced[id]
		if !ok {
			continue
		}
		if err := g.PutID(id, first+uint32(i)); err != nil {
			return err
		}
		if err := bury(g, s, snap, tombstones, old); err != nil {
			return err
		}
	}
	for _, id := range slices.Sorted(maps.Keys(removed)) {
		if err := g.DeleteID(id); err != nil {
			return err
		}
		if err := bury(g, s, snap, tombstones, removed[id]); err != nil {
			return err
		}
	}
	return g.PutTombstones(tombstones)
}

// bury marks a live document deleted and forgets its payload.
func bury(g *storage.Generation, s *storage.State, snap *Snapshot, tombstones *roaring.Bitmap, ordinal uint32) error {
	chunk, doc, _ := snap.Locate(ordinal)
	_, offsets := snap.ChunkDocs(chunk)
	tombstones.Add(ordinal)
	s.Live--
	s.LiveTokens -= uint64(offsets[doc+1] - offsets[doc])
	return g.DeletePayload(ordinal)
}
