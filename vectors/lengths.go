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

// intsOf reads a row of integers whole. It grows with what is read, not with
// what the header claims.
func intsOf(a *Array) ([]int64, error) {
	if a.kind.isFloat() {
		return nil, faultf(a.path, ErrType, "lengths are %s, want integers: .astype(int) converts", a.typeName())
	}
	if len(a.Shape) != 1 {
		return nil, faultf(a.path, ErrShape, "lengths %s, want one row of them", shapeString(a.Shape))
	}
	all := []int64{} // not nil: an empty list
	block := make([]int64, min(a.n, 8192))
	for at := 0; at < a.n; at += len(block) {
		block = block[:min(len(block), a.n-at)]
		if err := a.Ints(block, at); err != nil {
			return nil, err
		}
		all = append(all, block...)
	}
	return all, nil
}

// readLengths reads one length a document: .npy integers, a .json list, or
// text with one number a line.
func (in *inputs) readLengths(ctx context.Context, path string) ([]int64, error) {
	ext := files.Suffix(path)
	switch ext {
	case ".npy":
		a, err := in.openNPY(path)
		if err != nil {
			return nil, err
		}
		defer a.Close()
		return intsOf(a)
	case ".npz", ".safetensors":
		return nil, faultf(path, ErrFormat, "lengths are read from .npy, from a .json list or from text, not from %s", ext)
	}
	f, _, err := in.open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := unpacked(files.UntilDone(ctx, f), path)
	if err != nil {
		return nil, err
	}
	if ext == ".json" {
		return parseLengthList(b, path)
	}
	return parseLengths(b, path)
}

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
		return 0, fmt.Errorf("%w: %s is not a length", ErrFormat, excerpt([]byte(s)))
	}
	return v, nil
}

// startsOf turns the lengths of ragged documents into the row at which each
// begins, and the total; they must add up to rows.
func startsOf(lengths []int64, path string, rows int, of string) ([]int, error) {
	if err := checkCount(len(lengths), path); err != nil {
		return nil, err
	}
	sum := uint64(0)
	for i, l := range lengths {
		if l < 0 || l > int64(rows) {
			return nil, lengthFault(path, i, fmt.Sprintf("length %d, %s has %d rows", l, of, rows))
		}
		if sum += uint64(l); sum > math.MaxInt64 { // two of them cannot pass 2⁶⁴
			return nil, lengthFault(path, i, "lengths up to here sum to more than any file can hold")
		}
	}
	if sum != uint64(rows) {
		return nil, faultf(path, ErrShape, "%d lengths sum to %d, %s has %d rows", len(lengths), sum, of, rows)
	}
	starts := make([]int, len(lengths)+1)
	for i, l := range lengths {
		starts[i+1] = starts[i] + int(l)
	}
	return starts, nil
}

func lengthFault(path string, doc int, what string) error {
	return inFile(fmt.Errorf("%w: %s", ErrShape, what), path, doc, -1, "")
}

// maxDocs is the largest collection: ordinals are of 32 bits.
const maxDocs = math.MaxUint32

func checkCount(n int, path string) error {
	if int64(n) > maxDocs {
		return faultf(path, ErrShape, "%d documents, at most %d", n, int64(maxDocs))
	}
	return nil
}

// paddedLengths checks the lengths of documents padded to rows each.
func paddedLengths(lengths []int64, path string, docs, rows int, of string) ([]int, error) {
	if len(lengths) != docs {
		return nil, faultf(path, ErrShape, "%d lengths for the %d of %s", len(lengths), docs, of)
	}
	out := make([]int, docs)
	for i, l := range lengths {
		if l < 0 || l > int64(rows) {
			return nil, lengthFault(path, i, fmt.Sprintf("length %d, %s has %d rows for each", l, of, rows))
		}
		out[i] = int(l)
	}
	return out, nil
}

// maskedLengths counts the real tokens of documents padded to rows each: the
// elements of the mask that are not 0.
func maskedLengths(mask *Array, docs, rows int, of string) ([]int, error) {
	if mask.kind.isFloat() || len(mask.Shape) != 2 || mask.Shape[0] != docs || mask.Shape[1] != rows {
		return nil, faultf(mask.path, ErrShape, "mask is %s %s, %s wants integers or booleans (%d, %d)",
			mask.Dtype, shapeString(mask.Shape), of, docs, rows)
	}
	out := make([]int, docs)
	block := make([]int64, min(mask.n, 8192))
	for at := 0; at < mask.n; at += len(block) {
		block = block[:min(len(block), mask.n-at)]
		if err := mask.Ints(block, at); err != nil {
			return nil, err
		}
		for i, v := range block {
			if v != 0 {
				out[(at+i)/rows]++
			}
		}
	}
	return out, nil
}
