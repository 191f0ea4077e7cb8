package encoder

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
	"github.com/plaid-ir/plaid/kernels/transformer"
)

func modelOn(t testing.TB, d *runtime.Device, c transformer.Config, w *transformer.Weights, o transformer.Options) *model {
	t.Helper()
	m, err := New(t.Context(), d, c, w, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m.(*model)
}

// TestGPUAgainstProcessor: tiny models of both families with heads of every kind, of sizes
// that are no whole tiles too, and every size of a head; small batches and such that take
// the large tiles.
func TestGPUAgainstProcessor(t *testing.T) {
	d := runtimetest.OpenGPU(t)
	all := kinds()
	for _, size := range headSizes {
		c := all[0].config
		c.Hidden, c.Heads = 3*size, 3
		all = append(all, kind{fmt.Sprintf("bert, heads of %d", size), c, nil})
		if c = all[3].config; size%32 == 0 && roundUp(2*size, tile)%size == 0 {
			c.Hidden, c.Heads = 2*size, 2
			all = append(all, kind{fmt.Sprintf("modernbert, heads of %d", size), c, nil})
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for _, k := range all {
		w := k.weights(3)
		m := modelOn(t, d, k.config, w, transformer.Options{})
		for _, lengths := range [][]int{{1}, {7, 0, 32}, {150, 64, 65, 1, 150, 149, 3, 128}} {
			var texts [][]int32
			for _, n := range lengths {
				texts = append(texts, textOf(r, n))
			}
			b := batchOf(texts...)
			for i := range b.Texts() {
				n := b.Length(i)
				b.Attended = append(b.Attended, attendedOf(i, n))
			}
			lowest := least(t, onProcessor(t, k.config, w, b), encodeOn(t, m, b), m.About().Dim)
			t.Logf("%s, %d tokens: lowest cosine 1 − %.2g", k.name, len(b.IDs), 1-lowest)
			require.Greater(t, lowest, 0.9998, k.name)
		}
	}
}

// TestGPUSameBits: alone, in company, as a graph, in passes of few tokens and of many, and
// by calls at the same time.
func TestGPUSameBits(t *testing.T) {
	d := runtimetest.OpenGPU(t)
	for _, k := range []kind{kinds()[1], kinds()[4], real(bertBase)} {
		w := k.weights(5)
		m, few := modelOn(t, d, k.config, w, transformer.Options{}), modelOn(t, d, k.config, w, transformer.Options{Tokens: 700})
		r := rand.New(rand.NewPCG(5, 6))
		var texts [][]int32
		var want [][]float32
		for i := range 40 {
			texts = append(texts, textOf(r, []int{32, 1, 64, 65, 31, 33, 100, longest}[i%8]))
			want = append(want, encodeOn(t, few, batchOf(texts[i])))
		}
		for range 3 { // launched, then as a graph
			require.Equal(t, want[0], encodeOn(t, m, batchOf(texts[0])))
		}
		require.Positive(t, d.Live().Graphs)
		for _, on := range []*model{m, few} {
			for range 3 {
				order := r.Perm(len(texts))
				var batch [][]int32
				expected := []float32{}
				for _, i := range order {
					batch, expected = append(batch, texts[i]), append(expected, want[i]...)
				}
				b := batchOf(batch...)
				require.Equal(t, expected, encodeOn(t, on, b), k.name)
				kept := keptOf(r, len(b.IDs), .9)
				halves := make([]byte, 2*on.About().Dim*len(kept))
				require.NoError(t, on.EncodeHalves(t.Context(), halves, b, kept))
				require.Equal(t, halvesOf(t, expected, on.About().Dim, kept), halves, "%s, halves", k.name)
			}
			requireResident(t, on, r, 30)
			var calls sync.WaitGroup
			for i := range texts {
				calls.Go(func() {
					got := make([]float32, len(want[i]))
					if err := on.Encode(t.Context(), got, batchOf(texts[i])); err != nil || !slices.Equal(got, want[i]) {
						t.Errorf("%s, text %d beside others: %v", k.name, i, err)
					}
				})
			}
			calls.Wait()
		}
	}
}

// TestGPUNotFinite: a token that has no vector fails its own call.
func TestGPUNotFinite(t *testing.T) {
	d := runtimetest.OpenGPU(t)
	k := kinds()[3]
	w := k.weights(13)
	k.config.Epsilon = 0
	for j := range k.config.Hidden {
		w.Words[7*k.config.Hidden+j] = 1
	}
	m := modelOn(t, d, k.config, w, transformer.Options{})
	good, bad := batchOf([]int32{1, 2, 3}), batchOf([]int32{1, 7, 3})
	want := encodeOn(t, m, good)
	require.ErrorIs(t, m.Encode(t.Context(), make([]float32, len(want)), bad), transformer.ErrNotFinite)
	requests := []*request{{m: m, batch: &bad, dst: make([]float32, len(want))}, {m: m, batch: &good, dst: make([]float32, len(want))}}
	require.ErrorIs(t, runtime.Do(t.Context(), d, requests), transformer.ErrNotFinite)
	require.Equal(t, want, requests[1].dst)
}

// TestGPUMemory: what does not fit is an error that says so.
func TestGPUMemory(t *testing.T) {
	d := runtimetest.OpenGPU(t)
	k := real(bertBase)
	_, err := New(t.Context(), d, k.config, k.weights(1), transformer.Options{Memory: 20 << 20})
	require.ErrorContains(t, err, "bytes of weights and ")
	require.Zero(t, d.Live().Bytes)
}

// bertSmall, bertBase and modernBase are sizes of models that are in use.
const (
	bertSmall = iota
	bertBase
	modernBase
)

// layers of a real kind; weights makes four.
var layersOf = []int{6, 12, 22}

func real(size int) kind {
	c := transformer.Config{Family: transformer.BERT, Hidden: 384, Heads: 12, Intermediate: 1536, MaxPositions: 512, Epsilon: 1e-12}
	switch size {
	case bertBase:
		c.Hidden, c.Intermediate = 768, 3072
	case modernBase:
		c = transformer.Config{
			Family: transformer.ModernBERT, Hidden: 768, Heads: 12, Intermediate: 1152, MaxPositions: 8192,
			Epsilon: 1e-5, GlobalEvery: 3, Window: 128, GlobalTheta: 160000, LocalTheta: 10000,
		}
	}
	return kind{[]string{"bert 6 × 384", "bert 12 × 768", "modernbert 22 × 768"}[size], c, []transformer.Dense{{Out: 128}}}
}

// TestGPUSpeed: tokens a second and milliseconds a question, from ids to vectors on the
// host, of the sizes that models in use have. It asserts nothing, and is of use alone on
// a machine: PLAID_LONG=1 go test -run GPUSpeed -v.
func TestGPUSpeed(t *testing.T) {
	if !effort.Long() {
		t.Skip("measures; PLAID_LONG=1 runs it")
	}
	d := runtimetest.OpenGPU(t)
	for size := range layersOf {
		k := real(size)
		w := random(&k.config, layersOf[size], 30000, 1, k.heads...)
		begin := time.Now()
		m := modelOn(t, d, k.config, w, transformer.Options{})
		a := m.About()
		t.Logf("%s: loaded in %v, %d MiB of weights, %d for batches of %d", k.name, time.Since(begin).Round(time.Millisecond), a.Weights>>20, a.Batches>>20, a.Tokens)
		r := rand.New(rand.NewPCG(1, uint64(size)))
		id := func(n int) []int32 {
			x := make([]int32, n)
			for i := range x {
				x[i] = r.Int32N(30000)
			}
			return x
		}
		for _, tokens := range []int{8 << 10, 16 << 10, 32 << 10} {
			var texts [][]int32
			for left := tokens; left > 0; {
				n := min(left, min(300, max(40, int(300+70*r.NormFloat64()))))
				texts, left = append(texts, id(n)), left-n
			}
			b := batchOf(texts...)
			for _, callers := range []int{1, 8} {
				const each = 12
				run := func(each int) time.Duration {
					begin := time.Now()
					var all sync.WaitGroup
					for range callers {
						all.Go(func() {
							dst := make([]float32, len(b.IDs)*a.Dim)
							for range each {
								if err := m.Encode(context.Background(), dst, b); err != nil {
									t.Error(err)
								}
							}
						})
					}
					all.Wait()
					return time.Since(begin)
				}
				run(2)
				took := run(each)
				t.Logf("%s, %d callers with batches of %d tokens: %.2f M tokens/s", k.name, callers, tokens, float64(callers*each*tokens)/took.Seconds()/1e6)
			}
		}
		for _, n := range []int{1, 4, 32} {
			var texts [][]int32
			for range n {
				texts = append(texts, id(32))
			}
			b := batchOf(texts...)
			dst := make([]float32, len(b.IDs)*a.Dim)
			var times []time.Duration
			for range 300 {
				begin := time.Now()
				require.NoError(t, m.Encode(t.Context(), dst, b))
				times = append(times, time.Since(begin))
			}
			slices.Sort(times)
			t.Logf("%s, %d questions of 32 tokens: median %v, p95 %v", k.name, n, times[150], times[285])
		}
	}
}
