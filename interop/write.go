package interop

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/plaid-ir/plaid/internal/atomicfile"
	"github.com/plaid-ir/plaid/vectors"
)

// ChunkDocs is the number of documents of a chunk of a written folder, as in
// fast-plaid and ColBERT.
const ChunkDocs = 25000

// Header describes an index that is written.
type Header struct {
	Dim, Nbits int
	// Centroids is K × Dim, finite.
	Centroids []float32
	// Cutoffs has 2ⁿ−1 non-decreasing values, Weights 2ⁿ.
	Cutoffs, Weights []float32
	// DocLens is the number of tokens of each document; 0 is allowed.
	DocLens []int32
	// AvgResidual is the mean absolute residual of each dimension and
	// Threshold the 0.75 quantile of the norms of the residuals; the other
	// engines use the latter to find outliers in updates, the former not at
	// all. If AvgResidual is nil or Threshold 0, it is estimated from the
	// decoded residuals.
	AvgResidual []float32
	Threshold   float32
}

// k is the number of centroids.
func (h *Header) k() int { return len(h.Centroids) / h.Dim }

func (h *Header) check() error {
	switch {
	case h.Nbits != 1 && h.Nbits != 2 && h.Nbits != 4 && h.Nbits != 8:
		return fmt.Errorf("%w: %d bits a dimension, want 1, 2, 4 or 8", ErrUnsupported, h.Nbits)
	case h.Dim < 1 || h.Dim%8 != 0 || h.Dim > 1<<20:
		return fmt.Errorf("%w: %d dimensions, the format wants a multiple of 8", ErrUnsupported, h.Dim)
	case len(h.Centroids) == 0 || len(h.Centroids)%h.Dim != 0 || int64(h.k()) > math.MaxInt32:
		return fmt.Errorf("%d centroid values in %d dimensions", len(h.Centroids), h.Dim)
	case len(h.Weights) != 1<<h.Nbits || len(h.Cutoffs) != 1<<h.Nbits-1:
		return fmt.Errorf("%d bucket weights and %d cutoffs for %d bits", len(h.Weights), len(h.Cutoffs), h.Nbits)
	case h.AvgResidual != nil && len(h.AvgResidual) != h.Dim:
		return fmt.Errorf("%d average residuals in %d dimensions", len(h.AvgResidual), h.Dim)
	case !finite(h.Threshold) || h.Threshold < 0:
		return fmt.Errorf("residual threshold %v", h.Threshold)
	}
	for i, v := range h.AvgResidual {
		if !finite(v) {
			return fmt.Errorf("average residual of dimension %d is %v", i, v)
		}
	}
	for i, n := range h.DocLens {
		if n < 0 {
			return fmt.Errorf("document %d has length %d", i, n)
		}
	}
	return checkCodec(h.Dim, h.Centroids, h.Cutoffs, h.Weights)
}

// Writer writes an index folder that fast-plaid and next-plaid load. It writes
// into a folder beside the target, which takes the target's name on Commit.
// A Writer is for one goroutine.
type Writer struct {
	h      Header
	target string
	folder *atomicfile.Folder

	bounds []int // chunk i has documents bounds[i] to bounds[i+1]
	rows   []int // tokens of each chunk
	tokens int64
	stats  *residualStats

	chunk            int // being written
	left             int // tokens that it still lacks
	codes, residuals *npyFile
	wide             []int64
	packed           []byte
	err              error // ends the writer
}

// Create begins a folder at dir, which must not exist or be empty (the error
// wraps fs.ErrExist). h is not copied; leave it unchanged until Commit. Call
// [Writer.WriteBlock] with all tokens, then [Writer.Commit]; [Writer.Close]
// removes what was not committed.
func Create(dir string, h Header) (_ *Writer, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("write index folder %s: %w", dir, err)
		}
	}()
	if err := h.check(); err != nil {
		return nil, err
	}
	w := &Writer{h: h, target: dir, stats: newResidualStats(&h)}
	w.split()
	if w.folder, err = atomicfile.CreateFolder(dir); err != nil {
		return nil, err
	}
	if err := w.open(); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// split cuts the documents into chunks; there is at least one.
