package index

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
	"time"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/index/interop"
	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// ImportOptions configures Import. The zero value, or nil, names documents by row.
type ImportOptions struct {
	// IDs are the ids of the documents, as many as there are documents ([vectors.ErrID]). If IDs is
	// nil, documents have the ids of the folder ([interop.Index.IDs]) or, if it has none, row
	// numbers from 0.
	IDs []string
	// Payload returns the payload of a document. If it is nil, payloads are the metadata that the
	// engine keeps in metadata.db ([interop.RegisterPayloads] registers its reader).
	Payload func(row int, id string) ([]byte, error)
	// Unchanged, if not nil, is called before anything becomes visible. It checks that the source
	// of Payload has not changed; its error ends the import.
	Unchanged func() error
	// VerifyIVF compares the inverted lists of the source, which the import does not use, with its
	// codes, and reports differences as warnings.
	VerifyIVF bool
	// Model is as in [BuildOptions].
	Model *storage.Model
	// The other fields are as in [BuildOptions].
	Threads     int
	Memory      int64
	Force       bool
	LockTimeout time.Duration
	Backend     string
	Logger      *slog.Logger
	Progress    func(Progress)
}

// ImportReport describes the source, and how the import changed it.
type ImportReport struct {
	Engine        string // as in [interop.Index]
	Docs          int    // documents
	Passages      int    // passages in which some of them are stored
	Empty         int    // documents, or passages, without tokens
	Payloads      int    // documents with a payload
	Tokens        int64  // tokens of all documents
	Dim, Nbits, K int    // dimension, bits per component, centroids
	// WeightChange is the largest change of a bucket weight by the rounding to the 16-bit grid,
	// from WeightBefore to WeightAfter.
	WeightChange, WeightBefore, WeightAfter float64
	Clamped                                 int      // tokens whose factor did not fit; see [storage.State]
	Warnings                                []string // oddities of the source, for people
}

const importBlock = 1 << 16 // tokens

