package encoder

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver/drivertest"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/resident/residenttest"
	"github.com/plaid-ir/plaid/kernels/internal/tier"
)

// fakeKernels do in Go what the kernels do, on the arrays of encoder.cuh, and panic where
// a launch is not one that the header allows.
func fakeKernels() map[string]drivertest.Kernel {
	all := map[string]drivertest.Kernel{
		"encoder_embed": fakeEmbed, "encoder_norm": fakeNorm, "encoder_unit": fakeUnit,
		"gather_rows": residenttest.Gather, "encoder_head_m16": fakeHead(16), "encoder_head_m32": fakeHead(32), "encoder_head_m128": fakeHead(128),
	}
	for _, size := range headSizes {
		all[fmt.Sprintf("encoder_attention_d%d", size)] = fakeAttention(size)
	}
	for epilogue, columns := range wideColumns {
		for _, rows := range []int{16, 32, 128} {
			all[fmt.Sprintf("encoder_tile_%s_m%d", epilogue, rows)] = fakeProduct(epilogue, func(l *driver.Launch, p *encoderGemmParams) { tileLaunch(l, rows, p.rows, p.n, p.k, p.stages) })
		}
		for _, n := range columns {
			all[fmt.Sprintf("encoder_gemm_%s_n%d", epilogue, n)] = fakeProduct(epilogue, func(l *driver.Launch, p *encoderGemmParams) {
				demand(epilogue != "rotary" || p.half == rotaryHead/2, "rotary heads of %d", 2*p.half)
				demand(p.n%uint32(n) == 0 && wide{int(l.Block.X), int(l.Shared), wideTiles[n].blocks} == wideTiles[n], "wide tiles of %d for %d columns", n, p.n)
				demand(l.Grid.X >= 1 && l.Grid.X <= p.n/uint32(n)*((p.rows+127)/128), "grid")
			})
		}
	}
	return all
}

func demand(ok bool, format string, args ...any) {
	if !ok {
		panic(fmt.Sprintf(format, args...))
	}
}

func up(n, unit uint32) uint32 { return (n + unit - 1) / unit * unit }

// tileLaunch holds a launch of small tiles against the header.
func tileLaunch(l *driver.Launch, tileRows int, rows, n, k, stages uint32) {
	demand(n%64 == 0 && k%64 == 0 && k > 0, "a product of %d × %d", n, k)
	demand(l.Block.X == otherThreads && l.Grid.Y == (rows+uint32(tileRows)-1)/uint32(tileRows), "grid")
	if tileRows < 128 {
		demand(l.Grid.X == n/uint32(tileRows) && stages >= 1 && stages <= min(k/64, uint32(mostStages[tileRows])) && l.Shared == stages*256*uint32(tileRows), "stages %d", stages)
	} else {
		demand(l.Grid.X == n/64 && stages == 3 && l.Shared == 73728, "stages %d", stages)
	}
}

// fakeMatrix is a tiled matrix in device memory.
type fakeMatrix struct {
	b       []byte
	columns int
}

// tiledOf has all rows up to a whole number of tiles.
func tiledOf(f *drivertest.Fake, p driver.Ptr, rows, columns uint32) fakeMatrix {
	demand(p != 0 && p%256 == 0, "a matrix at %#x", uint64(p))
	return fakeMatrix{f.Bytes(p, int64(up(rows, tile))*int64(columns)*2), int(columns)}
}

func (m fakeMatrix) at(r, c int) float32 {
	i := offset(r, c, m.columns)
	return kernels.F16ToF32(uint16(m.b[i]) | uint16(m.b[i+1])<<8)
}

func (m fakeMatrix) set(r, c int, v float32) {
	put16(m.b, offset(r, c, m.columns), kernels.F16FromF32(v))
}

func (m fakeMatrix) row(r int) []float32 {
	x := make([]float32, m.columns)
	for c := range x {
		x[c] = m.at(r, c)
	}
	return x
}

// fakeGELU is with the exact Φ.
func fakeGELU(x float32) float32 { return float32(float64(x) / 2 * math.Erfc(-float64(x)/math.Sqrt2)) }

