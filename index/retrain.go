package index

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// RetrainOptions configures Retrain. The zero value, or nil, trains on the stored vectors.
type RetrainOptions struct {
	// Vectors, if not nil, is the source of the original vectors, by id: its documents are encoded
	// from them, with as many tokens as are stored; the others are encoded from the stored vectors.
	// Documents that the index does not have are ignored. It is read as Build reads its source.
	Vectors vectors.Source
	// Nbits, if not 0, is the new number of residual bits.
	Nbits int
	// Centroids, HeldOut, Iterations, Seed and Codec are as in [BuildOptions]. An index that has
	// never had a token gets the dimension of the codec.
	Centroids, HeldOut, Iterations int
	Seed                           uint64
	Codec                          *codec.Quantizer
	// Like, if not nil, is another index, or a file with a codec alone ([Train]): its codec is
	// used, and nothing is trained. An index without tokens can be encoded with it too.
	Like *Snapshot
	// Threads, Memory, Device and Progress are as in [BuildOptions].
	Threads  int
	Memory   int64
	Device   kernels.Device
	Progress func(Progress)
}

// RetrainReport describes the result of Retrain.
type RetrainReport struct {
	Docs     int   `json:"docs"`     // live documents
	Passages int   `json:"passages"` // passages in which some of them are stored
	Tokens   int64 `json:"tokens"`   // tokens of all documents
	// Original is the number of documents that were encoded, entirely or in part, from
	// RetrainOptions.Vectors; Unused the number of documents, or passages, of it that the index
	// does not have.
	Original int `json:"original_docs"`
	Unused   int `json:"unused_docs"`
	// Followed is the number of documents and passages that were added during the training.
	Followed int `json:"followed_docs"`
	Clamped  int `json:"clamped_tokens"` // tokens whose factor did not fit; see [storage.State]
	// Before and After describe the codec.
	Before CodecReport       `json:"before"`
	After  CodecReport       `json:"after"`
	Train  codec.TrainReport `json:"-"` // result of the training
	// Seconds is the duration of each stage.
	Seconds struct {
		Sample float64 `json:"sample"` // reading the sample
		Train  float64 `json:"train"`  // training
		Encode float64 `json:"encode"` // encoding all documents
		// Swap is how long changes had to wait.
		Swap float64 `json:"swap"`
	} `json:"seconds"`
}

// CodecReport describes a codec and how well it fits the documents.
type CodecReport struct {
	Nbits     int `json:"nbits"`     // residual bits per component
	Centroids int `json:"centroids"` // number of centroids
	// RMSE is the root mean square error of vectors: before, that of the documents added since the
	// codec was trained; after, that of all documents, compared with the vectors that they were
	// encoded from.
	RMSE float64 `json:"rmse"`
}

// Retrain trains a new codec on the current documents of the index, and encodes them with it. Ids,
// ordinals and payloads stay. The new index file is written in the folder of the old one while
// searches and changes continue; then these changes are made to the new file too, and one rename
// replaces the old file. A program that dies before the rename has changed nothing. Stored search
// parameters (see SetDefaults) were tuned for the old codec, and are dropped.
//
// Snapshots taken before keep the old file until they are closed.
//
// Errors: [ErrNoTokens], [ErrOption], [ErrDimension], [ErrMismatch], those of
// RetrainOptions.Vectors, [storage.ErrCorrupt], and those of writing. After an error the index is
// unchanged; only after [storage.ErrOutcomeUnknown] it may be the new one.
func (ix *Index) Retrain(ctx context.Context, opts *RetrainOptions) (report *RetrainReport, err error) {
	r := &retraining{ix: ix, options: valueOrZero(opts), report: &RetrainReport{}}
	if err := r.prepare(); err != nil {
		return nil, err
	}
	if err := ix.trainLock.lock(ctx); err != nil { // one at a time
		return nil, err
	}
	defer ix.trainLock.unlock()
	defer storage.Guard(ix.Path(), &err)()
	if err := r.retrain(ctx); err != nil {
		return nil, err
	}
	return r.report, nil
}

