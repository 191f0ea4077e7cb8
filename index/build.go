package index

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
	"github.com/plaid-ir/plaid/vectors/pool"
)

// BuildOptions for Build. The zero value, or nil, is a good choice.
type BuildOptions struct {
	// Nbits is the residual bits a component: 1, 2, 4 or 8; 0: 2.
	Nbits int
	// Centroids is K; 0: 2^⌊log₂(16·√tokens)⌋, ColBERT's rule. It is never more
	// than the sample has tokens.
	Centroids int
	// SampleDocs is how many documents to train on; 0: 1 + ⌊16·√(120·documents)⌋,
	// ColBERT's rule, and a last round over as many of the others as k-means makes
	// use of, which are not held in memory. The memory budget may allow less.
	SampleDocs int
	// HeldOut, where not 0, keeps one in HeldOut tokens of the sample from k-means, for an index that will get
	// most of its documents later: see [codec.TrainOptions]. There is no last round over others, then.
	HeldOut int
	// Iterations of k-means; 0: 4.
	Iterations int
	// Seed decides every random choice. The same seed, input and options give
	// the same index content, whatever Threads is.
	Seed uint64
	// NoDimScales and NoCentroidScales leave out the scale of residuals for each
	// dimension and for each centroid.
	NoDimScales, NoCentroidScales bool
	// Pool replaces the tokens of each document by one in so many, pools of similar
	// tokens (see pool.Pooler); 0 and 1: no pooling. Documents that are added
	// later are pooled alike.
	Pool int
	// PoolBy says which tokens become one; "": [pool.Similar]. By the others all
	// documents have to be pages with grids ([vectors.Page]), and of these only cells
	// are pooled.
	PoolBy pool.Method
	// Unnormalized says that the vectors are of unit length as they are, and
	// skips scaling them to it.
	Unnormalized bool
	// Model, where set, is kept in the index as what made the vectors; additions and
	// queries that name another are refused ([storage.ErrModel]).
	Model *storage.Model
	// Codec, where set, is used as it is, and nothing is trained.
	Codec *codec.Quantizer
	// Like, where set, is another index, or a file of a codec alone ([Train]), whose
	// codec is used. With it come whether vectors are scaled, how they are pooled, what
	// made them ([storage.ErrModel] if Model names another), and how the codec was
	// trained, so that the two can be searched as one. Options that say otherwise are
	// errors.
	Like *Snapshot
	// Input, where set, says what the documents are, such as names, sizes and times of
	// files: it must be another for other documents. A build with it leaves, if the
	// process dies, what another one needs to go on.
	Input string
	// Resume goes on with what an interrupted build of the same Input and options has
	// left at the path, and if this one fails or is interrupted leaves what is staged for
	// the next. The index is that of a build that was not interrupted.
	Resume bool
	// Threads is the number of goroutines; 0: one a processor.
	Threads int
	// Memory is the budget in bytes for buffers and the training sample; 0: 1 GiB.
	// Centroids, and 30 bytes a document for ids and lengths, come on top.
	Memory int64
	// Force replaces an index that is there. It stays as it is, and readable,
	// until the new one is finished.
	Force bool
	// LockTimeout, Backend, Logger: as for Open.
	LockTimeout time.Duration
	Backend     string
	Logger      *slog.Logger
	// Device, where set, finds the nearest centroids and encodes tokens; the index is the
	// same.
	Device kernels.Device
	// Progress, where set, is told how far a stage is.
	Progress func(Progress)
}

// Progress of a long operation.
type Progress struct {
	// Stage is "sample", "train", "levels", "encode", "commit", "import", "compact",
	// "export", "backup", "check", "salvage", or what package quality measures.
	Stage string
	// Done of Total is how far it is; Total 0: nobody knows. A stage that cannot be
	// counted has no Unit, and both are 0.
	Done, Total int64
	Unit        string // of Done and Total, such as "tokens"
}

// DefaultMemory is the budget of a build, in bytes.
const DefaultMemory = 1 << 30

// BuildReport says what a build did.
type BuildReport struct {
	// Docs counts documents, Passages those ordinals that are passages of some of them, Empty
	// the ordinals without tokens.
	Docs, Passages, Empty int
	// Tokens counts token vectors, after pooling.
	Tokens int64
	// Zero counts those that are zero vectors, as padding is: they score 0 with every
	// query token, which is more than what is unlike it does.
	Zero int64
	// Clamped counts those whose factor did not fit; see [storage.State].
	Clamped int
	// RMSE is the root mean square of the distances of token vectors, of unit length,
	// from what is decoded of them.
	RMSE float64
	// Train says what training did; zero where a codec was given. SampleDocs is how
	// many ordinals it had tokens of.
	Train      codec.TrainReport
	SampleDocs int
	// Resumed is how many ordinals an interrupted build had encoded.
	Resumed int
	// Seconds is how long the stages took.
	Seconds struct{ Sample, Train, Encode float64 }
	// NotFreed is why the space of the index that this one replaced was not freed:
	// the file is larger than it need be until it is compacted. Usually nil.
	NotFreed error
}