// products are rows · weightsᵀ + bias: each one chain of fused sums in order of k.
func products(f *drivertest.Fake, a, w, bias driver.Ptr, rows, n, k uint32) [][]float32 {
	x, y := tiledOf(f, a, rows, k), tiledOf(f, w, n, k)
	b := drivertest.Slice[float32](f, bias, int(n))
	dense := func(m fakeMatrix, lo, hi int) []float32 {
		all := make([]float32, 0, (hi-lo)*int(k)+256) // loops may read on behind it
		for r := lo; r < hi; r++ {
			all = append(all, m.row(r)...)
		}
		return all
	}
	var weights tier.QueryVectors
	weights.Reset(dense(y, 0, int(n)), int(k))
	const block = 32
	out := make([][]float32, rows)
	_ = parallel.Do(context.Background(), parallel.Blocks(len(out), block), parallel.Threads(0, len(out)/block+1), func(i int) error {
		lo, hi := parallel.Block(i, len(out), block)
		c, ends := make([]float32, (hi-lo)*int(n)), make([]float32, 2*n)
		tier.All[len(tier.All)-1].Tokens.CentroidScores(c, dense(x, lo, hi), hi-lo, &weights, ends[:n], ends[n:], nil)
		for r := lo; r < hi; r++ {
			out[r] = c[(r-lo)*int(n):][:n]
			for j, v := range b {
				out[r][j] += v
			}
		}
		return nil
	})
	return out
}

func fakeProduct(epilogue string, check func(*driver.Launch, *encoderGemmParams)) drivertest.Kernel {
	return func(f *drivertest.Fake, l *driver.Launch) {
		p := (*encoderGemmParams)(l.Args)
		check(l, p)
		out := products(f, p.a, p.w, p.bias, p.rows, p.n, p.k)
		columns := p.n
		if epilogue == "geglu" {
			columns /= 2
		}
		to := tiledOf(f, p.out, p.rows, columns)
		positions := drivertest.Slice[uint32](f, p.positions, int(p.rows))
		for r, row := range out {
			switch epilogue {
			case "gelu":
				for c, v := range row {
					row[c] = fakeGELU(v)
				}
			case "geglu":
				for c := range int(columns) {
					i := c/8*16 + c%8
					row[c] = fakeGELU(row[i]) * row[i+8]
				}
			case "rotary":
				demand(p.half%8 == 0 && p.turned%64 == 0, "halves of %d", p.half)
				angles := drivertest.Slice[float32](f, p.angles+driver.Ptr(8*positions[r]*p.half), 2*int(p.half))
				fakeTurn(row[:p.turned], angles, int(p.half))
			}
			for c := range int(columns) {
				to.set(r, c, row[c])
			}
		}
	}
}

// fakeTurn turns interleaved pairs, and leaves them where they are: products of queries
// and keys do not mind the order.
func fakeTurn(x, angles []float32, half int) {
	demand(len(x)/2%(2*half) == 0, "keys begin within a head")
	for c := range x {
		if c%16 >= 8 {
			continue
		}
		j := c/16*8 + c%8
		cos, sin := angles[2*(j%half)], angles[2*(j%half)+1]
		a, b := x[c], x[c+8]
		x[c], x[c+8] = a*cos-b*sin, b*cos+a*sin
	}
}

func fakeHead(tileRows int) drivertest.Kernel {
	return func(f *drivertest.Fake, l *driver.Launch) {
		p := (*encoderHeadParams)(l.Args)
		tileLaunch(l, tileRows, p.rows, p.n, p.k, p.stages)
		out := products(f, p.a, p.w, p.bias, p.rows, p.n, p.k)
		add, to := drivertest.Slice[float32](f, p.add, int(p.rows*p.n)), drivertest.Slice[float32](f, p.out, int(p.rows*p.n))
		for r, row := range out {
			for c, v := range row {
				switch x := float64(v); p.activation {
				case 0:
				case 1:
					v = max(v, 0)
				case 2:
					v = fakeGELU(v)
				case 3:
					v = float32(x / (1 + math.Exp(-x)))
				case 4:
					v = float32(math.Tanh(x))
				default:
					panic("an activation")
				}
				if add != nil {
					v += add[r*int(p.n)+c]
				}
				if p.addHalf != 0 {
					v += tiledOf(f, p.addHalf, p.rows, p.n).at(r, c)
				}
				if to != nil {
					to[r*int(p.n)+c] = v
				}
				if p.outHalf != 0 {
					tiledOf(f, p.outHalf, p.rows, p.n).set(r, c, v)
				}
			}
		}
	}
}

