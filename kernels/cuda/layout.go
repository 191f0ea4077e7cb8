package cuda

import (
	"github.com/plaid-ir/plaid/kernels/cuda/driver"
)

func (b *batch) mark(event int) error { return b.d.ctx.Record(b.d.work.event[event], b.d.work.stream) }

// reserve lays the arrays out, and makes room for them.
func (b *batch) reserve(t target, probing, wide bool) error {
	s, d := b.s, b.d
	q, g, k := int64(b.queries), int64(b.groups), int64(b.k)
	var a arena
	b.in.query = a.take(4 * g * columns * int64(s.dim))
	b.in.weights = a.take(4 * g * columns)
	b.in.begin = a.take(4 * (q + 1))
	b.in.list = a.take(4 * t.docs * btoi(t.list))
	b.in.allowed = a.take((int64(b.tasks[0].search.docs) + 63) / 64 * 8)
	b.in.size = a.size

	a = arena{}
	b.out.n = a.take(4 * q)
	b.out.cand = a.take(4)
	b.out.bound = a.take(4 * g)
	b.out.ids = a.take(4 * q * k)
	b.out.coarse = a.take(4 * q * k)
	b.out.fine = a.take(4 * q * k)
	b.out.size = a.size

	blocks, err := b.blocks(t)
	if err != nil {
		return err
	}
	warps := int64(blocks) * scanThreads / 32
	a = arena{}
	m := &b.tmp
	m.frags = a.take(4 * g * int64(s.fragStride))
	m.cols = a.take(16 * g * columns)
	m.split = a.take(4 * g * columns * int64(s.dim16))
	m.sRows = a.take(64 * g * int64(s.k))
	m.scores = a.take(4 * g * t.docs)
	m.part = a.take(8 * columns * g * warps)
	m.best = a.take(4 * q * k * int64(b.most) * columns)
	if !wide {
		first := ceilDiv(max(t.docs, 1), topkBlock)
		m.keys = a.take(8 * q * first * k)
		m.keys2 = a.take(8 * q * ceilDiv(first*k, topkBlock) * k)
	}
	if t.list {
		m.walk = a.take(8 * (t.tiles + spareTiles))
		m.posFirst = a.take(4 * t.docs)
		m.posEnd = a.take(4 * t.docs)
		m.total = a.take(4)
	}
	if probing {
		// The keys of probing are a first pass over all centroids.
		n := min(int64(b.tasks[0].search.q.Probes), int64(s.k), maxTopK)
		rows := g * columns
		first := ceilDiv(int64(s.k), topkBlock)
		m.sFloat = a.take(4 * rows * int64(s.k))
		m.probes = a.take(4*rows*n + 256 + 8*rows*first*n + 256 + 8*rows*ceilDiv(first*n, topkBlock)*n)
		m.marks = a.take((int64(s.k) + 31) / 32 * 4)
		m.hits = a.take((t.docs + 63) / 64 * 8)
		m.found = a.take(4 * t.docs)
	}
	m.size = a.size
	return d.work.reserve(d.ctx, b.in.size, b.out.size, m.size, 4*g*warps)
}

func btoi(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// blocks is the width of the grid of a scan.
func (b *batch) blocks(t target) (int, error) {
	n, err := b.d.kernels.scanBlocks(b.s, t.list)
	return max(min(n, int(ceilDiv(t.tiles, 4))), 1), err
}

func (b *batch) inAt(offset int64) driver.Ptr  { return b.d.work.in.At(offset) }
func (b *batch) outAt(offset int64) driver.Ptr { return b.d.work.out.At(offset) }
func (b *batch) tmpAt(offset int64) driver.Ptr { return b.d.work.scratch.At(offset) }

// upload sends the queries, and which documents they are for, in one copy.
func (b *batch) upload(t *target) error {
	d, s := b.d, b.s
	w := &d.work
	host := w.hostIn.Data
	for i, task := range b.tasks {
		g := int64(b.begin[i])
		putQuery(host[b.in.query+4*g*columns*int64(s.dim):], host[b.in.weights+4*g*columns:], task.search.q, s.dim, task.search.groups)
	}
	copy(host[b.in.begin:], uint32Bytes(b.begin))
	size := b.in.list
	first := b.tasks[0].search
	if first.q.Docs != nil && t.list {
		size += int64(copy(host[b.in.list:], uint32Bytes(first.q.Docs)))
		t.ids = b.inAt(b.in.list)
	}
	if err := b.mark(atStart); err != nil {
		return err
	}
	size, err := b.allow(first, size)
	if err != nil {
		return err
	}
	if t.allowed = b.a.live.Ptr; first.q.Allowed != nil {
		t.allowed = b.inAt(b.in.allowed)
	}
	if err := d.ctx.ToDevice(w.in.Ptr, host[:size], w.stream); err != nil {
		return err
	}
	if err := d.ctx.Set(w.out.Ptr, 0, b.out.ids, w.stream); err != nil {
		return err
	}
	return b.mark(atUploaded)
}

// allow writes the set of documents that may be returned behind the query, or
// sees to it that the set of all live ones is on the device. It returns how
// much is to be copied.
func (b *batch) allow(t *searchTask, size int64) (int64, error) {
	d, a := b.d, b.a
	words := (t.docs + 63) / 64
	if t.q.Allowed != nil {
		copy(d.work.hostIn.Data[b.in.allowed:], uint64Bytes(t.q.Allowed[:words]))
		return b.in.size, nil
	}
	live, _ := t.corpus.LiveSet()
	if words == 0 || a.liveOf == &live[0] {
		return size, nil
	}
	if a.live.Bytes < int64(8*words) {
		if err := d.ctx.Free(a.live); err != nil {
			return 0, err
		}
		a.live, a.liveOf = driver.Mem{}, nil
		var err error
		if a.live, err = d.ctx.Alloc(int64(8*words) * 9 / 8); err != nil {
			return 0, err
		}
	}
	if err := d.ctx.ToDevice(a.live.Ptr, uint64Bytes(live[:words]), d.work.stream); err != nil {
		a.liveOf = nil
		return 0, err
	}
	a.liveOf = &live[0]
	return size, nil
}