// ErrMismatch reports original vectors that do not fit the stored document.
var ErrMismatch = errors.New("vectors are not those that are stored")

// retraining is a Retrain in progress. Its steps are those of retrain.
type retraining struct {
	ix      *Index
	options RetrainOptions
	build   BuildOptions // the same options, as trainCodec takes them
	backend kernels.Backend
	report  *RetrainReport

	rewrite    *storage.Rewrite
	target     *Index // the new file
	codec      *codec.Quantizer
	sampleDocs int     // number of documents trained on
	sumSq      float64 // sum of the squared errors of encoded tokens
	tokens     int64   // number of encoded tokens

	followed *Snapshot // snapshot of the old file with the state that the new file has
}

// prepare checks and completes the options.
func (r *retraining) prepare() error {
	o := &r.options
	o.Memory = cmp.Or(o.Memory, DefaultMemory)
	r.backend, o.Threads = selectBuilder(r.ix.backend, o.Device, o.Threads)
	if o.Like != nil {
		h := o.Like.Header()
		if o.Codec != nil || o.Nbits != 0 && o.Nbits != h.Nbits || o.Centroids != 0 && o.Centroids != h.Centroids {
			return fmt.Errorf("%w: the codec of %s has %d bits and %d centroids, and other options ask for another one",
				ErrOption, o.Like.Path(), h.Nbits, h.Centroids)
		}
		o.Codec, o.Nbits, o.Centroids = o.Like.Quantizer(), h.Nbits, h.Centroids
	}
	r.build = BuildOptions{
		Nbits:      o.Nbits,
		Centroids:  o.Centroids,
		HeldOut:    o.HeldOut,
		Iterations: o.Iterations,
		Seed:       o.Seed,
		Threads:    o.Threads,
		Memory:     o.Memory,
		Progress:   o.Progress,
	}
	return r.build.validate()
}

// retrain trains, writes the new file, follows the changes made meanwhile, and swaps the files.
func (r *retraining) retrain(ctx context.Context) (err error) {
	if !r.ix.file.Writes() {
		return fmt.Errorf("%s: %w", r.ix.Path(), storage.ErrReadOnly)
	}
	// Get a snapshot; from now on, changes of payloads are recorded.
	snap, _, err := r.newestSnapshot(ctx)
	if err != nil {
		return err
	}
	r.followed = snap
	defer func() {
		r.ix.writeLock <- struct{}{} // without ctx: a change takes only a moment
		r.ix.changedPayloads = nil
		r.ix.writeLock.unlock()
		err = errors.Join(err, r.followed.Close())
	}()
	// Train the codec.
	src, err := r.snapshotDocuments(ctx, snap)
	if err != nil {
		return err
	}
	if err := r.trainCodec(ctx, snap, src); err != nil {
		return err
	}
	// Write the new file, and follow the changes.
	if r.rewrite, err = r.ix.file.BeginRewrite(); err != nil {
		return err
	}
	r.target = newIndex(r.rewrite.File(), r.ix.backend, r.ix.log)
	defer func() { err = errors.Join(err, r.target.setCurrent(nil), r.rewrite.Close()) }()
	start := time.Now()
	if err := r.encodeSnapshot(ctx, snap, src); err != nil {
		return r.rewrite.ToIndexError(err)
	}
	if err := r.catchUp(ctx); err != nil {
		return r.rewrite.ToIndexError(err)
	}
	r.report.Seconds.Encode = time.Since(start).Seconds()
	return r.swapFiles(ctx)
}

// newestSnapshot returns the newest snapshot, and the documents whose payloads have changed since
// the last call.
func (r *retraining) newestSnapshot(ctx context.Context) (*Snapshot, *roaring.Bitmap, error) {
	if err := r.ix.writeLock.lock(ctx); err != nil {
		return nil, nil, err
	}
	defer r.ix.writeLock.unlock()
	return r.newestLocked()
}

