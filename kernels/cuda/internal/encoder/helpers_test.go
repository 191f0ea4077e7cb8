package encoder

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode/native"
	"github.com/plaid-ir/plaid/internal/testing/modeltest"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver/drivertest"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
	"github.com/plaid-ir/plaid/kernels/transformer"
)

// random makes tensors of a scale that lets activations neither grow nor vanish.
func random(c *transformer.Config, words int, seed uint64, heads ...transformer.Dense) *transformer.Weights {
	r := rand.New(rand.NewPCG(seed, 1))
	tensor := func(scale, offset float64, n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(offset + scale*(2*r.Float64()-1))
		}
		return x
	}
	bert, e := c.NormPlace == transformer.PostNorm, c.EmbeddingSize()
	linear := func(out, in int, bias bool) transformer.Linear {
		l := transformer.Linear{Weight: tensor(2/math.Sqrt(float64(in)), 0, out*in)}
		if bias {
			l.Bias = tensor(.25, 0, out)
		}
		return l
	}
	norm := func(size int) transformer.Norm {
		n := transformer.Norm{Gamma: tensor(.25, 1, size)}
		if bert && c.Norm == transformer.LayerNorm {
			n.Beta = tensor(.25, 0, size)
		}
		return n
	}
	w := &transformer.Weights{Words: tensor(1, 0, words*e), Norm: norm(e)}
	up := c.Intermediate
	if c.Gated {
		up *= 2
	}
	if c.LearnedPositions {
		w.Positions = tensor(1, 0, (c.MaxPositions+c.PositionOffset)*e)
	}
	if c.RelativePositions {
		w.Relative = tensor(2, 0, c.Heads*(2*c.MaxPositions-1))
	}
	if e != c.Hidden {
		w.Project = linear(c.Hidden, e, bert)
	}
	if bert {
		w.Types = tensor(1, 0, 2*e)
	} else {
		w.Final = norm(c.Hidden)
	}
	for i, f := range c.Layers {
		l := transformer.Layer{
			AttentionNorm: norm(c.Hidden), FeedForwardNorm: norm(c.Hidden),
			Up: linear(up, c.Hidden, bert), Down: linear(c.Hidden, c.Intermediate, bert),
		}
		if queries, keys := c.Heads*c.HeadSize, c.KeyHeads*c.HeadSize; f.Convolution {
			l.Convolution = transformer.Convolution{In: linear(3*c.Hidden, c.Hidden, bert),
				Taps: linear(c.Hidden, f.Taps(), bert)}
			l.Output = linear(c.Hidden, c.Hidden, bert)
		} else {
			l.Query, l.Key, l.Value = linear(queries, c.Hidden, bert), linear(keys, c.Hidden, bert),
				linear(keys, c.Hidden, bert)
			l.Output = linear(c.Hidden, queries, bert)
		}
		if c.NormPlace == transformer.SandwichNorm {
			l.AttentionOutputNorm, l.FeedForwardOutputNorm = norm(c.Hidden), norm(c.Hidden)
		}
		if i == 0 && c.NormPlace == transformer.PreNorm && c.Norm == transformer.LayerNorm {
			l.AttentionNorm = transformer.Norm{}
		}
		w.Layers = append(w.Layers, l)
	}
	in := c.Hidden
	for _, d := range heads {
		d.In = in
		d.Linear = linear(d.Out, in, d.Activation != transformer.Identity)
		if d.Residual && d.Out != in {
			d.ResidualWeight = linear(d.Out, in, false).Weight
		}
		w.Heads, in = append(w.Heads, d), d.Out
	}
	return w
}

const (
	words   = 60
	longest = 150
)

// kind is a model for tests.
type kind struct {
	name   string
	config transformer.Config
	heads  []transformer.Dense
	edit   func(c *transformer.Config, w *transformer.Weights) // of random weights, or nil
}

// sizes is a model of BERT's form, without positions of its own.
func sizes(hidden, heads, inner, positions int, layers []transformer.LayerForm) transformer.Config {
	return transformer.Config{
		Hidden: hidden, Heads: heads, KeyHeads: heads, HeadSize: hidden / heads, Intermediate: inner, MaxPositions: positions,
		Epsilon: 1e-5, Activation: transformer.GELU, Layers: layers,
	}
}

