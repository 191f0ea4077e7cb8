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

// BuildOptions configures Build. The zero value, or nil, is a good choice.
type BuildOptions struct {
	// Nbits is the number of residual bits per component: 1, 2, 4 or 8. 0 means 2.
	Nbits int
	// Centroids is K. 0 means 2^⌊log₂(16·√tokens)⌋, the rule of ColBERT. It never exceeds the
	// tokens of the sample.
	Centroids int
	// SampleDocs is the number of documents to train on. 0 means 1 + ⌊16·√(120·documents)⌋, the
	// rule of ColBERT, and a last round over as many of the other documents as k-means can use,
	// which are not held in memory. The memory budget may allow fewer.
	SampleDocs int
	// HeldOut, if not 0, withholds one in HeldOut tokens of the sample from k-means, for an index
	// that will get most of its documents later: see [codec.TrainOptions]. The last round over other
	// documents (see SampleDocs) is then omitted.
	HeldOut int
	// Iterations is the number of iterations of k-means. 0 means 4.
	Iterations int
	// Seed decides every random choice. The same seed, input and options give the same content of
	// the index, with any number of threads.
	Seed uint64
	// NoDimScales and NoCentroidScales omit the scales of residuals for each dimension and for each
	// centroid.
	NoDimScales, NoCentroidScales bool
	// Pool is the number of similar tokens of a document that are pooled into one (see
	// pool.Pooler). 0 and 1 mean no pooling. Documents that are added later are pooled in the same
	// way.
	Pool int
	// PoolBy selects the tokens that are pooled. "" means [pool.Similar]. The other methods need
	// documents that are pages with grids ([vectors.Page]), and pool only cells.
	PoolBy pool.Method
	// Unnormalized skips scaling the vectors to unit length, because they have it already.
	Unnormalized bool
	// Model, if not nil, is stored in the index as the model that made the vectors. Additions and
	// queries that name another one are refused ([storage.ErrModel]).
	Model *storage.Model
	// Codec, if not nil, is used as it is, and nothing is trained.
	Codec *codec.Quantizer
	// Like, if not nil, is another index, or a file with a codec alone ([Train]), whose codec is
	// used, so that the two can be searched as one. Scaling, pooling, the model ([storage.ErrModel]
	// if Model names another) and the record of the training come from it as well. Options that
	// contradict it are errors.
	Like *Snapshot
	// Input, if not empty, identifies the documents, for example by names, sizes and times of
	// files: it must differ for other documents. If the process of a build with Input dies, it
	// leaves a checkpoint that another build can resume.
	Input string
	// Resume continues an interrupted build of the same Input and options from its checkpoint at
	// the path. If this build fails or is interrupted, it leaves its checkpoint too. The index is
	// the same as that of an uninterrupted build.
	Resume bool
	// Threads is the number of goroutines. 0 means one for each processor.
	Threads int
	// Memory is the budget in bytes for buffers and the training sample. 0 means 1 GiB. Centroids,
	// and 30 bytes a document for ids and lengths, come on top.
	Memory int64
	// Force replaces an existing index. The old one stays, and readable, until the new one is
	// finished.
	Force bool
	// LockTimeout, Backend and Logger are as in [Options].
	LockTimeout time.Duration
	Backend     string
	Logger      *slog.Logger
	// Device, if not nil, finds the nearest centroids and encodes tokens; the index is the same.
	Device kernels.Device
	// Progress, if not nil, is called with the progress of each stage.
	Progress func(Progress)
}

// Progress is the progress of a long operation.
type Progress struct {
	// Stage is "sample", "train", "levels", "encode", "commit", "import", "compact", "export",
	// "backup", "check", "salvage", or a measurement of package quality.
	Stage string
	// Done of Total is the progress; Total 0 means that the total is unknown. A stage that cannot
	// be counted has no Unit, and both are 0.
	Done, Total int64
	Unit        string // of Done and Total, such as "tokens"
}

// DefaultMemory is the budget of a build, in bytes.
const DefaultMemory = 1 << 30