const maxPool = 1000

func (o *BuildOptions) validate() error {
	var errs []error
	addError := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: %s", ErrOption, fmt.Sprintf(format, args...)))
	}
	switch o.Nbits {
	case 0, 1, 2, 4, 8:
	default:
		addError("%d bits a component; 1, 2, 4 and 8 are supported", o.Nbits)
	}
	if o.Centroids < 0 || o.Centroids > storage.MaxCentroids {
		addError("%d centroids; 1 to %d are possible", o.Centroids, storage.MaxCentroids)
	}
	if o.SampleDocs < 0 || o.Iterations < 0 || o.Iterations > 1000 || o.Threads < 0 {
		addError("sample of %d documents, %d iterations, %d threads", o.SampleDocs, o.Iterations, o.Threads)
	}
	if o.HeldOut < 0 || o.HeldOut == 1 {
		addError("one in %d tokens held out", o.HeldOut)
	}
	if err := o.Model.Validate(); err != nil {
		addError("%v", err)
	}
	if o.Pool < 0 || o.Pool > maxPool {
		addError("pools of %d tokens; up to %d are possible", o.Pool, maxPool)
	}
	if err := o.PoolBy.Check(max(o.Pool, 1)); err != nil {
		addError("%v", err)
	}
	if o.Resume && o.Input == "" {
		addError("resuming without saying what the input is")
	}
	if o.Memory != 0 && o.Memory < 32<<20 {
		addError("memory budget of %d bytes; at least 32 MiB are needed", o.Memory)
	}
	return errors.Join(errs...)
}

// Build makes an index file at path from documents. src is read to train on a
// sample, to fit the centroids to all of it if the sample is smaller and no
// SampleDocs is set, and to encode; with BuildOptions.Codec only for the last.
//
// Errors: [ErrNoDocuments], [ErrNoTokens], [ErrOption], [ErrDuplicateID],
// [storage.ErrExists], [storage.ErrLocked], those of src, and what writing
// fails with; [*ResumableError] around those after which another build can go on.
// After an error the path holds what it held before; only after
// [storage.ErrOutcomeUnknown], with Force, either that or the new index.
func Build(ctx context.Context, path string, src vectors.Source, opts *BuildOptions) (r *BuildReport, err error) {
	return buildFile(ctx, path, src, opts, true)
}

// Train makes an index file at path that has a codec and no documents: the codec that
// Build would train. Builds use it ([BuildOptions.Like]), on any number of machines,
// whose indexes can then be searched as one and merged; and documents may be added to
// it as to any index. With BuildOptions.Codec the file has that one, and nothing is
// trained.
//
// Errors: those of [Build], and [ErrOption] with BuildOptions.Like.
func Train(ctx context.Context, path string, src vectors.Source, opts *BuildOptions) (r *BuildReport, err error) {
	if opts != nil && opts.Like != nil {
		return nil, fmt.Errorf("%w: an index is given whose codec is to be used, there is nothing to train", ErrOption)
	}
	return buildFile(ctx, path, src, opts, false)
}

// building is a build on its way: prepare, create, leftover, settle, begin, the encoder
// through all documents, finish.
type building struct {
	BuildOptions
	backend     kernels.Backend
	src         vectors.Source // pooled
	tokens      int64
	provenance  storage.Build // of the codec, as the header has it
	file        *storage.File
	created     bool        // else an index that is there is replaced
	checkpoint  *checkpoint // is kept up to date, so that another build can go on; nil: cannot
	interrupted *checkpoint // by an interrupted build; nil: nothing
	quantizer   *codec.Quantizer
	stage       *stager
	report      BuildReport
}

// buildFile is Build, with documents, or Train, without.
func buildFile(ctx context.Context, path string, src vectors.Source, opts *BuildOptions, documents bool) (r *BuildReport, err error) {
	b := &building{BuildOptions: valueOrZero(opts)}
	if err := b.prepare(ctx, src); err != nil {
		return nil, err
	}
	if b.file, b.created, err = createFile(ctx, path, b.BuildOptions); err != nil {
		return nil, err
	}
	defer func() { err = b.close(err) }()
	if b.Input != "" && documents {
		if err := b.findInterrupted(); err != nil {
			return nil, err
		}
	}
	if err := b.decideCodec(ctx, path); err != nil {
		return nil, err
	}
	start := time.Now()
	e, err := b.beginEncoding(ctx)
	if err != nil {
		return nil, err
	}
	if documents {
		e.checkPage = poolingFromBuild(b.provenance).checkPage
		if err := e.encodeAll(ctx, b.src, b.Memory); err != nil {
			return nil, err
		}
	}
	if err := b.commit(ctx, e, documents); err != nil {
		return nil, err
	}
	b.report.Seconds.Encode = time.Since(start).Seconds()
	if !b.created {
		b.report.NotFreed = newIndex(b.file, b.backend, b.Logger).compactAfterBuild(ctx, b.Memory)
	}
	return &b.report, nil
}

