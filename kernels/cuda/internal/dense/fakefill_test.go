package dense

import (
	"fmt"
	"math"
	"sort"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver/drivertest"
)

// hopperKernels are fakeKernels and those of sm_90a by the names that they are chosen by.
func hopperKernels() map[string]drivertest.Kernel {
	all := fakeKernels()
	for f := f32; f <= split; f++ {
		for v := 1; v <= 4; v++ {
			for _, columns := range []int{32, 64} {
				rows := func(fake *drivertest.Fake, l *driver.Launch) {
					checkRows(fake, l, f)
					fakeForward(fake, l, int(l.Block.X)/128, 1, columns)
				}
				name := fmt.Sprintf("dense_rows_%s_n%d_v%d", f.kernelName(), columns, v)
				all[name], all[name+"_arg"] = rows, rows
			}
		}
		for k := range batchStages[f] {
			batch := func(fake *drivertest.Fake, l *driver.Launch) {
				checkRows(fake, l, f)
				fakeForward(fake, l, 1, 4*k[1], 16)
			}
			name := fmt.Sprintf("dense_batch_%s_s%d_g%d", f.kernelName(), k[0], k[1])
			all[name], all[name+"_arg"] = batch, batch
		}
	}
	for _, kind := range []format{f16, bf16, split} {
		for _, columns := range []int{64, 96, 128} {
			all[fmt.Sprintf("dense_head_%s_n%d", kind.kernelName(), columns)] = fakeHead(kind, columns)
			all[fmt.Sprintf("dense_project_%s_n%d", kind.kernelName(), columns)] = fakeProjectLaid(kind, columns)
		}
	}
	return all
}

// fakeProjectLaid is a kernel of some columns that makes token vectors.
func fakeProjectLaid(kind format, columns int) drivertest.Kernel {
	return func(f *drivertest.Fake, l *driver.Launch) {
		p := (*denseProjectParams)(l.Args)
		dim, chunks := int(p.dim), (int(p.rowBytes)+127)/128
		if format(p.hiddenFormat) != kind || format(p.weightFormat) != kind || p.hidden%16 != 0 ||
			int(p.rowBytes) != rowBytes(kind, int(p.hiddenDim)) {
			panic("hidden states of another kernel")
		}
		weights := make([][]float32, dim)
		for c := range weights {
			var row []byte
			for i := range 8 * chunks {
				row = append(row, f.Bytes(p.weights+driver.Ptr(((c/columns*chunks*8+i)*columns+c%columns)*16), 16)...)
			}
			weights[c] = decode(row, p.weightFormat, int(p.hiddenDim))
		}
		for r := range int(p.rows) {
			hidden := fakeRow(f, p.hidden, p.hiddenFormat, p.rowBytes, uint64(r), int(p.hiddenDim))
			token := make([]float32, dim)
			for c, w := range weights {
				token[c] = float32(dot(hidden, w) * float64(float(f, p.hiddenScale, r)) * float64(float(f, p.weightScale, c)))
				if p.bias != 0 {
					token[c] += float(f, p.bias, c)
				}
			}
			if p.out != 0 {
				copy(array[float32](f, p.out, 4, r*dim, dim), token)
				continue
			}
			row := f.Bytes(p.rowsOut+driver.Ptr(r*int(p.outBytes)), int64(p.outBytes))
			clear(row)
			most, square := 0.0, 0.0
			for _, v := range token {
				most, square = max(most, math.Abs(float64(v))), square+float64(v)*float64(v)
			}
			_, exponent := math.Frexp(most)
			exponent = max(exponent, -110)
			for d, v := range token {
				x := float32(math.Ldexp(float64(v), 15-exponent))
				h := structsFrom[uint16](row, len(row)/2)[d/32*64+d%32:]
				h[0] = kernels.F16FromF32(x)
				h[32] = kernels.F16FromF32(x - kernels.F16ToF32(h[0]))
			}
			array[float32](f, p.scale, 4, r, 1)[0] = float32(math.Ldexp(1, exponent-15))
			if p.unit != 0 {
				array[float32](f, p.unit, 4, r, 1)[0] = 0
				if square > 0 {
					array[float32](f, p.unit, 4, r, 1)[0] = float32(math.Ldexp(1, exponent-15) / math.Sqrt(square))
				}
			}
		}
	}
}

// checkRows sees that rows lie as kernels of sm_90a want them.
func checkRows(fake *drivertest.Fake, l *driver.Launch, f format) {
	p := (*denseParams)(l.Args)
	if format(p.docFormat) != f || p.docs%16 != 0 || p.queries%16 != 0 || int(p.rowBytes) != rowBytes(f, int(p.dim)) {
		panic(fmt.Sprintf("rows of %s at %#x and %#x, %d bytes each", format(p.docFormat).kernelName(), p.docs, p.queries,
			p.rowBytes))
	}
}

