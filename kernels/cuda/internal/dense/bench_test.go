package dense

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/maxsimtest"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// What an H200 does at most, measured there: bytes copied, and products of 16-bit
// floats, a second.
const (
	h200Bytes = 4.3e12
	h200Flops = 790e12
)

// randomBatch is documents, or queries, of unit vectors out of 4,093.
func randomBatch(kind maxsim.Type, dim int, lengths []int) *maxsim.Batch {
	const pool = 4093
	offsets := []int{0}
	for _, n := range lengths {
		offsets = append(offsets, offsets[len(offsets)-1]+n)
	}
	few := maxsimtest.Side{Type: kind, Lengths: []int{pool}, Unit: true}.Batch(maxsimtest.Rand(33), dim).Tokens
	n := offsets[len(lengths)]
	m := maxsim.Matrix{Type: kind, Dim: dim}
	fill := func(row int) int { return (row*2654435761 + row>>12) % pool }
	switch kind {
	case maxsim.F32:
		m.F32 = make([]float32, n*dim)
	case maxsim.F16, maxsim.BF16:
		m.U16 = make([]uint16, n*dim)
	case maxsim.I8:
		m.I8 = make([]int8, n*dim)
	default:
		m.U8 = make([]uint8, n*dim)
	}
	if few.Scales != nil {
		m.Scales = make([]float32, n)
	}
	to, from, size := elementBytes(&m), elementBytes(&few), dim*kind.Size()
	for r := range n {
		x := fill(r)
		copy(to[r*size:(r+1)*size], from[x*size:(x+1)*size])
		if m.Scales != nil {
			m.Scales[r] = few.Scales[x]
		}
	}
	return maxsim.Packed(m, offsets)
}

func equal(n, tokens int) []int {
	l := make([]int, n)
	for i := range l {
		l[i] = tokens
	}
	return l
}

func holdBatch(b *testing.B, be *backend, x *maxsim.Batch) maxsim.PreparedBatch {
	h, err := be.Prepare(ctx, x)
	require.NoError(b, err)
	b.Cleanup(func() { h.Close() })
	return h
}

// timed is the median time of launches, in milliseconds, with nothing of theirs in
// the cache: other memory was read before, so that nothing has to be written back.
func timed(b *testing.B, rt *runtime.Runtime, launch func() error) float64 {
	b.Helper()
	const n, groups = 1 << 20, 64
	mem, err := rt.Driver.Alloc(4*n*(groups+1) + 256)
	require.NoError(b, err)
	defer func() { _ = rt.Driver.Free(mem) }()
	require.NoError(b, rt.Driver.Set(mem.Ptr, 0, mem.Bytes, rt.Stream))
	var table runtime.Arena
	at := []int64{table.Append(8), table.Append(4), table.Append(4)}
	tables, err := rt.Driver.Alloc(table.Size)
	require.NoError(b, err)
	defer func() { _ = rt.Driver.Free(tables) }()
	host := make([]byte, table.Size)
	writeStructs(host[at[1]:], []uint32{groups})
	writeStructs(host[at[2]:], []uint32{n})
	require.NoError(b, rt.Driver.ToDevice(tables.Ptr, host, rt.Stream))
	flush := &denseSumParams{
		part: mem.Ptr, out: mem.At(4 * n * groups), partAt: tables.At(at[0]), outAt: tables.At(at[0]), groups: tables.At(at[1]), count: tables.At(at[2]),
	}
	var times []float64
	for range 25 {
		require.NoError(b, runtime.Launch(rt, "dense/dense_sum", 1, n/256, 1, 256, 0, flush))
		require.NoError(b, rt.RecordPoint(0))
		require.NoError(b, launch())
		require.NoError(b, rt.RecordPoint(1))
		require.NoError(b, rt.SyncPoint(1))
		took, err := rt.Elapsed(0, 1)
		require.NoError(b, err)
		times = append(times, took.Seconds()*1e3)
	}
	slices.Sort(times)
	return times[len(times)/2]
}

