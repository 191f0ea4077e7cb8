package interop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/vectors"
)

// chunkDocs is the number of documents in a chunk of a written folder, as in fast-plaid and
// ColBERT.
const chunkDocs = 25000

// Header describes an index to write.
type Header struct {
	Dim, Nbits int
	// Centroids is K × Dim, finite.
	Centroids []float32
	// Cutoffs has 2ⁿ−1 non-decreasing values, Weights 2ⁿ.
	Cutoffs, Weights []float32
	// DocLens is the number of tokens of each document. 0 is allowed.
	DocLens []int32
}

// countCentroids returns the number of centroids.
func (h *Header) countCentroids() int { return len(h.Centroids) / h.Dim }

// validate checks that the format can store the index.
func (h *Header) validate() error {
	switch {
	case h.Nbits != 1 && h.Nbits != 2 && h.Nbits != 4 && h.Nbits != 8:
		return fmt.Errorf("%w: %d bits a dimension, want 1, 2, 4 or 8", ErrUnsupported, h.Nbits)
	case h.Dim < 1 || h.Dim%8 != 0 || h.Dim > 1<<20:
		return fmt.Errorf("%w: %d dimensions, the format wants a multiple of 8", ErrUnsupported, h.Dim)
	case len(h.Centroids) == 0 || len(h.Centroids)%h.Dim != 0 || int64(h.countCentroids()) > math.MaxInt32:
		return fmt.Errorf("%d centroid values in %d dimensions", len(h.Centroids), h.Dim)
	case len(h.Weights) != 1<<h.Nbits || len(h.Cutoffs) != 1<<h.Nbits-1:
		return fmt.Errorf("%d bucket weights and %d cutoffs for %d bits", len(h.Weights), len(h.Cutoffs), h.Nbits)
	}
	for i, n := range h.DocLens {
		if n < 0 {
			return fmt.Errorf("document %d has length %d", i, n)
		}
	}
	return checkCodec(h.Dim, h.Centroids, h.Cutoffs, h.Weights)
}

// Writer writes an index folder that fast-plaid and next-plaid load. It writes to a temporary
// folder next to the target, and Commit renames it to the target. A Writer is for one goroutine.
type Writer struct {
	header Header
	target string
	folder *files.AtomicFolder

	chunkBounds []int // chunk i has the documents chunkBounds[i] to before chunkBounds[i+1]
	chunkTokens []int // tokens of each chunk
	tokens      int64
	stats       *residualStats

	chunk            int // number of the chunk that is being written
	remainingTokens  int // tokens that the chunk still lacks
	codes, residuals *npyFile
	codeBuffer       []int64
	residualBuffer   []byte
	err              error // after an error the writer can only be closed
}

// Create begins a folder at dir, which must not exist or be empty (the error wraps fs.ErrExist). It
// does not copy the slices of h; leave them unchanged until Commit. Call [Writer.WriteBlock] with
// all tokens, then [Writer.Commit]. [Writer.Close] removes the folder unless it was committed.
func Create(dir string, h Header) (_ *Writer, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("write index folder %s: %w", dir, err)
		}
	}()
	if err := h.validate(); err != nil {
		return nil, err
	}
	w := &Writer{header: h, target: dir, stats: newResidualStats(&h)}
	w.splitChunks()
	if w.folder, err = files.CreateAtomicFolder(dir); err != nil {
		return nil, err
	}
	if err := w.openChunk(); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// splitChunks divides the documents into chunks, at least one.
func (w *Writer) splitChunks() {
	w.chunkBounds = []int{0}
	for from := 0; from < len(w.header.DocLens) || from == 0; from += chunkDocs {
		to := min(from+chunkDocs, len(w.header.DocLens))
		rows := 0
		for _, n := range w.header.DocLens[from:to] {
			rows += int(n)
		}
		w.chunkBounds = append(w.chunkBounds, to)
		w.chunkTokens = append(w.chunkTokens, rows)
		w.tokens += int64(rows)
	}
}

// openChunk creates the files of the current chunk.
func (w *Writer) openChunk() (err error) {
	w.remainingTokens = w.chunkTokens[w.chunk]
	if w.codes, err = w.createNPY(fmt.Sprintf("%d.codes.npy", w.chunk), "<i8", w.remainingTokens); err != nil {
		return err
	}
	rowBytes := w.header.Dim * w.header.Nbits / 8
	w.residuals, err = w.createNPY(fmt.Sprintf("%d.residuals.npy", w.chunk), "|u1", w.remainingTokens, rowBytes)
	return err
}

