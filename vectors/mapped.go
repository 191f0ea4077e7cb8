package vectors

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"unsafe"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/internal/floats"
)

// Mapped is the vectors of a source in mapped memory, in the layout of their file. A page is read when it
// is touched, and nothing is copied.
type Mapped struct {
	Dim int
	F32 []float32 // all rows, [rows, Dim], or nil if U16 has them
	U16 []uint16  // all rows of binary16, or, if IsBFloat16 is true, of bfloat16
	// IsBFloat16 means that U16 is bfloat16.
	IsBFloat16 bool
	// Starts has the first row of each document, and the number of rows at the end. Rows, if not nil,
	// has the number of tokens of each document; its other rows are padding.
	Starts, Rows []int

	ids    func(i int) string
	files  *inputs
	path   string
	memory *files.Mapping
}

// Map maps the vectors of a source. It returns nil if they cannot be mapped, and must be read: if they
// are not one array in a file of 16-bit or 32-bit floats in the byte order of this processor, or have a
// mask. Close the result before the source.
func Map(s Source) *Mapped {
	d, ok := s.(*denseSource)
	if !ok || d.mask != nil || d.Dim() == 0 {
		return nil
	}
	f, ok := d.vec.r.(*os.File)
	size := int64(d.vec.kind.size())
	mappable := d.vec.kind == kindF32 || d.vec.kind == kindF16 || d.vec.kind == kindBF16
	if !ok || !mappable || d.vec.bigEndian || !littleEndian || d.vec.off%size != 0 {
		return nil
	}
	memory, err := files.Map(f, d.vec.off+int64(d.vec.n)*size)
	if err != nil {
		return nil
	}
	m := &Mapped{
		Dim:        d.dim,
		Starts:     d.starts,
		Rows:       d.realRows,
		IsBFloat16: d.vec.kind == kindBF16,
		ids:        d.ID,
		files:      d.files,
		path:       d.vec.path,
		memory:     memory,
	}
	if m.Starts == nil {
		m.Starts = make([]int, d.n+1)
		for i := range m.Starts {
			m.Starts[i] = i * d.stride
		}
	}
	first := unsafe.Pointer(&memory.Data[d.vec.off])
	if d.vec.kind == kindF32 {
		m.F32 = unsafe.Slice((*float32)(first), d.vec.n)
	} else {
		m.U16 = unsafe.Slice((*uint16)(first), d.vec.n)
	}
	return m
}

// Span returns the rows of document i: from lo on and before hi.
func (m *Mapped) Span(i int) (lo, hi int) {
	if m.Rows != nil {
		return m.Starts[i], m.Starts[i] + m.Rows[i]
	}
	return m.Starts[i], m.Starts[i+1]
}

// Check returns the error that [Source].Docs would return for the documents from from on and before to:
// for values that are not finite, or files that changed.
func (m *Mapped) Check(ctx context.Context, from, to int) (err error) {
	defer files.RecoverFault(&err, debug.SetPanicOnFault(true), m.readError)
	for i := from; i < to; i++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		lo, hi := m.Span(i)
		if m.F32 != nil {
			err = checkFinite(m.F32[lo*m.Dim:hi*m.Dim], m.Dim)
		} else {
			err = checkFinite16(m.U16[lo*m.Dim:hi*m.Dim], m.Dim, m.IsBFloat16)
		}
		if err != nil {
			return m.files.explainByChange(inFile(err, m.path, i, -1, m.ids(i)))
		}
	}
	return nil
}

// checkFinite16 is checkFinite for binary16, or, if isBFloat16 is true, for bfloat16.
func checkFinite16(values []uint16, dim int, isBFloat16 bool) error {
	exponent, kind := uint16(floats.Exponent16), kindF16
	if isBFloat16 {
		exponent, kind = floats.ExponentB16, kindBF16
	}
	i := floats.FirstNotFinite16(values, exponent)
	if i == len(values) {
		return nil
	}
	var wide [1]float32
	decodeFloats(wide[:], []byte{byte(values[i]), byte(values[i] >> 8)}, kind)
	fe := NewFileError("", fmt.Errorf("%w: %v", ErrValue, wide[0]))
	fe.Token, fe.Dim = i/dim, i%dim
	return fe
}

// readError returns the error of reading a mapped page of a file that was cut short.
func (m *Mapped) readError(err error) error {
	return m.files.explainByChange(faultf(m.path, ErrFormat, "cannot be read any more: %v", err))
}

// CheckUnchanged returns [ErrChanged] for the first file of the source that has changed since it was opened.
// Call it before using results that were computed from the values.
func (m *Mapped) CheckUnchanged() error { return m.files.checkUnchanged() }

// Close ends the mapping. It may be called twice.
func (m *Mapped) Close() error {
	m.F32, m.U16 = nil, nil
	return m.memory.Close()
}