// forward is a scoring of all pairs whose launch can be repeated.
func forward(b *testing.B, be *backend, rt *runtime.Runtime, q, d maxsim.Operand, arg bool, tune func(k *kernel)) *scoring {
	b.Helper()
	qs, ds := q.Shape(), d.Shape()
	nq, nd := qs.Len(), ds.Len()
	c := &maxsim.Call{Q: q, D: d, Scores: make([]float32, nq*nd)}
	if arg {
		c.Argmax = make([]int32, nq*nd*qs.MaxRows())
	}
	w, err := c.Check()
	require.NoError(b, err)
	s, err := be.newScoring(c, w)
	require.NoError(b, err)
	require.NoError(b, s.prepareCall(ctx, rt))
	if tune != nil {
		tune(&s.kernel)
	}
	require.Equal(b, 1, prepared(b, s))
	return s
}

// prepared brings the pieces of a scoring that has begun to the device, and counts them.
func prepared(b *testing.B, s *scoring) (pieces int) {
	b.Helper()
	require.NoError(b, s.forEachPiece(func(p piece) error {
		pieces++
		require.NoError(b, s.uploadDocuments(ctx, p.lo, p.hi))
		_, err := s.preparePiece(p)
		return err
	}))
	return pieces
}

func ragged(n, lo, hi int) []int {
	rng, l := maxsimtest.Rand(34), make([]int, n)
	for i := range l {
		l[i] = lo + rng.IntN(hi-lo+1)
	}
	return l
}

func total(l []int) (n int) {
	for _, v := range l {
		n += v
	}
	return n
}

// BenchmarkGPUForward times the kernels alone, with documents held and nothing in
// the cache: milliseconds, the limit by bytes or products, and their ratio.
func BenchmarkGPUForward(b *testing.B) {
	be := New(runtimetest.OpenGPU(b)).(*backend)
	for _, c := range forwardRows() {
		name := fmt.Sprintf("%s/d%d/%dx%d,%dx%d", c.kind, c.dim, len(c.q), c.q[0], len(c.d), c.d[0])
		if total(c.d) != len(c.d)*c.d[0] {
			name += "ragged"
		}
		b.Run(name, func(b *testing.B) {
			q := randomBatch(c.kind, c.dim, c.q)
			d := randomBatch(c.kind, c.dim, c.d)
			h := holdBatch(b, be, d)
			bytes := float64(total(c.d)*c.dim*c.kind.Size()) / h200Bytes * 1e3
			flops := 2 * float64(total(c.d)) * float64(total(c.q)) * float64(c.dim) / h200Flops * 1e3
			limit := max(bytes, flops)
			rounds := runtimetest.Env("PLAID_TUNE", 1)
			for range b.N {
				require.NoError(b, be.dev.Call(ctx, func(rt *runtime.Runtime) error {
					for r := 1; r <= rounds; r *= 2 {
						var k kernel
						s := forward(b, be, rt, q, h, false, func(x *kernel) {
							x.slots *= r
							k = *x
						})
						ms := timed(b, rt, s.launch)
						b.Logf("%-40s %-34s %6d units %9.4f ms, limit %8.4f, ratio %6.2f, goal 1.2 + 5 us: %8.4f", name, k.name, len(s.work.units), ms, limit, ms/limit, 1.2*limit+0.005)
						b.ReportMetric(ms, fmt.Sprintf("ms_%d", r))
						b.ReportMetric(ms/limit, fmt.Sprintf("limits_%d", r))
					}
					return nil
				}))
			}
		})
	}
}

// forwardRow is a shape of the table of docs/dense.md.
type forwardRow struct {
	kind maxsim.Type
	dim  int
	q, d []int
}

