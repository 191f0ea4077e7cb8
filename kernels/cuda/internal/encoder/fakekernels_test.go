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
		"encoder_embed": fakeEmbed(false), "encoder_embed_wide": fakeEmbed(true), "encoder_unit": fakeUnit,
		"encoder_norm": fakeNorm(false, false), "encoder_norm_post": fakeNorm(true, false),
		"encoder_norm_wide": fakeNorm(true, true), "encoder_turn": fakeTurn, "encoder_conv": fakeConv,
		"encoder_head_m16": fakeHead(16), "encoder_head_m32": fakeHead(32), "encoder_head_m128": fakeHead(128),
		"gather_rows": residenttest.Gather,
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
				demand(p.n%uint32(n) == 0 && wideTile{int(l.Block.X), int(l.Shared), wideTiles[n].blocks} == wideTiles[n], "wide tiles of %d for %d columns", n, p.n)
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
		demand(l.Grid.X == n/uint32(tileRows) && stages >= 1 && stages <= min(k/64, uint32(maxStages[tileRows])) && l.Shared == stages*256*uint32(tileRows), "stages %d", stages)
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
	i := tiledOffset(r, c, m.columns)
	return kernels.F16ToF32(uint16(m.b[i]) | uint16(m.b[i+1])<<8)
}

func (m fakeMatrix) set(r, c int, v float32) {
	putHalf(m.b, tiledOffset(r, c, m.columns), kernels.F16FromF32(v))
}

func (m fakeMatrix) row(r int) []float32 {
	x := make([]float32, m.columns)
	for c := range x {
		x[c] = m.at(r, c)
	}
	return x
}

// fakeActivation computes one of an epilogue as its header says.
func fakeActivation(epilogue string, x float32, curve *[7]float32) float32 {
	if epilogue == "silu" || epilogue == "swiglu" {
		sigmoid := float32(1 / (1 + math.Exp2(float64(x*curve[2]))))
		return (curve[0]*x+curve[1])*sigmoid + curve[3]
	}
	z, y := min(x*x, 16), float32(0)
	for _, c := range curve {
		y = y*z + c
	}
	return x * min(max(x*y+.5, 0), 1)
}

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
		tier.Available[len(tier.Available)-1].Tokens.CentroidScores(c, dense(x, lo, hi), hi-lo, &weights, ends[:n], ends[n:], nil)
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
		if epilogue == "geglu" || epilogue == "swiglu" {
			columns /= 2
		}
		to := tiledOf(f, p.out, p.rows, columns)
		positions := drivertest.Slice[uint32](f, p.positions, int(p.rows))
		for r, row := range out {
			switch epilogue {
			case "gelu", "silu":
				for c, v := range row {
					row[c] = fakeActivation(epilogue, v, &p.curve)
				}
			case "geglu", "swiglu":
				for c := range int(columns) {
					i := c/8*16 + c%8
					row[c] = fakeActivation(epilogue, row[i], &p.curve) * row[i+8]
				}
			case "rotary":
				demand(p.turned%64 == 0 && p.turned <= p.n, "%d columns are turned", p.turned)
				angles := drivertest.Slice[float32](f, p.angles+driver.Ptr(4*64*positions[r]), 64)
				for c := 0; c < int(p.turned); c += 64 {
					fakeRotate(row[c:c+64], angles)
				}
			}
			for c := range int(columns) {
				to.set(r, c, row[c])
			}
		}
	}
}

// fakeRotate turns the interleaved pairs of a head, and leaves them where they are: products of
// queries and keys do not mind the order.
func fakeRotate(x, angles []float32) {
	for c := range x {
		if c%16 >= 8 {
			continue
		}
		j := c/16*8 + c%8
		cos, sin := angles[2*j], angles[2*j+1]
		a, b := x[c], x[c+8]
		x[c], x[c+8] = a*cos-b*sin, b*cos+a*sin
	}
}

func fakeTurn(f *drivertest.Fake, l *driver.Launch) {
	p := (*encoderTurnParams)(l.Args)
	lanes := uint32(powerOfTwo(int(p.size / 16)))
	demand(l.Block.X == 256 && l.Shared == 0 && l.Grid.X == (p.rows*(p.heads+p.keyHeads)*lanes+255)/256,
		"grid of heads")
	demand(p.size%16 == 0 && p.size <= p.stride && (p.angles != 0 || p.query != 0 || p.key != 0), "heads of %d", p.size)
	demand(p.angles == 0 || p.size%32 == 0, "heads of %d are turned", p.size)
	qkv, positions := tiledOf(f, p.qkv, p.rows, p.columns), drivertest.Slice[uint32](f, p.positions, int(p.rows))
	for r := range int(p.rows) {
		row := qkv.row(r)
		for h := range p.heads + p.keyHeads {
			x := row[h*p.stride:][:p.size]
			gamma, beta := p.query, p.queryBeta
			if h >= p.heads {
				gamma, beta = p.key, p.keyBeta
			}
			if gamma != 0 {
				copy(x, fakeNormed(f, x, p.size, gamma, beta, p.epsilon, p.rms))
			}
			if p.angles != 0 {
				fakeRotate(x, drivertest.Slice[float32](f, p.angles+driver.Ptr(4*p.size*positions[r]), int(p.size)))
			}
			for c, v := range x {
				qkv.set(r, int(h*p.stride)+c, v)
			}
		}
	}
}

