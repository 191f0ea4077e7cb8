package dense

import (
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

// rowsPlan says how kernels read the rows of a batch: in the caller's memory, or packed into the workspace.
type rowsPlan struct {
	format    format
	rowBytes  int
	columns   int  // columns of the product whose right operand the rows are, else 0
	pack      bool // pack the rows into the workspace; else they are read in the caller's memory
	prepared  bool // a kernel packs the rows or computes their lengths
	piecewise bool // the workspace has only the rows of one piece
	// Offsets in the workspace, −1 for arrays that are not needed. scaleOffsets has those of scale, unit
	// and inverse; see packedRows.
	scaleOffsets [3]int64
	rowsOffset   int64
}

// planRows decides how rows are read in a format. plain means that the kernel reads rows of any type and
// length, in the format of their elements.
func (b *Batch) planRows(f format, plain, normalize bool) rowsPlan {
	p := rowsPlan{format: f, rowBytes: rowBytes(f, b.Dim)}
	usableInPlace := b.Zeros == 0 && f == format(b.Type)
	if plain && b.Zeros == 0 {
		p.format, p.rowBytes, usableInPlace = format(b.Type), b.Dim*b.Type.Size(), true
	}
	p.pack = !usableInPlace || !plain && (p.rowBytes != b.Dim*b.Type.Size() || b.Data%16 != 0)
	p.prepared = p.pack || normalize
	return p
}

// packInColumns makes the rows the right operand of products with a number of columns.
func (p *rowsPlan) packInColumns(columns int) {
	p.columns, p.pack, p.prepared = columns, true, true
	p.rowBytes = runtime.CeilDiv(p.rowBytes, 128) * 128
}

// reserve reserves memory for n packed rows, and for their scales.
func (p *rowsPlan) reserve(a *runtime.Arena, b *Batch, n int, normalize bool) {
	p.rowsOffset, p.scaleOffsets = -1, [3]int64{-1, -1, -1}
	if p.columns > 0 {
		n = runtime.CeilDiv(n, p.columns) * p.columns
	}
	if p.pack {
		p.rowsOffset = a.Append(int64(n) * int64(p.rowBytes))
	}
	scaled := p.format == split || b.Scales != 0
	if scaled && p.pack {
		p.scaleOffsets[0] = a.Append(4 * int64(n))
	}
	if normalize && scaled {
		p.scaleOffsets[1] = a.Append(4 * int64(n))
	} else if normalize {
		p.scaleOffsets[2] = a.Append(4 * int64(n))
	}
}

// packParams returns n rows from row first on, and the parameters of the kernel that prepares them; nil
// means that the caller's rows are read as they are.
func (p *rowsPlan) packParams(b *Batch, base driver.Ptr, first, n int) (packedRows, *densePackParams) {
	r := packedRows{
		format:   p.format,
		rowBytes: p.rowBytes,
		ptr:      driver.Ptr(b.Data),
		scale:    driver.Ptr(b.Scales),
	}
	r = r.startingAt(first)
	if !p.prepared || n == 0 {
		return r, nil
	}
	x := &densePackParams{
		in:       driver.Ptr(b.Data).Add(int64(first) * int64(b.Dim) * int64(b.Type.Size())),
		scales:   r.scale,
		n:        uint32(n),
		dim:      uint32(b.Dim),
		source:   sourceNumber(b.Type),
		format:   uint32(p.format),
		rowBytes: uint32(p.rowBytes),
		columns:  uint32(p.columns),
	}
	if b.Zeros != 0 {
		x.zeros = driver.Ptr(b.Zeros).Add(int64(first))
	}
	for i, to := range []*driver.Ptr{&r.scale, &r.unit, &r.inverse} {
		if p.scaleOffsets[i] >= 0 {
			*to = base.Add(p.scaleOffsets[i])
		}
	}
	if p.pack {
		r.ptr = base.Add(p.rowsOffset)
		x.rows, x.scale = r.ptr, r.scale
		if p.scaleOffsets[0] < 0 {
			r.scale, x.scale = 0, 0
		}
	}
	x.unit, x.inverse = r.unit, r.inverse
	return r, x
}

// packIfNeeded returns n rows from row first on. It packs them if the plan says so.
func (p *rowsPlan) packIfNeeded(rt *runtime.Runtime, b *Batch, base driver.Ptr, first, n int) (packedRows, error) {
	r, x := p.packParams(b, base, first, n)
	if x == nil {
		return r, nil
	}
	return r, x.run(rt)
}
