// Package packed keeps documents for MaxSim in a file: their token vectors in the type
// that they have, where each document begins, their ids, and what the search in two
// stages packs of them ([maxsim.Screening]). Files are mapped, not read: sections lie at
// multiples of 64 bytes as backends use them. Sums over blocks of 64 KiB tell what is
// damaged before it is used.
//
// The files, NAME.maxsim, are a format of package vectors once this package is imported.
package packed

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"runtime/debug"
	"strings"
	"sync/atomic"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/kernels/maxsim"
	"github.com/plaid-ir/plaid/vectors"
)

// Suffix is that of the files.
const Suffix = ".maxsim"

// File is documents of a file, and a [vectors.Source]. Values are not there to be
// changed. It is safe for concurrent use, but for Close.
type File struct {
	Documents
	data    []byte
	regions [sectionCount]region
	sums    []uint32
	starts  []int           // of the tokens of documents
	good    []atomic.Uint32 // a bit for each block that was found right
	memory  *files.Mapping
	watch   files.Watch
	path    string
}

// Open maps a file. Its sizes, ids and all that is small are checked; values are by
// [File.Verify]. Errors are [*vectors.FileError] and wrap [vectors.ErrFormat] or one of the
// operating system.
func Open(path string) (*File, error) {
	p := &File{path: path}
	f, size, err := p.watch.Open(path)
	if err == nil {
		p.memory, err = files.Map(f, size)
		err = errors.Join(err, f.Close())
	}
	if err == nil {
		err = p.parse(p.memory.Data)
	}
	if err != nil {
		return nil, errors.Join(p.fault(err), p.Close())
	}
	return p, nil
}

// parse reads a file that is in memory, which must not change.
func parse(data []byte) (*File, error) {
	p := &File{}
	if err := p.parse(data); err != nil {
		return nil, err
	}
	return p, nil
}

func (f *File) parse(data []byte) (err error) {
	defer files.RecoverFault(&err, debug.SetPanicOnFault(true), f.lost)
	h, err := parseHeader(data, int64(len(data)))
	if err != nil {
		return err
	}
	regions, size, err := h.layout()
	if err != nil {
		return err
	}
	if size != h.size {
		return faultf("%d bytes do not hold %d documents of %d rows of %s in %d dimensions", h.size, h.docs, h.rows, h.kind, h.dim)
	}
	f.data, f.regions = data, regions
	last := f.section(sums)
	end := len(last) - 4
	if binary.LittleEndian.Uint32(last[end:]) != crc32.Checksum(last[:end], castagnoli) {
		return faultf("%w: of the checksums", ErrChecksum)
	}
	f.sums = view[uint32](last[:end])
	f.good = make([]atomic.Uint32, (len(f.sums)+31)/32)
	if err := f.verify(context.Background(), 0, regions[values].at); err != nil {
		return err
	}
	return f.build(h)
}

func (f *File) section(i int) []byte {
	r := f.regions[i]
	return f.data[r.at : r.at+r.size]
}

// build makes the documents of sections that are right.
func (f *File) build(h *header) error {
	starts := view[uint64](f.section(offsets))
	list := make([]int, len(starts))
	for i, o := range starts {
		if o > uint64(h.rows) {
			return faultf("document %d begins at row %d of %d", i, o, h.rows)
		}
		list[i] = int(o)
	}
	if list[0] != 0 || list[h.docs] != h.rows {
		return faultf("documents have the rows %d to %d of %d", list[0], list[h.docs], h.rows)
	}
	m := maxsim.Matrix{Type: h.kind, Dim: h.dim}
	raw := f.section(values)
	switch h.kind {
	case maxsim.F32:
		m.F32 = view[float32](raw)
	case maxsim.F16, maxsim.BF16:
		m.U16 = view[uint16](raw)
	case maxsim.I8:
		m.I8 = view[int8](raw)
	default:
		m.U8 = raw
	}
	f.Batch = maxsim.Packed(m, list)
	if h.has&hasScales != 0 {
		f.Batch.Tokens.Scales = notNil(view[float32](f.section(scales)))
	}
	if h.has&hasZeros != 0 {
		f.Batch.Tokens.Zeros = notNil(view[int8](f.section(zeros)))
	}
	if h.has&hasMask != 0 {
		f.Batch.Mask = make([]bool, h.rows)
		for i, b := range f.section(mask) {
			if b > 1 {
				return faultf("row %d is masked by %d", i, b)
			}
			f.Batch.Mask[i] = b == 1
		}
	}
	if err := f.Batch.Validate(); err != nil {
		return faultf("%w", err)
	}
	f.starts = f.Batch.Starts()
	if n := f.starts[h.docs]; n != h.tokens {
		return faultf("%d tokens, and should be %d", n, h.tokens)
	}
	if h.has&hasScreening != 0 {
		s := &maxsim.Screening{Levels: f.section(levels), Stride: h.stride()}
		for i, t := range []*maxsim.ScreeningTerms{&s.Plain, &s.Unit} {
			first := plainUnits + i*(unitUnits-plainUnits)
			for j, x := range []*[]float32{&t.Scales, &t.Factors, &t.Errors, &t.Norms} {
				*x = view[float32](f.section(first + j))
			}
		}
		if err := s.Check(f.Batch); err != nil {
			return faultf("%w", err)
		}
		f.Screening = s
	}
	if h.has&hasIDs != 0 {
		return f.readIDs(string(f.section(ids)), h.docs)
	}
	return nil
}