// newestLocked is newestSnapshot for a caller that holds the write lock.
func (r *retraining) newestLocked() (*Snapshot, *roaring.Bitmap, error) {
	snap, err := r.ix.Snapshot()
	if err != nil {
		return nil, nil, err
	}
	newPayloads := r.ix.changedPayloads
	r.ix.changedPayloads = roaring.New()
	return snap, newPayloads, nil
}

// snapshotDocuments returns the documents of the snapshot, with holes for deleted ones. It is an
// error if they cannot be trained on and no other codec is given.
func (r *retraining) snapshotDocuments(ctx context.Context, snap *Snapshot) (*snapshotSource, error) {
	s := &snapshotSource{snap: snap, end: snap.State().Docs}
	if r.options.Vectors != nil {
		if err := s.matchOriginals(ctx, r); err != nil {
			return nil, err
		}
	}
	// An index without tokens gets another codec, or another dimension, but cannot train one.
	setsDimension := r.options.Codec != nil && r.options.Codec.Dim != snap.Dim()
	if snap.State().LiveTokens == 0 && r.options.Like == nil && !setsDimension {
		return nil, fmt.Errorf("%s: %w", snap.Path(), ErrNoTokens)
	}
	return s, nil
}

// trainCodec trains the codec, or checks the given one.
func (r *retraining) trainCodec(ctx context.Context, snap *Snapshot, src *snapshotSource) error {
	h := snap.Header()
	drift := snap.Drift()
	r.report.Before = CodecReport{Nbits: h.Nbits, Centroids: h.Centroids, RMSE: drift.AddedRMSE}
	if r.build.Nbits == 0 {
		r.build.Nbits = h.Nbits
	}
	r.build.Unnormalized = !h.Normalize
	if r.codec = r.options.Codec; r.codec != nil {
		if r.codec.Dim != snap.Dim() && snap.State().Tokens > 0 {
			return fmt.Errorf("%w: codec has %d, %s has %d", ErrDimension, r.codec.Dim, snap.Path(), snap.Dim())
		}
		if like := r.options.Like; like != nil && like.Header().Normalize != h.Normalize {
			return fmt.Errorf("%w: either %s or %s scales vectors to unit length, the other does not",
				ErrOption, like.Path(), snap.Path())
		}
		return nil
	}
	var built BuildReport
	var err error
	r.codec, err = trainCodec(ctx, src, int64(snap.State().LiveTokens), r.build, r.backend, &built)
	if err != nil {
		return err
	}
	r.report.Train, r.sampleDocs = built.Train, built.SampleDocs
	r.report.Seconds.Sample, r.report.Seconds.Train = built.Seconds.Sample, built.Seconds.Train
	return nil
}

// encodeSnapshot fills the new file with the documents of the snapshot.
func (r *retraining) encodeSnapshot(ctx context.Context, snap *Snapshot, src *snapshotSource) error {
	h, oldState := snap.Header(), snap.State()
	build := storage.Build{Source: h.Build.Source, Seed: r.options.Seed, Pool: h.Build.Pool, PoolBy: h.Build.PoolBy}
	if r.options.Like != nil {
		build = r.options.Like.Header().Build
		build.Pool, build.PoolBy = h.Build.Pool, h.Build.PoolBy
	} else if t := r.report.Train; r.options.Codec == nil {
		build.Iterations, build.SampleDocs, build.SampleRows = t.Iterations, r.sampleDocs, t.Vectors
		build.RMSE, build.Tokens = t.RMSE, oldState.LiveTokens
	}
	gen, err := createGeneration(r.target.file, r.codec, build, h.Model, h.Normalize)
	if err != nil {
		return err
	}
	stager := newStager(r.target.file, gen, r.codec.K, storage.State{}, r.options.Memory)
	e := r.newEncoder(stager)
	e.progress, e.total = r.options.Progress, int64(oldState.LiveTokens)
	if err := e.encodeAll(ctx, src, r.options.Memory); err != nil {
		return err
	}
	reportProgress(r.options.Progress, Progress{Stage: "commit"})
	return stager.commit(ctx, func(tx *storage.Tx, _ *storage.Generation, s *storage.State) error {
		s.Live, s.LiveTokens, s.Clamped = oldState.Live, uint64(e.Tokens), uint64(e.Clamped)
		s.PayloadUpdates = oldState.PayloadUpdates
		r.addEncoded(e)
		stager.docSets.Deleted = snap.Tombstones()
		return errors.Join(tx.MakeCurrent(gen), putBuilt(tx))
	})
}