func (w *Writer) split() {
	w.bounds = []int{0}
	for at := 0; at < len(w.h.DocLens) || at == 0; at += ChunkDocs {
		to := min(at+ChunkDocs, len(w.h.DocLens))
		rows := 0
		for _, n := range w.h.DocLens[at:to] {
			rows += int(n)
		}
		w.bounds = append(w.bounds, to)
		w.rows = append(w.rows, rows)
		w.tokens += int64(rows)
	}
}

// open begins the files of the current chunk.
func (w *Writer) open() (err error) {
	w.left = w.rows[w.chunk]
	if w.codes, err = w.createNPY(fmt.Sprintf("%d.codes.npy", w.chunk), "<i8", w.left); err != nil {
		return err
	}
	w.residuals, err = w.createNPY(fmt.Sprintf("%d.residuals.npy", w.chunk), "|u1", w.left, w.h.Dim*w.h.Nbits/8)
	return err
}

// WriteBlock appends tokens in document order. residuals has Dim·Nbits/8 bytes
// a token in plaid's order (see [Block]); neither slice is changed or kept.
// After an error the writer can only be closed.
func (w *Writer) WriteBlock(codes []uint32, residuals []byte) error {
	if w.err != nil {
		return w.err
	}
	if err := w.write(codes, residuals); err != nil {
		w.err = fmt.Errorf("write index folder %s: %w", w.target, err)
	}
	return w.err
}

func (w *Writer) write(codes []uint32, residuals []byte) error {
	row := w.h.Dim * w.h.Nbits / 8
	if len(residuals) != len(codes)*row {
		return fmt.Errorf("%d residual bytes for %d tokens of %d", len(residuals), len(codes), row)
	}
	for i, c := range codes {
		if int64(c) >= int64(w.h.k()) {
			return fmt.Errorf("token %d of the block has code %d, want 0 to %d", i, c, w.h.k()-1)
		}
	}
	w.stats.add(residuals)
	for len(codes) > 0 {
		if err := w.advance(); err != nil {
			return err
		}
		n := min(len(codes), w.left)
		if n == 0 {
			return fmt.Errorf("%d tokens too many for the document lengths", len(codes))
		}
		if err := w.writeRows(codes[:n], residuals[:n*row]); err != nil {
			return err
		}
		codes, residuals = codes[n:], residuals[n*row:]
		w.left -= n
	}
	return nil
}

// writeRows appends tokens to the current chunk, at most streamTokens of them
// at once, so that a large block needs no copy of its size.
func (w *Writer) writeRows(codes []uint32, residuals []byte) error {
	row := w.h.Dim * w.h.Nbits / 8
	for len(codes) > 0 {
		n := min(len(codes), streamTokens)
		w.wide = w.wide[:0]
		for _, c := range codes[:n] {
			w.wide = append(w.wide, int64(c))
		}
		if err := w.codes.Ints(w.wide); err != nil {
			return err
		}
		w.packed = append(w.packed[:0], residuals[:n*row]...)
		repack(w.packed)
		if err := w.residuals.Bytes(w.packed); err != nil {
			return err
		}
		codes, residuals = codes[n:], residuals[n*row:]
	}
	return nil
}

// advance closes full chunks and begins the next one.
func (w *Writer) advance() error {
	for w.left == 0 && w.chunk < len(w.rows)-1 {
		if err := errors.Join(w.codes.close(), w.residuals.close()); err != nil {
			return err
		}
		w.chunk++
		if err := w.open(); err != nil {
			return err
		}
	}
	return nil
}

// Commit writes inverted lists and metadata, flushes everything to disk and
// gives the folder its name. The lists take 4 bytes a posting in memory.
func (w *Writer) Commit(ctx context.Context) error {
	if w.err != nil {
		return w.err
	}
	err := w.finish(ctx)
	if err == nil {
		err = w.folder.Commit()
	}
	if err != nil {
		w.err = fmt.Errorf("write index folder %s: %w", w.target, err)
		return w.err
	}
	w.err = ErrClosed
	return nil
}

// Close removes what was not committed; after Commit it does nothing. It may
// be called twice, so defer it.
func (w *Writer) Close() error {
	if w.err == nil {
		w.err = ErrClosed
	}
	w.codes.discard()
	w.residuals.discard()
	return w.folder.Close()
}