func fakeConv(f *drivertest.Fake, l *driver.Launch) {
	p := (*encoderConvParams)(l.Args)
	demand(l.Block.X == 256 && l.Shared == 0 && p.taps >= 1 && p.before < p.taps && p.width%64 == 0,
		"a convolution of %d", p.taps)
	w := int(p.width)
	weights, bias := drivertest.Slice[float32](f, p.weights, int(p.taps)*w), drivertest.Slice[float32](f, p.bias, w)
	nothing := make([]float32, 3*w)
	copy(nothing, drivertest.Slice[float32](f, p.nothing, 3*w))
	demand(l.Grid.Y == (p.width+255)/256, "grid of columns")
	for _, s := range drivertest.Slice[encoderSpan](f, p.spans, int(l.Grid.X)) {
		first, last := partOf(s)
		in, out := tiledOf(f, p.in, s.first+s.length, 3*p.width), tiledOf(f, p.out, s.first+s.length, p.width)
		rows := make([][]float32, s.length)
		for i := range rows {
			if rows[i] = nothing; uint32(i) < s.attended || p.all == 1 {
				rows[i] = in.row(int(s.first) + i)
			}
		}
		for i := first; i < last; i++ {
			for c := range w {
				sum := float32(0)
				for j := range int(p.taps) {
					if from := int(i) + j - int(p.before); from >= 0 && from < len(rows) {
						sum += weights[j*w+c] * (rows[from][c] * rows[from][2*w+c])
					}
				}
				if bias != nil {
					sum += bias[c]
				}
				out.set(int(s.first+i), c, sum*rows[i][w+c])
			}
		}
	}
}

// partOf is the rows of a span, of its text.
func partOf(s encoderSpan) (first, last uint32) {
	strips := (s.length + 15) / 16
	parts := (strips + 3) / 4
	share := (strips + parts - 1) / parts * 16
	demand(s.part < parts && s.attended >= 1 && s.attended <= s.length, "span %+v", s)
	return s.part * share, min((s.part+1)*share, s.length)
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
					v = float32(x / 2 * math.Erfc(-x/math.Sqrt2))
				case 3:
					v = float32(x / (1 + math.Exp(-x)))
				case 4:
					v = float32(math.Tanh(x))
				case 5:
					v = float32(x / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+.044715*x*x*x))))
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

func fakeAttention(size int) drivertest.Kernel {
	return func(f *drivertest.Fake, l *driver.Launch) {
		p := (*encoderAttentionParams)(l.Args)
		shared := uint32(0)
		if size == 256 {
			shared = 101376
		}
		demand(l.Block.X == 128 && l.Shared == shared && up(l.Grid.Y*uint32(size), 64) == p.width, "grid of spans")
		demand(p.keys == l.Grid.Y*uint32(size) && p.values%64 == 0 && l.Grid.Y%p.share == 0, "heads")
		demand(p.keys+2*p.values <= p.columns && p.columns%64 == 0, "%d columns", p.columns)
		for _, s := range drivertest.Slice[encoderSpan](f, p.spans, int(l.Grid.X)) {
			first, last := partOf(s)
			qkv, out := tiledOf(f, p.qkv, s.first+s.length, p.columns), tiledOf(f, p.out, s.first+s.length, p.width)
			rows := make([][]float32, s.length)
			for i := range rows {
				rows[i] = qkv.row(int(s.first) + i)
			}
			for h := range int(l.Grid.Y) {
				var distances []float32
				if stride := 2*int(p.zero) + 1; p.relative != 0 {
					distances = drivertest.Slice[float32](f, p.relative+driver.Ptr(4*h*stride), stride)
				}
				for q := first; q < last; q++ {
					fakeAttend(rows, out, p, s, q, h, size, distances)
				}
			}
		}
	}
}

// fakeAttend computes one query of a head.
func fakeAttend(rows [][]float32, out fakeMatrix, p *encoderAttentionParams, s encoderSpan, q uint32, head, size int,
	distances []float32) {
	lo, hi := max(q, p.before)-p.before, min(s.attended, q+p.after+1)
	column := head * size
	keys := int(p.keys) + head/int(p.share)*size
	if lo >= hi { // a query without keys
		for c := range size {
			out.set(int(s.first+q), column+c, 0)
		}
		return
	}
	scores, most := make([]float64, hi-lo), math.Inf(-1)
	for k := range scores {
		key := rows[int(lo)+k][keys:]
		for c, v := range rows[q][column : column+size] {
			scores[k] += float64(v) * float64(key[c])
		}
		if distances != nil {
			scores[k] += float64(distances[int(p.zero)+int(lo)+k-int(q)])
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
			v += w * float64(rows[int(lo)+k][keys+int(p.values)+c])
		}
		out.set(int(s.first+q), column+c, float32(v/sum))
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