// fakeFill is dense_fill.
func fakeFill(f *drivertest.Fake, l *driver.Launch) {
	p := (*denseFillParams)(l.Args)
	if n := int(l.Grid.X) * 256; n < 32*int(p.nItems+p.nUnits) || n < int(p.nGroups+p.nJoins) {
		panic("tables that no thread makes")
	}
	i32 := func(at driver.Ptr, i int) int { return int(array[int32](f, at, 4, i, 1)[0]) }
	item := func(e int) (it denseItem) {
		it.pos = uint32(e)
		doc, seg := e/int(p.segments), e%int(p.segments)
		if p.pairD != 0 {
			query := i32(p.pairQ, doc)
			if doc = i32(p.pairD, doc); doc < 0 || doc >= int(p.dItems) || query < 0 || query >= int(p.qItems) {
				return it
			}
		}
		begin, n := doc*int(p.dStride), int(p.dLongest)
		switch {
		case p.dOffsets != 0:
			begin = min(int(uint32(i32(p.dOffsets, doc))), int(p.dRows))
			n = min(n, min(int(uint32(i32(p.dOffsets, doc+1))), int(p.dRows))-begin)
		case p.dLengths != 0:
			n = min(n, i32(p.dLengths, doc))
		}
		from := seg * int(p.segment)
		begin += from
		if n = min(n-from, int(p.segment)); n <= 0 {
			return it
		}
		holes := uint32(0)
		if p.dMask != 0 {
			mask, last, count := array[uint8](f, p.dMask, 1, doc*int(p.dMaskStride)+from, n), 0, 0
			for t, m := range mask {
				if m != 0 {
					last = t + 1
					count++
				}
			}
			if last == 0 {
				return it
			}
			if count < last {
				holes = 1 << 31
				if p.rowMask != 0 {
					copy(array[uint8](f, p.rowMask, 1, begin, last), mask)
				}
			}
			n = last
		}
		it.begin, it.len = uint64(begin), uint32(n)|holes
		return it
	}
	bound := func(run uint32) uint32 {
		if run == p.runs {
			return p.nItems
		}
		first := i32(p.dOffsets, 0)
		want := first + (i32(p.dOffsets, int(p.nItems))-first)*int(run)/int(p.runs)
		return uint32(sort.Search(int(p.nItems), func(i int) bool { return i32(p.dOffsets, i) >= want }))
	}
	query := func(pair, query int) (row, n int) {
		if p.pairQ != 0 {
			if query = i32(p.pairQ, pair); query < 0 || query >= int(p.qItems) {
				if p.qOffsets == 0 {
					n = int(p.qLongest)
				}
				return 0, n
			}
		}
		row, n = query*int(p.qStride), int(p.qLongest)
		if p.qOffsets != 0 {
			row = min(int(uint32(i32(p.qOffsets, query))), int(p.qRows))
			n = min(n, min(int(uint32(i32(p.qOffsets, query+1))), int(p.qRows))-row)
		}
		return row, n
	}
	for e := range int(p.nItems) {
		array[denseItem](f, p.items, 16, e, 1)[0] = item(e)
	}
	for u := range int(p.nUnits) {
		var unit denseUnit
		if p.unitsIn != 0 {
			unit = array[denseUnit](f, p.unitsIn, 32, u, 1)[0]
			if p.runs > 0 && unit.begin < unit.end {
				unit.begin, unit.end = bound(unit.begin), bound(unit.end)
			}
		} else {
			blocks := (p.perQuery + p.unitGroups - 1) / p.unitGroups
			e, b := uint32(u)/blocks, uint32(u)%blocks
			unit = denseUnit{group: e/p.segments*p.perQuery + b*p.unitGroups, groups: min(p.unitGroups,
				p.perQuery-b*p.unitGroups), begin: e, end: e + 1}
		}
		if unit.begin < unit.end {
			unit.first = item(int(unit.begin))
		}
		array[denseUnit](f, p.units, 32, u, 1)[0] = unit
	}
	for i := range int(p.nGroups) {
		owner, part := i/int(p.perQuery), i%int(p.perQuery)
		row, n := query(owner, owner)
		g := denseGroup{out: uint64(part) * uint64(p.nItems), arg: uint64(part) * uint64(p.tokens), argPitch: p.argPitch}
		if p.groupsIn != 0 {
			g = array[denseGroup](f, p.groupsIn, 32, i, 1)[0]
		}
		from := part * int(p.tokens)
		g.row, g.count = 0, 0
		if count := min(n-from, int(p.tokens)); count > 0 {
			g.row, g.count = uint32(row+from), uint32(count)
		}
		array[denseGroup](f, p.groups, 32, i, 1)[0] = g
	}
	for j := range int(p.nJoins) {
		row, n := query(j, j/int(p.joinDocs))
		array[denseJoin](f, p.joins, 32, j, 1)[0] = denseJoin{
			first:    uint64(j) * uint64(p.segments),
			out:      uint64(j)/uint64(p.joinDocs)*uint64(p.joinPitch) + uint64(j)%uint64(p.joinDocs),
			segments: p.segments, row: uint32(row), count: uint32(max(n, 0)),
		}
	}
}
