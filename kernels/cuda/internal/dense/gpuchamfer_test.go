package dense

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/maxsimtest"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// hardPoints are random ones, of a kind that is hard in its own way.
func hardPoints(rng *rand.Rand, kind string, n, dim int) []float32 {
	x := maxsimtest.Normal(rng, n*dim)
	for i := range x {
		switch r := i / dim; kind {
		case "far": // from 0
			x[i] += 1000
		case "twice": // each is there four times
			x[i] = x[(r%(n/4+1))*dim+i%dim]
		case "near": // few clusters
			x[i] = x[(r%7)*dim+i%dim]*float32(min(r/7, 1)) + x[i]/1024
		}
	}
	return x
}

// The nearest row is one of the least distance, and distances are exact, whatever the
// cancellation in products and the number of rows that are as near.
func TestGPUChamferIsExact(t *testing.T) {
	b := New(runtimetest.OpenGPU(t)).(*backend)
	for _, dim := range []int{2, 3, 4, 7, 9, 40, 128, 200, 600} {
		for _, kind := range []string{"plain", "far", "twice", "near"} {
			for _, metric := range []maxsim.Metric{maxsim.SquaredL2, maxsim.L1} {
				name := fmt.Sprintf("d=%d/%s/%d", dim, kind, metric)
				rng := maxsimtest.Rand(uint64(dim))
				nx, ny := 1500, 700
				x := maxsim.Single(maxsim.Float32(hardPoints(rng, kind, nx, dim), dim))
				y := maxsim.Single(maxsim.Float32(hardPoints(rng, kind, ny, dim), dim))
				hx, err := b.Prepare(ctx, x)
				require.NoError(t, err)
				c := &maxsim.ChamferCall{X: hx, Y: y, Metric: metric, Distances: make([]float32, 1),
					NearestX: make([]int32, nx), NearestY: make([]int32, ny)}
				require.NoError(t, b.Chamfer(ctx, c), name)
				again := *c
				again.Distances = make([]float32, 1)
				again.NearestX, again.NearestY = make([]int32, nx), make([]int32, ny)
				require.NoError(t, b.Chamfer(ctx, &again), name)
				require.Equal(t, c.NearestX, again.NearestX, name)
				require.Equal(t, c.NearestY, again.NearestY, name)
				require.Equal(t, c.Distances, again.Distances, name)
				sum := 0.0
				for _, side := range []struct {
					of, to *maxsim.Batch
					near   []int32
				}{{x, y, c.NearestX}, {y, x, c.NearestY}} {
					for r := 0; r < len(side.near); r += 1 + len(side.near)/60 {
						got := distance(metric, row(side.of, r), row(side.to, int(side.near[r])))
						best := math.Inf(1)
						for k := range side.to.Tokens.Rows() {
							best = min(best, distance(metric, row(side.of, r), row(side.to, k)))
						}
						if !(got <= best*(1+1e-5)+1e-12) {
							t.Fatalf("%s: row %d is %g from row %d, and %g from another", name, r, got, side.near[r], best)
						}
					}
					for r, k := range side.near {
						sum += distance(metric, row(side.of, r), row(side.to, int(k)))
					}
				}
				require.InEpsilon(t, sum+1e-6, float64(c.Distances[0])+1e-6, 2e-5, name)
				require.NoError(t, hx.Close())
			}
		}
	}
}

func row(b *maxsim.Batch, r int) []float32 {
	dim := b.Tokens.Dim
	return b.Tokens.F32[r*dim : (r+1)*dim]
}

func distance(m maxsim.Metric, x, y []float32) (sum float64) {
	for i := range x {
		v := float64(x[i]) - float64(y[i])
		if m == maxsim.L1 {
			sum += math.Abs(v)
		} else {
			sum += v * v
		}
	}
	return sum
}

// A row that is nearest to many gets from each of them, in the same order each time.
func TestGPUChamferLongChains(t *testing.T) {
	b := New(runtimetest.OpenGPU(t))
	for _, dim := range []int{3, 70} {
		rng := maxsimtest.Rand(7)
		x := maxsim.Single(maxsim.Float32(hardPoints(rng, "plain", 3000, dim), dim))
		y := maxsim.Single(maxsim.Float32(hardPoints(rng, "plain", 20, dim), dim))
		c := &maxsim.ChamferCall{X: x, Y: y, Mean: true, Distances: make([]float32, 1),
			NearestX: make([]int32, 3000), NearestY: make([]int32, 20)}
		require.NoError(t, maxsim.Chamfer(ctx, b, c))
		var last *maxsim.ChamferGradCall
		for range 3 {
			g := &maxsim.ChamferGradCall{X: x, Y: y, Mean: true, Upstream: []float32{100},
				NearestX: c.NearestX, NearestY: c.NearestY,
				DX: maxsimtest.NewGradient(x, maxsim.F32), DY: maxsimtest.NewGradient(y, maxsim.F32)}
			require.NoError(t, maxsim.ChamferGradients(ctx, b, g))
			if last != nil {
				require.Equal(t, last.DX.F32, g.DX.F32)
				require.Equal(t, last.DY.F32, g.DY.F32)
			}
			last = g
		}
		dx, dy := last.Oracle()
		for i, v := range dx {
			require.InDelta(t, v, last.DX.F32[i], 1e-4)
		}
		for i, v := range dy {
			require.InDelta(t, v, last.DY.F32[i], 1e-3)
		}
	}
}

