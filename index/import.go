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

// ImportOptions for Import. The zero value, or nil, names documents by row.
type ImportOptions struct {
	// IDs names the documents; nil means the ids of the folder ([interop.Index.IDs]), or row numbers
	// from 0. Another number of them than of documents is [vectors.ErrID].
	IDs []string
	// Payload, where set, is asked for what to store beside a document; nil means what the engine
	// keeps there, in metadata.db ([interop.RegisterPayloads] says what reads it).
	Payload func(row int, id string) ([]byte, error)
	// Unchanged, where set, is asked before anything becomes visible whether what
	// Payload read is still what it was; its error ends the import.
	Unchanged func() error
	// VerifyIVF compares the inverted lists of the source, which are not used,
	// with its codes, and reports differences as warnings.
	VerifyIVF bool
	// Model as for Build.
	Model *storage.Model
	// The rest as for Build.
	Threads     int
	Memory      int64
	Force       bool
	LockTimeout time.Duration
	Backend     string
	Logger      *slog.Logger
	Progress    func(Progress)
}

// ImportReport says what an import found and what it had to change.
type ImportReport struct {
	Engine        string // the engine, as [interop.Index] names it
	Docs          int    // documents
	Passages      int    // in which some of them are stored
	Empty         int    // documents, or passages, without tokens
	Payloads      int    // documents with something beside them
	Tokens        int64  // of all documents
	Dim, Nbits, K int    // dimension, bits a component, centroids
	// WeightChange is the largest absolute change of a bucket weight when the
	// weights were put on the 16-bit grid, from WeightBefore to WeightAfter.
	WeightChange, WeightBefore, WeightAfter float64
	Clamped                                 int      // tokens whose factor did not fit; see [storage.State]
	Warnings                                []string // what is odd about the source, for people
}

const importBlock = 1 << 16 // tokens

// Import makes an index from the index folder of another engine: codes and
// buckets as they are, centroids bit for bit, weights on the 16-bit grid of this
// format, norms computed anew. The folder is only read.
//
// Errors: those of package interop, and those of [Build].
func Import(ctx context.Context, dir, path string, opts *ImportOptions) (r *ImportReport, err error) {
	o := valueOrZero(opts)
	o.Memory = cmp.Or(o.Memory, DefaultMemory)
	o.Threads = cmp.Or(o.Threads, parallel.Processors())
	if err := o.Model.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOption, err)
	}
	be, err := kernels.Select(o.Backend)
	if err != nil {
		return nil, err
	}
	src, err := interop.Open(dir)
	if err != nil {
		return nil, err
	}
	switch {
	case len(src.DocLens) == 0:
		return nil, fmt.Errorf("%s: %w", dir, ErrNoDocuments)
	case o.IDs != nil && len(o.IDs) != len(src.DocLens):
		return nil, fmt.Errorf("%w: %d ids for the %d documents of %s", vectors.ErrID, len(o.IDs), len(src.DocLens), dir)
	}
	skipsRemoved := false // documents without an id are left out
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
		if err := newIndex(file, be, o.Logger).compactAfterBuild(ctx, o.Memory); err != nil {
			im.report.Warnings = append(im.report.Warnings, fmt.Sprintf("the space of the index before it was not freed: %v", err))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	im.report.Warnings = append(im.report.Warnings, src.Warnings[warningsBefore:]...) // of payloads
	return im.report, nil
}

// isInside reports whether a file would lie in a folder or below it.
func isInside(path, dir string) bool {
	full, err := filepath.Abs(path)
	folder, err2 := filepath.Abs(dir)
	rel, err3 := filepath.Rel(folder, full)
	return errors.Join(err, err2, err3) == nil && filepath.IsLocal(rel)
}

type importer struct {
	src          *interop.Index
	options      ImportOptions
	codec        *codec.Quantizer
	report       *ImportReport
	block        codec.Block // encoded, and not staged
	nextDoc      int         // staged, or left out
	skipsRemoved bool        // documents without an id are left out
}

// convertCodec settles codec and largest factor; the latter takes a pass over all
// tokens.
func (im *importer) convertCodec(ctx context.Context) error {
	src := im.src
	typ := kernels.F32
	if src.CentroidsF16 {
		typ = kernels.F16
	}
	c, grid, err := codec.FromTable(src.Centroids, typ, src.Dim, src.Nbits, src.Cutoffs, src.Weights)
	if err != nil {
		return err
	}
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
	im.report = &ImportReport{
		Engine: src.Engine, Docs: len(src.DocLens), Tokens: src.Tokens, Dim: src.Dim, Nbits: src.Nbits, K: src.K,
		WeightChange: float64(grid.Worst), WeightBefore: float64(grid.Before), WeightAfter: float64(grid.After),
		Warnings: append([]string(nil), src.Warnings...),
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

func (im *importer) importInto(ctx context.Context, file *storage.File) error {
	gen, err := createGeneration(file, im.codec, storage.Build{Source: im.src.Engine, WeightChange: im.report.WeightChange}, im.options.Model, true)
	if err != nil {
		return err
	}
	stage := newStager(file, gen, im.codec.K, storage.State{}, im.options.Memory)
	if err := im.stageDocs(ctx, stage); err != nil {
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
	return stage.commit(ctx, func(tx *storage.Tx, _ *storage.Generation, s *storage.State) error {
		s.Live, s.LiveTokens, s.Clamped = s.Docs, s.Tokens, uint64(im.report.Clamped)
		im.report.Docs, im.report.Passages = stage.countDocuments(s)
		im.report.Payloads -= im.report.Passages - int(s.PassageParents) // every passage has one
		return errors.Join(tx.MakeCurrent(gen), putBuilt(tx))
	})
}

// stageDocs cuts the blocks of tokens into documents.
func (im *importer) stageDocs(ctx context.Context, stage *stager) error {
	for b, err := range im.src.Blocks(ctx, importBlock) {
		if err != nil {
			return err
		}
		if err := im.codec.EncodeFixed(ctx, &im.block, b.Codes, b.Residuals, im.options.Threads); err != nil {
			return err
		}
		if err := im.stageComplete(ctx, stage); err != nil {
			return err
		}
		reportProgress(im.options.Progress, Progress{"import", int64(im.nextDoc), int64(len(im.src.DocLens)), "documents"})
	}
	if err := im.stageComplete(ctx, stage); err != nil { // empty ones behind the last block
		return err
	}
	im.report.Clamped = im.block.Clamped
	if im.nextDoc != len(im.src.DocLens) {
		return fmt.Errorf("%s: %w: tokens end in document %d of %d", im.src.Dir, interop.ErrBroken, im.nextDoc, len(im.src.DocLens))
	}
	return nil
}

// stageComplete stages the documents that the block has all tokens of, and keeps the rest of
// it.
func (im *importer) stageComplete(ctx context.Context, stage *stager) (err error) {
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
		if d.id == "" && im.skipsRemoved {
			im.report.Tokens -= int64(end - first)
			first = end
			continue
		}
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
			if err := poolingFromBuild(storage.Build{}).checkPage(d.payload, end-first); err != nil {
				return documentError(im.nextDoc, d.id, err)
			}
		}
		if err := stage.appendDocument(ctx, d); err != nil {
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

// discardStaged moves the tokens from first on to the front of the block.
func discardStaged(b *codec.Block, first, codeBytes, rowBytes int) {
	b.Codes = append(b.Codes[:0], b.Codes[first*codeBytes:]...)
	b.Factors = append(b.Factors[:0], b.Factors[2*first:]...)
	b.Residuals = append(b.Residuals[:0], b.Residuals[first*rowBytes:]...)
	b.Tokens -= first
}
