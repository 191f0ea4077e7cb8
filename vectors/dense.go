package vectors

import (
	"context"
	"errors"
	"io"
	"iter"
	"slices"

	"github.com/plaid-ir/plaid/kernels"
)

// blockFloats is the number of floats of consecutive documents that are read at once.
const blockFloats = 1 << 20

// denseSource reads documents from one array: [tokens, dim] with the lengths
// of the documents, or [docs, rows, dim], padded.
type denseSource struct {
	source
	vec      *Array
	mask     *Array // [docs, rows], or nil
	dim, n   int
	starts   []int // the first row of each document, and the number of rows, or nil if padded
	stride   int   // rows of a padded document
	empty    bool  // no document has vectors
	realRows []int // real rows of each padded document, or nil if all are
	floats   []float32
	masks    []int64
}

// maxEmptyDocs is the maximum number of documents that an array without data may claim.
const maxEmptyDocs = 1 << 20

// newDense checks that the arrays agree. mask and lengths may be nil; the lengths come from the file at
// lengthsPath.
func newDense(vec, mask *Array, lengths []int64, lengthsPath string) (*denseSource, error) {
	s := &denseSource{source: source{path: vec.path, files: new(inputs)}, vec: vec, mask: mask}
	if !vec.kind.isFloat() {
		return nil, faultf(vec.path, ErrType, `holds %s, want floats of 16, 32 or 64 bits: .astype("float32") converts`,
			vec.typeName())
	}
	rank := len(vec.Shape)
	if rank != 2 && rank != 3 {
		return nil, faultf(vec.path, ErrShape, "array %s has rank %d, want [tokens, dim] or [docs, rows, dim]",
			shapeString(vec.Shape), rank)
	}
	rows := vec.Shape[0]
	dim := vec.Shape[rank-1]
	if rank == 3 {
		rows *= vec.Shape[1]
	}
	if dim > kernels.MaxDim || dim < 1 && rows != 0 {
		return nil, faultf(vec.path, ErrShape, "dimension %d is not in 1..%d", dim, kernels.MaxDim)
	}
	var err error
	switch {
	case lengths != nil && mask != nil:
		return nil, faultf(vec.path, ErrShape, "both lengths (%s) and a mask (%s): give one", lengthsPath, mask.path)
	case rank == 2 && mask != nil:
		return nil, faultf(mask.path, ErrShape, "a mask fits [docs, rows, dim]; %s is %s and needs lengths",
			vec.path, shapeString(vec.Shape))
	case rank == 2 && lengths == nil:
		return nil, faultf(vec.path, ErrNoLengths, "how many of the %d tokens each document has", rows)
	case rank == 2:
		s.starts, err = firstRows(lengths, lengthsPath, rows, vec.path)
		s.n = len(lengths)
	default:
		err = s.initPadded(lengths, lengthsPath)
	}
	if err != nil {
		return nil, err
	}
	s.dim, s.empty = dim, true
	for i := 0; i < s.n && s.empty; i++ {
		s.empty = s.Rows(i) == 0
	}
	return s, nil
}

// initPadded computes the real rows of the documents of an array [docs, rows, dim] from lengths or the mask.
func (s *denseSource) initPadded(lengths []int64, lengthsPath string) (err error) {
	s.n, s.stride = s.vec.Shape[0], s.vec.Shape[1]
	if err := checkCount(s.n, s.vec.path); err != nil {
		return err
	}
	if s.vec.n == 0 && s.n > maxEmptyDocs {
		return faultf(s.vec.path, ErrShape, "array %s claims %d without any data", shapeString(s.vec.Shape), s.n)
	}
	switch {
	case lengths != nil:
		s.realRows, err = paddedLengths(lengths, lengthsPath, s.n, s.stride, s.vec.path)
	case s.mask != nil:
		s.realRows, err = maskedLengths(s.mask, s.n, s.stride, s.vec.path)
	}
	return err
}

func (s *denseSource) Len() int { return s.n }

func (s *denseSource) Dim() int {
	if s.empty {
		return 0
	}
	return s.dim
}

func (s *denseSource) Rows(i int) int {
	switch {
	case s.starts != nil:
		return s.starts[i+1] - s.starts[i]
	case s.realRows != nil:
		return s.realRows[i]
	}
	return s.stride
}

// firstRow returns the first row of document i in the array, padding included.
func (s *denseSource) firstRow(i int) int {
	if s.starts != nil {
		return s.starts[i]
	}
	return i * s.stride
}

func (s *denseSource) Docs(ctx context.Context, from, to int) iter.Seq2[Document, error] {
	return s.files.guardDocs(from, func(yield func(Document, error) bool) {
		// Take the buffers from s during the loop, so that a nested loop allocates others.
		floats, masks, payload := s.floats, s.masks, []byte(nil)
		s.floats, s.masks = nil, nil
		defer func() { s.floats, s.masks = floats, masks }()
		base, end := 0, from // the buffers have the rows from base on, of documents before end
		finite := false      // all values in the buffer are
		eachDocument(ctx, s.path, from, to, s.n, yield, func(i int) (doc Document, err error) {
			// Read the next documents that fit a block.
			if i == end {
				for base, end = s.firstRow(i), i+1; end < to && (s.firstRow(end+1)-base)*s.dim <= blockFloats; {
					end++
				}
				if floats, masks, err = s.readRows(floats, masks, i, end); err != nil {
					return doc, inFile(err, s.path, i, -1, "")
				}
				finite = allFinite(floats)
			}
			// Get this one from the buffers.
			doc.ID = s.ID(i)
			lo, hi := s.firstRow(i)-base, s.firstRow(i+1)-base
			var mask []int64
			if s.mask != nil {
				mask = masks[lo:hi]
			}
			doc.Tokens = s.removePadding(floats[lo*s.dim:hi*s.dim], mask, i)
			if !finite {
				err = checkFinite(doc.Tokens, s.dim)
			}
			if err == nil && s.payload != nil {
				doc.Payload, payload, err = s.payload.readPayload(payload, i)
			}
			if err != nil {
				err = inFile(err, s.path, i, -1, doc.ID)
			}
			return doc, err
		})
	})
}

// readRows reads the rows, and the mask, of the documents from from on and before end into the buffers.
func (s *denseSource) readRows(floats []float32, masks []int64, from, end int) ([]float32, []int64, error) {
	first := s.firstRow(from)
	rows := s.firstRow(end) - first
	floats = slices.Grow(floats[:0], rows*s.dim)[:rows*s.dim]
	if err := s.vec.Float32s(floats, first*s.dim); err != nil {
		return floats, masks, err
	}
	if s.mask == nil {
		return floats, masks, nil
	}
	masks = slices.Grow(masks[:0], rows)[:rows]
	return floats, masks, s.mask.Ints(masks, first)
}

// removePadding removes the padding from the tokens of document i, in place.
func (s *denseSource) removePadding(tokens []float32, mask []int64, i int) []float32 {
	if s.realRows == nil {
		return tokens
	}
	if mask == nil {
		return tokens[:s.realRows[i]*s.dim]
	}
	kept := 0 // floats
	for t, isToken := range mask {
		if isToken != 0 {
			copy(tokens[kept:kept+s.dim], tokens[t*s.dim:(t+1)*s.dim])
			kept += s.dim
		}
	}
	return tokens[:kept]
}

// closeAll closes all, and joins their errors.
func closeAll[C io.Closer](closers []C) error {
	var errs []error
	for _, c := range closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
