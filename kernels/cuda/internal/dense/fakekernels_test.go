package dense

import (
	"maps"
	"math"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver/drivertest"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// fakeKernels do in Go what the kernels for any device do, on the arrays of
// dense.cuh.
func fakeKernels() map[string]drivertest.Kernel {
	all := map[string]drivertest.Kernel{
		"dense_pack": fakePack, "dense_prepare": fakePrepare, "dense_fill": fakeFill, "dense_weights": fakeWeights, "dense_any": fakeAny, "dense_sum": fakeSum,
		"dense_lists": fakeLists, "dense_rank": fakeRank, "dense_join": fakeJoin, "dense_project_any": fakeProject,
	}
	maps.Copy(all, fakeChamfers())
	for f := f32; f <= split; f++ {
		all["dense_grad_"+f.kernelName()] = fakeGrad(f)
	}
	all["dense_grad_any"] = fakeGrad(0)
	return all
}

// array is n values from the ith on; nil where there is no array.
func array[T any](f *drivertest.Fake, p driver.Ptr, size, i, n int) []T {
	if p == 0 {
		return nil
	}
	return drivertest.Slice[T](f, p+driver.Ptr(size*i), n)
}

func float(f *drivertest.Fake, p driver.Ptr, i int) float32 {
	if p == 0 {
		return 1
	}
	return array[float32](f, p, 4, i, 1)[0]
}

// fakeRow is a row without its scale.
func fakeRow(f *drivertest.Fake, p driver.Ptr, form, rowBytes uint32, row uint64, dim int) []float32 {
	return decode(f.Bytes(p+driver.Ptr(row)*driver.Ptr(rowBytes), int64(rowBytes)), form, dim)
}

func decode(b []byte, form uint32, dim int) []float32 {
	x := make([]float32, dim)
	for d := range x {
		switch format(form) {
		case f32:
			x[d] = structsFrom[float32](b, dim)[d]
		case f16:
			x[d] = kernels.F16ToF32(structsFrom[uint16](b, dim)[d])
		case bf16:
			x[d] = math.Float32frombits(uint32(structsFrom[uint16](b, dim)[d]) << 16)
		case i8:
			x[d] = float32(int8(b[d]))
		case e4m3:
			x[d] = maxsim.E4M3ToF32(b[d])
		case split:
			h := structsFrom[uint16](b, len(b)/2)[d/32*64+d%32:]
			x[d] = kernels.F16ToF32(h[0]) + kernels.F16ToF32(h[32])
		}
	}
	return x
}

func fakePack(f *drivertest.Fake, l *driver.Launch) {
	p := (*densePackParams)(l.Args)
	if int(l.Grid.X) != p.blocks() {
		panic("rows that no warp has")
	}
	packRows(f, p)
}

// fakePrepare is dense_prepare.
func fakePrepare(f *drivertest.Fake, l *driver.Launch) {
	p := (*densePrepareParams)(l.Args)
	if int(l.Grid.X) != p.side[0].blocks()+p.side[1].blocks() || int(p.firstBlocks) != p.side[0].blocks() {
		panic("rows that no warp has")
	}
	for i := range p.side {
		if p.side[i].n > 0 {
			packRows(f, &p.side[i])
		}
	}
	if p.weights.out != 0 {
		if p.weights.n != p.side[0].n {
			panic("weights that no warp has")
		}
		queryWeights(f, &p.weights)
	}
}

// layRow writes a row as the right operand of products.
func layRow(f *drivertest.Fake, p *densePackParams, r int, row []byte) {
	columns := int(p.columns)
	for i := range len(row) / 16 {
		at := (r/columns*len(row)/16+i)*columns + r%columns
		copy(f.Bytes(p.rows+driver.Ptr(16*at), 16), row[16*i:16*i+16])
	}
}

func packRows(f *drivertest.Fake, p *densePackParams) {
	n, dim := int(p.n), int(p.dim)
	for r := n; p.columns > 0 && r%int(p.columns) != 0; r++ {
		layRow(f, p, r, make([]byte, p.rowBytes))
	}
	m := maxsim.Matrix{Type: maxsim.Type(p.source), Dim: dim}
	switch {
	case p.source == sourceNumber(maxsim.Compressed):
		m = maxsim.Float32(fakeCompressed(f, p), dim)
	case m.Type == maxsim.F32:
		m.F32 = drivertest.Slice[float32](f, p.in, n*dim)
	case m.Type == maxsim.F16, m.Type == maxsim.BF16:
		m.U16 = drivertest.Slice[uint16](f, p.in, n*dim)
	case m.Type == maxsim.I8:
		m.I8 = drivertest.Slice[int8](f, p.in, n*dim)
	default:
		m.U8 = drivertest.Slice[uint8](f, p.in, n*dim)
	}
	m.Scales, m.Zeros = array[float32](f, p.scales, 4, 0, n), array[int8](f, p.zeros, 1, 0, n)
	x := make([]float32, dim)
	for r := range n {
		m.Widen(x, r, r+1)
		var square float64
		most := 0.0
		for _, v := range x {
			square += float64(v) * float64(v)
			most = max(most, math.Abs(float64(v)))
		}
		_, exponent := math.Frexp(most)
		exponent = max(exponent, -110)
		row, stored := make([]byte, max(int(p.rowBytes), 4*dim)), float64(m.Scale(r))
		if p.rows != 0 && p.columns == 0 {
			row = f.Bytes(p.rows+driver.Ptr(r*int(p.rowBytes)), int64(p.rowBytes))
			clear(row)
		}
		wide := structsFrom[uint16](row, len(row)/2)
		for d, v := range x {
			switch format(p.format) {
			case f32:
				structsFrom[float32](row, dim)[d] = v
			case f16:
				wide[d] = kernels.F16FromF32(v)
			case bf16:
				wide[d] = kernels.BF16FromF32(v)
			case i8:
				row[d] = byte(int8(v))
			case e4m3:
				row[d] = m.U8[r*dim+d]
			case split:
				s := float32(math.Ldexp(float64(v), 15-exponent))
				h := wide[d/32*64+d%32:]
				h[0] = kernels.F16FromF32(s)
				h[32] = kernels.F16FromF32(s - kernels.F16ToF32(h[0]))
			}
		}
		if p.columns > 0 {
			layRow(f, p, r, row[:p.rowBytes])
		}
		unit := 0.0
		if square > 0 {
			unit = 1 / math.Sqrt(square)
		}
		length := unit / math.Abs(stored)
		if stored == 0 {
			unit, length = 0, 0
		}
		if format(p.format) == split {
			stored, unit = stored*math.Ldexp(1, exponent-15), unit*math.Ldexp(1, exponent-15)
		}
		for _, out := range []struct {
			p driver.Ptr
			v float64
		}{{p.scale, stored}, {p.unit, math.Copysign(unit, stored)}, {p.inverse, length}} {
			if out.p != 0 {
				array[float32](f, out.p, 4, r, 1)[0] = float32(out.v)
			}
		}
	}
}

// fakeCompressed is the tokens that a launch decodes.
func fakeCompressed(f *drivertest.Fake, p *densePackParams) []float32 {
	c, n, dim := &p.codec, int(p.n), int(p.dim)
	ch := &kernels.Chunk{CodeBytes: int(c.codeBytes), Codes: f.Bytes(p.in, int64(n)*int64(c.codeBytes)), Factors: f.Bytes(p.factors, 2*int64(n))}
	kind := kernels.FloatType(c.centroidType)
	x := make([]float32, n*dim)
	for t := range n {
		row, residual := x[t*dim:(t+1)*dim], f.Bytes(p.residuals+driver.Ptr(t*int(c.residualBytes)), int64(c.residualBytes))
		code, size := int(ch.Code(t)), dim*kind.Size()
		centroid := kernels.Centroids{K: 1, Dim: dim, Type: kind, Data: f.Bytes(c.centroids+driver.Ptr(code*size), int64(size))}
		centroid.Rows(row, 0, 1)
		for j := range row {
			bit := j * int(c.nbits)
			bucket := int(residual[bit/8]) >> (bit % 8) & (1<<c.nbits - 1)
			row[j] = float32(ch.Factor(t)) * c.factor * (row[j] + float(f, c.weights, bucket)*float(f, c.centroidScale, code)*float(f, c.dimScale, j))
		}
	}
	return x
}

func fakeWeights(f *drivertest.Fake, l *driver.Launch) {
	queryWeights(f, (*denseWeightsParams)(l.Args))
}

func queryWeights(f *drivertest.Fake, p *denseWeightsParams) {
	for i := range int(p.n) {
		token := true
		if p.lengths != 0 || p.mask != 0 {
			item, place := i/int(p.stride), i%int(p.stride)
			token = item < int(p.items) && place < int(p.longest)
			if token && p.lengths != 0 {
				token = place < int(array[int32](f, p.lengths, 4, item, 1)[0])
			} else if token {
				token = array[uint8](f, p.mask, 1, item*int(p.maskStride)+place, 1)[0] != 0
			}
		}
		v := math.Float32frombits(1 << 31) // −0
		if token {
			v = float(f, p.weights, i)*float(f, p.scale, i) + 0
		}
		array[float32](f, p.out, 4, i, 1)[0] = v
	}
}

func fakeAny(f *drivertest.Fake, l *driver.Launch) { fakeForward(f, l, 1, 1, 32) }

// fakeForward is a forward kernel whose blocks do so many units, of so many groups of up to so
// many tokens.
func fakeForward(f *drivertest.Fake, l *driver.Launch, teams, groups, tokens int) {
	p := (*denseParams)(l.Args)
	for u := range int(l.Grid.X) * teams {
		unit := array[denseUnit](f, p.units, 32, u, 1)[0]
		if unit.begin == unit.end {
			continue
		}
		if unit.first != array[denseItem](f, p.items, 16, int(unit.begin), 1)[0] || unit.groups == 0 || int(unit.groups) > groups {
			panic("a unit of a forward kernel")
		}
		if first := array[denseUnit](f, p.units, 32, u/teams*teams, 1)[0]; first.group != unit.group {
			panic("units of a block with different groups")
		}
		for i := range int(unit.groups) {
			fakeGroup(f, p, unit, int(unit.group)+i, tokens)
		}
	}
}

func fakeGroup(f *drivertest.Fake, p *denseParams, unit denseUnit, group, tokens int) {
	dim := int(p.dim)
	{
		g := array[denseGroup](f, p.groups, 32, group, 1)[0]
		if int(g.count) > tokens {
			panic("a group of too many tokens")
		}
		queries := fakeRows(f, p.queries, p.queryFormat, p.queryBytes, uint64(g.row), int(g.count), dim)
		weights := array[float32](f, p.weights, 4, int(g.row), int(g.count))
		for i := unit.begin; i < unit.end; i++ {
			it := array[denseItem](f, p.items, 16, int(i), 1)[0]
			n, holes := int(it.len&^(1<<31)), it.len>>31 == 1
			docs := fakeRows(f, p.docs, p.docFormat, p.rowBytes, it.begin, n, dim)
			scales := array[float32](f, p.docScale, 4, int(it.begin), n)
			sum := float32(0)
			for s, q := range queries {
				best, first := math.Inf(-1), -1
				for t, x := range docs {
					if holes && array[uint8](f, p.mask, 1, int(it.begin)+t, 1)[0] == 0 {
						continue
					}
					v := dot(q, x)
					if scales != nil {
						v *= float64(scales[t])
					}
					if v > best {
						best, first = v, t
					}
				}
				if weights[s] != 0 && first >= 0 {
					sum += float32(best * float64(weights[s]))
				}
				if math.Float32bits(weights[s]) == 1<<31 {
					first = -1
				}
				if p.arg != 0 {
					array[int32](f, p.arg, 4, int(g.arg)+int(it.pos)*int(g.argPitch)+s, 1)[0] = int32(first)
				}
				if p.top != 0 {
					array[float32](f, p.top, 4, int(g.arg)+int(it.pos)*int(g.argPitch)+s, 1)[0] = float32(best)
				}
			}
			array[float32](f, p.out, 4, int(g.out)+int(it.pos), 1)[0] = sum
		}
	}
}

// fakeRows is n rows without their scales.
func fakeRows(f *drivertest.Fake, p driver.Ptr, form, rowBytes uint32, row uint64, n, dim int) [][]float32 {
	all := make([][]float32, n)
	for i := range all {
		all[i] = fakeRow(f, p, form, rowBytes, row+uint64(i), dim)
	}
	return all
}

func dot(x, y []float32) (sum float64) {
	for i, v := range x {
		sum += float64(v) * float64(y[i])
	}
	return sum
}

func fakeSum(f *drivertest.Fake, l *driver.Launch) {
	p := (*denseSumParams)(l.Args)
	for e := range int(l.Grid.X) {
		part, out := array[uint64](f, p.partAt, 8, e, 1)[0], array[uint64](f, p.outAt, 8, e, 1)[0]
		groups, n := array[uint32](f, p.groups, 4, e, 1)[0], array[uint32](f, p.count, 4, e, 1)[0]
		for i := range int(min(n, 256*l.Grid.Y)) {
			sum := float32(0)
			for k := range int(groups) {
				sum += array[float32](f, p.part, 4, int(part)+k*int(n)+i, 1)[0]
			}
			array[float32](f, p.out, 4, int(out)+i, 1)[0] = sum
		}
	}
}