func forwardRows() []forwardRow {
	return []forwardRow{
		{maxsim.F16, 128, equal(1, 32), equal(1000, 300)},
		{maxsim.F16, 128, equal(1, 32), equal(10000, 300)},
		{maxsim.F16, 128, equal(1, 32), equal(1000, 1024)},
		{maxsim.F16, 128, equal(1, 128), equal(1000, 1024)},
		{maxsim.F16, 128, equal(1, 512), equal(1000, 512)},
		{maxsim.F16, 128, equal(1, 1024), equal(1000, 1024)},
		{maxsim.F16, 128, equal(16, 32), equal(10000, 300)},
		{maxsim.F16, 128, equal(64, 32), equal(64, 1024)},
		{maxsim.F16, 128, equal(256, 32), equal(256, 300)},
		{maxsim.F16, 128, equal(64, 1024), equal(64, 1024)},
		{maxsim.F16, 768, equal(1, 32), equal(1000, 300)},
		{maxsim.F16, 96, equal(1, 32), equal(10000, 300)},
		{maxsim.F16, 128, equal(1, 32), ragged(10000, 40, 300)},
		{maxsim.BF16, 128, equal(1, 32), equal(10000, 300)},
		{maxsim.I8, 128, equal(1, 32), equal(10000, 300)},
		{maxsim.E4M3, 128, equal(1, 32), equal(10000, 300)},
		{maxsim.F32, 128, equal(1, 32), equal(10000, 300)},
		{maxsim.F32, 128, equal(64, 32), equal(64, 1024)},
		{maxsim.I8, 128, equal(16, 32), equal(10000, 300)},
	}
}

// BenchmarkGPUTraining times forward with argmaxima and backward, and counts the
// device's memory above operands and results.
func BenchmarkGPUTraining(b *testing.B) {
	be := New(runtimetest.OpenGPU(b)).(*backend)
	for _, c := range []struct{ q, d []int }{
		{equal(64, 32), equal(64, 300)}, {equal(256, 32), equal(256, 300)}, {equal(64, 32), equal(64, 1024)}, {equal(128, 32), equal(128, 1024)},
	} {
		name := fmt.Sprintf("%dx%d,%dx%d", len(c.q), c.q[0], len(c.d), c.d[0])
		b.Run(name, func(b *testing.B) {
			q, d := randomBatch(maxsim.F16, 128, c.q), randomBatch(maxsim.F16, 128, c.d)
			hq := holdBatch(b, be, q)
			hd := holdBatch(b, be, d)
			call := maxsimtest.NewCall(q, d, maxsim.All(), maxsim.Terms{})
			call.Q, call.D = hq, hd
			require.NoError(b, be.Score(ctx, call))
			up := maxsimtest.Normal(maxsimtest.Rand(35), len(call.Scores))
			for range b.N {
				require.NoError(b, be.dev.Call(ctx, func(rt *runtime.Runtime) error {
					s := forward(b, be, rt, hq, hd, true, nil)
					ms := timed(b, rt, s.launch)
					b.ReportMetric(ms, "forward_ms")
					mib := float64(4*len(call.Argmax)+4*s.work.part) / (1 << 20)
					b.ReportMetric(mib, "MiB")
					line := fmt.Sprintf("%-20s %s forward %.4f", name, s.kernel.name, ms)
					g := &maxsim.GradCall{Q: hq, D: hd, Argmax: call.Argmax, Upstream: up,
						DQ: maxsimtest.NewGradient(q, maxsim.F32), DD: maxsimtest.NewGradient(d, maxsim.F32)}
					w, err := g.Check()
					require.NoError(b, err)
					x := &gradientCall{call: g, size: w}
					x.q, _ = be.resolveOperand(g.Q)
					x.d, _ = be.resolveOperand(g.D)
					require.NoError(b, x.makeTables())
					require.NoError(b, x.uploadAndSetParams(ctx, rt))
					launch := func() error { return launchGradients(rt, x.params, w.Pairs) }
					back := timed(b, rt, launch)
					x.params.q.out = 0
					onlyDocs := timed(b, rt, launch)
					b.ReportMetric(ms+back, "pull_ms")
					line += fmt.Sprintf(", backward %.4f (documents %.4f), both %.4f", back, onlyDocs, ms+back)
					b.Log(line)
					return nil
				}))
			}
		})
	}
}