// newEncoder returns the encoder of the new file; documents without an id become holes.
func (r *retraining) newEncoder(stager *stager) *encoder {
	return &encoder{
		codec:         r.codec,
		backend:       r.backend,
		threads:       r.options.Threads,
		normalize:     !r.build.Unnormalized,
		stager:        stager,
		alreadyStored: true,
	}
}

// addEncoded adds the counts of an encoder to the report.
func (r *retraining) addEncoded(e *encoder) {
	r.report.Clamped += e.Clamped
	r.sumSq += e.SumSq
	r.tokens += e.Tokens
	r.report.After = CodecReport{Nbits: r.codec.Nbits, Centroids: r.codec.K, RMSE: rootMeanSquare(r.sumSq, r.tokens)}
}

// Changes made during a retraining are followed until a round adds fewer than followDocs documents,
// at most for followRounds rounds. The last ones are followed under the write lock.
const (
	followRounds = 16
	followDocs   = 64
)

// catchUp makes the changes of the old file in the new one, until few remain.
func (r *retraining) catchUp(ctx context.Context) error {
	for range followRounds {
		newest, newPayloads, err := r.newestSnapshot(ctx)
		if err != nil {
			return err
		}
		previous := r.followed
		addedDocs := newest.State().Docs - previous.State().Docs
		if err := r.followChanges(ctx, newest, newPayloads); err != nil {
			return errors.Join(err, newest.Close())
		}
		r.followed = newest
		if err := previous.Close(); err != nil {
			return err
		}
		if addedDocs < followDocs {
			return nil
		}
	}
	return nil
}

