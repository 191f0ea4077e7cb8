package packed

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"runtime/debug"
	"strings"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/kernels/maxsim"
	"github.com/plaid-ir/plaid/vectors"
)

// Documents are to be written, or that a [File] has.
type Documents struct {
	// Batch has the tokens. It is packed with offsets, of which the first is 0 and the
	// last the number of rows, or padded; a file always is packed.
	Batch *maxsim.Batch
	// IDs has the id of each document; nil: they are numbered from 0.
	IDs []string
	// Screening, where not nil, is what [maxsim.Pack] makes of the batch.
	Screening *maxsim.Screening
}

// Check finds what cannot be written.
func (d *Documents) Check() error {
	if err := d.Batch.Validate(); err != nil {
		return err
	}
	if d.Batch.Tokens.Type == maxsim.Compressed {
		return fmt.Errorf("%w: tokens of an index are in its file already", maxsim.ErrUnsupported)
	}
	if d.IDs != nil && len(d.IDs) != d.Batch.Len() {
		return fmt.Errorf("%w: %d ids for %d documents", vectors.ErrShape, len(d.IDs), d.Batch.Len())
	}
	if err := checkIDs(d.IDs); err != nil {
		return err
	}
	if d.Screening != nil {
		return d.Screening.Check(d.Batch)
	}
	return nil
}

func checkIDs(list []string) error {
	seen := make(map[string]int, len(list))
	for i, id := range list {
		if err := vectors.CheckID(id); err != nil {
			return fmt.Errorf("document %d: %w", i, err)
		}
		if first, twice := seen[id]; twice {
			return fmt.Errorf("%w: %q is the id of the documents %d and %d", vectors.ErrID, id, first, i)
		}
		seen[id] = i
	}
	return nil
}

// Write writes documents as a file, from front to back.
func Write(ctx context.Context, w io.Writer, d *Documents) (err error) {
	defer files.RecoverFault(&err, debug.SetPanicOnFault(true), func(err error) error { return fmt.Errorf("%w: %w", maxsim.ErrFault, err) })
	if err := d.Check(); err != nil {
		return err
	}
	b := d.Batch
	m := &b.Tokens
	h, starts, list := headerOf(d)
	regions, size, err := h.layout()
	if err != nil {
		return err
	}
	h.size = size
	out := &writer{ctx: ctx, w: w}
	out.write(h.append(nil))
	// rows writes what there is for each row: those of documents, without padding between.
	rows := func(section int, get func(lo, hi int) []byte) {
		out.to(regions[section].at)
		for i := range b.Len() {
			out.write(get(b.Span(i)))
		}
	}
	all := func(section int, bytes []byte) {
		out.to(regions[section].at)
		out.write(bytes)
	}
	all(offsets, bytesOf(starts))
	all(ids, []byte(list))
	if b.Mask != nil {
		rows(mask, func(lo, hi int) []byte { return maskBytes(b.Mask[lo:hi]) })
	}
	if m.Scales != nil {
		rows(scales, func(lo, hi int) []byte { return bytesOf(m.Scales[lo:hi]) })
	}
	if m.Zeros != nil {
		rows(zeros, func(lo, hi int) []byte { return bytesOf(m.Zeros[lo:hi]) })
	}
	if s := d.Screening; s != nil {
		for i, t := range []*maxsim.ScreeningTerms{&s.Plain, &s.Unit} {
			first := plainUnits + i*(unitUnits-plainUnits)
			for j, x := range [][]float32{t.Scales, t.Factors, t.Errors, t.Norms} {
				all(first+j, bytesOf(x))
			}
		}
	}
	rows(values, func(lo, hi int) []byte {
		s := m.Slice(lo, hi)
		switch m.Type {
		case maxsim.F32:
			return bytesOf(s.F32)
		case maxsim.F16, maxsim.BF16:
			return bytesOf(s.U16)
		case maxsim.I8:
			return bytesOf(s.I8)
		}
		return s.U8
	})
	if d.Screening != nil {
		all(levels, d.Screening.Levels)
	}
	return out.end(regions[sums].at)
}

// headerOf describes documents: with the rows at which they start, and their ids as lines.
func headerOf(d *Documents) (h *header, starts []uint64, list string) {
	b, m := d.Batch, &d.Batch.Tokens
	starts = make([]uint64, b.Len()+1)
	for i := range b.Len() {
		lo, hi := b.Span(i)
		starts[i+1] = starts[i] + uint64(hi-lo)
	}
	if len(d.IDs) > 0 {
		list = strings.Join(d.IDs, "\n") + "\n"
	}
	h = &header{kind: m.Type, dim: m.Dim, docs: b.Len(), tokens: b.CountTokens(), rows: int(starts[b.Len()]), idsBytes: len(list)}
	for bit, there := range map[uint8]bool{
		hasScales: m.Scales != nil, hasZeros: m.Zeros != nil, hasMask: b.Mask != nil, hasIDs: d.IDs != nil, hasScreening: d.Screening != nil,
	} {
		if there {
			h.has |= bit
		}
	}
	return h, starts, list
}

func maskBytes(mask []bool) []byte {
	b := make([]byte, len(mask))
	for i, real := range mask {
		if real {
			b[i] = 1
		}
	}
	return b
}

// writer writes, and sums up what it writes.
type writer struct {
	ctx  context.Context
	w    io.Writer
	at   int64
	sum  uint32 // of the block so far
	sums []uint32
	err  error // the first; nothing is written after it
}

func (w *writer) write(b []byte) {
	for len(b) > 0 && w.err == nil {
		n := min(len(b), int(blockSize-w.at%blockSize))
		if w.err = w.ctx.Err(); w.err != nil {
			return
		}
		w.sum = crc32.Update(w.sum, castagnoli, b[:n]) // before Write: here a fault of mapped memory is seen as one
		if _, err := w.w.Write(b[:n]); err != nil {
			w.err = err
			return
		}
		if w.at += int64(n); w.at%blockSize == 0 {
			w.sums, w.sum = append(w.sums, w.sum), 0
		}
		b = b[n:]
	}
}

// to writes zeros up to a place.
func (w *writer) to(at int64) {
	var none [align]byte
	if w.err == nil {
		w.write(none[:at-w.at])
	}
}

// end writes the sums, at a place.
func (w *writer) end(at int64) error {
	w.to(at)
	if w.at%blockSize != 0 {
		w.sums = append(w.sums, w.sum)
	}
	b := bytesOf(w.sums)
	b = binary.LittleEndian.AppendUint32(b[:len(b):len(b)], crc32.Checksum(b, castagnoli))
	w.write(b)
	return w.err
}