func (b *building) prepare(ctx context.Context, src vectors.Source) (err error) {
	if err := b.validate(); err != nil {
		return err
	}
	b.provenance = storage.Build{Source: "vectors", Seed: b.Seed}
	if b.Pool > 1 {
		b.provenance.Pool = b.Pool
		if b.PoolBy.OfPages() {
			b.provenance.PoolBy = string(b.PoolBy)
		}
	}
	if b.Like != nil {
		if b.provenance, err = b.adoptCodec(); err != nil {
			return err
		}
	}
	b.Memory = cmp.Or(b.Memory, DefaultMemory)
	if b.backend, err = kernels.Select(b.Backend); err != nil {
		return err
	}
	b.backend, b.Threads = selectBuilder(b.backend, b.Device, b.Threads)
	p := &pooledSource{Source: src, pooling: poolingFromBuild(b.provenance), threads: b.Threads, normalize: !b.Unnormalized, memory: b.Memory}
	if b.src, err = newPooledSource(ctx, p); err != nil {
		return err
	}
	for i := range b.src.Len() {
		b.tokens += int64(b.src.Rows(i))
	}
	switch docs, dim := b.src.Len(), b.src.Dim(); {
	case docs == 0:
		return ErrNoDocuments
	case b.tokens == 0 && b.Codec == nil:
		return fmt.Errorf("%d documents: %w", docs, ErrNoTokens)
	case b.Codec != nil && dim != 0 && b.Codec.Dim != dim:
		return fmt.Errorf("%w: codec has %d, documents have %d", ErrDimension, b.Codec.Dim, dim)
	}
	b.report.Docs, b.report.Tokens = b.src.Len(), b.tokens
	return nil
}

// selectBuilder is what finds nearest centroids, on a device if there is one, and how many
// goroutines ask it.
func selectBuilder(cpu kernels.Backend, d kernels.Device, threads int) (kernels.Backend, int) {
	processors := parallel.Processors()
	if d == nil {
		return cpu, cmp.Or(threads, processors)
	}
	return d.Builder(cpu), cmp.Or(threads, max(64, processors)) // many small requests at once keep a device busy
}

// ResumableError is why a build with [BuildOptions.Resume] has not come to its end. What it
// encoded is at the path, and another one of the same input and options goes on from there.
type ResumableError struct {
	Path string
	Docs int // ordinals that need not be encoded again
	Err  error
}

func (e *ResumableError) Error() string { return e.Err.Error() }

func (e *ResumableError) Unwrap() error { return e.Err }

// close ends a build; one that may be resumed leaves what it has staged.
func (b *building) close(err error) error {
	switch {
	case err == nil:
		return b.file.Close()
	case b.Resume && b.stage != nil && b.stage.resumableDocs > 0:
		return &ResumableError{b.file.Path(), b.stage.resumableDocs, errors.Join(err, b.file.Close())}
	}
	return rollBack(b.file, b.created, err)
}

// findInterrupted begins the note of this build, and finds that of an interrupted one.
func (b *building) findInterrupted() error {
	tag, err := b.inputDigest(b.src, b.backend.Name(), b.provenance)
	if err != nil {
		return err
	}
	b.checkpoint = &checkpoint{Tag: tag}
	if b.Resume {
		b.interrupted, err = findCheckpoint(b.file, tag)
	}
	return err
}

// decideCodec decides the codec: that of an interrupted build, the one that is given, or
// one that is trained.
func (b *building) decideCodec(ctx context.Context, path string) (err error) {
	r := &b.report
	b.quantizer = b.Codec
	switch {
	case b.interrupted != nil:
		if b.quantizer, err = checkpointCodec(b.file, b.interrupted); err != nil {
			return err
		}
		r.Train, r.SampleDocs, r.Resumed = b.interrupted.Train, b.interrupted.SampleDocs, int(b.interrupted.State.Docs)
		if b.Logger != nil {
			b.Logger.Info("going on with an interrupted build", "index", path, "documents", r.Resumed)
		}
	case b.Codec == nil:
		if b.quantizer, err = trainCodec(ctx, b.src, b.tokens, b.BuildOptions, b.backend, r); err != nil {
			return err
		}
		b.provenance.Iterations, b.provenance.SampleDocs, b.provenance.SampleRows = r.Train.Iterations, r.SampleDocs, r.Train.Vectors
		b.provenance.RMSE, b.provenance.Tokens = r.Train.RMSE, uint64(b.tokens)
	}
	return nil
}

