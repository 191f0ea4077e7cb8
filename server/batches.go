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

// The size of a batch in bytes of vectors: about the cache of a core, and more for a device, where each
// call of the scorer costs more.
const (
	batchBytes       = 1 << 20
	batchBytesDevice = 16 << 20
)

// vectorBatch has the vectors of the documents from first to last, which is excluded. They are in the slice
// of their type.
type vectorBatch struct {
	first, last int
	f32         []float32
	u16         []uint16
}

// scoreBatches reads the vectors in batches of whole documents, of at most the given bytes unless a single
// document is larger, and calls score for each batch while the next one arrives. Two batches at most are in
// memory. offsets are those of rowOffsets.
func (t *tensorBody) scoreBatches(
	offsets []int, bytes int, score func(ctx context.Context, first int, docs *maxsim.Batch) error,
) error {
	t.unread = t.unread[1:] // the vectors
	a, err := t.file.Array(tensorVectors)
	if err != nil {
		return err
	}
	maxRows := max(bytes/(a.Width()*t.dim), 1)
	batches := []*vectorBatch{t.incoming.server.takeSpareBatch(), t.incoming.server.takeSpareBatch()}

	// Read and score at the same time. An error of reading ends the scoring: the client may have left.
	ctx, cancel := context.WithCancel(t.incoming.ctx)
	defer cancel()
	var readErr error
	readAll := func(nextFree func() (*vectorBatch, error), emit func(*vectorBatch)) (err error) {
		defer func() {
			if readErr = err; err != nil {
				cancel()
			}
		}()
		for doc := 0; doc < len(t.lengths); {
			batch, err := nextFree()
			if err != nil {
				return err
			}
			// The batch has the documents that end at most maxRows after its first row, but at least one.
			end := sort.SearchInts(offsets, offsets[doc]+maxRows+1) - 1
			batch.first, batch.last = doc, max(end, doc+1)
			doc = batch.last
			if err := t.readBatch(batch, a, offsets[batch.first]*t.dim, offsets[batch.last]*t.dim); err != nil {
				return tensorError(err)
			}
			m := batch.matrix(a, t.dim)
			if err := checkFiniteRows(&m, batch.first, offsets); err != nil {
				return err
			}
			emit(batch)
		}
		return nil
	}
	err = parallel.Pipeline(ctx, batches, readAll, func(batch *vectorBatch) error {
		batchOffsets := make([]int, 0, batch.last-batch.first+1)
		for _, row := range offsets[batch.first : batch.last+1] {
			batchOffsets = append(batchOffsets, row-offsets[batch.first])
		}
		return score(ctx, batch.first, maxsim.Packed(batch.matrix(a, t.dim), batchOffsets))
	})
	if readErr != nil && t.incoming.ctx.Err() == nil && errors.Is(err, context.Canceled) {
		err = readErr // the cancellation was only its consequence
	}

	// Keep the memory for later requests, unless a large document has made it larger.
	for _, batch := range batches {
		if err == nil && 4*cap(batch.f32) <= bytes && 2*cap(batch.u16) <= bytes {
			t.incoming.server.keepSpareBatch(batch)
		}
	}
	return err
}

// maxSpareBatches is how many batches are kept for later requests: without them each request would leave
// megabytes of garbage. Their memory counts for no request.
const maxSpareBatches = 4

// takeSpareBatch returns a batch that was kept, or a new one.
func (s *Server) takeSpareBatch() *vectorBatch {
	select {
	case batch := <-s.spareBatches:
		return batch
	default:
		return &vectorBatch{}
	}
}

// keepSpareBatch keeps a batch, unless there are enough.
func (s *Server) keepSpareBatch(batch *vectorBatch) {
	select {
	case s.spareBatches <- batch:
	default:
	}
}

// readBatch reads the values lo to hi of an array into a batch.
func (t *tensorBody) readBatch(batch *vectorBatch, a *vectors.Array, lo, hi int) (err error) {
	if a.Width() == 2 {
		batch.u16, err = readIntoSlice(t.incoming, batch.u16, hi-lo, 2,
			func(into []uint16, from int) error { return a.Float16s(into, lo+from) })
		return err
	}
	batch.f32, err = readIntoSlice(t.incoming, batch.f32, hi-lo, 4,
		func(into []float32, from int) error { return a.Float32s(into, lo+from) })
	return err
}

// matrix returns the vectors of a batch that was read from an array.
func (batch *vectorBatch) matrix(a *vectors.Array, dim int) maxsim.Matrix {
	switch {
	case a.Width() != 2:
		return maxsim.Float32(batch.f32, dim)
	case a.Dtype == "bf16":
		return maxsim.BFloat16(batch.u16, dim)
	}
	return maxsim.Float16(batch.u16, dim)
}

// checkFiniteRows returns an error for the first value that is not finite in the vectors m of the documents
// from first on. offsets are those of all documents.
func checkFiniteRows(m *maxsim.Matrix, first int, offsets []int) error {
	i := firstNotFinite(m)
	if i < 0 {
		return nil
	}
	row := i / m.Dim
	doc := sort.SearchInts(offsets, offsets[first]+row+1) - 1 // the last one that begins at or before the row
	values := make([]float32, m.Dim)
	m.Widen(values, row, row+1)
	return documentProblem(doc, notFiniteError(i-(offsets[doc]-offsets[first])*m.Dim, m.Dim, values[i%m.Dim]))
}

// firstNotFinite returns the index of the first value that is not finite; −1 means that all are.
func firstNotFinite(m *maxsim.Matrix) int {
	i, n := 0, len(m.U16)
	switch m.Type {
	case maxsim.F16:
		i = floats.FirstNotFinite16(m.U16, floats.Exponent16)
	case maxsim.BF16:
		i = floats.FirstNotFinite16(m.U16, floats.ExponentB16)
	default:
		n = len(m.F32)
		if floats.Finite(m.F32) {
			return -1
		}
		for i < n && m.F32[i]-m.F32[i] == 0 { // x−x is NaN if x is infinite or NaN
			i++
		}
	}
	if i == n {
		return -1
	}
	return i
}