// whole is the median time of a call that is done again and again, from its first to
// its last work on the device.
func whole(b *testing.B, be *backend, newScoring func() *scoring) float64 {
	b.Helper()
	var ms float64
	require.NoError(b, be.dev.Call(ctx, func(rt *runtime.Runtime) error {
		ms = timed(b, rt, func() error { return newScoring().run(ctx, rt) })
		return nil
	}))
	return ms
}

// BenchmarkGPUWhole times whole calls with documents held, beside the limit of reading
// them once: ranks, and documents that few blocks would have.
func BenchmarkGPUWhole(b *testing.B) {
	be := New(runtimetest.OpenGPU(b)).(*backend)
	for _, c := range []struct {
		q, d []int
		k    int
	}{
		{equal(1, 32), equal(10000, 300), 0},
		{equal(1, 32), equal(10000, 300), 100},
		{equal(16, 32), equal(10000, 300), 100},
		{equal(1, 32), equal(1, 100_000), 0},
		{equal(1, 32), equal(4, 100_000), 0},
		{equal(1, 512), equal(2, 100_000), 0},
	} {
		b.Run(fmt.Sprintf("%dx%d,%dx%d,k%d", len(c.q), c.q[0], len(c.d), c.d[0], c.k), func(b *testing.B) {
			q, d := randomBatch(maxsim.F16, 128, c.q), randomBatch(maxsim.F16, 128, c.d)
			h := holdBatch(b, be, d)
			hq := holdBatch(b, be, q)
			limit := float64(total(c.d)*256) / h200Bytes * 1e3
			for range b.N {
				for _, cut := range []int{usualLimits.segment, 1 << 30} {
					be.limits.segment = cut
					ms := whole(b, be, func() *scoring {
						call := &maxsim.Call{Q: hq, D: h}
						if c.k == 0 {
							call.Scores = make([]float32, len(c.q)*len(c.d))
						}
						s, err := be.newScoring(call, maxsim.Work{Q: q.Shape(), D: d.Shape(), Pairs: len(c.q) * len(c.d), Stride: q.MaxRows()})
						require.NoError(b, err)
						if c.k > 0 {
							s.rank = &ranking{k: c.k}
						}
						return s
					})
					be.limits = usualLimits
					b.Logf("segments of %d: %.4f ms, limit %.4f", cut, ms, limit)
					b.ReportMetric(ms, fmt.Sprintf("ms_%d", cut))
				}
			}
		})
	}
}

// BenchmarkGPUStream times ranks of documents in the host's memory.
func BenchmarkGPUStream(b *testing.B) {
	be := New(runtimetest.OpenGPU(b)).(*backend)
	for _, queries := range []int{1, 64} {
		b.Run(fmt.Sprintf("%dx32", queries), func(b *testing.B) {
			q, d := randomBatch(maxsim.F16, 128, equal(queries, 32)), randomBatch(maxsim.F16, 128, equal(50_000, 300))
			r := &maxsim.RankCall{Q: q, D: d, K: 100, Docs: make([]int32, 100*queries), Scores: make([]float32, 100*queries)}
			require.NoError(b, be.Rank(ctx, r))
			b.SetBytes(int64(2 * len(d.Tokens.U16)))
			b.ResetTimer()
			for range b.N {
				require.NoError(b, be.Rank(ctx, r))
			}
			b.ReportMetric(float64(be.dev.Live().Bytes)/(1<<20), "MiB")
		})
	}
}