// BuildReport describes the result of a build.
type BuildReport struct {
	// Docs counts documents, Passages the ordinals that are passages, Empty the ordinals without
	// tokens.
	Docs, Passages, Empty int
	// Tokens counts token vectors, after pooling.
	Tokens int64
	// Zero counts zero vectors, such as padding: they score 0 with every query token, and so beat
	// unrelated tokens, whose scores are negative.
	Zero int64
	// Clamped counts tokens whose factor did not fit; see [storage.State].
	Clamped int
	// RMSE is the root mean square distance of token vectors, scaled to unit length, from their
	// decoded vectors.
	RMSE float64
	// Train describes the training; zero if a codec was given. SampleDocs is the number of ordinals
	// with tokens in its sample.
	Train      codec.TrainReport
	SampleDocs int
	// Resumed is the number of ordinals that an interrupted build had encoded.
	Resumed int
	// Seconds is the duration of each stage.
	Seconds struct{ Sample, Train, Encode float64 }
	// NotFreed is why the space of the replaced index was not freed: the file is larger than needed
	// until it is compacted. Usually nil.
	NotFreed error
}

const maxPoolFactor = 1000 // tokens pooled into one

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
		addError("sample of %d documents, %d iterations, %d threads; none is negative, and iterations are at most 1000",
			o.SampleDocs, o.Iterations, o.Threads)
	}
	if o.HeldOut < 0 || o.HeldOut == 1 {
		addError("one in %d tokens held out; 0 or at least 2 are possible", o.HeldOut)
	}
	if err := o.Model.Validate(); err != nil {
		addError("%v", err)
	}
	if o.Pool < 0 || o.Pool > maxPoolFactor {
		addError("pools of %d tokens; up to %d are possible", o.Pool, maxPoolFactor)
	}
	if err := o.PoolBy.Check(max(o.Pool, 1)); err != nil {
		addError("%v", err)
	}
	if o.Resume && o.Input == "" {
		addError("Resume needs Input, by which it recognizes the interrupted build")
	}
	if o.Memory != 0 && o.Memory < 32<<20 {
		addError("memory budget of %d bytes; at least 32 MiB are needed", o.Memory)
	}
	return errors.Join(errs...)
}

// Build creates an index file at path from documents. It reads src up to three times: to train on a
// sample; to fit the centroids to all documents, if the sample has fewer and SampleDocs is not set;
// and to encode. With BuildOptions.Codec it only encodes.
//
// Errors: [ErrNoDocuments], [ErrNoTokens], [ErrOption], [ErrDuplicateID], [storage.ErrExists],
// [storage.ErrLocked], the errors of src, and those of writing. [*ResumableError] wraps an error
// after which another build can resume. After an error the path has its old content; only after
// [storage.ErrOutcomeUnknown] with Force, it has either that or the new index.
func Build(ctx context.Context, path string, src vectors.Source, opts *BuildOptions) (r *BuildReport, err error) {
	return buildFile(ctx, path, src, opts, withDocuments)
}

// Train creates an index file at path with a codec and no documents: the codec that Build would
// train. Builds use it ([BuildOptions.Like]) on any number of machines, and their indexes can then
// be searched as one and merged. Documents may be added to it as to any index. With
// BuildOptions.Codec the file has that codec, and nothing is trained.
//
// Errors: those of [Build], and [ErrOption] if BuildOptions.Like is set.
func Train(ctx context.Context, path string, src vectors.Source, opts *BuildOptions) (r *BuildReport, err error) {
	if opts != nil && opts.Like != nil {
		return nil, fmt.Errorf("%w: the codec is given by an index (Like), so there is nothing to train", ErrOption)
	}
	return buildFile(ctx, path, src, opts, codecOnly)
}

// building is a build in progress. buildFile calls prepare, createFile, findInterrupted,
// decideCodec, beginEncoding, the encoder for all documents, and commit.
type building struct {
	BuildOptions
	backend     kernels.Backend
	src         vectors.Source // pooled
	tokens      int64
	provenance  storage.Build // of the codec, for the header
	file        *storage.File
	created     bool        // the path had no file; otherwise an existing index is replaced
	checkpoint  *checkpoint // kept up to date, so that another build can resume, nil without Input
	interrupted *checkpoint // checkpoint of the interrupted build that this one resumes, or nil
	quantizer   *codec.Quantizer
	stager      *stager
	report      BuildReport
}

// buildContent says what a build stores.
type buildContent bool

const (
	withDocuments buildContent = true
	codecOnly     buildContent = false
)

