package compressed

import (
	"context"
	"encoding/binary"
	"math"
	"sync"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/internal/alike"
)

// reserve lays out the arrays of the batch, and reserves the workspace for them.
func (b *batch) reserve(t target, probing, wide bool) error {
	if b.sideBySide = 1; !t.isList {
		b.sideBySide = b.shape.chooseSideBySide(b.groups, b.attachment.maxGroups)
	}
	kernel := b.shape.chooseScan(t.isList, b.sideBySide)
	blocks, err := b.scanBlocks(t, kernel)
	if err != nil {
		return err
	}
	warps := int64(blocks * kernel.threads / 32)
	b.fineSeparately = probing
	b.layOutInput(t)
	b.layOutAnswers()
	b.layOutScratch(t, warps, probing, wide)
	groups, fine := int64(b.groups), int64(b.queries)*int64(b.capacity)
	b.zeroed = 4 * groups * warps
	return b.rt.Work.Reserve(runtime.WorkspaceSizes{
		In:      b.in.size,
		Out:     b.out.size,
		Scratch: b.tmp.size,
		Zeroed:  b.zeroed + 4*fine + 4,
	})
}

// layOutInput lays out the arrays that are copied to the device.
func (b *batch) layOutInput(t target) {
	tokens := int64(b.groups) * columns
	var a runtime.Arena
	b.in.query = a.Append(4 * tokens * int64(b.shape.dim))
	b.in.weights = a.Append(4 * tokens)
	b.in.alike = a.Append(4 * tokens)
	b.in.groupBegin = a.Append(4 * (int64(b.queries) + 1))
	b.in.docs = a.Append(4 * int64(len(b.requests[0].query.Docs)))
	b.in.allowed = a.Append((int64(b.requests[0].docs) + 63) / 64 * 8)
	b.in.size = a.Size
}

// layOutAnswers lays out the arrays that are copied to the host.
func (b *batch) layOutAnswers() {
	queries := int64(b.queries)
	fine := queries * int64(b.capacity)
	var a runtime.Arena
	b.out.found = a.Append(16 * queries)
	b.out.clock = a.Append(8 * clockPoints)
	b.out.candidates = a.Append(4 * queries)
	b.out.kept = a.Append(4 * queries)
	b.out.tiles = a.Append(4 * queries)
	b.out.ids = a.Append(4 * fine) // prep_query zeroes the arrays before this one
	b.out.fine = a.Append(4 * fine)
	b.out.coarse = a.Append(8 * fine)
	b.out.size = a.Size
}

// layOutScratch lays out the arrays that stay on the device.
func (b *batch) layOutScratch(t target, warps int64, probing, wide bool) {
	s, m := b.shape, &b.tmp
	queries, groups := int64(b.queries), int64(b.groups)
	tokens := groups * columns
	var a runtime.Arena
	m.frags = a.Append(4 * groups * int64(s.fragStride))
	m.cols = a.Append(16 * tokens)
	m.bound = a.Append(16 * tokens)
	m.parts = a.Append(groups * s.partsBytes())
	m.unit = a.Append(16 * tokens)
	m.sRows = a.Append(64 * int64(runtime.CeilDiv(b.groups, b.sideBySide)*b.sideBySide) * int64(s.k))
	m.scores = a.Append(4 * groups * t.docs)
	m.part = a.Append(8 * tokens * warps)
	if n := int64(b.blocksPerDocument()); n > 1 {
		m.fineParts = a.Append(4 * queries * int64(b.capacity) * n * int64(b.maxGroups) * columns)
	}
	if first, k := runtime.CeilDiv(t.docs, topkBlock), int64(b.k); first > 1 && !wide {
		m.keys = a.Append(8 * queries * first * k)
		m.keys2 = a.Append(8 * queries * runtime.CeilDiv(first*k, topkBlock) * k)
		m.kth = a.Append(4 * queries * k)
	}
	if t.isList {
		m.walk = a.Append(8 * (t.tiles + spareTiles))
		m.posFirst = a.Append(4 * t.docs)
		m.posEnd = a.Append(4 * t.docs)
	}
	if probing {
		b.layOutProbing(t, &a)
	}
	m.size = a.Size
}

