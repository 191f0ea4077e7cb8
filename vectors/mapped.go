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

// Mapped is the vectors of a source as memory, as they lie in their file: nothing is
// read before it is looked at, and nothing copied.
type Mapped struct {
	Dim int
	F32 []float32 // all rows, [rows, Dim]; nil: they are in U16
	U16 []uint16  // binary16, or with Brain bfloat16
	// Brain tells what U16 is.
	Brain bool
	// Starts has for each document the row at which it begins, and at last the number of
	// rows. Rows, where not nil, says how many of them are tokens: the rest is padding.
	Starts, Rows []int

	ids    func(i int) string
	files  *inputs
	path   string
	memory *files.Mapping
}

// Map maps the vectors of a source. It is nil where they do not lie in a file as one array of
// 16-bit or 32-bit floats in the byte order of this processor, or have a mask, or cannot be
// mapped: they are read then. Close it before the source.
func Map(s Source) *Mapped {
	d, ok := s.(*denseSource)
	if !ok || d.mask != nil || d.Dim() == 0 {
		return nil
	}
	f, ok := d.vec.r.(*os.File)
	size := int64(d.vec.kind.size())
	floats := d.vec.kind == kindF32 || d.vec.kind == kindF16 || d.vec.kind == kindBF16
	if !ok || !floats || d.vec.big || !littleEndian || d.vec.off%size != 0 {
		return nil
	}
	memory, err := files.Map(f, d.vec.off+int64(d.vec.n)*size)
	if err != nil {
		return nil
	}
	m := &Mapped{Dim: d.dim, Starts: d.starts, Rows: d.kept, Brain: d.vec.kind == kindBF16, ids: d.ID, files: d.files, path: d.vec.path, memory: memory}
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

// Span is the rows lo to hi (exclusive) of document i.
func (m *Mapped) Span(i int) (lo, hi int) {
	if m.Rows != nil {
		return m.Starts[i], m.Starts[i] + m.Rows[i]
	}
	return m.Starts[i], m.Starts[i+1]
}

// Check is the error that [Source].Docs gives for the documents from to to: of values
// that are not finite, or of files that changed.
func (m *Mapped) Check(ctx context.Context, from, to int) (err error) {
	defer files.RecoverFault(&err, debug.SetPanicOnFault(true), m.fault)
	for i := from; i < to; i++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		lo, hi := m.Span(i)
		if m.F32 != nil {
			err = checkFinite(m.F32[lo*m.Dim:hi*m.Dim], m.Dim)
		} else {
			err = checkFinite16(m.U16[lo*m.Dim:hi*m.Dim], m.Dim, m.Brain)
		}
		if err != nil {
			return m.files.blame(inFile(err, m.path, i, -1, m.ids(i)))
		}
	}
	return nil
}

// checkFinite16 is checkFinite of binary16, or with brain of bfloat16.
func checkFinite16(values []uint16, dim int, brain bool) error {
	exponent, kind := uint16(floats.Exponent16), kindF16
	if brain {
		exponent, kind = floats.ExponentB16, kindBF16
	}
	i := floats.NotFinite16(values, exponent)
	if i == len(values) {
		return nil
	}
	var wide [1]float32
	decodeFloats(wide[:], []byte{byte(values[i]), byte(values[i] >> 8)}, kind)
	fe := NewFileError("", fmt.Errorf("%w: %v", ErrValue, wide[0]))
	fe.Token, fe.Dim = i/dim, i%dim
	return fe
}

// fault is the error of reading beyond the end of a file that was cut short.
func (m *Mapped) fault(err error) error {
	return m.files.blame(faultf(m.path, ErrFormat, "cannot be read any more: %v", err))
}

// Unchanged is [ErrChanged] for the first file of the source that is not what it was when
// it was opened: ask before using what came of the values.
func (m *Mapped) Unchanged() error { return m.files.check() }

// Close ends the mapping. It may be called twice.
func (m *Mapped) Close() error {
	m.F32, m.U16 = nil, nil
	return m.memory.Close()
}