// pointsInPlace is an operand as the caller has it in the device's memory: padded, with a mask.
type pointsInPlace struct {
	batch       *maxsim.Batch
	mem         driver.Mem
	mask        int64
	items, rows int
}

func putPoints(t *testing.T, rt *runtime.Runtime, b *maxsim.Batch, items int) *pointsInPlace {
	x := &pointsInPlace{batch: b, items: items, rows: b.Tokens.Rows()}
	var in tables
	addTable(&in, b.Tokens.F32)
	mask := make([]byte, x.rows)
	for r := range mask {
		if b.IsToken(r) {
			mask[r] = 1
		}
	}
	x.mask = addTable(&in, mask)
	host := make([]byte, in.Size)
	in.write(host)
	x.mem = putMemory(t, rt, host)
	return x
}

func putMemory(t *testing.T, rt *runtime.Runtime, host []byte) driver.Mem {
	mem, err := rt.Driver.Alloc(max(int64(len(host)), 256))
	require.NoError(t, err)
	require.NoError(t, rt.Driver.ToDevice(mem.Ptr, host, rt.Stream))
	require.NoError(t, rt.Sync())
	return mem
}

// Plans for memory of the caller: float32 in place, masks with holes, pairs that the
// device makes, gradients in half precision.
func TestGPUChamferInPlace(t *testing.T) {
	b := New(runtimetest.OpenGPU(t)).(*backend)
	for _, dim := range []int{3, 6, 50, 200} {
		listed := maxsim.Listed([]int32{2, 0, 2}, []int32{1, 1, 5})
		for kind, pairs := range []maxsim.Pairs{maxsim.All(), maxsim.OwnDocuments(2), listed} {
			for _, metric := range []maxsim.Metric{maxsim.SquaredL2, maxsim.L1} {
				rng := maxsimtest.Rand(uint64(dim + kind))
				stride := [2]int{70, 150}
				var batches [2]*maxsim.Batch
				for i, items := range []int{3, 6} {
					m := maxsim.Float32(maxsimtest.Normal(rng, items*stride[i]*dim), dim)
					batches[i] = maxsim.Padded(m, stride[i])
					batches[i].Mask = make([]bool, items*stride[i])
					for r := range batches[i].Mask {
						batches[i].Mask[r] = rng.IntN(4) > 0
					}
				}
				c := &maxsim.ChamferCall{X: batches[0], Y: batches[1], Pairs: pairs, Metric: metric, Mean: true}
				n := map[int]int{0: 18, 1: 6, 2: 3}[kind]
				c.Distances = make([]float32, n)
				c.NearestX, c.NearestY = make([]int32, n*stride[0]), make([]int32, n*stride[1])
				fill := func(v float32) {
					for _, x := range batches {
						for r, token := range x.Mask {
							if !token {
								x.Tokens.F32[r*dim] = v
							}
						}
					}
				}
				require.NoError(t, b.Chamfer(ctx, c))
				g := &maxsim.ChamferGradCall{X: c.X, Y: c.Y, Pairs: pairs, Metric: metric, Mean: true,
					NearestX: c.NearestX, NearestY: c.NearestY,
					DX: maxsimtest.NewGradient(batches[0], maxsim.F32),
					DY: maxsimtest.NewGradient(batches[1], maxsim.F32)}
				require.NoError(t, b.ChamferGradients(ctx, g))
				fill(float32(math.NaN()))                 // what a caller has there may be anything
				for _, own := range []bool{false, true} { // kernels of all architectures, and those of the device's
					require.NoError(t, b.dev.Call(ctx, func(rt *runtime.Runtime) error {
						arch := ""
						if own {
							arch = rt.Arch()
						}
						return chamferInPlace(t, rt, c, g, batches, arch, kind, n, stride)
					}), "%d dimensions, pairs %d, metric %d", dim, kind, metric)
				}
			}
		}
	}
}

