package server

import (
	"context"
	"errors"
	"sort"

	"github.com/plaid-ir/plaid/internal/floats"
	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels/maxsim"
	"github.com/plaid-ir/plaid/vectors"
)

// Bytes of vectors that are scored at a time: about the cache of a core. Each piece is a call of the
// scorer, which costs a device more.
const (
	batchBytes       = 1 << 20
	batchBytesDevice = 16 << 20
)

// vectorBatch is a run of documents: their vectors are in the slice of their type.
type vectorBatch struct {
	first, last int
	f32         []float32
	u16         []uint16
}

// scoreBatches reads the vectors in runs of whole documents, and passes each on while the next one comes.
// No more than two are held; a document that is larger than a piece is one.
func (t *tensorBody) scoreBatches(
	offsets []int, bytes int, use func(ctx context.Context, first int, docs *maxsim.Batch) error,
) error {
	t.unread = t.unread[1:]
	a, err := t.file.Array(tensorVectors)
	if err != nil {
		return err
	}
	maxRows := max(bytes/(a.Width()*t.dim), 1) // rows
	items := []*vectorBatch{t.incoming.server.takeSpareBatch(), t.incoming.server.takeSpareBatch()}
	// An error of reading ends the scoring of the pieces before it: the client may have left.
	ctx, cancel := context.WithCancel(t.incoming.ctx)
	defer cancel()
	var failed error // of reading
	err = parallel.Line(ctx, items, func(free func() (*vectorBatch, error), put func(*vectorBatch)) (err error) {
		defer func() {
			if failed = err; err != nil {
				cancel()
			}
		}()
		for doc := 0; doc < len(t.lengths); {
			p, err := free()
			if err != nil {
				return err
			}
			p.first = doc
			p.last = max(sort.SearchInts(offsets, offsets[doc]+maxRows+1)-1, doc+1)
			doc = p.last
			if err := t.readBatch(p, a, offsets[p.first]*t.dim, offsets[p.last]*t.dim); err != nil {
				return tensorError(err)
			}
			m := p.matrix(a, t.dim)
			if err := checkFiniteRows(&m, p.first, offsets); err != nil {
				return err
			}
			put(p)
		}
		return nil
	}, func(p *vectorBatch) error {
		from := make([]int, 0, p.last-p.first+1)
		for _, row := range offsets[p.first : p.last+1] {
			from = append(from, row-offsets[p.first])
		}
		return use(ctx, p.first, maxsim.Packed(p.matrix(a, t.dim), from))
	})
	if failed != nil && t.incoming.ctx.Err() == nil && errors.Is(err, context.Canceled) {
		err = failed
	}
	for _, p := range items {
		if err == nil && 4*cap(p.f32) <= bytes && 2*cap(p.u16) <= bytes {
			t.incoming.server.keepSpareBatch(p)
		}
	}
	return err
}

// maxSpareBatches are kept for requests to come: without them each makes megabytes of garbage. They are
// the service's own, and count for no request.
const maxSpareBatches = 4

// takeSpareBatch is a piece that was kept, or a new one.
func (s *Server) takeSpareBatch() *vectorBatch {
	select {
	case p := <-s.spareBatches:
		return p
	default:
		return &vectorBatch{}
	}
}

// keepSpareBatch keeps a piece, if there is room.
func (s *Server) keepSpareBatch(p *vectorBatch) {
	select {
	case s.spareBatches <- p:
	default:
	}
}

// readBatch reads the values lo to hi.
func (t *tensorBody) readBatch(p *vectorBatch, a *vectors.Array, lo, hi int) (err error) {
	if a.Width() == 2 {
		p.u16, err = readIntoSlice(t.incoming, p.u16, hi-lo, 2, func(into []uint16, from int) error { return a.Float16s(into, lo+from) })
		return err
	}
	p.f32, err = readIntoSlice(t.incoming, p.f32, hi-lo, 4, func(into []float32, from int) error { return a.Float32s(into, lo+from) })
	return err
}

// matrix are the vectors of a piece of an array.
func (p *vectorBatch) matrix(a *vectors.Array, dim int) maxsim.Matrix {
	switch {
	case a.Width() != 2:
		return maxsim.Float32(p.f32, dim)
	case a.Dtype == "bf16":
		return maxsim.BFloat16(p.u16, dim)
	}
	return maxsim.Float16(p.u16, dim)
}

// checkFiniteRows names the first value that is not a number in the vectors of documents from first on.
func checkFiniteRows(m *maxsim.Matrix, first int, offsets []int) error {
	i := firstNotFinite(m)
	if i < 0 {
		return nil
	}
	row := i / m.Dim
	doc := sort.SearchInts(offsets, offsets[first]+row+1) - 1 // documents without vectors are none
	values := make([]float32, m.Dim)
	m.Widen(values, row, row+1)
	return documentProblem(doc, notFiniteError(i-(offsets[doc]-offsets[first])*m.Dim, m.Dim, values[i%m.Dim]))
}

// firstNotFinite returns the place of the first value that is not a finite number; −1 means that all are.
func firstNotFinite(m *maxsim.Matrix) int {
	i, n := 0, len(m.U16)
	switch m.Type {
	case maxsim.F16:
		i = floats.NotFinite16(m.U16, floats.Exponent16)
	case maxsim.BF16:
		i = floats.NotFinite16(m.U16, floats.ExponentB16)
	default:
		n = len(m.F32)
		if floats.Finite(m.F32) {
			return -1
		}
		for i < n && m.F32[i]-m.F32[i] == 0 {
			i++
		}
	}
	if i == n {
		return -1
	}
	return i
}
