package dense

import (
	"fmt"
	"slices"
	"sort"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver/drivertest"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// fakeGrad is the kernel that reads rows of a format; 0: any.
func fakeGrad(form format) drivertest.Kernel {
	return func(f *drivertest.Fake, l *driver.Launch) {
		p := (*denseGradParams)(l.Args)
		queries := uint64(0)
		if p.q.out != 0 && l.Grid.X > p.docBlocks {
			queries = (p.q.nRows*uint64(p.parts) + gradWarps - 1) / gradWarps
		}
		if uint64(l.Grid.X) != uint64(p.docBlocks)+queries || l.Block.X != 32*gradWarps {
			panic(fmt.Sprintf("%d blocks of dense_grad, %d for documents", l.Grid.X, p.docBlocks))
		}
		if p.docBlocks > 0 {
			fakeReads(&p.q, form)
			if want := max(p.d.items, 1) * p.tiles; p.docBlocks != want || p.d.out == 0 {
				panic("blocks of documents")
			}
			for doc := range max(p.d.items, 1) {
				fakeGradDoc(f, p, doc, l.Shared)
			}
		}
		if queries > 0 {
			fakeReads(&p.d, form)
			if p.parts > 1 && l.Shared < 4096 {
				panic("sums of parts without room")
			}
			for r := range p.q.nRows {
				fakeGradQuery(f, p, r)
			}
		}
	}
}

// fakeReads sees that rows are such that a kernel can read them.
func fakeReads(s *denseGradSide, form format) {
	size := map[format]uint32{f32: 16, f16: 8, bf16: 8, i8: 4, e4m3: 4, split: 8}[form]
	if form != 0 && (format(s.format) != form || s.zeros != 0 || uint32(s.rows)%size != 0 || s.rowBytes%size != 0) {
		panic("rows that the kernel does not read")
	}
}

func fakeSpan(f *drivertest.Fake, s *denseGradSide, i uint32) (begin uint64, n uint32) {
	if i >= s.items {
		return 0, 0
	}
	if s.offsets == 0 {
		return uint64(i) * uint64(s.stride), s.longest
	}
	o := array[uint32](f, s.offsets, 4, int(i), 2)
	first, end := min(uint64(o[0]), s.nRows), min(uint64(o[1]), s.nRows)
	return first, uint32(min(max(end, first)-first, uint64(s.longest)))
}

// fakeValues is a row times its scale.
func fakeValues(f *drivertest.Fake, s *denseGradSide, r uint64, dim int) []float32 {
	x := decode(f.Bytes(s.rows+driver.Ptr(r)*driver.Ptr(s.rowBytes), int64(s.rowBytes)), s.format, dim)
	for i := range x {
		if s.zeros != 0 {
			x[i] -= float32(array[int8](f, s.zeros, 1, int(r), 1)[0])
		}
		x[i] *= float(f, s.scale, int(r))
	}
	return x
}

// fakePut writes the gradient of a row, through the normalisation. Rows that got nothing may hold
// anything.
func fakePut(f *drivertest.Fake, s *denseGradSide, r uint64, sum []float32) {
	dim := len(sum)
	if s.inverse != 0 && slices.ContainsFunc(sum, func(v float32) bool { return v != 0 }) {
		x := fakeValues(f, s, r, dim)
		along, inverse := dot(sum, x), float(f, s.inverse, int(r))
		for d, v := range x {
			sum[d] = float32(float64(sum[d])-along*float64(v)) * inverse
		}
	}
	size := maxsim.Type(s.outType).Size()
	out := f.Bytes(s.out+driver.Ptr(int(r)*dim*size), int64(dim*size))
	for d, v := range sum {
		switch format(s.outType) {
		case f32:
			structsFrom[float32](out, dim)[d] = v
		case f16:
			structsFrom[uint16](out, dim)[d] = kernels.F16FromF32(v)
		default:
			structsFrom[uint16](out, dim)[d] = kernels.BF16FromF32(v)
		}
	}
}

// fused adds c·x to a row.
func fused(sum []float32, c float32, x []float32) {
	for d, v := range x {
		sum[d] = float32(float64(c)*float64(v) + float64(sum[d]))
	}
}

// fakeEntry is the row of a document that won for row s of a query, and what it counts; 0: nothing.
func fakeEntry(f *drivertest.Fake, p *denseGradParams, pair uint64, query, s, doc uint32) (at uint64, c float32) {
	first, _ := fakeSpan(f, &p.q, query)
	begin, n := fakeSpan(f, &p.d, doc)
	a := array[int32](f, p.arg, 4, int(pair)*int(p.pitch)+int(s), 1)[0]
	w := float(f, p.weights, int(first)+int(s))
	if a < 0 || uint32(a) >= n || w == 0 {
		return 0, 0
	}
	return begin + uint64(a), float(f, p.upstream, int(pair)) * w
}

func fakeGradQuery(f *drivertest.Fake, p *denseGradParams, r uint64) {
	sum := make([]float32, p.dim)
	for i := range p.q.items {
		begin, n := fakeSpan(f, &p.q, i)
		if r < begin || r >= begin+uint64(n) {
			continue
		}
		add := func(pair uint64, doc uint32) {
			if at, c := fakeEntry(f, p, pair, i, uint32(r-begin), doc); c != 0 {
				fused(sum, c, fakeValues(f, &p.d, at, int(p.dim)))
			}
		}
		if PairKind(p.kind) == PairsListed {
			b := array[uint32](f, p.q.pairFirst, 4, int(i), 2)
			for _, pair := range array[uint32](f, p.q.pairs, 4, int(b[0]), int(b[1]-b[0])) {
				add(uint64(pair), array[uint32](f, p.d.pairItem, 4, int(pair), 1)[0])
			}
			continue
		}
		for k := range p.count {
			pair := uint64(i)*uint64(p.count) + uint64(k)
			if PairKind(p.kind) == PairsOwn {
				add(pair, uint32(pair))
			} else {
				add(pair, k)
			}
		}
	}
	fakePut(f, &p.q, r, sum)
}

func fakeGradDoc(f *drivertest.Fake, p *denseGradParams, doc, shared uint32) {
	lo, hi, n := uint64(0), p.d.nRows, uint32(0)
	var begin uint64
	if doc < p.d.items {
		begin, n = fakeSpan(f, &p.d, doc)
	}
	if doc > 0 {
		lo = begin
	}
	if doc+1 < p.d.items {
		hi, _ = fakeSpan(f, &p.d, doc+1)
	}
	sums := map[uint64][]float32{}
	add := func(pair uint64, query uint32) {
		_, count := fakeSpan(f, &p.q, query)
		first, _ := fakeSpan(f, &p.q, query)
		if count > 32*p.groups {
			panic("rows of a query that no group has")
		}
		for s := range count {
			at, c := fakeEntry(f, p, pair, query, s, doc)
			if c == 0 {
				continue
			}
			if sums[at] == nil {
				sums[at] = make([]float32, p.dim)
			}
			fused(sums[at], c, fakeValues(f, &p.q, first+uint64(s), int(p.dim)))
		}
	}
	switch {
	case n == 0:
	case PairKind(p.kind) == PairsAll:
		for i := range p.q.items {
			add(uint64(i)*uint64(p.count)+uint64(doc), i)
		}
	case PairKind(p.kind) == PairsOwn:
		add(uint64(doc), doc/p.count)
	default:
		b := array[uint32](f, p.d.pairFirst, 4, int(doc), 2)
		for _, pair := range array[uint32](f, p.d.pairs, 4, int(b[0]), int(b[1]-b[0])) {
			add(uint64(pair), array[uint32](f, p.q.pairItem, 4, int(pair), 1)[0])
		}
	}
	if shared < gradShared+8*p.dim || p.rows > 128 || p.rows < 1 {
		panic("too little shared memory, or too many rows")
	}
	for r := lo; r < hi; r++ {
		sum := sums[r]
		if sum == nil {
			sum = make([]float32, p.dim)
		}
		fakePut(f, &p.d, r, sum)
	}
}

func fakeLists(f *drivertest.Fake, l *driver.Launch) {
	p := (*denseListsParams)(l.Args)
	if p.end-p.from > 1 && l.Grid.X > 1 {
		panic("steps of several blocks in one launch")
	}
	if l.Grid.Y != 2 || l.Block.X != listThreads {
		panic("the grid of dense_lists")
	}
	for _, s := range []*denseListSide{&p.q, &p.d} {
		if s.first != 0 {
			for step := p.from; step < p.end; step++ {
				fakeList(f, p, s, step, int(l.Grid.X))
			}
		}
	}
}

func fakeList(f *drivertest.Fake, p *denseListsParams, s *denseListSide, step uint32, blocks int) {
	n, pass := int(p.n), step/2
	item, counts := array[uint32](f, s.item, 4, 0, n), array[uint32](f, s.counts, 4, 0, listDigits*blocks)
	from, to := array[uint32](f, s.loose, 4, 0, n), array[uint32](f, s.pairs, 4, 0, n)
	if step == 2*p.passes {
		for i := range array[uint32](f, s.first, 4, 0, int(s.items)+1) {
			at := sort.Search(n, func(k int) bool { return min(item[to[k]], s.items) >= uint32(i) })
			array[uint32](f, s.first, 4, i, 1)[0] = uint32(at)
		}
		return
	}
	if (p.passes-pass)%2 == 0 {
		from, to = to, from
	}
	share := (n + listThreads*blocks - 1) / (listThreads * blocks) * listThreads
	for b := blocks - 1; b >= 0; b-- {
		// Of each digit: what the block counts, or where its next pair goes.
		var next [listDigits]uint32
		if before := uint32(0); step%2 == 1 {
			for d := range next {
				for k := range blocks {
					if k == b {
						next[d] = before
					}
					before += counts[listDigits*k+d]
				}
			}
		}
		for i := min(b*share, n); i < min((b+1)*share, n); i++ {
			x := uint32(i)
			if pass > 0 {
				x = from[i]
			}
			d := min(item[x], s.items) >> (8 * pass) % listDigits
			if step%2 == 1 {
				to[next[d]] = x
			}
			next[d]++
		}
		if step%2 == 0 {
			copy(counts[listDigits*b:], next[:])
		}
	}
}