// WriteBlock appends tokens in document order. residuals has Dim·Nbits/8 bytes a token in plaid's
// order (see [Block]). WriteBlock neither changes nor keeps the slices. After an error the writer
// can only be closed.
func (w *Writer) WriteBlock(codes []uint32, residuals []byte) error {
	if w.err != nil {
		return w.err
	}
	if err := w.writeTokens(codes, residuals); err != nil {
		w.err = fmt.Errorf("write index folder %s: %w", w.target, err)
	}
	return w.err
}

// writeTokens checks a block, and distributes it over the chunks.
func (w *Writer) writeTokens(codes []uint32, residuals []byte) error {
	rowBytes := w.header.Dim * w.header.Nbits / 8
	if len(residuals) != len(codes)*rowBytes {
		return fmt.Errorf("%d residual bytes for %d tokens of %d", len(residuals), len(codes), rowBytes)
	}
	for i, c := range codes {
		if int64(c) >= int64(w.header.countCentroids()) {
			return fmt.Errorf("token %d of the block has code %d, want 0 to %d", i, c, w.header.countCentroids()-1)
		}
	}
	w.stats.add(residuals)
	for len(codes) > 0 {
		if err := w.nextChunk(); err != nil {
			return err
		}
		n := min(len(codes), w.remainingTokens)
		if n == 0 {
			return fmt.Errorf("%d tokens too many for the document lengths", len(codes))
		}
		if err := w.writeRows(codes[:n], residuals[:n*rowBytes]); err != nil {
			return err
		}
		codes, residuals = codes[n:], residuals[n*rowBytes:]
		w.remainingTokens -= n
	}
	return nil
}

// writeRows appends tokens to the current chunk, at most streamTokens at a time, so that a large
// block is not copied as a whole.
func (w *Writer) writeRows(codes []uint32, residuals []byte) error {
	rowBytes := w.header.Dim * w.header.Nbits / 8
	for len(codes) > 0 {
		n := min(len(codes), streamTokens)
		w.codeBuffer = w.codeBuffer[:0]
		for _, c := range codes[:n] {
			w.codeBuffer = append(w.codeBuffer, int64(c))
		}
		if err := w.codes.Ints(w.codeBuffer); err != nil {
			return err
		}
		w.residualBuffer = append(w.residualBuffer[:0], residuals[:n*rowBytes]...)
		repack(w.residualBuffer)
		if err := w.residuals.Bytes(w.residualBuffer); err != nil {
			return err
		}
		codes, residuals = codes[n:], residuals[n*rowBytes:]
	}
	return nil
}

// nextChunk closes full chunks and opens the next one.
func (w *Writer) nextChunk() error {
	for w.remainingTokens == 0 && w.chunk < len(w.chunkTokens)-1 {
		if err := errors.Join(w.codes.close(), w.residuals.close()); err != nil {
			return err
		}
		w.chunk++
		if err := w.openChunk(); err != nil {
			return err
		}
	}
	return nil
}