// normed is a layer norm of the first hidden values; what is beyond is zero. A lane has
// registers for so many columns.
func normed(f *drivertest.Fake, x []float32, hidden uint32, gamma, beta driver.Ptr, epsilon float32) []float32 {
	demand(len(x) <= mostColumns && len(x) == int(up(hidden, 64)), "a row of %d values", len(x))
	var mean, square float64
	for _, v := range x[:hidden] {
		mean += float64(v)
	}
	mean /= float64(hidden)
	for _, v := range x[:hidden] {
		square += (float64(v) - mean) * (float64(v) - mean)
	}
	inverse := 1 / math.Sqrt(square/float64(hidden)+float64(epsilon))
	g, b := drivertest.Slice[float32](f, gamma, len(x)), drivertest.Slice[float32](f, beta, len(x))
	y := make([]float32, len(x))
	for c := range y {
		if c < int(hidden) {
			y[c] = float32((float64(x[c]) - mean) * inverse)
		}
		y[c] *= g[c]
		if b != nil {
			y[c] += b[c]
		}
	}
	return y
}

func rowLaunch(l *driver.Launch, rows uint32) {
	demand(l.Grid.X == (rows+7)/8 && l.Block.X == 256 && l.Shared == 0, "grid of rows")
}

func fakeEmbed(f *drivertest.Fake, l *driver.Launch) {
	p := (*encoderEmbedParams)(l.Args)
	rowLaunch(l, p.rows)
	demand(!l.Early, "embed follows a copy")
	ids, positions := drivertest.Slice[uint32](f, p.ids, int(p.rows)), drivertest.Slice[uint32](f, p.positions, int(p.rows))
	x, stream := tiledOf(f, p.x, p.rows, p.width), drivertest.Slice[float32](f, p.stream, int(p.rows*p.width))
	for r := range int(p.rows) {
		row := make([]float32, p.width)
		words := drivertest.Slice[uint16](f, p.words+driver.Ptr(2*ids[r]*p.width), int(p.width))
		for c := range row {
			row[c] = kernels.F16ToF32(words[c])
		}
		if p.places != 0 {
			for c, h := range drivertest.Slice[uint16](f, p.places+driver.Ptr(2*positions[r]*p.width), int(p.width)) {
				row[c] += kernels.F16ToF32(h)
			}
		}
		row = normed(f, row, p.hidden, p.gamma, p.beta, p.epsilon)
		for c, v := range row {
			x.set(r, c, v)
		}
		if stream != nil {
			copy(stream[r*int(p.width):], row)
		}
	}
}

func fakeNorm(f *drivertest.Fake, l *driver.Launch) {
	p := (*encoderNormParams)(l.Args)
	demand(l.Grid.X >= 1 && l.Grid.X <= (p.rows+7)/8 && l.Block.X == 256 && l.Shared == 0, "grid of norms") // blocks take rows in turn
	x, stream := tiledOf(f, p.x, p.rows, p.width), drivertest.Slice[float32](f, p.stream, int(p.rows*p.width))
	for r := range int(p.rows) {
		row := x.row(r)
		if stream != nil {
			copy(row, stream[r*int(p.width):])
		}
		if p.delta != 0 {
			for c, v := range tiledOf(f, p.delta, p.rows, p.width).row(r) {
				row[c] += v
			}
		}
		if stream != nil {
			copy(stream[r*int(p.width):], row)
		}
		for c, v := range normed(f, row, p.hidden, p.gamma, p.beta, p.epsilon) {
			x.set(r, c, v)
		}
	}
}