// layOutProbing lays out the arrays of probing, behind the others of the scratch memory.
func (b *batch) layOutProbing(t target, a *runtime.Arena) {
	s, m := b.shape, &b.tmp
	queries, tokens := int64(b.queries), int64(b.groups)*columns
	m.sFloat = a.Append(4 * tokens * int64(s.k))
	// topk_first picks n centroids from each block of topkBlock.
	n, first := int64(b.pickedCentroids()), runtime.CeilDiv(int64(s.k), topkBlock)
	m.probes = a.Append(4 * tokens * n)
	m.probeScores = a.Append(4 * tokens * n)
	if b.picksByMaxima() {
		m.maxima = a.Append(4 * tokens * runtime.CeilDiv(int64(s.k), centroidsPerMaximum))
	} else {
		m.probeKeys = a.Append(8 * tokens * first * n)
		m.probeKeys2 = a.Append(8 * tokens * runtime.CeilDiv(first*n, topkBlock) * n)
	}
	m.gainCols = a.Append(16 * tokens)
	m.gaps = a.Append(4 * queries)
	m.found = a.Append(4 * t.docs)
	m.kept = a.Append(4 * b.keptDocs(t.docs))
	m.marks = a.Append(4 * int64(s.k))
	m.bits = a.Append(4 * (queries + 1) * int64(s.bitWords()))
	m.levels = a.Append(4 * gainLevels * queries)
	m.hits = a.Append(4 * t.docs)
	m.gains = a.Append(4 * t.docs)
}