// kinds are sizes that are whole tiles and such that are not, and heads of every sort.
func kinds() []kind {
	bert := func(hidden, heads, inner int) transformer.Config {
		c := sizes(hidden, heads, inner, longest, transformer.EqualLayers(4, 0))
		c.LearnedPositions, c.PositionOffset, c.Epsilon = true, 2, 1e-12
		return c
	}
	rotary := func(hidden, heads, inner int) transformer.Config {
		return sizes(hidden, heads, inner, longest, transformer.EqualLayers(4, 20000))
	}
	modern := func(hidden, heads, inner int) transformer.Config {
		c := sizes(hidden, heads, inner, longest, modeltest.AlternateLayers(4, 3, 20, 160000, 10000))
		c.NormPlace, c.Gated = transformer.PreNorm, true
		return c
	}
	all := []transformer.Dense{
		{Out: 90, Activation: transformer.GELU, Residual: true}, {Out: 90, Activation: transformer.ReLU, Residual: true},
		{Out: 64, Activation: transformer.SiLU}, {Out: 40, Activation: transformer.Tanh, Residual: true},
	}
	return []kind{
		{name: "bert, whole tiles", config: bert(64, 2, 128), heads: []transformer.Dense{{Out: 32}}},
		{name: "bert, parts of tiles", config: bert(96, 2, 80), heads: all},
		{name: "bert, no head", config: bert(48, 3, 64)},
		{name: "modernbert, whole tiles", config: modern(64, 2, 64), heads: []transformer.Dense{{Out: 48}}},
		{name: "modernbert, parts of tiles", config: modern(96, 3, 80), heads: all},
		{name: "bert, rotary", config: rotary(64, 2, 128), heads: []transformer.Dense{{Out: 32}}},
		{name: "bert, rotary, parts of tiles", config: rotary(96, 3, 80), heads: all},
	}
}

func (k *kind) weights(seed uint64) *transformer.Weights {
	w := random(&k.config, words, seed, k.heads...)
	if k.edit != nil {
		k.edit(&k.config, w)
	}
	return w
}

// opened is a model on a fake device.
type opened struct {
	*model
	fake  *drivertest.Fake
	dev   *runtime.Device
	count map[string]int
}

func openModel(t testing.TB, c transformer.Config, w *transformer.Weights, o transformer.Options, hopper bool) *opened {
	t.Helper()
	count := map[string]int{}
	f := runtimetest.Fake(launches(fakeKernels(), count))
	open := runtimetest.OpenFake
	if hopper {
		open = runtimetest.OpenFakeHopper
	}
	d := open(t, f)
	m, err := New(t.Context(), d, c, w, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return &opened{m.(*model), f, d, count}
}

func batchOf(texts ...[]int32) (b transformer.Batch) {
	b.Offsets = []int{0}
	for _, x := range texts {
		b.IDs = append(b.IDs, x...)
		b.Offsets = append(b.Offsets, len(b.IDs))
	}
	return b
}

// textOf has n ids.
func textOf(r *rand.Rand, n int) []int32 {
	x := make([]int32, n)
	for i := range x {
		x[i] = int32(r.IntN(words))
	}
	return x
}

func encodeOn(t testing.TB, m transformer.Model, b transformer.Batch) []float32 {
	t.Helper()
	dst := make([]float32, len(b.IDs)*m.About().Dim)
	require.NoError(t, m.Encode(t.Context(), dst, b))
	return dst
}

// onProcessor are the vectors of the processor's float32.
func onProcessor(t testing.TB, c transformer.Config, w *transformer.Weights, b transformer.Batch) []float32 {
	t.Helper()
	m, err := native.New(c, w, native.Options{})
	require.NoError(t, err)
	dst := make([]float32, len(b.IDs)*m.Dim())
	require.NoError(t, m.Encode(t.Context(), dst, b))
	return dst
}

// least is the lowest cosine of unit vectors.
func least(t testing.TB, want, got []float32, dim int) float64 {
	t.Helper()
	require.Len(t, got, len(want))
	lowest := 1.0
	for i := 0; i < len(want); i += dim {
		s := 0.0
		for j := range dim {
			s += float64(want[i+j]) * float64(got[i+j])
		}
		require.False(t, math.IsNaN(s), "vector %d", i/dim)
		lowest = min(lowest, s)
	}
	return lowest
}

// doAll asks for requests in one go.
func doAll(t testing.TB, m *opened, requests []*request) error {
	t.Helper()
	return runtime.Do(t.Context(), m.dev, requests)
}

// attendedOf is how many tokens of text i are attended to, of n: most of them, and of each third
// text so few that its last tokens reach none of them in a window.
func attendedOf(i, n int) int {
	if i%3 == 0 {
		return min(n, 3)
	}
	return min(n, max(n-9, 1))
}
