package compressed

import (
	"encoding/binary"
	"math"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

// reserve lays the arrays out, and makes room for them.
func (b *batch) reserve(t target, probing, wide bool) error {
	s := b.s
	q, g, k := int64(b.queries), int64(b.groups), int64(b.k)
	var a runtime.Arena
	b.in.query = a.Take(4 * g * columns * int64(s.dim))
	b.in.weights = a.Take(4 * g * columns)
	b.in.begin = a.Take(4 * (q + 1))
	b.in.list = a.Take(4 * t.docs * btoi(t.list))
	b.in.allowed = a.Take((int64(b.requests[0].docs) + 63) / 64 * 8)
	b.in.size = a.Size

	a = runtime.Arena{}
	b.out.n = a.Take(4 * q)
	b.out.cand = a.Take(4)
	b.out.bound = a.Take(4 * g)
	b.out.ids = a.Take(4 * q * k)
	b.out.coarse = a.Take(4 * q * k)
	b.out.fine = a.Take(4 * q * k)
	b.out.size = a.Size

	blocks, err := b.blocks(t)
	if err != nil {
		return err
	}
	warps := int64(blocks) * scanThreads / 32
	a = runtime.Arena{}
	m := &b.tmp
	m.frags = a.Take(4 * g * int64(s.fragStride))
	m.cols = a.Take(16 * g * columns)
	m.split = a.Take(4 * g * columns * int64(s.dim16))
	m.sRows = a.Take(64 * g * int64(s.k))
	m.scores = a.Take(4 * g * t.docs)
	m.part = a.Take(8 * columns * g * warps)
	m.best = a.Take(4 * q * k * int64(b.most) * columns)
	if !wide {
		first := runtime.CeilDiv(max(t.docs, 1), topkBlock)
		m.keys = a.Take(8 * q * first * k)
		m.keys2 = a.Take(8 * q * runtime.CeilDiv(first*k, topkBlock) * k)
	}
	if t.list {
		m.walk = a.Take(8 * (t.tiles + spareTiles))
		m.posFirst = a.Take(4 * t.docs)
		m.posEnd = a.Take(4 * t.docs)
		m.total = a.Take(4)
	}
	if probing {
		// The keys of probing are a first pass over all centroids.
		n := min(int64(b.requests[0].q.Probes), int64(s.k), maxTopK)
		rows := g * columns
		first := runtime.CeilDiv(int64(s.k), topkBlock)
		m.sFloat = a.Take(4 * rows * int64(s.k))
		m.probes = a.Take(4*rows*n + 256 + 8*rows*first*n + 256 + 8*rows*runtime.CeilDiv(first*n, topkBlock)*n)
		m.marks = a.Take((int64(s.k) + 31) / 32 * 4)
		m.hits = a.Take((t.docs + 63) / 64 * 8)
		m.found = a.Take(4 * t.docs)
	}
	m.size = a.Size
	return b.rt.Work.Reserve(b.in.size, b.out.size, m.size, 4*g*warps)
}

func btoi(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// blocks is the width of the grid of a scan.
func (b *batch) blocks(t target) (int, error) {
	name, shared := b.s.scanKernel(t.list)
	n, err := b.rt.FillingBlocks(name, scanThreads, shared)
	return max(min(n, int(runtime.CeilDiv(t.tiles, 4))), 1), err
}

func (b *batch) inAt(offset int64) driver.Ptr  { return b.rt.Work.In.At(offset) }
func (b *batch) outAt(offset int64) driver.Ptr { return b.rt.Work.Out.At(offset) }
func (b *batch) tmpAt(offset int64) driver.Ptr { return b.rt.Work.Scratch.At(offset) }

// upload sends the queries, and which documents they are for, in one copy.
func (b *batch) upload(t *target) error {
	s, w := b.s, &b.rt.Work
	host := w.HostIn
	for i, t := range b.requests {
		g := int64(b.begin[i])
		putQuery(host[b.in.query+4*g*columns*int64(s.dim):], host[b.in.weights+4*g*columns:], t.q, s.dim, t.groups)
	}
	copy(host[b.in.begin:], runtime.Bytes(b.begin))
	size := b.in.list
	first := b.requests[0]
	if first.q.Docs != nil && t.list {
		size += int64(copy(host[b.in.list:], runtime.Bytes(first.q.Docs)))
		t.ids = b.inAt(b.in.list)
	}
	if err := b.rt.Mark(atStart); err != nil {
		return err
	}
	size, err := b.allow(first, size)
	if err != nil {
		return err
	}
	if t.allowed = b.a.live.Ptr; first.q.Allowed != nil {
		t.allowed = b.inAt(b.in.allowed)
	}
	if err := b.rt.Driver.ToDevice(w.In.Ptr, host[:size], b.rt.Stream); err != nil {
		return err
	}
	if err := b.rt.Driver.Set(w.Out.Ptr, 0, b.out.ids, b.rt.Stream); err != nil {
		return err
	}
	return b.rt.Mark(atUploaded)
}

// allow writes the set of documents that may be returned behind the query, or
// sees to it that the set of all live ones is on the device. It returns how
// much is to be copied.
func (b *batch) allow(t *request, size int64) (int64, error) {
	dev, a := b.rt.Driver, b.a
	words := (t.docs + 63) / 64
	if t.q.Allowed != nil {
		copy(b.rt.Work.HostIn[b.in.allowed:], runtime.Bytes(t.q.Allowed[:words]))
		return b.in.size, nil
	}
	live := t.live
	if words == 0 || a.liveOf == &live[0] {
		return size, nil
	}
	if a.live.Bytes < int64(8*words) {
		if err := dev.Free(a.live); err != nil {
			return 0, err
		}
		a.live, a.liveOf = driver.Mem{}, nil
		var err error
		if a.live, err = dev.Alloc(int64(8*words) * 9 / 8); err != nil {
			return 0, err
		}
	}
	if err := dev.ToDevice(a.live.Ptr, runtime.Bytes(live[:words]), b.rt.Stream); err != nil {
		a.liveOf = nil
		return 0, err
	}
	a.liveOf = &live[0]
	return size, nil
}

// putQuery writes the groups of a query, padded with zeros: vectors [32][dim]
// and weights [32] a group.
func putQuery(vectors, weights []byte, q *kernels.DeviceQuery, dim, groups int) {
	n := copy(vectors, runtime.Bytes(q.Vectors))
	clear(vectors[n : 4*groups*columns*dim])
	clear(weights[:4*groups*columns])
	for s := range len(q.Vectors) / dim {
		w := float32(1)
		if q.Weights != nil {
			w = q.Weights[s]
		}
		binary.LittleEndian.PutUint32(weights[4*s:], math.Float32bits(w))
	}
}