func chamferInPlace(
	t *testing.T, rt *runtime.Runtime, c *maxsim.ChamferCall, g *maxsim.ChamferGradCall,
	batches [2]*maxsim.Batch, arch string, kind, n int, stride [2]int,
) error {
	dim := batches[0].Tokens.Dim
	var free []driver.Mem
	keep := func(m driver.Mem) driver.Mem { free = append(free, m); return m }
	defer func() {
		for _, m := range free {
			_ = rt.Driver.Free(m)
		}
	}()
	var x [2]*pointsInPlace
	pp := &denseChamferPairsParams{n: uint32(n), kind: uint32(kind), count: 2}
	lists := [2][]int32{c.Queries, c.Docs}
	for i := range x {
		x[i] = putPoints(t, rt, batches[i], batches[i].Len())
		keep(x[i].mem)
		pp.side[i] = denseChamferItems{items: uint32(x[i].items), stride: uint32(stride[i]), longest: uint32(stride[i]),
			rows: uint32(x[i].rows)}
		items := make([]int32, x[i].items+1) // all of them long, or one after another
		for k := range items {
			items[k] = int32(stride[i])
			if i == 1 {
				items[k] *= int32(k)
			}
		}
		table := keep(putMemory(t, rt, runtime.Bytes(items))).Ptr
		if i == 0 {
			pp.side[i].lengths = table
		} else {
			pp.side[i].offsets = table
		}
		pp.side[i].list = keep(putMemory(t, rt, runtime.Bytes(lists[i]))).Ptr
	}
	pp.pairs = keep(putMemory(t, rt, make([]byte, 40*n))).Ptr
	require.NoError(t, runtime.Launch(rt, "dense/dense_chamfer_pairs", runtime.CeilDiv(n, 256), 1, 1, 256, 0, pp))
	shape := chamferShape{metric: c.Metric, dim: dim, pairs: n, longest: stride, nearest: true}
	shape.rows = [2]int{x[0].rows, x[1].rows}
	plan, err := planChamfer(shape, arch, rt.Props.Shared, rt.FillingBlocks)
	require.NoError(t, err)
	work := keep(putMemory(t, rt, make([]byte, plan.bytes)))
	require.NoError(t, rt.Driver.Set(work.Ptr, 0x55, plan.bytes, rt.Stream))
	out := keep(putMemory(t, rt, make([]byte, 4*n)))
	p := &denseChamferParams{pairs: pp.pairs, out: out.Ptr, mean: 1}
	var near [2]driver.Mem
	for i := range x {
		near[i] = keep(putMemory(t, rt, make([]byte, 4*n*stride[i])))
		p.side[i] = denseChamferSide{rows: x[i].mem.Ptr, mask: x[i].mem.At(x[i].mask), near: near[i].Ptr,
			bytes: uint32(4 * dim), format: uint32(f32), stride: uint32(stride[i]), maskStride: uint32(stride[i])}
	}
	require.NoError(t, plan.run(rt, work.Ptr, p))
	read := func(m driver.Ptr, bytes int) []byte {
		host := make([]byte, bytes)
		require.NoError(t, rt.Driver.ToHost(host, m, rt.Stream))
		require.NoError(t, rt.Sync())
		return host
	}
	for i, v := range structsFrom[float32](read(out.Ptr, 4*n), n) {
		require.InEpsilon(t, 1+c.Distances[i], 1+v, 1e-5)
	}
	for i, want := range [][]int32{c.NearestX, c.NearestY} {
		require.Equal(t, want, structsFrom[int32](read(near[i].Ptr, 4*len(want)), len(want)))
	}

	gp, err := planChamferGrad(chamferShape{metric: c.Metric, dim: dim, pairs: n, rows: shape.rows, longest: stride})
	require.NoError(t, err)
	work = keep(putMemory(t, rt, make([]byte, gp.bytes)))
	require.NoError(t, rt.Driver.Set(work.Ptr, 0x55, gp.bytes, rt.Stream))
	gg := &chamferGrads{call: g}
	gg.work = maxsim.ChamferWork{X: batches[0].Shape(), Y: batches[1].Shape(), Pairs: n}
	gg.listPairs()
	q := &denseChamferGradParams{pairs: pp.pairs, kind: uint32(gg.kind), count: 2, mean: 1}
	var grads [2]driver.Mem
	for i := range x {
		grads[i] = keep(putMemory(t, rt, make([]byte, 4*x[i].rows*dim)))
		q.side[i] = denseChamferGradSide{rows: x[i].mem.Ptr, near: near[i].Ptr, out: grads[i].Ptr,
			pairFirst: keep(putMemory(t, rt, runtime.Bytes(gg.lists[i].first))).Ptr,
			pairList:  keep(putMemory(t, rt, runtime.Bytes(gg.lists[i].pairs))).Ptr,
			bytes:     uint32(4 * dim), format: uint32(f32),
			outType: uint32([]format{f32, f16}[i]), items: uint32(x[i].items), stride: uint32(stride[i])}
	}
	require.NoError(t, gp.run(rt, work.Ptr, q))
	for i, v := range structsFrom[float32](read(grads[0].Ptr, 4*x[0].rows*dim), x[0].rows*dim) {
		require.InDelta(t, g.DX.F32[i], v, 1e-6, "value %d", i)
	}
	half := maxsim.Float16(structsFrom[uint16](read(grads[1].Ptr, 2*x[1].rows*dim), x[1].rows*dim), dim)
	values := make([]float32, x[1].rows*dim)
	half.Widen(values, 0, x[1].rows)
	for i, v := range values {
		require.InDelta(t, g.DY.F32[i], v, 1e-3*(1+math.Abs(float64(v))), "value %d", i)
	}
	return nil
}