// BenchmarkGPUHead times scores of hidden states that are held, beside the limit of
// reading them and multiplying with the head once.
func BenchmarkGPUHead(b *testing.B) {
	be := New(runtimetest.OpenGPU(b)).(*backend)
	for _, c := range []struct {
		kind        maxsim.Type
		hidden, dim int
		q, d        []int
	}{
		{maxsim.F16, 768, 128, equal(1, 32), equal(1024, 2048)},
		{maxsim.F16, 768, 128, equal(1, 32), equal(32, 1024)},
		{maxsim.F16, 768, 128, equal(1, 32), equal(1000, 300)},
		{maxsim.F16, 384, 96, equal(1, 32), equal(1000, 300)},
		{maxsim.F16, 1024, 128, equal(1, 32), equal(1000, 300)},
		{maxsim.F16, 768, 128, equal(16, 32), equal(1000, 300)},
		{maxsim.F32, 768, 128, equal(1, 32), equal(1000, 300)},
	} {
		b.Run(fmt.Sprintf("%s/h%d,d%d/%dx%d,%dx%d", c.kind, c.hidden, c.dim, len(c.q), c.q[0], len(c.d), c.d[0]), func(b *testing.B) {
			q, d := randomBatch(maxsim.F32, c.dim, c.q), randomBatch(c.kind, c.hidden, c.d)
			w := randomBatch(c.kind, c.hidden, equal(1, c.dim)).Tokens
			h := holdBatch(b, be, d)
			hq := holdBatch(b, be, q)
			tokens := float64(total(c.d))
			limit := max(tokens*float64(c.hidden*c.kind.Size())/h200Bytes, 2*tokens*float64(c.hidden*c.dim)/h200Flops) * 1e3
			for range b.N {
				scoring := func() *scoring {
					call := &maxsim.Call{Q: hq, D: h, Terms: maxsim.Terms{Normalize: true}, Scores: make([]float32, len(c.q)*len(c.d))}
					s, err := be.newScoring(call, maxsim.Work{Q: q.Shape(), D: d.Shape(), Pairs: len(call.Scores), Stride: q.MaxRows()})
					require.NoError(b, err)
					s.head = &head{Head: maxsim.Head{Weights: w}}
					return s
				}
				ms := whole(b, be, scoring)
				var name string
				var kernels float64
				require.NoError(b, be.dev.Call(ctx, func(rt *runtime.Runtime) error {
					x := scoring()
					require.NoError(b, x.prepareCall(ctx, rt))
					if prepared(b, x) > 1 {
						return nil // only one is timed
					}
					name = x.kernel.name
					kernels = timed(b, rt, func() error {
						x.uploadedRange = [2]int{}
						if err := x.uploadDocuments(ctx, 0, len(c.d)); err != nil {
							return err
						}
						return x.launch()
					})
					return nil
				}))
				b.Logf("%-32s %.4f ms, kernels %.4f, limit %.4f", name, ms, kernels, limit)
				b.ReportMetric(ms, "ms")
				b.ReportMetric(kernels, "kernels_ms")
			}
		})
	}
}

