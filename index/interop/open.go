package interop

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// normSlack is the distance of the norm of a centroid from 1 beyond which Open warns; float16 rows
// are within 1e-3.
const normSlack = 1e-2

// chunk is a run of tokens in a pair of files, from their first row on.
type chunk struct {
	codes, residuals arrayRef
	rows             int
}

// arrayFiles names the arrays of an index.
type arrayFiles struct {
	centroids, cutoffs, weights arrayRef
	chunks                      []chunk

	ivf, ivfLengths arrayRef
	ivfItems        listItems
}

// Open opens an index folder of ColBERT (.pt files), of fast-plaid or next-plaid (.npy files), or a
// plain set of .npy files (centroids, codes, residuals, bucket_cutoffs, bucket_weights, doclens).
// It reads metadata, centroids, codebook and lengths, and checks that shapes and counts agree;
// [Index.Blocks] reads codes and residuals.
//
// The folder may also be an index of PyLate, which has one of these folders inside, or ids next to
// the files of one.
//
// Array shapes take precedence over metadata: a differing num_partitions, num_embeddings or
// num_documents is a warning. Files of raw vectors (buffer.npy, embeddings.npy: pickled objects in
// fast-plaid) are not opened.
//
// Errors are of [ErrNotIndex], [ErrBroken] or [ErrUnsupported], or those of the file system.
func Open(dir string) (*Index, error) {
	x := &Index{Dir: dir, openedDir: dir, folder: newFolder(dir)}
	if err := x.detectAndOpen(); err != nil {
		return nil, fmt.Errorf("index folder %s: %w", dir, err)
	}
	return x, nil
}

// detectAndOpen opens the folder by its files.
func (x *Index) detectAndOpen() error {
	info, err := os.Stat(x.Dir)
	if err != nil {
		return errors.Unwrap(err) // without the path, which Open adds
	}
	if !info.IsDir() {
		return fmt.Errorf("%w: it is not a folder", ErrNotIndex)
	}
	x.enterPyLateFolder()
	f := x.folder
	pt, npy := f.hasFile("centroids.pt"), f.hasFile("centroids.npy")
	switch {
	case f.hasFile("sizes.compacted.pt") || f.hasFile("codes.compacted.pt"):
		return fmt.Errorf("%w: an XTR/WARP index, whose tokens are not in document order", ErrUnsupported)
	case pt && npy:
		return fmt.Errorf("%w: both centroids.pt and centroids.npy", ErrBroken)
	case pt:
		return x.openColBERT()
	case npy && f.hasFile("metadata.json"):
		return x.openPlaid()
	case npy && f.hasFile("codes.npy"):
		return x.openPlain()
	case npy && (f.hasFile("plan.json") || f.hasFile("doclens.0.json")):
		return fmt.Errorf("%w: metadata.json %w", ErrBroken, errMissing)
	}
	if below := x.findNested(); below != "" {
		return fmt.Errorf("%w: did you mean %s in it?", ErrNotIndex, below)
	}
	return ErrNotIndex
}

// findNested returns a folder within this one that looks like an index, or "".
func (x *Index) findNested() string {
	for _, pattern := range []string{filepath.Join("*", pylateInside), filepath.Join("*", "metadata.json")} {
		if found, err := fs.Glob(os.DirFS(x.Dir), filepath.ToSlash(pattern)); err == nil && len(found) > 0 {
			return filepath.Join(x.Dir, filepath.FromSlash(path.Dir(found[0])))
		}
	}
	return ""
}

// openPlain opens a plain set of .npy files.
func (x *Index) openPlain() error {
	x.Engine = EngineNPY
	if err := x.readCodec(npyCodecFiles(), 0); err != nil {
		return err
	}
	r := arrayRef{file: "doclens.npy"}
	if err := x.readLengths(r); err != nil {
		return err
	}
	c := chunk{
		codes:     arrayRef{file: "codes.npy"},
		residuals: arrayRef{file: "residuals.npy"},
		rows:      int(x.Tokens),
	}
	if err := x.checkChunk(c, exactRows); err != nil {
		return err
	}
	x.files.chunks = []chunk{c}
	x.findNPYLists()
	return nil
}