// beginEncoding makes the generation, or goes on in that of an interrupted build.
func (b *building) beginEncoding(ctx context.Context) (e *encoder, err error) {
	var gen uint64
	if b.interrupted != nil {
		gen = b.interrupted.Generation
	} else if gen, err = createGeneration(b.file, b.quantizer, b.provenance, b.Model, !b.Unnormalized); err != nil {
		return nil, err
	}
	b.stage = newStager(b.file, gen, b.quantizer.K, storage.State{}, b.Memory)
	if b.checkpoint != nil {
		b.checkpoint.Generation, b.checkpoint.Train, b.checkpoint.SampleDocs = gen, b.report.Train, b.report.SampleDocs
		b.stage.checkpoint = b.checkpoint
	}
	e = &encoder{
		codec: b.quantizer, backend: b.backend, threads: b.Threads, normalize: !b.Unnormalized, stager: b.stage,
		progress: b.Progress, total: b.tokens, logger: b.Logger,
	}
	if b.interrupted != nil {
		if err := b.stage.restore(ctx, b.interrupted); err != nil {
			return nil, err
		}
		e.batchStart, e.skip = b.interrupted.Batch, int(b.interrupted.State.Docs)
	}
	return e, nil
}

// commit commits what the encoder has staged.
func (b *building) commit(ctx context.Context, e *encoder, documents bool) error {
	reportProgress(b.Progress, Progress{Stage: "commit"})
	r := &b.report
	err := b.stage.commit(ctx, func(tx *storage.Tx, _ *storage.Generation, s *storage.State) error {
		s.Live, s.LiveTokens, s.Clamped = s.Docs, s.Tokens, uint64(e.Clamped)
		if documents {
			r.Docs, r.Passages = b.stage.countDocuments(s)
		}
		return errors.Join(tx.MakeCurrent(b.stage.generation), putBuilt(tx))
	})
	if err != nil {
		return err
	}
	r.Empty, r.Clamped, r.Zero, r.RMSE = e.Empty, e.Clamped, e.Zero, rootMeanSquare(e.SumSq, b.tokens)
	if !documents {
		r.RMSE = r.Train.RMSE
		for i := range b.src.Len() {
			if b.src.Rows(i) == 0 {
				r.Empty++
			}
		}
	}
	return nil
}

// adoptCodec completes the options by those of the index whose codec is used, and returns
// how that was trained.
func (o *BuildOptions) adoptCodec() (storage.Build, error) {
	h := o.Like.Header()
	switch {
	case o.Codec != nil:
		return h.Build, fmt.Errorf("%w: two codecs are given", ErrOption)
	case o.Nbits != 0 && o.Nbits != h.Nbits, o.Centroids != 0 && o.Centroids != h.Centroids, o.Pool > 1 && poolingFromBuild(storage.Build{Pool: o.Pool, PoolBy: string(o.PoolBy)}) != poolingFromBuild(h.Build), o.Unnormalized && h.Normalize:
		return h.Build, fmt.Errorf("%w: the codec of %s has %d bits, %d centroids, pools of %d, and scaling %t", ErrOption,
			o.Like.Path(), h.Nbits, h.Centroids, max(h.Build.Pool, 1), h.Normalize)
	}
	if err := h.Model.Check(o.Model); err != nil {
		return h.Build, fmt.Errorf("codec of %s: %w", o.Like.Path(), err)
	}
	if o.Model == nil {
		o.Model = h.Model
	}
	o.Codec, o.Pool, o.PoolBy, o.Unnormalized = o.Like.Quantizer(), h.Build.Pool, pool.Method(h.Build.PoolBy), !h.Normalize
	return h.Build, nil
}

// reportProgress tells how far a stage is to whoever asks.
func reportProgress(progress func(Progress), p Progress) {
	if progress != nil {
		progress(p)
	}
}

// CanBuild tells what [Build] refuses before it looks at documents, whatever they
// are: options, an index that is there without Force, and a folder that takes no file. It is
// for programs that have much work to do before they build.
func CanBuild(ctx context.Context, path string, opts *BuildOptions) error {
	o := valueOrZero(opts)
	if err := o.validate(); err != nil {
		return err
	}
	if _, err := kernels.Select(o.Backend); err != nil {
		return err
	}
	if err := checkVacant(ctx, path, o); err != nil {
		return err
	}
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	return files.CanCreate(path)
}
