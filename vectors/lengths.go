package vectors

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/plaid-ir/plaid/internal/files"
)

// readInts reads all integers of an array of rank 1. Its result grows with the data read, not with the
// length that the header claims.
func readInts(a *Array) ([]int64, error) {
	if a.kind.isFloat() {
		return nil, faultf(a.path, ErrType, "lengths are %s, want integers: .astype(int) converts", a.typeName())
	}
	if len(a.Shape) != 1 {
		return nil, faultf(a.path, ErrShape, "lengths %s, want one row of them", shapeString(a.Shape))
	}
	ints := []int64{} // not nil if empty
	block := make([]int64, min(a.n, 8192))
	for i := 0; i < a.n; i += len(block) {
		block = block[:min(len(block), a.n-i)]
		if err := a.Ints(block, i); err != nil {
			return nil, err
		}
		ints = append(ints, block...)
	}
	return ints, nil
}

// readLengths reads the length of each document: .npy integers, a .json list, or text with one number
// per line.
func (in *inputs) readLengths(ctx context.Context, path string) ([]int64, error) {
	ext := files.Suffix(path)
	switch ext {
	case ".npy":
		a, err := in.openNPY(path)
		if err != nil {
			return nil, err
		}
		defer a.Close()
		return readInts(a)
	case ".npz", ".safetensors":
		return nil, faultf(path, ErrFormat,
			"lengths are read from .npy, from a .json list or from text, not from %s", ext)
	}
	f, _, err := in.openFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := decompress(files.UntilDone(ctx, f), path)
	if err != nil {
		return nil, err
	}
	if ext == ".json" {
		return parseLengthList(b, path)
	}
	return parseLengths(b, path)
}

// parseLengths parses text with one length per line.
func parseLengths(r io.Reader, path string) ([]int64, error) {
	lines := newLineReader(r, 64)
	lengths := []int64{}
	for {
		text, _, err := lines.Next()
		if errors.Is(err, io.EOF) {
			return lengths, nil
		}
		var v int64
		if err == nil {
			v, err = parseLength(strings.TrimSpace(string(text)))
		}
		if err != nil {
			return nil, inFile(err, path, -1, lines.Number, "")
		}
		lengths = append(lengths, v)
	}
}

// parseLengthList parses a JSON list of lengths.
func parseLengthList(r io.Reader, path string) ([]int64, error) {
	lengths := []int64{}
	err := jsonList(r, func(i int, raw []byte) error {
		v, err := parseLength(string(raw))
		lengths = append(lengths, v)
		return err
	})
	if err != nil {
		return nil, inFile(err, path, -1, -1, "")
	}
	return lengths, nil
}

func parseLength(s string) (int64, error) {
	v, err := strconv.ParseInt(s, 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		return 0, fmt.Errorf("%w: length %s", ErrShape, s)
	}
	if err != nil {
		return 0, fmt.Errorf("%w: %s is not a length", ErrFormat, quoteExcerpt([]byte(s)))
	}
	return v, nil
}

// firstRows returns the first row of each document, and the number of rows at the end. The lengths are
// those in the file at path; they must add up to the rows of the array vecPath.
func firstRows(lengths []int64, path string, rows int, vecPath string) ([]int, error) {
	if err := checkCount(len(lengths), path); err != nil {
		return nil, err
	}
	sum := uint64(0)
	for i, l := range lengths {
		if l < 0 || l > int64(rows) {
			return nil, lengthError(path, i, fmt.Sprintf("length %d, %s has %d rows", l, vecPath, rows))
		}
		if sum += uint64(l); sum > math.MaxInt64 { // no overflow: both are below 2⁶³
			return nil, lengthError(path, i, "lengths up to here sum to more than any file can hold")
		}
	}
	if sum != uint64(rows) {
		return nil, faultf(path, ErrShape, "%d lengths sum to %d, %s has %d rows", len(lengths), sum, vecPath, rows)
	}
	starts := make([]int, len(lengths)+1)
	for i, l := range lengths {
		starts[i+1] = starts[i] + int(l)
	}
	return starts, nil
}

// lengthError returns the error of the length of a document.
func lengthError(path string, doc int, reason string) error {
	return inFile(fmt.Errorf("%w: %s", ErrShape, reason), path, doc, -1, "")
}

// maxDocs is the maximum number of documents. Ordinals have 32 bits.
const maxDocs = math.MaxUint32

// checkCount checks that n documents are not too many.
func checkCount(n int, path string) error {
	if int64(n) > maxDocs {
		return faultf(path, ErrShape, "%d documents, at most %d", n, int64(maxDocs))
	}
	return nil
}

// paddedLengths checks the lengths, in the file at path, of documents in the array vecPath, which are
// all padded to the same number of rows.
func paddedLengths(lengths []int64, path string, docs, rows int, vecPath string) ([]int, error) {
	if len(lengths) != docs {
		return nil, faultf(path, ErrShape, "%d lengths for the %d of %s", len(lengths), docs, vecPath)
	}
	out := make([]int, docs)
	for i, l := range lengths {
		if l < 0 || l > int64(rows) {
			return nil, lengthError(path, i, fmt.Sprintf("length %d, %s has %d rows for each", l, vecPath, rows))
		}
		out[i] = int(l)
	}
	return out, nil
}

// maskedLengths counts the real tokens of each document in the array vecPath, in which all are padded
// to the same number of rows: the elements of the mask that are not 0.
func maskedLengths(mask *Array, docs, rows int, vecPath string) ([]int, error) {
	if mask.kind.isFloat() || len(mask.Shape) != 2 || mask.Shape[0] != docs || mask.Shape[1] != rows {
		return nil, faultf(mask.path, ErrShape, "mask is %s %s, %s wants integers or booleans (%d, %d)",
			mask.Dtype, shapeString(mask.Shape), vecPath, docs, rows)
	}
	out := make([]int, docs)
	block := make([]int64, min(mask.n, 8192))
	for first := 0; first < mask.n; first += len(block) {
		block = block[:min(len(block), mask.n-first)]
		if err := mask.Ints(block, first); err != nil {
			return nil, err
		}
		for i, v := range block {
			if v != 0 {
				out[(first+i)/rows]++
			}
		}
	}
	return out, nil
}