// npyCodecFiles names the codec files that all .npy folders have.
func npyCodecFiles() arrayFiles {
	return arrayFiles{
		centroids: arrayRef{file: "centroids.npy"},
		cutoffs:   arrayRef{file: "bucket_cutoffs.npy"},
		weights:   arrayRef{file: "bucket_weights.npy"},
	}
}

// findNPYLists sets the inverted lists of a .npy folder if it has them.
func (x *Index) findNPYLists() {
	if x.folder.hasFile("ivf.npy") && x.folder.hasFile("ivf_lengths.npy") {
		x.files.ivf, x.files.ivfLengths = arrayRef{file: "ivf.npy"}, arrayRef{file: "ivf_lengths.npy"}
	}
}

// readLengths reads document lengths from an array.
func (x *Index) readLengths(r arrayRef) error {
	lens, err := x.folder.readIntArray(r)
	if err != nil {
		return err
	}
	x.DocLens = make([]int32, len(lens))
	for i, n := range lens {
		if n < 0 || n > math.MaxInt32 {
			return fmt.Errorf("%w: %s: document %d has length %d", ErrBroken, r, i, n)
		}
		x.DocLens[i] = int32(n)
		x.Tokens += n
	}
	return nil
}

// readCodec reads centroids and codebook. nbits comes from the metadata, or is 0 if unknown.
func (x *Index) readCodec(p arrayFiles, nbits int64) error {
	x.files = p
	f := x.folder
	values, a, err := f.readFloatArray(p.centroids, 2)
	if err != nil {
		return err
	}
	x.Centroids, x.K, x.Dim, x.CentroidsF16 = values, a.Shape[0], a.Shape[1], strings.HasSuffix(a.Dtype, "f2")
	if x.K == 0 || x.Dim == 0 {
		return fmt.Errorf("%w: %s has shape %v", ErrBroken, p.centroids, a.Shape)
	}
	if int64(x.K) > math.MaxUint32 {
		return fmt.Errorf("%w: %d centroids", ErrUnsupported, x.K)
	}
	if x.Cutoffs, _, err = f.readFloatArray(p.cutoffs, 1); err != nil {
		return err
	}
	if x.Weights, _, err = f.readFloatArray(p.weights, 1); err != nil {
		return err
	}
	if nbits == 0 { // as many as number the weights
		for nbits < 63 && 1<<nbits < len(x.Weights) {
			nbits++
		}
	}
	if nbits != 1 && nbits != 2 && nbits != 4 && nbits != 8 {
		return fmt.Errorf("%w: %d bits a dimension, want 1, 2, 4 or 8", ErrUnsupported, nbits)
	}
	x.Nbits = int(nbits)
	if len(x.Weights) != 1<<nbits || len(x.Cutoffs) != 1<<nbits-1 {
		return fmt.Errorf("%w: %d bucket weights and %d cutoffs for %d bits",
			ErrBroken, len(x.Weights), len(x.Cutoffs), nbits)
	}
	if x.Dim*x.Nbits%8 != 0 {
		return fmt.Errorf("%w: %d dimensions of %d bits do not fill whole bytes", ErrUnsupported, x.Dim, x.Nbits)
	}
	if err := checkCodec(x.Dim, x.Centroids, x.Cutoffs, x.Weights); err != nil {
		return fmt.Errorf("%w: %w", ErrBroken, err)
	}
	x.addCodecWarnings()
	return nil
}

// checkCodec refuses values that are not finite, and decreasing cutoffs.
func checkCodec(dim int, centroids, cutoffs, weights []float32) error {
	for i, v := range centroids {
		if !isFinite(v) {
			return fmt.Errorf("centroid %d, dimension %d is %v", i/dim, i%dim, v)
		}
	}
	for i, v := range cutoffs {
		if !isFinite(v) || i > 0 && v < cutoffs[i-1] {
			return fmt.Errorf("bucket cutoff %d is %v, want finite and non-decreasing", i, v)
		}
	}
	for i, v := range weights {
		if !isFinite(v) {
			return fmt.Errorf("bucket weight %d is %v", i, v)
		}
	}
	return nil
}