// WriteFile adds a file of which the engines know nothing, the ids of the
// documents for instance, to what is committed.
func (w *Writer) WriteFile(name string, fill func(io.Writer) error) error {
	if w.err != nil {
		return w.err
	}
	if err := w.folder.Write(name, fill); err != nil {
		w.err = fmt.Errorf("write index folder %s: %w", w.target, err)
	}
	return w.err
}

func (w *Writer) finish(ctx context.Context) error {
	if err := w.advance(); err != nil {
		return err
	}
	if w.left > 0 {
		written := w.tokens - int64(w.left)
		for _, rows := range w.rows[w.chunk+1:] {
			written -= int64(rows)
		}
		return fmt.Errorf("%d tokens written, the document lengths add to %d", written, w.tokens)
	}
	if err := errors.Join(w.codes.close(), w.residuals.close()); err != nil {
		return err
	}
	if err := w.writeCodec(); err != nil {
		return err
	}
	if err := w.writeJSON(); err != nil {
		return err
	}
	return w.writeLists(ctx)
}

func (w *Writer) writeCodec() error {
	average, threshold := w.h.AvgResidual, w.h.Threshold
	if average == nil {
		average = w.stats.average()
	}
	if threshold == 0 {
		threshold = w.stats.quantile(0.75)
	}
	for _, a := range []struct {
		name   string
		values []float32
		shape  []int
	}{
		{"centroids", w.h.Centroids, []int{w.h.k(), w.h.Dim}},
		{"bucket_cutoffs", w.h.Cutoffs, []int{len(w.h.Cutoffs)}},
		{"bucket_weights", w.h.Weights, []int{len(w.h.Weights)}},
		{"avg_residual", average, []int{w.h.Dim}},
		{"cluster_threshold", []float32{threshold}, []int{1}},
	} {
		err := w.writeNPY(a.name+".npy", "<f4", a.shape, func(f *vectors.NPYWriter) error {
			return f.Float32s(a.values)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *Writer) writeJSON() error {
	offset := 0
	for i, rows := range w.rows {
		lens := w.h.DocLens[w.bounds[i]:w.bounds[i+1]]
		if lens == nil {
			lens = []int32{}
		}
		if err := w.writeObject(fmt.Sprintf("doclens.%d.json", i), lens); err != nil {
			return err
		}
		err := w.writeObject(fmt.Sprintf("%d.metadata.json", i), map[string]int{
			"num_documents": len(lens), "num_embeddings": rows, "embedding_offset": offset,
		})
		if err != nil {
			return err
		}
		offset += rows
	}
	if err := w.writeObject("plan.json", map[string]int{"nbits": w.h.Nbits, "num_chunks": len(w.rows)}); err != nil {
		return err
	}
	docs := len(w.h.DocLens)
	return w.writeObject("metadata.json", map[string]any{
		"num_chunks":            len(w.rows),
		"nbits":                 w.h.Nbits,
		"num_partitions":        w.h.k(),
		"num_embeddings":        w.tokens,
		"num_documents":         docs,
		"avg_doclen":            float64(w.tokens) / float64(max(docs, 1)),
		"embedding_dim":         w.h.Dim,
		"compress_only":         false,
		"next_plaid_compatible": true,
	})
}

// writeLists reads the folder back through the importer, which also proves
// that it can be read, and inverts it.
func (w *Writer) writeLists(ctx context.Context) error {
	x, err := Open(w.folder.Path())
	if err != nil {
		return err
	}
	defer x.Close()
	l, err := x.invert(ctx, false)
	if err != nil {
		return err
	}
	err = w.writeNPY("ivf.npy", "<i8", []int{len(l.items)}, func(f *vectors.NPYWriter) error {
		for part := range slices.Chunk(l.items, streamTokens) {
			w.wide = w.wide[:0]
			for _, v := range part {
				w.wide = append(w.wide, int64(v))
			}
			if err := f.Ints(w.wide); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	lengths := make([]int64, x.K)
	for c := range lengths {
		lengths[c] = int64(len(l.of(c)))
	}
	return w.writeNPY("ivf_lengths.npy", "<i4", []int{x.K}, func(f *vectors.NPYWriter) error {
		return f.Ints(lengths)
	})
}
