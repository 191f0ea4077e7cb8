package nearest

import (
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

// maxRows is the maximum of vectors in one launch.
const maxRows = 1 << 16

// request is a call of Nearest or EncodeTokens, or up to maxRows vectors of one.
type request struct {
	runtime.Ticket
	centroids *preparedCentroids
	vectors   []float32
	codes     []uint32
	scores    []float32 // nil means not wanted

	encoder *encoder // nil means that tokens are not encoded
	tokens  kernels.EncodedTokens
}

// Joins reports whether another request is for the same centroids.
func (r *request) Joins(other runtime.Request) bool {
	o, ok := other.(*request)
	return ok && r.centroids == o.centroids && r.encoder == o.encoder
}

// BatchShare returns the number of vectors.
func (r *request) BatchShare() int { return len(r.codes) }

// BatchLimit returns the maximum of vectors in one launch.
func (r *request) BatchLimit() int { return maxRows }

// Run answers a batch.
func (r *request) Run(rt *runtime.Runtime, batch []runtime.Request) error {
	requests := make([]*request, len(batch))
	for i, b := range batch {
		requests[i] = b.(*request)
	}
	err := r.centroids.nearest(requests)
	if err != nil {
		rt.Drain()
	}
	return err
}

type nearestParams struct {
	xHalf, cHalf, x, centroids, xNorms, xErrors, slots, doubts, limits, counts, listed, codes, scores driver.Ptr
	cNorm, cError                                                                                     float32
	n, k, dim, width                                                                                  uint32
}

// nearest answers requests for the same centroids. It waits for the device.
func (p *preparedCentroids) nearest(requests []*request) error {
	if p.centroids.Ptr == 0 {
		return kernels.ErrDeviceClosed
	}
	n := 0
	for _, r := range requests {
		n += len(r.codes)
	}
	l := p.layout(n, requests[0].encoder, false)
	w, c, st := &p.rt.Work, p.rt.Driver, p.rt.Stream
	if err := w.Reserve(runtime.WorkspaceSizes{In: l.in.Size, Out: l.out.Size, Scratch: l.scratch.Size}); err != nil {
		return err
	}
	inputEnd := l.vectors
	for _, r := range requests {
		inputEnd += runtime.CopyParallel(w.HostIn[inputEnd:], runtime.Bytes(r.vectors))
	}
	if err := c.ToDevice(w.In.Ptr, w.HostIn[:inputEnd], st); err != nil {
		return err
	}
	l.rows = w.In.At(l.vectors)
	if e := l.encoder; e != nil && e.unit {
		if err := launchScale(p.rt, scaleParams{in: l.rows, x: l.rows}, n, p.dim, false, true); err != nil {
			return err
		}
	}
	if err := p.launchNearest(&l); err != nil {
		return err
	}
	if e := l.encoder; e != nil {
		if err := e.encode(&l); err != nil {
			return err
		}
	}
	if err := c.ToHost(w.HostOut[:l.out.Size], w.Out.Ptr, st); err != nil {
		return err
	}
	if err := p.rt.Sync(); err != nil {
		return err
	}
	row := int64(0)
	for _, r := range requests {
		l.copyResults(r, w.HostOut, row)
		row += int64(len(r.codes))
	}
	return nil
}

// layout has the offsets of the arrays of a batch in the parts of the workspace.
type layout struct {
	encoder          *encoder // nil means that tokens are not encoded
	n                int
	rows             driver.Ptr // float32 vectors; set once the workspace is reserved
	outOffset        int64      // offset of out within the workspace's Out
	in, out, scratch runtime.Arena

	vectors                                   int64 // in In; in Scratch for resident vectors
	codes, scores, residuals, factors, errors int64 // in out
	half, norms, halfErrors, slots            int64 // in scratch
	doubts, limits, counts, listed            int64 // in scratch
	// For resident vectors: their address, and the address of the numbers of the rows.
	halves, numbers driver.Ptr
}

// maxListed is how many candidate centroids are listed for a row in doubt.
const maxListed = 256

// layout lays out the arrays of a batch of n vectors. e is nil if tokens are not encoded; resident
// means that the rows are made from resident vectors on the device.
func (p *preparedCentroids) layout(n int, e *encoder, resident bool) layout {
	l := layout{encoder: e, n: n}
	rows := int64(runtime.CeilDiv(n, 128) * 128)
	if values := 4 * int64(n*p.dim); resident {
		l.vectors = l.scratch.Append(values)
	} else {
		l.vectors = l.in.Append(values)
	}
	l.codes, l.scores = l.out.Append(4*int64(n)), l.out.Append(4*int64(n))
	if e != nil {
		l.residuals = l.out.Append(int64(n * e.rowBytes))
		l.factors = l.out.Append(2 * int64(n))
		l.errors = l.out.Append(8 * int64(n))
	}
	l.half = l.scratch.Append(2 * rows * int64(p.width))
	l.norms, l.halfErrors = l.scratch.Append(4*int64(n)), l.scratch.Append(4*int64(n))
	if p.width > 0 {
		l.slots = l.scratch.Append(16 * 16 * rows)
		l.doubts = l.scratch.Append(4 * (1 + int64(n))) // a count, and the rows
		l.limits, l.counts = l.scratch.Append(4*rows), l.scratch.Append(4*rows)
		l.listed = l.scratch.Append(4 * maxListed * int64(n))
	}
	return l
}

// copyResults copies the results of a request, whose first vector is row in the batch.
func (l *layout) copyResults(r *request, out []byte, row int64) {
	n := int64(len(r.codes))
	copyArray := func(dst []byte, at, size int64) { copy(dst, out[at+size*row:at+size*(row+n)]) }
	copyArray(runtime.Bytes(r.codes), l.codes, 4)
	if r.scores != nil {
		copyArray(runtime.Bytes(r.scores), l.scores, 4)
	}
	if e := l.encoder; e != nil {
		copyArray(r.tokens.Residuals, l.residuals, int64(e.rowBytes))
		copyArray(runtime.Bytes(r.tokens.Factors), l.factors, 2)
		copyArray(runtime.Bytes(r.tokens.Errors), l.errors, 8)
	}
}

// launchNearest launches the kernels that find the nearest centroids of the rows of a batch.
func (p *preparedCentroids) launchNearest(l *layout) error {
	w, n := &p.rt.Work, l.n
	a := &nearestParams{
		x:         l.rows,
		centroids: p.centroids.Ptr,
		codes:     w.Out.At(l.outOffset + l.codes),
		scores:    w.Out.At(l.outOffset + l.scores),
		n:         uint32(n),
		k:         uint32(p.k),
		dim:       uint32(p.dim),
		width:     uint32(p.width),
		cNorm:     p.maxNorm,
		cError:    p.maxHalfError,
	}
	if p.width == 0 {
		return runtime.Launch(p.rt, "nearest_any", runtime.CeilDiv(n, 32), 1, 1, 256, 0, a)
	}
	at := w.Scratch.At
	a.xHalf, a.cHalf, a.xNorms, a.xErrors = at(l.half), p.halfCentroids.Ptr, at(l.norms), at(l.halfErrors)
	a.slots, a.doubts = at(l.slots), at(l.doubts)
	a.limits, a.counts, a.listed = at(l.limits), at(l.counts), at(l.listed)
	half := halfParams{
		in:     a.x,
		out:    a.xHalf,
		norms:  a.xNorms,
		errors: a.xErrors,
	}
	if l.halves != 0 { // scaling a vector does not change its nearest centroid
		half.in, half.halves, half.numbers = 0, l.halves, l.numbers
	}
	if err := p.toHalf(half, n, runtime.CeilDiv(n, 128)*128); err != nil {
		return err
	}
	name := "64"
	if p.width == 128 {
		name = "128"
	}
	if err := runtime.Launch(p.rt, "nearest"+name, runtime.CeilDiv(n, 128), 1, 1, 256, 512*p.width, a); err != nil {
		return err
	}
	if err := runtime.Launch(p.rt, "nearest_exact", runtime.CeilDiv(n, 8), 1, 1, 256, 0, a); err != nil {
		return err
	}
	multiprocessors := p.rt.Props.Multiprocessors
	if err := runtime.Launch(p.rt, "nearest_again"+name, multiprocessors, 1, 1, 256, 512*p.width, a); err != nil {
		return err
	}
	return runtime.Launch(p.rt, "nearest_doubts", 4*multiprocessors, 1, 1, 256, 0, a)
}