// buildFile implements Build and Train.
func buildFile(
	ctx context.Context, path string, src vectors.Source, opts *BuildOptions, content buildContent,
) (r *BuildReport, err error) {
	b := &building{BuildOptions: valueOrZero(opts)}
	if err := b.prepare(ctx, src); err != nil {
		return nil, err
	}
	if b.file, b.created, err = createFile(ctx, path, b.BuildOptions); err != nil {
		return nil, err
	}
	defer func() { err = b.close(err) }()
	if b.Input != "" && content == withDocuments {
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
	if content == withDocuments {
		e.checkPage = poolingFromBuild(b.provenance).checkPage
		if err := e.encodeAll(ctx, b.src, b.Memory); err != nil {
			return nil, err
		}
	}
	if err := b.commit(ctx, e, content); err != nil {
		return nil, err
	}
	b.report.Seconds.Encode = time.Since(start).Seconds()
	if !b.created {
		b.report.NotFreed = newIndex(b.file, b.backend, b.Logger).compactAfterBuild(ctx, b.Memory)
	}
	return &b.report, nil
}

// prepare validates and completes the options, and counts the documents and tokens.
func (b *building) prepare(ctx context.Context, src vectors.Source) (err error) {
	if err := b.validate(); err != nil {
		return err
	}
	// Describe the build, or adopt the codec and description of Like.
	b.provenance = storage.Build{Source: "vectors", Seed: b.Seed}
	if b.Pool > 1 {
		b.provenance.Pool = b.Pool
		if b.PoolBy.NeedsPage() {
			b.provenance.PoolBy = string(b.PoolBy)
		}
	}
	if b.Like != nil {
		if b.provenance, err = b.adoptCodec(); err != nil {
			return err
		}
	}
	// Complete the options.
	b.Memory = cmp.Or(b.Memory, DefaultMemory)
	if b.backend, err = kernels.Select(b.Backend); err != nil {
		return err
	}
	b.backend, b.Threads = selectBuilder(b.backend, b.Device, b.Threads)
	p := &pooledSource{
		Source:    src,
		pooling:   poolingFromBuild(b.provenance),
		threads:   b.Threads,
		normalize: !b.Unnormalized,
		memory:    b.Memory,
	}
	if b.src, err = newPooledSource(ctx, p); err != nil {
		return err
	}
	for i := range b.src.Len() {
		b.tokens += int64(b.src.Rows(i))
	}
	// Check the source.
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

// selectBuilder returns the backend that finds nearest centroids, on a device if there is one, and
// the number of goroutines that call it.
func selectBuilder(cpu kernels.Backend, d kernels.Device, threads int) (kernels.Backend, int) {
	processors := parallel.Processors()
	if d == nil {
		return cpu, cmp.Or(threads, processors)
	}
	return d.Builder(cpu), cmp.Or(threads, max(64, processors)) // many small concurrent requests keep a device busy
}

// ResumableError reports why a build with [BuildOptions.Resume] did not finish. Its checkpoint is
// at the path, and another build with the same input and options continues from there.
type ResumableError struct {
	Path string
	Docs int // number of ordinals that need not be encoded again
	Err  error
}

func (e *ResumableError) Error() string { return e.Err.Error() }

func (e *ResumableError) Unwrap() error { return e.Err }

// close ends a build; one that can be resumed leaves its staged documents.
func (b *building) close(err error) error {
	switch {
	case err == nil:
		return b.file.Close()
	case b.Resume && b.stager != nil && b.stager.resumableDocs > 0:
		return &ResumableError{b.file.Path(), b.stager.resumableDocs, errors.Join(err, b.file.Close())}
	}
	return rollBack(b.file, b.created, err)
}

// findInterrupted starts the checkpoint of this build, and finds that of an interrupted one.
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

// decideCodec uses the codec of an interrupted build, uses the given one, or trains one.
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
			b.Logger.Info("resuming an interrupted build", "index", path, "documents", r.Resumed)
		}
	case b.Codec == nil:
		if b.quantizer, err = trainCodec(ctx, b.src, b.tokens, b.BuildOptions, b.backend, r); err != nil {
			return err
		}
		b.provenance.Iterations = r.Train.Iterations
		b.provenance.SampleDocs, b.provenance.SampleRows = r.SampleDocs, r.Train.Vectors
		b.provenance.RMSE, b.provenance.Tokens = r.Train.RMSE, uint64(b.tokens)
	}
	return nil
}