// notNil keeps what there is, but is empty, apart from what there is not.
func notNil[T any](x []T) []T {
	if x == nil {
		return []T{}
	}
	return x
}

func (f *File) readIDs(text string, n int) error {
	f.IDs = []string{}
	for len(text) > 0 {
		id, rest, ok := strings.Cut(text, "\n")
		if !ok || len(f.IDs) == n {
			return faultf("ids of other than %d documents", n)
		}
		f.IDs, text = append(f.IDs, id), rest
	}
	if len(f.IDs) != n {
		return faultf("ids of %d of %d documents", len(f.IDs), n)
	}
	if err := checkIDs(f.IDs); err != nil {
		return faultf("%w", err)
	}
	return nil
}

// Verify checks the sums of the documents from to to, each block once.
func (f *File) Verify(ctx context.Context, from, to int) (err error) {
	defer func() { err = f.fault(err) }()
	defer files.RecoverFault(&err, debug.SetPanicOnFault(true), f.lost)
	rowBytes := int64(f.Batch.Tokens.Dim * f.Batch.Tokens.Type.Size())
	at := f.regions[values].at
	if err := f.verify(ctx, at+int64(f.Batch.Offsets[from])*rowBytes, at+int64(f.Batch.Offsets[to])*rowBytes); err != nil || f.Screening == nil {
		return err
	}
	at, rowBytes = f.regions[levels].at, int64(f.Screening.Stride)
	return f.verify(ctx, at+int64(f.starts[from])*rowBytes, at+int64(f.starts[to])*rowBytes)
}

// verify checks the blocks that the bytes from to to are in.
func (f *File) verify(ctx context.Context, from, to int64) error {
	for b := from / blockSize; b*blockSize < to; b++ {
		if f.good[b/32].Load()>>(b%32)&1 == 1 {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		lo := b * blockSize
		hi := min(lo+blockSize, f.regions[sums].at)
		if crc32.Checksum(f.data[lo:hi], castagnoli) != f.sums[b] {
			return faultf("%w: of the bytes %d to %d", ErrChecksum, lo, hi)
		}
		f.good[b/32].Or(1 << (b % 32))
	}
	return nil
}

// Slice is the documents from to to, in the same memory.
func (f *File) Slice(from, to int) *Documents {
	lo, hi := f.Batch.Offsets[from], f.Batch.Offsets[to]
	list := make([]int, to-from+1)
	for i := range list {
		list[i] = f.Batch.Offsets[from+i] - lo
	}
	d := &Documents{Batch: maxsim.Packed(f.Batch.Tokens.Slice(lo, hi), list)}
	if f.Batch.Mask != nil {
		d.Batch.Mask = f.Batch.Mask[lo:hi]
	}
	if f.IDs != nil {
		d.IDs = f.IDs[from:to]
	}
	if f.Screening != nil {
		d.Screening = f.Screening.Slice(from, to, f.starts[from], f.starts[to])
	}
	return d
}

// Unchanged is [vectors.ErrChanged] if the file is not what it was when it was opened:
// ask before using what came of its values.
func (f *File) Unchanged() error {
	if c, ok := errors.AsType[*files.ChangedError](f.watch.Unchanged()); ok {
		return f.fault(fmt.Errorf("%w: %s", vectors.ErrChanged, c.How))
	}
	return nil
}

// Close ends the mapping. It may be called twice.
func (f *File) Close() error {
	if f.memory == nil {
		return nil
	}
	return f.memory.Close()
}

// fault names the file, unless it is done.
func (f *File) fault(err error) error {
	if _, done := errors.AsType[*vectors.FileError](err); err == nil || done || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = pe.Err
	}
	return vectors.NewFileError(f.path, err)
}

// lost is the error of reading beyond the end of a file that was cut short.
func (f *File) lost(err error) error {
	if changed := f.Unchanged(); changed != nil {
		return changed
	}
	return faultf("cannot be read any more: %v", err)
}
