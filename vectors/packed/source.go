package packed

import (
	"context"
	"fmt"
	"iter"
	"math"
	"runtime/debug"
	"strconv"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/vectors"
)

func init() {
	vectors.RegisterFormat(vectors.Format{
		Name: "a .maxsim file", Suffixes: []string{Suffix},
		Open: func(_ context.Context, path string) (vectors.Source, error) {
			f, err := Open(path)
			if err != nil {
				return nil, err // a nil *File is no nil Source
			}
			return f, nil
		},
	})
}

// Dim implements [vectors.Source].
func (f *File) Dim() int {
	if f.starts[len(f.starts)-1] == 0 {
		return 0
	}
	return f.Batch.Tokens.Dim
}

// Len implements [vectors.Source].
func (f *File) Len() int { return f.Batch.Len() }

// Rows implements [vectors.Source]: the tokens of document i.
func (f *File) Rows(i int) int { return f.starts[i+1] - f.starts[i] }

// Numbered says that ids are mere numbers.
func (f *File) Numbered() bool { return f.IDs == nil }

// ID implements [vectors.Source].
func (f *File) ID(i int) string {
	if f.IDs == nil {
		return strconv.Itoa(i)
	}
	return f.IDs[i]
}

// Docs implements [vectors.Source]: token vectors as float32, with their scales and
// without those that are masked. Sums are checked on the way.
func (f *File) Docs(ctx context.Context, from, to int) iter.Seq2[vectors.Document, error] {
	return func(yield func(vectors.Document, error) bool) {
		if from < 0 || to > f.Len() || from > to {
			yield(vectors.Document{}, vectors.NewFileError(f.path, fmt.Errorf("%w: documents %d to %d asked of %d", vectors.ErrShape, from, to, f.Len())))
			return
		}
		var buf []float32
		for i := from; i < to; i++ {
			doc := vectors.Document{ID: f.ID(i)}
			err := f.Verify(ctx, i, i+1)
			if err == nil {
				err = ctx.Err()
			}
			if err == nil {
				buf, err = f.read(buf[:0], i)
			}
			if err != nil {
				yield(vectors.Document{}, err)
				return
			}
			doc.Tokens = buf
			if !yield(doc, nil) {
				return
			}
		}
		if err := f.Unchanged(); err != nil {
			yield(vectors.Document{}, err)
		}
	}
}

// read appends the tokens of document i to buf.
func (f *File) read(buf []float32, i int) (_ []float32, err error) {
	defer func() { err = f.fault(err) }()
	defer files.RecoverFault(&err, debug.SetPanicOnFault(true), f.lost)
	m := &f.Batch.Tokens
	row := make([]float32, m.Dim)
	lo, hi := f.Batch.Span(i)
	token := 0
	for r := lo; r < hi; r++ {
		if !f.Batch.IsToken(r) {
			continue
		}
		m.Widen(row, r, r+1)
		scale := m.Scale(r)
		for j, v := range row {
			if v *= scale; math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
				fe := vectors.NewFileError(f.path, fmt.Errorf("%w: %v", vectors.ErrValue, v))
				fe.Doc, fe.Token, fe.Dim, fe.ID = i, token, j, f.ID(i)
				return buf, fe
			}
			row[j] = v
		}
		buf = append(buf, row...)
		token++
	}
	return buf, nil
}