// Commit writes inverted lists and metadata, syncs everything to disk and renames the folder to its
// target. The lists take 4 bytes of memory per posting.
func (w *Writer) Commit(ctx context.Context) error {
	if w.err != nil {
		return w.err
	}
	err := w.finishFiles(ctx)
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

// Close removes the folder unless it was committed; after Commit it does nothing. It may be called
// twice, so defer it.
func (w *Writer) Close() error {
	if w.err == nil {
		w.err = ErrClosed
	}
	w.codes.discard()
	w.residuals.discard()
	return w.folder.Close()
}

// WriteFile adds a file that the engines do not know, such as the ids of the documents.
func (w *Writer) WriteFile(name string, fill func(io.Writer) error) error {
	if w.err != nil {
		return w.err
	}
	if err := w.folder.Write(name, fill); err != nil {
		w.err = fmt.Errorf("write index folder %s: %w", w.target, err)
	}
	return w.err
}

// finishFiles closes the last chunk, and writes codec, metadata and inverted lists.
func (w *Writer) finishFiles(ctx context.Context) error {
	if err := w.nextChunk(); err != nil {
		return err
	}
	if w.remainingTokens > 0 {
		written := w.tokens - int64(w.remainingTokens)
		for _, rows := range w.chunkTokens[w.chunk+1:] {
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

// writeCodec writes centroids and codebook, and the statistics of residuals.
func (w *Writer) writeCodec() error {
	for _, a := range []struct {
		name   string
		values []float32
		shape  []int
	}{
		{"centroids", w.header.Centroids, []int{w.header.countCentroids(), w.header.Dim}},
		{"bucket_cutoffs", w.header.Cutoffs, []int{len(w.header.Cutoffs)}},
		{"bucket_weights", w.header.Weights, []int{len(w.header.Weights)}},
		{"avg_residual", w.stats.meanAbsWeights(), []int{w.header.Dim}},        // no engine uses it
		{"cluster_threshold", []float32{w.stats.normQuantile(0.75)}, []int{1}}, // for outliers in updates
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

// writeJSON writes the document lengths and the metadata, of each chunk and of the index.
func (w *Writer) writeJSON() error {
	offset := 0
	for i, rows := range w.chunkTokens {
		lens := w.header.DocLens[w.chunkBounds[i]:w.chunkBounds[i+1]]
		if lens == nil {
			lens = []int32{} // [] in JSON, not null
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
	plan := map[string]int{"nbits": w.header.Nbits, "num_chunks": len(w.chunkTokens)}
	if err := w.writeObject("plan.json", plan); err != nil {
		return err
	}
	docs := len(w.header.DocLens)
	return w.writeObject("metadata.json", map[string]any{
		"num_chunks":            len(w.chunkTokens),
		"nbits":                 w.header.Nbits,
		"num_partitions":        w.header.countCentroids(),
		"num_embeddings":        w.tokens,
		"num_documents":         docs,
		"avg_doclen":            float64(w.tokens) / float64(max(docs, 1)),
		"embedding_dim":         w.header.Dim,
		"compress_only":         false,
		"next_plaid_compatible": true,
	})
}

// writeLists reads the folder back through Open, which also proves that it can be read, and inverts
// it.
func (w *Writer) writeLists(ctx context.Context) error {
	x, err := Open(w.folder.Path())
	if err != nil {
		return err
	}
	l, err := x.invert(ctx, documentItems)
	if err != nil {
		return err
	}
	err = w.writeNPY("ivf.npy", "<i8", []int{len(l.items)}, func(f *vectors.NPYWriter) error {
		for run := range slices.Chunk(l.items, streamTokens) {
			w.codeBuffer = w.codeBuffer[:0]
			for _, v := range run {
				w.codeBuffer = append(w.codeBuffer, int64(v))
			}
			if err := f.Ints(w.codeBuffer); err != nil {
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
		lengths[c] = int64(len(l.listOf(c)))
	}
	return w.writeNPY("ivf_lengths.npy", "<i4", []int{x.K}, func(f *vectors.NPYWriter) error {
		return f.Ints(lengths)
	})
}

// npyFile is a new .npy file that close syncs to disk.
type npyFile struct {
	*vectors.NPYWriter
	file *os.File
}

// createNPY creates a .npy file, to which the caller appends until it calls close or discard.
func (w *Writer) createNPY(name, dtype string, shape ...int) (*npyFile, error) {
	file, err := w.folder.Create(name)
	if err != nil {
		return nil, err
	}
	n, err := vectors.NewNPYWriter(file, dtype, shape...)
	if err != nil {
		file.Close()
		return nil, err
	}
	return &npyFile{NPYWriter: n, file: file}, nil
}

func (w *npyFile) close() error {
	if err := w.NPYWriter.Close(); err != nil {
		w.file.Close()
		return err
	}
	return files.CloseSynced(w.file)
}

// discard closes the file, complete or not. w may be nil, or closed.
func (w *npyFile) discard() {
	if w != nil {
		w.file.Close()
	}
}

// writeNPY writes a complete .npy file; fill writes its elements.
func (w *Writer) writeNPY(name, dtype string, shape []int, fill func(w *vectors.NPYWriter) error) error {
	return w.folder.Write(name, func(f io.Writer) error {
		n, err := vectors.NewNPYWriter(f, dtype, shape...)
		if err != nil {
			return err
		}
		if err := fill(n); err != nil {
			return err
		}
		return n.Close()
	})
}

// writeObject writes a file of JSON.
func (w *Writer) writeObject(name string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return w.folder.Write(name, func(f io.Writer) error {
		_, err := f.Write(text)
		return err
	})
}