// Import creates an index from the index folder of another engine. It keeps codes and buckets, and
// centroids bit for bit; it rounds weights to the 16-bit grid of this format and computes norms
// again. It does not change the folder.
//
// Errors: those of package interop, and those of [Build].
func Import(ctx context.Context, dir, path string, opts *ImportOptions) (r *ImportReport, err error) {
	o := valueOrZero(opts)
	o.Memory = cmp.Or(o.Memory, DefaultMemory)
	o.Threads = cmp.Or(o.Threads, parallel.Processors())
	if err := o.Model.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOption, err)
	}
	backend, err := kernels.Select(o.Backend)
	if err != nil {
		return nil, err
	}
	// Open the folder, its ids and its metadata.
	src, err := interop.Open(dir)
	if err != nil {
		return nil, err
	}
	switch {
	case len(src.DocLens) == 0:
		return nil, fmt.Errorf("%s: %w", dir, ErrNoDocuments)
	case o.IDs != nil && len(o.IDs) != len(src.DocLens):
		return nil, fmt.Errorf("%w: %d ids for the %d documents of %s",
			vectors.ErrID, len(o.IDs), len(src.DocLens), dir)
	}
	skipsRemoved := false // whether documents without an id are skipped
	if o.IDs == nil {
		if o.IDs, err = src.IDs(ctx); err != nil {
			return nil, err
		}
		skipsRemoved = o.IDs != nil
	}
	if isInside(path, dir) {
		return nil, fmt.Errorf("%w: %s lies within %s, which is only read", ErrOption, path, dir)
	}
	if o.Payload == nil {
		payloads, err := src.Payloads(ctx)
		if err != nil {
			return nil, err
		}
		if payloads != nil {
			defer func() { err = errors.Join(err, payloads.Close()) }()
			o.Payload = func(row int, _ string) ([]byte, error) { return payloads.Get(ctx, row) }
		}
	}
	// Convert the codec, then the documents.
	im := &importer{src: src, options: o, skipsRemoved: skipsRemoved}
	if err := im.convertCodec(ctx); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	warningsBefore := len(src.Warnings)
	b := BuildOptions{Force: o.Force, LockTimeout: o.LockTimeout, Logger: o.Logger}
	err = createAndFill(ctx, path, b, func(file *storage.File, created bool) error {
		if err := im.importInto(ctx, file); err != nil || created {
			return err
		}
		if err := newIndex(file, backend, o.Logger).compactAfterBuild(ctx, o.Memory); err != nil {
			warning := fmt.Sprintf("the space of the previous index was not freed: %v", err)
			im.report.Warnings = append(im.report.Warnings, warning)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	im.report.Warnings = append(im.report.Warnings, src.Warnings[warningsBefore:]...) // those of reading payloads
	return im.report, nil
}

// isInside reports whether a file would lie in a folder or below it.
func isInside(path, dir string) bool {
	full, err := filepath.Abs(path)
	folder, err2 := filepath.Abs(dir)
	rel, err3 := filepath.Rel(folder, full)
	return errors.Join(err, err2, err3) == nil && filepath.IsLocal(rel)
}

// importer is an import in progress.
type importer struct {
	src          *interop.Index
	options      ImportOptions
	codec        *codec.Quantizer
	report       *ImportReport
	block        codec.Block // encoded tokens that are not staged yet
	nextDoc      int         // documents before it are staged or skipped
	skipsRemoved bool        // documents without an id are skipped
}

// convertCodec converts the codec, finds the largest factor, for which it reads all tokens,
// and starts the report.
func (im *importer) convertCodec(ctx context.Context) error {
	src := im.src
	centroidType := kernels.F32
	if src.CentroidsF16 {
		centroidType = kernels.F16
	}
	c, grid, err := codec.FromTable(src.Centroids, centroidType, src.Dim, src.Nbits, src.Cutoffs, src.Weights)
	if err != nil {
		return err
	}
	// Find the largest factor.
	largest := float32(0)
	for b, err := range src.Blocks(ctx, importBlock) {
		if err != nil {
			return err
		}
		f, err := c.MaxFactor(ctx, b.Codes, b.Residuals, im.options.Threads)
		if err != nil {
			return err
		}
		largest = max(largest, f)
	}
	im.codec = c.WithFactorMax(largest)
	// Start the report.
	im.report = &ImportReport{
		Engine:       src.Engine,
		Docs:         len(src.DocLens),
		Tokens:       src.Tokens,
		Dim:          src.Dim,
		Nbits:        src.Nbits,
		K:            src.K,
		WeightChange: float64(grid.Worst),
		WeightBefore: float64(grid.Before),
		WeightAfter:  float64(grid.After),
		Warnings:     append([]string(nil), src.Warnings...),
	}
	if im.options.VerifyIVF {
		diff, err := src.VerifyIVF(ctx)
		if err != nil {
			return err
		}
		im.report.Warnings = append(im.report.Warnings, diff...)
	}
	return nil
}

// importInto stages and commits all documents, unless the source has changed meanwhile.
func (im *importer) importInto(ctx context.Context, file *storage.File) error {
	build := storage.Build{Source: im.src.Engine, WeightChange: im.report.WeightChange}
	const normalize = true
	gen, err := createGeneration(file, im.codec, build, im.options.Model, normalize)
	if err != nil {
		return err
	}
	stager := newStager(file, gen, im.codec.K, storage.State{}, im.options.Memory)
	if err := im.stageDocs(ctx, stager); err != nil {
		return err
	}
	if err := im.src.Unchanged(); err != nil {
		return err
	}
	if im.options.Unchanged != nil {
		if err := im.options.Unchanged(); err != nil {
			return err
		}
	}
	return stager.commit(ctx, func(tx *storage.Tx, _ *storage.Generation, s *storage.State) error {
		s.Live, s.LiveTokens, s.Clamped = s.Docs, s.Tokens, uint64(im.report.Clamped)
		im.report.Docs, im.report.Passages = stager.countDocuments(s)
		// Each passage has a payload, and was counted; count their document once instead.
		im.report.Payloads -= im.report.Passages - int(s.PassageParents)
		return errors.Join(tx.MakeCurrent(gen), putBuilt(tx))
	})
}

// stageDocs reads the tokens in blocks and stages the documents.
func (im *importer) stageDocs(ctx context.Context, stager *stager) error {
	for b, err := range im.src.Blocks(ctx, importBlock) {
		if err != nil {
			return err
		}
		if err := im.codec.EncodeFixed(ctx, &im.block, b.Codes, b.Residuals, im.options.Threads); err != nil {
			return err
		}
		if err := im.stageCompleteDocs(ctx, stager); err != nil {
			return err
		}
		reportProgress(im.options.Progress,
			Progress{"import", int64(im.nextDoc), int64(len(im.src.DocLens)), "documents"})
	}
	if err := im.stageCompleteDocs(ctx, stager); err != nil { // empty documents behind the last block
		return err
	}
	im.report.Clamped = im.block.Clamped
	if im.nextDoc != len(im.src.DocLens) {
		return fmt.Errorf("%s: %w: tokens end in document %d of %d",
			im.src.Dir, interop.ErrBroken, im.nextDoc, len(im.src.DocLens))
	}
	return nil
}

// stageCompleteDocs stages the documents with all of their tokens in the block, and keeps the remaining
// tokens.
func (im *importer) stageCompleteDocs(ctx context.Context, stager *stager) (err error) {
	first := 0
	for ; im.nextDoc < len(im.src.DocLens); im.nextDoc++ {
		end := first + int(im.src.DocLens[im.nextDoc])
		if end > im.block.Tokens {
			break
		}
		d := encoded{id: strconv.Itoa(im.nextDoc), tokens: blockTokens(&im.block, first, end, im.codec)}
		if im.options.IDs != nil {
			d.id = im.options.IDs[im.nextDoc]
		}
		// Skip a document that the engine has removed.
		if d.id == "" && im.skipsRemoved {
			im.report.Tokens -= int64(end - first)
			first = end
			continue
		}
		// Read and check the payload.
		if im.options.Payload != nil {
			if d.payload, err = im.options.Payload(im.nextDoc, d.id); err != nil {
				return err
			}
			if err := checkStorable(d.id, d.payload); err != nil {
				return documentError(im.nextDoc, d.id, err)
			}
			if d.payload != nil {
				im.report.Payloads++
			}
			if d.parent, err = parentFromPayload(im.nextDoc, d.id, d.payload); err != nil {
				return err
			}
			unpooled := poolingFromBuild(storage.Build{}) // imported tokens are not pooled
			if err := unpooled.checkPage(d.payload, end-first); err != nil {
				return documentError(im.nextDoc, d.id, err)
			}
		}
		if err := stager.appendDocument(ctx, d); err != nil {
			return err
		}
		if first == end {
			im.report.Empty++
		}
		first = end
	}
	discardStaged(&im.block, first, im.codec.CodeBytes(), im.codec.RowBytes())
	return nil
}

// discardStaged removes the tokens before first from the block.
func discardStaged(b *codec.Block, first, codeBytes, rowBytes int) {
	b.Codes = append(b.Codes[:0], b.Codes[first*codeBytes:]...)
	b.Factors = append(b.Factors[:0], b.Factors[2*first:]...)
	b.Residuals = append(b.Residuals[:0], b.Residuals[first*rowBytes:]...)
	b.Tokens -= first
}