// beginEncoding creates the generation, or continues in that of an interrupted build.
func (b *building) beginEncoding(ctx context.Context) (e *encoder, err error) {
	var gen uint64
	if b.interrupted != nil {
		gen = b.interrupted.Generation
	} else if gen, err = createGeneration(b.file, b.quantizer, b.provenance, b.Model, !b.Unnormalized); err != nil {
		return nil, err
	}
	b.stager = newStager(b.file, gen, b.quantizer.K, storage.State{}, b.Memory)
	if b.checkpoint != nil {
		b.checkpoint.Generation, b.checkpoint.Train, b.checkpoint.SampleDocs = gen, b.report.Train, b.report.SampleDocs
		b.stager.checkpoint = b.checkpoint
	}
	e = &encoder{
		codec:     b.quantizer,
		backend:   b.backend,
		threads:   b.Threads,
		normalize: !b.Unnormalized,
		stager:    b.stager,
		progress:  b.Progress,
		total:     b.tokens,
		logger:    b.Logger,
	}
	if b.interrupted != nil {
		if err := b.stager.restore(ctx, b.interrupted); err != nil {
			return nil, err
		}
		e.batchStart, e.stagedDocs = b.interrupted.Batch, int(b.interrupted.State.Docs)
	}
	return e, nil
}

// commit commits the staged documents, and completes the report.
func (b *building) commit(ctx context.Context, e *encoder, content buildContent) error {
	reportProgress(b.Progress, Progress{Stage: "commit"})
	r := &b.report
	err := b.stager.commit(ctx, func(tx *storage.Tx, _ *storage.Generation, s *storage.State) error {
		s.Live, s.LiveTokens, s.Clamped = s.Docs, s.Tokens, uint64(e.Clamped)
		if content == withDocuments {
			r.Docs, r.Passages = b.stager.countDocuments(s)
		}
		return errors.Join(tx.MakeCurrent(b.stager.generation), putBuilt(tx))
	})
	if err != nil {
		return err
	}
	r.Empty, r.Clamped, r.Zero, r.RMSE = e.Empty, e.Clamped, e.Zero, rootMeanSquare(e.SumSq, b.tokens)
	if content == codecOnly {
		r.RMSE = r.Train.RMSE
		for i := range b.src.Len() {
			if b.src.Rows(i) == 0 {
				r.Empty++
			}
		}
	}
	return nil
}

// adoptCodec completes the options with those of the index whose codec is used, and returns the
// record of its training.
func (o *BuildOptions) adoptCodec() (storage.Build, error) {
	h := o.Like.Header()
	switch {
	case o.Codec != nil:
		return h.Build, fmt.Errorf("%w: Codec and Like both give a codec", ErrOption)
	case o.contradicts(&h):
		return h.Build, fmt.Errorf("%w: the codec of %s has %d bits, %d centroids, pools of %d, and scaling %t",
			ErrOption, o.Like.Path(), h.Nbits, h.Centroids, max(h.Build.Pool, 1), h.Normalize)
	}
	if err := h.Model.Check(o.Model); err != nil {
		return h.Build, fmt.Errorf("codec of %s: %w", o.Like.Path(), err)
	}
	if o.Model == nil {
		o.Model = h.Model
	}
	o.Codec, o.Unnormalized = o.Like.Quantizer(), !h.Normalize
	o.Pool, o.PoolBy = h.Build.Pool, pool.Method(h.Build.PoolBy)
	return h.Build, nil
}

// contradicts reports whether an option that is set differs from the header of the index Like.
func (o *BuildOptions) contradicts(h *storage.Header) bool {
	pooled := poolingFromBuild(storage.Build{Pool: o.Pool, PoolBy: string(o.PoolBy)})
	return o.Nbits != 0 && o.Nbits != h.Nbits ||
		o.Centroids != 0 && o.Centroids != h.Centroids ||
		o.Pool > 1 && pooled != poolingFromBuild(h.Build) ||
		o.Unnormalized && h.Normalize
}

// reportProgress calls progress unless it is nil.
func reportProgress(progress func(Progress), p Progress) {
	if progress != nil {
		progress(p)
	}
}

// CanBuild returns the errors of [Build] that do not depend on the documents: bad options, an
// existing index without Force, and a folder in which no file can be created. It is for programs
// that do much work before they build.
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
