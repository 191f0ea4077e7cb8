package dense

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
	"github.com/plaid-ir/plaid/kernels/maxsim"
	"github.com/plaid-ir/plaid/kernels/maxsim/maxsimtest"
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
	to, from, size := raw(&m), raw(&few), dim*kind.Size()
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
	at := []int64{table.Take(8), table.Take(4), table.Take(4)}
	tables, err := rt.Driver.Alloc(table.Size)
	require.NoError(b, err)
	defer func() { _ = rt.Driver.Free(tables) }()
	host := make([]byte, table.Size)
	put(host[at[1]:], []uint32{groups})
	put(host[at[2]:], []uint32{n})
	require.NoError(b, rt.Driver.ToDevice(tables.Ptr, host, rt.Stream))
	flush := &denseSumParams{
		part: mem.Ptr, out: mem.At(4 * n * groups), partAt: tables.At(at[0]), outAt: tables.At(at[0]), groups: tables.At(at[1]), count: tables.At(at[2]),
	}
	var times []float64
	for range 25 {
		require.NoError(b, runtime.Launch(rt, "dense/dense_sum", 1, n/256, 1, 256, 0, flush))
		require.NoError(b, rt.Mark(0))
		require.NoError(b, launch())
		require.NoError(b, rt.Mark(1))
		require.NoError(b, rt.SyncMark(1))
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
	require.NoError(b, s.begin(ctx, rt))
	if tune != nil {
		tune(&s.kernel)
	}
	pieces := 0
	require.NoError(b, s.pieces(func(p piece) error {
		pieces++
		require.NoError(b, s.bring(ctx, p.lo, p.hi))
		_, err := s.prepare(p)
		return err
	}))
	require.Equal(b, 1, pieces)
	return s
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
	for _, c := range []struct {
		kind maxsim.Type
		dim  int
		q, d []int
	}{
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
	} {
		name := fmt.Sprintf("%s/d%d/%dx%d,%dx%d", c.kind, c.dim, len(c.q), c.q[0], len(c.d), c.d[0])
		if total(c.d) != len(c.d)*c.d[0] {
			name += "ragged"
		}
		b.Run(name, func(b *testing.B) {
			q := randomBatch(c.kind, c.dim, c.q)
			d := randomBatch(c.kind, c.dim, c.d)
			h, err := be.Hold(ctx, d, maxsim.HoldOptions{})
			require.NoError(b, err)
			defer h.Close()
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
						b.Logf("%-40s %-34s %6d units %9.4f ms, limit %8.4f, ratio %6.2f, goal 1.2 + 5 us: %8.4f", name, k.name, len(s.buf.units), ms, limit, ms/limit, 1.2*limit+0.005)
						b.ReportMetric(ms, fmt.Sprintf("ms_%d", r))
						b.ReportMetric(ms/limit, fmt.Sprintf("limits_%d", r))
					}
					return nil
				}))
			}
		})
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
			hq, err := be.Hold(ctx, q, maxsim.HoldOptions{})
			require.NoError(b, err)
			defer hq.Close()
			hd, err := be.Hold(ctx, d, maxsim.HoldOptions{})
			require.NoError(b, err)
			defer hd.Close()
			call := maxsimtest.NewCall(q, d, maxsim.All(), maxsim.Terms{})
			call.Q, call.D = hq, hd
			require.NoError(b, be.Score(ctx, call))
			up := maxsimtest.Normal(maxsimtest.Rand(35), len(call.Scores))
			for range b.N {
				require.NoError(b, be.dev.Call(ctx, func(rt *runtime.Runtime) error {
					s := forward(b, be, rt, hq, hd, true, nil)
					ms := timed(b, rt, s.launch)
					b.ReportMetric(ms, "forward_ms")
					mib := float64(4*len(call.Argmax)+4*s.buf.part) / (1 << 20)
					b.ReportMetric(mib, "MiB")
					line := fmt.Sprintf("%-20s %s forward %.4f", name, s.kernel.name, ms)
					for _, push := range []bool{false, true} {
						g := &maxsim.GradCall{Q: hq, D: hd, Argmax: call.Argmax, Upstream: up, Push: push,
							DQ: maxsimtest.NewGradient(q, maxsim.F32), DD: maxsimtest.NewGradient(d, maxsim.F32)}
						w, err := g.Check()
						require.NoError(b, err)
						x := &grading{call: g, size: w}
						x.q, _ = be.side(g.Q)
						x.d, _ = be.side(g.D)
						require.NoError(b, x.prepare())
						require.NoError(b, x.begin(ctx, rt))
						back := timed(b, rt, x.launch)
						query := x.query
						x.query = nil
						onlyDocs := timed(b, rt, x.launch)
						x.query = query
						b.ReportMetric(ms+back, map[bool]string{false: "pull_ms", true: "push_ms"}[push])
						line += fmt.Sprintf(", push=%v backward %.4f (documents %.4f), both %.4f", push, back, onlyDocs, ms+back)
					}
					b.Log(line)
					return nil
				}))
			}
		})
	}
}