// int64FromBool returns 1 for true, else 0.
func int64FromBool(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// A scan of several groups has fewer and longer blocks for each group, as long as a
// warp gets warpTiles tiles, and blocks fill the device scanWaves times, so that the
// last wave, which is not full, costs little.
const warpTiles, scanWaves = 256, 16

// scanBlocks returns the width of the grid of a scan.
func (b *batch) scanBlocks(t target, k scanKernel) (int, error) {
	n, err := b.rt.FillingBlocks(k.name, k.threads, k.shared)
	warps := k.threads / 32
	worthwhile := max(int(runtime.CeilDiv(t.tiles, int64(warps*warpTiles))),
		runtime.CeilDiv(scanWaves*n, runtime.CeilDiv(b.groups, k.side)))
	return max(min(n, worthwhile, int(runtime.CeilDiv(t.tiles, int64(warps)))), 1), err
}

// inputPtr returns the address of an offset of the input: in host memory if the batch is direct.
func (b *batch) inputPtr(offset int64) driver.Ptr {
	if b.direct {
		return b.rt.Work.HostInPtr(offset)
	}
	return b.rt.Work.In.At(offset)
}
func (b *batch) outputPtr(offset int64) driver.Ptr  { return b.rt.Work.Out.At(offset) }
func (b *batch) scratchPtr(offset int64) driver.Ptr { return b.rt.Work.Scratch.At(offset) }

// groupBeginPtr returns the address of the first groups of the queries, or 0 if each query has one group.
func (b *batch) groupBeginPtr() driver.Ptr {
	if b.groups == b.queries && b.group == 0 {
		return 0
	}
	return b.inputPtr(b.in.groupBegin)
}

// uploadQueries copies the queries, and the documents that they may return, to the device.
func (b *batch) uploadQueries(t *target) error {
	size, err := b.writeInput(t)
	if err != nil {
		return err
	}
	return b.sendInput(size)
}

// sendInput copies the first size bytes of the input to the device.
func (b *batch) sendInput(size int64) error {
	w := &b.rt.Work
	return b.rt.Driver.ToDevice(w.In.Ptr, w.HostIn[:size], b.rt.Stream)
}

// writeInput writes the input of the batch to host memory, and returns how many bytes must be copied.
func (b *batch) writeInput(t *target) (size int64, err error) {
	s, w := b.shape, &b.rt.Work
	host := w.HostIn
	// At least 16 queries a thread: fewer cost more than they save.
	_ = parallel.Do(context.Background(), b.queries, parallel.Threads(0, b.queries/16),
		func(i int) error {
			g, t := int64(b.groupBegin[i]), b.requests[i]
			writeQuery(host[b.in.query+4*g*columns*int64(s.dim):], host[b.in.weights+4*g*columns:], t.query, s.dim,
				t.groups)
			if dst := host[b.in.alike+4*g*columns:]; t.alikeShape == s {
				copy(dst, t.alike)
			} else {
				s.writeAlike(dst, t.query.Vectors, t.groups)
			}
			return nil
		})
	copy(host[b.in.groupBegin:], runtime.Bytes(b.groupBegin))
	size = b.in.docs
	first := b.requests[0]
	if first.query.Docs != nil && t.isList {
		size += int64(copy(host[b.in.docs:], runtime.Bytes(first.query.Docs)))
		t.ids = b.inputPtr(b.in.docs)
	}
	if size, err = b.writeAllowed(first, size); err != nil {
		return 0, err
	}
	if t.allowed = b.attachment.liveMem.Ptr; first.query.Allowed != nil {
		t.allowed = b.inputPtr(b.in.allowed)
	}
	return size, nil
}

// writeAllowed writes the set of allowed documents of a query to the input. Without such a
// set it copies the set of live documents to the device, unless it is there already. It returns
// how many bytes of the input must be copied.
func (b *batch) writeAllowed(t *request, size int64) (int64, error) {
	dev, a := b.rt.Driver, b.attachment
	words := (t.docs + 63) / 64
	if t.query.Allowed != nil {
		copy(b.rt.Work.HostIn[b.in.allowed:], runtime.Bytes(t.query.Allowed[:words]))
		return b.in.size, nil
	}
	live := t.live
	if words == 0 || a.liveSource == &live[0] {
		return size, nil
	}
	if a.liveMem.Bytes < int64(8*words) {
		if err := dev.Free(a.liveMem); err != nil {
			return 0, err
		}
		a.liveMem, a.liveSource = driver.Mem{}, nil
		var err error
		if a.liveMem, err = dev.Alloc(int64(8*words) * 9 / 8); err != nil {
			return 0, err
		}
	}
	if err := dev.ToDevice(a.liveMem.Ptr, runtime.Bytes(live[:words]), b.rt.Stream); err != nil {
		a.liveSource = nil
		return 0, err
	}
	a.liveSource = &live[0]
	return size, nil
}

// writeQuery writes the groups of a query, padded with zeros: for each group, vectors [32][dim]
// and weights [32].
func writeQuery(vectors, weights []byte, q *kernels.DeviceQuery, dim, groups int) {
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

// alikeChance is the share of components that may be alike by chance in unrelated tokens.
const alikeChance = 1.0 / 8

// writeAlike writes for each query token how many tokens are rounded alike, see
// [alike.Counter.Count]. Integer coefficients are rounded in units of the largest one. The steps
// of e4m3 and of half precision are relative to the coefficient: an eighth of a power of two
// for e4m3, which is used for both.
func (s *shape) writeAlike(dst []byte, vectors []float32, groups int) {
	n := len(vectors) / s.dim
	counter := counters.Get().(*alike.Counter)
	defer counters.Put(counter)
	var buffer [2 * columns]float32
	counts, units := buffer[:0:columns], buffer[columns:columns]
	for i := range n {
		counts, units = append(counts, 0), append(units,
			1/max(s.largestCoefficient(vectors[i*s.dim:(i+1)*s.dim]), 1e-30))
	}
	counter.Count(counts, s.dim, alikeChance, func(i, j int) alike.Code {
		x := max(vectors[i*s.dim+j], -vectors[i*s.dim+j]) * units[i]
		if s.dimScale != nil {
			x *= max(s.dimScale[j], -s.dimScale[j])
		}
		if s.hasRelativeSteps() {
			return alike.Code(math.Float32bits(x+0x1p-14) >> 18)
		}
		return alike.Code(4 * 127 * x)
	})
	clear(dst[copy(dst, runtime.Bytes(counts)) : 4*groups*columns])
}

// largestCoefficient returns the largest absolute coefficient of a token.
func (s *shape) largestCoefficient(v []float32) float32 {
	// The bits of absolute values are ordered like the values.
	size := func(x float32) uint32 { return math.Float32bits(x) &^ (1 << 31) }
	var a, b uint32
	switch g := s.dimScale; {
	case g != nil:
		for j, x := range v {
			a = max(a, size(x*g[j]))
		}
	default:
		for ; len(v) >= 4; v = v[4:] {
			a, b = max(a, size(v[0]), size(v[1])), max(b, size(v[2]), size(v[3]))
		}
		for _, x := range v {
			a = max(a, size(x))
		}
	}
	return math.Float32frombits(max(a, b))
}

// counters pools the scratch memory of writeAlike.
var counters = sync.Pool{New: func() any { return new(alike.Counter) }}

// hasRelativeSteps reports whether the rounding steps of coefficients are relative to their size.
func (s *shape) hasRelativeSteps() bool { return s.mode > halfMode || s.mode == tableMode }