// BenchmarkGPUChamfer times distances and gradients of held sets, whole calls on the
// host's clock and the kernels alone.
func BenchmarkGPUChamfer(b *testing.B) {
	be := New(runtimetest.OpenGPU(b)).(*backend)
	for _, c := range []struct{ sets, points, dim int }{{1, 4096, 3}, {1, 16384, 3}, {1, 100_000, 3}, {1, 4096, 128}, {1, 16384, 128}, {32, 1024, 128}} {
		for _, metric := range []maxsim.Metric{maxsim.SquaredL2, maxsim.L1} {
			b.Run(fmt.Sprintf("%dx%d,d%d/%d", c.sets, c.points, c.dim, metric), func(b *testing.B) {
				rng := maxsimtest.Rand(72)
				side := maxsimtest.Side{Lengths: equal(c.sets, c.points)}
				x, y := side.Batch(rng, c.dim), side.Batch(rng, c.dim)
				hx := holdBatch(b, be, x)
				hy := holdBatch(b, be, y)
				call := &maxsim.ChamferCall{X: hx, Y: hy, Pairs: maxsim.OwnDocuments(1), Metric: metric, Mean: true, Distances: make([]float32, c.sets),
					NearestX: make([]int32, c.sets*c.points), NearestY: make([]int32, c.sets*c.points)}
				grad := &maxsim.ChamferGradCall{X: hx, Y: hy, Pairs: call.Pairs, Metric: metric, Mean: true, NearestX: call.NearestX, NearestY: call.NearestY,
					DX: maxsimtest.NewGradient(x, maxsim.F32), DY: maxsimtest.NewGradient(y, maxsim.F32)}
				var forward, backward []float64
				for range 11 {
					begin := time.Now()
					require.NoError(b, be.Chamfer(ctx, call))
					forward = append(forward, time.Since(begin).Seconds()*1e3)
					begin = time.Now()
					require.NoError(b, be.ChamferGradients(ctx, grad))
					backward = append(backward, time.Since(begin).Seconds()*1e3)
				}
				slices.Sort(forward)
				slices.Sort(backward)
				b.ReportMetric(forward[5], "forward_ms")
				b.ReportMetric(backward[5], "backward_ms")
				require.NoError(b, be.dev.Call(ctx, func(rt *runtime.Runtime) error {
					w, err := call.Check()
					require.NoError(b, err)
					s, err := be.resolveSides(hx, hy, w)
					require.NoError(b, err)
					f := &chamfer{sides: s, limits: be.limits, call: call}
					at, err := f.beginPieces(ctx, rt)
					require.NoError(b, err)
					p, err := f.preparePairs(rt, at, make([]denseChamferPair, w.Pairs), 0)
					require.NoError(b, err)
					plan := at.plans[w.Pairs]
					all := plan.launches
					for i, l := range all { // what each adds to those before it
						plan.launches = all[:i+1]
						ms := timed(b, rt, func() error { return plan.run(rt, rt.Work.Scratch.At(at.base), p) })
						b.Logf("to %-36s %v %.4f ms", l.name, l.grid, ms)
						if i == len(all)-1 {
							b.ReportMetric(ms, "forward_kernels_ms")
						}
					}
					g := &chamferGrads{sides: s, call: grad, near: [2][]int32{grad.NearestX, grad.NearestY}}
					require.NoError(b, g.makeTables())
					x, err := g.uploadAndPlan(ctx, rt)
					require.NoError(b, err)
					b.ReportMetric(timed(b, rt, func() error { return x.plan.run(rt, x.base, x.params) }), "backward_kernels_ms")
					return nil
				}))
			})
		}
	}
}

// BenchmarkGPUOpen times what a program that scores once waits for: the driver and the
// context with its code, and the first call, which loads the code for plain vectors and
// takes memory, beside the next.
func BenchmarkGPUOpen(b *testing.B) {
	q, d := randomBatch(maxsim.F32, 128, equal(10, 32)), randomBatch(maxsim.F32, 128, equal(1000, 60))
	for range b.N {
		begin := time.Now()
		dev := runtimetest.OpenGPU(b)
		b.ReportMetric(time.Since(begin).Seconds()*1e3, "open_ms")
		be := New(dev)
		for _, unit := range []string{"first_ms", "second_ms"} {
			begin = time.Now()
			_, err := maxsim.TopK(ctx, be, q, d, 10, maxsim.Terms{})
			require.NoError(b, err)
			b.ReportMetric(time.Since(begin).Seconds()*1e3, unit)
		}
		begin = time.Now()
		require.NoError(b, dev.Close())
		b.ReportMetric(time.Since(begin).Seconds()*1e3, "close_ms")
	}
}
