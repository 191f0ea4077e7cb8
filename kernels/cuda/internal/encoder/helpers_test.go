package encoder

import (
	"fmt"
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

// random makes weights, and those of heads.
func random(c *transformer.Config, vocabulary int, seed uint64, heads ...transformer.Dense) *transformer.Weights {
	series, in := fmt.Sprintf("seed %d, ", seed), c.Hidden
	var made []transformer.Dense
	for i, d := range heads {
		name := fmt.Sprintf("%shead %d", series, i)
		scale := 2 / math.Sqrt(float64(in))
		d.In, d.Weight = in, modeltest.Random(name, scale, 0, d.Out, in).Data
		if d.Activation != transformer.Identity {
			d.Bias = modeltest.Random(name+".bias", .25, 0, d.Out).Data
		}
		if d.Residual && d.Out != in {
			d.ResidualWeight = modeltest.Random(name+".residual", scale, 0, d.Out, in).Data
		}
		made, in = append(made, d), d.Out
	}
	return modeltest.Weights(c, vocabulary, series, made...)
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
	return runtime.RunRequests(t.Context(), m.dev, requests)
}

// attendedOf is how many tokens of text i are attended to, of n: most of them, and of each third
// text so few that its last tokens reach none of them in a window.
func attendedOf(i, n int) int {
	if i%3 == 0 {
		return min(n, 3)
	}
	return min(n, max(n-9, 1))
}
