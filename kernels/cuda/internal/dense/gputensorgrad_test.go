package dense

import (
	"cmp"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/maxsimtest"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// gpuCard is a card that is there.
func gpuCard(t testing.TB, bytes int64) *card {
	api, err := driver.Load()
	var infos []driver.Info
	if err == nil {
		infos, err = driver.Devices(api)
	}
	runtimetest.NeedGPU(t, err)
	c := &card{t: t}
	c.d, err = NewDevice(api, infos[0], os.DirFS("../../module"))
	require.NoError(t, err)
	c.begin(bytes)
	t.Cleanup(c.end)
	return c
}

func TestGPUGradientsInPlace(t *testing.T) {
	c := gpuCard(t, 1<<28)
	testGradients(t, c, []int{3, 8, 33, 128, 132, 768}, 70, 200, 3)
}

func TestGPUManyGradientsInPlace(t *testing.T) {
	manyGradients(t, gpuCard(t, 1<<28), []int{128, 300, 40})
}

func TestGPURandomGradientsInPlace(t *testing.T) { randomGradients(t, gpuCard(t, 1<<26), 500) }

// BenchmarkGPUGradientsInPlace times gradients of both sides, of float16 into float16 where not
// said: milliseconds of the kernels with nothing in the cache.
func BenchmarkGPUGradientsInPlace(b *testing.B) {
	c := gpuCard(b, 4<<30)
	rng := maxsimtest.Rand(93)
	for _, x := range []struct {
		q, d      []int
		dim       int
		kind      PairKind
		out       maxsim.Type
		normalize bool
		most      float64 // share of the tokens that the first row wins
	}{
		{q: equal(64, 32), d: equal(64, 300)}, {q: equal(256, 32), d: equal(256, 300)}, {q: equal(64, 32), d: equal(64, 1024)}, {q: equal(128, 32), d: equal(128, 1024)},
		{q: equal(256, 32), d: equal(256, 300), out: maxsim.F32}, {q: equal(256, 32), d: equal(256, 300), normalize: true},
		{q: equal(256, 32), d: equal(256, 300), most: 0.25},
		{q: equal(1, 32), d: equal(1000, 300)}, {q: equal(16, 32), d: equal(512, 300), kind: PairsOwn}, {q: equal(16, 32), d: equal(512, 300), kind: PairsListed},
		{q: equal(300, 32), d: equal(10000, 100), kind: PairsListed}, {q: equal(1000, 32), d: equal(30000, 100), kind: PairsListed},
		{q: equal(16, 1024), d: equal(16, 1024)}, {q: equal(64, 32), d: equal(64, 300), dim: 768}, {q: equal(64, 32), d: equal(64, 300), dim: 768, normalize: true},
	} {
		dim, out := cmp.Or(x.dim, 128), cmp.Or(x.out, maxsim.F16)
		name := fmt.Sprintf("%dx%d,%dx%d,d%d,pairs%d,%s,normalize=%v,most=%v", len(x.q), x.q[0], len(x.d), x.d[0], dim, x.kind, out, x.normalize, x.most)
		b.Run(name, func(b *testing.B) {
			c.used = runtime.Arena{}
			side := func(l []int) Batch {
				m := randomBatch(maxsim.F16, dim, l)
				return Batch{Data: bring(c, m.Tokens.U16, 0), Type: maxsim.F16, Dim: dim, Items: len(l), Rows: m.Tokens.Rows(), Stride: l[0], Longest: l[0]}
			}
			g := &GradientCall{Q: side(x.q), D: side(x.d), Pairs: PairList{Kind: x.kind}, DQType: out, DDType: out, Normalize: x.normalize}
			pairs := len(x.q) * len(x.d)
			if x.kind != PairsAll {
				pairs = len(x.d)
				g.Pairs.Count = pairs / len(x.q)
			}
			if x.kind == PairsListed {
				queries, docs := make([]int32, pairs), make([]int32, pairs)
				for i := range queries {
					queries[i], docs[i] = int32(i*len(x.q)/pairs), int32(i)
				}
				rng.Shuffle(pairs, func(i, j int) { docs[i], docs[j] = docs[j], docs[i] })
				g.Pairs = PairList{Kind: PairsListed, Count: pairs, Queries: bring(c, queries, 0), Documents: bring(c, docs, 0)}
			}
			arg := make([]int32, pairs*x.q[0])
			for i := range arg {
				if rng.Float64() >= x.most {
					arg[i] = int32(rng.IntN(x.d[0]))
				}
			}
			g.Argmax, g.Upstream = bring(c, arg, 0), bring(c, maxsimtest.Normal(rng, pairs), 0)
			g.DQ, g.DD = c.room(4*g.Q.Rows*dim, 0), c.room(4*g.D.Rows*dim, 0)
			bytes, err := c.d.GradientsWorkspace(g)
			require.NoError(b, err)
			g.Place = Place{Workspace: c.room(int(bytes), 0), WorkspaceBytes: bytes}
			dq, dd := g.DQ, g.DD
			for range b.N {
				line := name
				for _, part := range []string{"both", "queries", "documents"} {
					g.DQ, g.DD = dq, dd
					switch part {
					case "queries":
						g.DD = 0
					case "documents":
						g.DQ = 0
					}
					require.NoError(b, c.d.onStream(0, func() error {
						p, err := g.planWorkspace()
						require.NoError(b, err)
						ms := timed(b, c.d.rt, func() error { return g.run(c.d, &p) })
						line += fmt.Sprintf(", %s %.4f", part, ms)
						if p.lists.needed != [2]bool{} {
							line += fmt.Sprintf(" (lists %.4f)", timed(b, c.d.rt, func() error {
								return p.lists.run(c.d.rt, g.workspacePtr(0), &g.Pairs, p.pairs)
							}))
						}
						b.ReportMetric(ms, part+"_ms")
						return nil
					}))
				}
				b.Log(line)
			}
		})
	}
}

// BenchmarkGPUGradientsHost times what the host needs for a call.
func BenchmarkGPUGradientsHost(b *testing.B) {
	c := gpuCard(b, 64<<20)
	rng := maxsimtest.Rand(94)
	q, d := c.side(rng, layout{lengths: equal(8, 32)}, maxsim.F16, false, 128, 0), c.side(rng, layout{lengths: equal(8, 32)}, maxsim.F16, false, 128, 0)
	g := &GradientCall{Q: q.at, D: d.at, Argmax: bring(c, make([]int32, 64*32), 0), DQ: c.room(65536, 0), DD: c.room(65536, 0), DQType: maxsim.F16, DDType: maxsim.F16}
	b.ReportAllocs()
	for b.Loop() {
		require.NoError(b, c.d.Gradients(g))
	}
}
