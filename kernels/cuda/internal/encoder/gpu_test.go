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
	"github.com/plaid-ir/plaid/internal/testing/modeltest"
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

// TestGPUAgainstProcessor: tiny models of all families and forms with heads of every kind, of sizes
// that are no whole tiles too, and every size of a head; small batches and such that take
// the large tiles.
func TestGPUAgainstProcessor(t *testing.T) {
	d := runtimetest.OpenGPU(t)
	all := append(append(kinds(), families()...), wideRows()...)
	for _, size := range headSizes {
		c := kinds()[0].config
		c.Hidden, c.Heads, c.KeyHeads, c.HeadSize = 3*size, 3, 3, size
		all = append(all, kind{name: fmt.Sprintf("bert, heads of %d", size), config: c})
		if c = kinds()[3].config; size%32 == 0 {
			c.Hidden, c.Heads, c.KeyHeads, c.HeadSize = 2*size, 2, 2, size
			all = append(all, kind{name: fmt.Sprintf("modernbert, heads of %d", size), config: c})
		}
		c.KeyHeads, c.Layers = 1, c.Layers[:2]
		for i := range c.Layers {
			c.Layers[i] = transformer.LayerForm{Before: 30, After: 5 * i}
		}
		c.RelativePositions = true
		all = append(all, kind{name: fmt.Sprintf("relative positions, windows, heads of %d that share keys", size),
			config: c})
	}
	rng := rand.New(rand.NewPCG(12, 3))
	for i := range 60 {
		k := anyForm(rng)
		k.name = fmt.Sprintf("form %d: %+v", i, k.config)
		all = append(all, k)
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
	for _, k := range append(families(), kinds()[1], kinds()[4], real(bertBase)) {
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
	requests := []*request{{model: m, batch: &bad, dst: make([]float32, len(want))}, {model: m, batch: &good, dst: make([]float32, len(want))}}
	require.ErrorIs(t, runtime.RunRequests(t.Context(), d, requests), transformer.ErrNotFinite)
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

// Sizes of models that are in use.
const (
	bertSmall = iota
	bertBase
	modernBase
	euroBERT
	mpnetBase
	gemmaEmbedding
	lfm2
	euroBERTLarge
	allSizes
)

func real(size int) kind {
	out := []transformer.Dense{{Out: 128}}
	switch size {
	case modernBase:
		c := sizes(768, 12, 1152, 8192, modeltest.AlternateLayers(22, 3, 128, 160000, 10000))
		c.NormPlace, c.Gated = transformer.PreNorm, true
		return kind{name: "modernbert 22 × 768", config: c, heads: out}
	case bertSmall, bertBase, mpnetBase:
		c := sizes(768, 12, 3072, 512, transformer.EqualLayers(12, 0))
		c.LearnedPositions, c.Epsilon = true, 1e-12
		name := "bert 12 × 768"
		switch size {
		case bertSmall:
			c.Hidden, c.HeadSize, c.Intermediate, c.Layers = 384, 32, 1536, c.Layers[:6]
			name = "bert 6 × 384"
		case mpnetBase:
			c.RelativePositions, name = true, "mpnet 12 × 768"
		}
		return kind{name: name, config: c, heads: out}
	}
	c := sizes(768, 12, 3072, 8192, transformer.EqualLayers(12, 250000))
	c.Norm, c.NormPlace, c.Activation, c.Gated = transformer.RMSNorm, transformer.PreNorm, transformer.SiLU, true
	k := kind{name: "eurobert 12 × 768", config: c, heads: out, edit: withoutNorm}
	switch size {
	case euroBERTLarge:
		k.name, c.Hidden, c.Heads, c.KeyHeads, c.Intermediate, c.Layers = "eurobert 26 × 1,152", 1152, 18, 6, 4096,
			transformer.EqualLayers(26, 250000)
	case gemmaEmbedding:
		k.name, k.edit = "gemma 24 × 768", normHeads
		c.Heads, c.KeyHeads, c.HeadSize, c.Intermediate, c.MaxPositions = 3, 1, 256, 1152, 2048
		c.NormPlace, c.Activation, c.Epsilon = transformer.SandwichNorm, transformer.GELUTanh, 1e-6
		c.Layers = transformer.EqualLayers(24, 1e6)
		for i := range c.Layers {
			if (i+1)%6 != 0 {
				c.Layers[i] = transformer.LayerForm{Before: 256, After: 256, Theta: 10000}
			}
		}
	case lfm2:
		k.name, k.edit = "lfm2 16 × 1,024", normHeads
		c.Hidden, c.Heads, c.KeyHeads, c.Intermediate = 1024, 16, 8, 4608
		c.Layers = nil
		for i := range 16 {
			f := transformer.LayerForm{Convolution: true, Before: 2}
			if slices.Contains([]int{2, 5, 8, 10, 12, 14}, i) {
				f = transformer.LayerForm{Before: transformer.Unbounded, Theta: 1e6}
			}
			c.Layers = append(c.Layers, f)
		}
	}
	k.config = c
	return k
}

// TestGPUSpeed: tokens a second and milliseconds a question, from ids to vectors on the
// host, of the sizes that models in use have. It asserts nothing, and is of use alone on
// a machine: PLAID_LONG=1 go test -run GPUSpeed -v.
func TestGPUSpeed(t *testing.T) {
	if !effort.Long() {
		t.Skip("measures; PLAID_LONG=1 runs it")
	}
	d := runtimetest.OpenGPU(t)
	for size := range allSizes {
		k := real(size)
		t.Run(k.name, func(t *testing.T) { speed(t, d, &k) })
	}
}

// speed logs that of a size, with random weights.
func speed(t *testing.T, d *runtime.Device, k *kind) {
	w := random(&k.config, 30000, 1, k.heads...)
	if k.edit != nil {
		k.edit(&k.config, w)
	}
	begin := time.Now()
	m := modelOn(t, d, k.config, w, transformer.Options{})
	a := m.About()
	t.Logf("%s: loaded in %v, %d MiB of weights, %d for batches of %d", k.name,
		time.Since(begin).Round(time.Millisecond), a.Weights>>20, a.Batches>>20, a.Tokens)
	r := rand.New(rand.NewPCG(1, 2))
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
			t.Logf("%s, %d callers with batches of %d tokens: %.2f M tokens/s", k.name, callers, tokens,
				float64(callers*each*tokens)/took.Seconds()/1e6)
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