func isFinite(v float32) bool { return !math.IsNaN(float64(v)) && !math.IsInf(float64(v), 0) }

// addCodecWarnings warns of centroids that are not unit vectors, and of a codebook without
// information, which next-plaid writes for a tiny collection.
func (x *Index) addCodecWarnings() {
	odd, first := 0, 0
	for c := range x.K {
		var sum float64
		for _, v := range x.Centroids[c*x.Dim : (c+1)*x.Dim] {
			sum += float64(v) * float64(v)
		}
		if math.Abs(math.Sqrt(sum)-1) > normSlack {
			if odd == 0 {
				first = c
			}
			odd++
		}
	}
	if odd > 0 {
		x.addWarning("%d of %d centroids are not unit vectors, first %d", odd, x.K, first)
	}
	if !slices.ContainsFunc(x.Weights, func(w float32) bool { return w != 0 }) {
		x.addWarning("all bucket weights are zero: residuals carry no information")
	}
}

// compareCounts compares the counts in the metadata with those of the arrays.
func (x *Index) compareCounts(name string, meta object) error {
	for _, c := range []struct {
		key   string
		found int64
	}{
		{"num_partitions", int64(x.K)},
		{"num_embeddings", x.Tokens},
		{"num_documents", int64(len(x.DocLens))},
		{"embedding_dim", int64(x.Dim)},
	} {
		v, ok, err := meta.integer(name, c.key)
		if err != nil {
			return err
		}
		// Old next-plaid writes 0 documents.
		if ok && v != c.found && (c.key != "num_documents" || v != 0) {
			x.addWarning("%s says %s %d, the arrays have %d", name, c.key, v, c.found)
		}
	}
	return nil
}

// rowCheck says how many rows the files of a chunk must have.
type rowCheck bool

const (
	exactRows   rowCheck = true  // as many as the chunk
	atLeastRows rowCheck = false // at least as many, since merged files may have more
)

// checkChunk checks types and shapes of codes and residuals.
func (x *Index) checkChunk(c chunk, check rowCheck) error {
	codes, err := x.folder.openArray(c.codes)
	if err != nil {
		return err
	}
	defer codes.close()
	if err := x.checkCodes(c, codes, check); err != nil {
		return err
	}
	residuals, err := x.folder.openArray(c.residuals)
	if err != nil {
		return err
	}
	defer residuals.close()
	return x.checkResiduals(c, residuals, check)
}

func (x *Index) checkCodes(c chunk, a array, check rowCheck) error {
	if err := checkInts(c.codes, a); err != nil {
		return err
	}
	return checkRows(c.codes, a.Len(), c.rows, check)
}

func (x *Index) checkResiduals(c chunk, a array, check rowCheck) error {
	shape := a.Shape
	if c.rows == 0 && check == exactRows && a.Len() == 0 {
		return nil // an emptied chunk may have lost its columns
	}
	if len(shape) != 2 || a.Dtype != "|u1" {
		return fmt.Errorf("%w: %s is %s %v, want bytes in two dimensions", ErrBroken, c.residuals, a.Dtype, shape)
	}
	if shape[1] != x.RowBytes() {
		return fmt.Errorf("%w: %s has %d bytes a token, %d dimensions of %d bits have %d",
			ErrBroken, c.residuals, shape[1], x.Dim, x.Nbits, x.RowBytes())
	}
	return checkRows(c.residuals, shape[0], c.rows, check)
}

func checkRows(r arrayRef, got, want int, check rowCheck) error {
	if got < want || check == exactRows && got != want {
		return fmt.Errorf("%w: %s has %d rows, the document lengths add to %d", ErrBroken, r, got, want)
	}
	return nil
}

// isContentError reports whether an error is about the content of a folder, not about reading it.
func isContentError(err error) bool {
	return errors.Is(err, ErrBroken) || errors.Is(err, ErrUnsupported)
}
