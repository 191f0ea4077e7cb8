package nearest

import (
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

// mostRows is how many vectors get their centroids in one launch at most.
const mostRows = 1 << 16

// request is a call of Nearest, or a part of one.
type request struct {
	runtime.Ticket
	with   *prepared
	x      []float32
	codes  []uint32
	scores []float32 // nil: not asked for
}

// Joins reports whether another request is for the same centroids.
func (r *request) Joins(other runtime.Request) bool {
	o, ok := other.(*request)
	return ok && r.with == o.with
}

// Size counts vectors.
func (r *request) Size() int { return len(r.codes) }

// Room is how many vectors a launch takes.
func (r *request) Room() int { return mostRows }

// Run answers a batch.
func (r *request) Run(rt *runtime.Runtime, batch []runtime.Request) error {
	requests := make([]*request, len(batch))
	for i, b := range batch {
		requests[i] = b.(*request)
	}
	err := r.with.nearest(requests)
	if err != nil {
		rt.Drain()
	}
	return err
}

type nearestParams struct {
	xHalf, cHalf, x, centroids, xNorms, xErrors, slots, codes, scores driver.Ptr
	cNorm, cError                                                     float32
	n, k, dim, width                                                  uint32
}

// nearest answers requests for the same centroids. It waits for the device.
func (p *prepared) nearest(requests []*request) error {
	if p.exact.Ptr == 0 {
		return kernels.ErrDeviceClosed
	}
	n := 0
	for _, r := range requests {
		n += len(r.codes)
	}
	rows := runtime.CeilDiv(n, 128) * 128
	var in, out, tmp runtime.Arena
	x := in.Take(4 * int64(n*p.dim))
	codes, scores := out.Take(4*int64(n)), out.Take(4*int64(n))
	half, norms, errs := tmp.Take(2*int64(rows*p.width)), tmp.Take(4*int64(n)), tmp.Take(4*int64(n))
	slots := tmp.Take(16 * 16 * int64(rows))
	w, c, st := &p.rt.Work, p.rt.Driver, p.rt.Stream
	if err := w.Reserve(in.Size, out.Size, tmp.Size, 0); err != nil {
		return err
	}
	at := x
	for _, r := range requests {
		at += runtime.CopyWide(w.HostIn[at:], runtime.Bytes(r.x))
	}
	if err := c.ToDevice(w.In.Ptr, w.HostIn[:at], st); err != nil {
		return err
	}
	a := &nearestParams{
		x: w.In.At(x), centroids: p.exact.Ptr, codes: w.Out.At(codes), scores: w.Out.At(scores),
		n: uint32(n), k: uint32(p.k), dim: uint32(p.dim), width: uint32(p.width), cNorm: p.cNorm, cError: p.cError,
	}
	if p.width == 0 {
		if err := runtime.Launch(p.rt, "nearest_any", runtime.CeilDiv(n, 32), 1, 1, 256, 0, a); err != nil {
			return err
		}
	} else {
		a.xHalf, a.cHalf, a.xNorms, a.xErrors, a.slots = w.Scratch.At(half), p.half.Ptr, w.Scratch.At(norms), w.Scratch.At(errs), w.Scratch.At(slots)
		if err := p.toHalf(a.x, a.xHalf, a.xNorms, a.xErrors, n, rows); err != nil {
			return err
		}
		name := "nearest64"
		if p.width == 128 {
			name = "nearest128"
		}
		if err := runtime.Launch(p.rt, name, runtime.CeilDiv(n, 128), 1, 1, 256, 512*p.width, a); err != nil {
			return err
		}
		if err := runtime.Launch(p.rt, "nearest_exact", runtime.CeilDiv(n, 8), 1, 1, 256, 0, a); err != nil {
			return err
		}
	}
	if err := c.ToHost(w.HostOut[:out.Size], w.Out.Ptr, st); err != nil {
		return err
	}
	if err := p.rt.Sync(); err != nil {
		return err
	}
	row := int64(0)
	for _, r := range requests {
		m := int64(len(r.codes))
		copy(runtime.Bytes(r.codes), w.HostOut[codes+4*row:codes+4*(row+m)])
		if r.scores != nil {
			copy(runtime.Bytes(r.scores), w.HostOut[scores+4*row:scores+4*(row+m)])
		}
		row += m
	}
	return nil
}