// swapFiles follows the last changes under the write lock, and replaces the old file by the new
// one.
func (r *retraining) swapFiles(ctx context.Context) error {
	ix := r.ix
	if err := ix.writeLock.lock(ctx); err != nil {
		return err
	}
	defer ix.writeLock.unlock()
	start := time.Now()
	newest, newPayloads, err := r.newestLocked()
	if err != nil {
		return err
	}
	state := newest.State()
	err = r.followChanges(ctx, newest, newPayloads)
	if err == nil {
		err = r.rewrite.File().Update(func(tx *storage.Tx) error {
			gen, err := tx.Current()
			return errors.Join(err, copyApplied(tx, gen, newest))
		})
	}
	if err = errors.Join(err, newest.Close(), r.target.setCurrent(nil)); err != nil {
		return r.rewrite.ToIndexError(err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := ix.afterChange(r.rewrite.Commit()); err != nil {
		return err
	}
	r.report.Docs, r.report.Passages = int(state.Documents()), int(state.Passages)
	r.report.Tokens = int64(state.LiveTokens)
	r.report.Seconds.Swap = time.Since(start).Seconds()
	ix.log.Info("the index was retrained",
		"index", ix.Path(),
		"documents", r.report.Docs,
		"passages", r.report.Passages,
		"tokens", state.LiveTokens,
		"nbits", r.codec.Nbits,
		"centroids", r.codec.K,
		"rmse", r.report.After.RMSE,
		"changes_waited", time.Since(start))
	return nil
}

// followChanges makes in the new file the changes from the snapshot r.followed to the newest: it
// sets the payloads of documents that the new file has, then adds and deletes documents. newPayloads
// are the documents whose payloads have changed.
func (r *retraining) followChanges(ctx context.Context, newest *Snapshot, newPayloads *roaring.Bitmap) error {
	if newest.Lineage() != r.followed.Lineage() {
		return fmt.Errorf("%s: %w: the index was replaced during its retraining", newest.Path(), storage.ErrInternal)
	}
	if newest.Version() == r.followed.Version() {
		return nil
	}
	if err := r.followPayloads(ctx, newest, newPayloads); err != nil {
		return err
	}
	if err := r.followDocuments(ctx, newest); err != nil {
		return err
	}
	return r.target.refreshCurrent()
}

// followDocuments adds to the new file the added documents, and deletes from it the deleted ones.
func (r *retraining) followDocuments(ctx context.Context, newest *Snapshot) error {
	snap, err := r.target.Snapshot()
	if err != nil {
		return err
	}
	defer func() { _ = snap.Close() }()
	added := &snapshotSource{snap: newest, first: r.followed.State().Docs, end: newest.State().Docs}
	tokens, live := added.countTokens()
	stager, merged, err := r.target.beginAppend(ctx, snap, tokens, r.options.Memory)
	if err != nil {
		return err
	}
	deleted := deletedSince(r.followed, newest)
	plan, err := snap.planDeletion(ctx, deleted)
	if err != nil {
		return err
	}
	stager.isNewID = isNewAfterDeletion(snap, deleted)
	e := r.newEncoder(stager)
	if err := e.encodeAll(ctx, added, r.options.Memory); err != nil {
		return err
	}
	err = stager.commit(ctx, func(_ *storage.Tx, g *storage.Generation, s *storage.State) error {
		s.PayloadUpdates = newest.State().PayloadUpdates
		addToState(s, e, live)
		if err := deleteSegments(g, merged); err != nil {
			return err
		}
		if err := plan.applyTo(g, s, stager.docSets); err != nil {
			return err
		}
		stager.docSets.Deleted = newest.Tombstones()
		return nil
	})
	if err != nil {
		return err
	}
	r.addEncoded(e)
	r.report.Followed += int(live)
	return nil
}

// deletedSince returns the documents of the older snapshot that are deleted in the newer one.
func deletedSince(older, newer *Snapshot) *roaring.Bitmap {
	deleted := roaring.AndNot(newer.Tombstones(), older.Tombstones())
	deleted.RemoveRange(uint64(older.State().Docs), 1<<32)
	return deleted
}

// isNewAfterDeletion returns a function that reports whether none of the deleted ordinals of the
// snapshot uses an id. Such an id is new: added ids are unique among the ordinals that stay.
func isNewAfterDeletion(snap *Snapshot, deleted *roaring.Bitmap) func(id string) bool {
	deletedIDs := make(map[string]bool, deleted.GetCardinality())
	for it := deleted.Iterator(); it.HasNext(); {
		ordinal := it.Next()
		deletedIDs[snap.ID(ordinal)], deletedIDs[snap.DocumentOf(ordinal)] = true, true
	}
	return func(id string) bool { return !deletedIDs[id] }
}

// followPayloads sets the changed payloads of documents that the new file has.
func (r *retraining) followPayloads(ctx context.Context, newest *Snapshot, newPayloads *roaring.Bitmap) error {
	_, err := Entry{ix: r.target}.replacePayloads(ctx, func(snap *Snapshot) (map[uint32][]byte, error) {
		payloads := map[uint32][]byte{}
		for it := newPayloads.Iterator(); it.HasNext(); {
			ordinal := it.Next()
			if ordinal >= snap.State().Docs || !newest.Live(ordinal) {
				continue
			}
			var err error
			if payloads[ordinal], err = newest.Payload(ordinal); err != nil {
				return nil, err
			}
		}
		return payloads, nil
	})
	return err
}