func fakeAttention(size int) drivertest.Kernel {
	return func(f *drivertest.Fake, l *driver.Launch) {
		p := (*encoderAttentionParams)(l.Args)
		demand(l.Block.X == 128 && l.Shared == 0 && int(l.Grid.Y)*size <= int(p.width), "grid of spans")
		spans := drivertest.Slice[encoderSpan](f, p.spans, int(l.Grid.X))
		for _, s := range spans {
			strips := (s.length + 15) / 16
			parts := (strips + 3) / 4
			share := (strips + parts - 1) / parts * 16
			demand(s.part < parts && s.attended >= 1 && s.attended <= s.length, "span %+v", s)
			qkv := tiledOf(f, p.qkv, s.first+s.length, 3*p.width)
			out := tiledOf(f, p.out, s.first+s.length, p.width)
			rows := make([][]float32, s.length)
			for i := range rows {
				rows[i] = qkv.row(int(s.first) + i)
			}
			for h := range int(l.Grid.Y) {
				for q := s.part * share; q < min((s.part+1)*share, s.length); q++ {
					fakeAttend(rows, out, p, s, q, h*size, size)
				}
			}
		}
	}
}

// fakeAttend computes one query of a head.
func fakeAttend(rows [][]float32, out fakeMatrix, p *encoderAttentionParams, s encoderSpan, q uint32, column, size int) {
	lo, hi := uint32(0), s.attended
	if p.window > 0 {
		lo, hi = max(q, p.window)-p.window, min(hi, q+p.window+1)
	}
	if lo >= hi { // a query without keys
		for c := range size {
			out.set(int(s.first+q), column+c, 0)
		}
		return
	}
	scores, most := make([]float64, hi-lo), math.Inf(-1)
	for k := range scores {
		key := rows[int(lo)+k][int(p.width)+column:]
		for c, v := range rows[q][column : column+size] {
			scores[k] += float64(v) * float64(key[c])
		}
		scores[k] *= float64(p.scale)
		most = max(most, scores[k])
	}
	sum := 0.0
	for k := range scores {
		scores[k] = math.Exp(scores[k] - most)
		sum += scores[k]
		scores[k] = float64(kernels.F16ToF32(kernels.F16FromF32(float32(scores[k])))) // as the product with the values takes it
	}
	for c := range size {
		v := 0.0
		for k, w := range scores {
			v += w * float64(rows[int(lo)+k][2*int(p.width)+column+c])
		}
		out.set(int(s.first+q), column+c, float32(v/sum))
	}
}

func fakeUnit(f *drivertest.Fake, l *driver.Launch) {
	p := (*encoderUnitParams)(l.Args)
	rowLaunch(l, p.count)
	demand(p.stride == up(p.dim, 64) && (p.in == 0) != (p.inHalf == 0) && (p.out == 0) != (p.outHalf == 0), "unit")
	out, halves := drivertest.Slice[float32](f, p.out, int(p.count*p.dim)), drivertest.Slice[uint16](f, p.outHalf, int(p.count*p.dim))
	kept, bad := drivertest.Slice[uint32](f, p.kept, int(p.count)), drivertest.Slice[uint32](f, p.bad, 1)
	for i := range int(p.count) {
		r := i
		if kept != nil {
			r = int(kept[i])
		}
		var row []float32
		if p.in != 0 {
			row = drivertest.Slice[float32](f, p.in+driver.Ptr(4*r*int(p.stride)), int(p.dim))
		} else {
			row = tiledOf(f, p.inHalf, uint32(r+1), p.stride).row(r)[:p.dim]
		}
		square := float32(0)
		for _, v := range row {
			square += v * v
		}
		if square-square != 0 {
			bad[0] = min(bad[0], uint32(r))
		}
		length := max(float32(math.Sqrt(float64(square))), 1e-12)
		for c, v := range row {
			if at := i*int(p.dim) + c; out != nil {
				out[at] = v / length
			} else {
				halves[at] = kernels.F16FromF32(v / length)
			}
		}
	}
}

// launches counts the kernels of a driver by name, without that of the module.
func launches(kernels map[string]drivertest.Kernel, count map[string]int) map[string]drivertest.Kernel {
	counted := map[string]drivertest.Kernel{}
	for name, k := range kernels {
		counted[name] = func(f *drivertest.Fake, l *driver.Launch) {
			count[strings.TrimPrefix(name, "encoder_")]++
			k(f, l)
		}
	}
	return counted
}
