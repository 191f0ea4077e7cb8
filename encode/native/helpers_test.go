package native

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode/engine"
	"github.com/plaid-ir/plaid/internal/testing/modeltest"
	"github.com/plaid-ir/plaid/kernels/transformer"
)

// tensor is the one of testdata/golden.py.
func tensor(name string, scale, offset float64, shape ...int) []float32 {
	return modeltest.Random(name, scale, offset, shape...).Data
}

// random returns weights for a config.
func random(c *Config, vocabulary int, heads ...Dense) *Weights {
	return modeltest.Weights(c, vocabulary, "", heads...)
}

// bert is a model of BERT's form, with rotary positions if theta is not 0.
func bert(hidden, heads, intermediate, positions int, epsilon float32, layers int, theta float64) Config {
	return Config{
		Hidden: hidden, Heads: heads, KeyHeads: heads, HeadSize: hidden / heads,
		Intermediate: intermediate, MaxPositions: positions,
		LearnedPositions: theta == 0, Epsilon: epsilon, Activation: GELU, Layers: transformer.EqualLayers(layers, theta),
	}
}

// modernBERT is a model of ModernBERT's form.
func modernBERT(hidden, heads, intermediate, positions int, layers []transformer.LayerForm) Config {
	return Config{
		Hidden: hidden, Heads: heads, KeyHeads: heads, HeadSize: hidden / heads,
		Intermediate: intermediate, MaxPositions: positions,
		NormPlace: transformer.PreNorm, Epsilon: 1e-5, Activation: GELU, Gated: true, Layers: layers,
	}
}

// tiny are the models of testdata/golden.py.
func tiny(modern bool) (Config, *Weights) {
	c := bert(64, 2, 48, 64, 1e-12, 4, 0)
	c.PositionOffset = 2
	if modern {
		c = modernBERT(64, 2, 48, 64, modeltest.AlternateLayers(4, 3, 16, 160000, 10000))
	}
	return c, random(&c, 50,
		Dense{In: 64, Out: 90,
			Linear:     Linear{Weight: tensor("head0", 0.25, 0, 90, 64), Bias: tensor("head0.bias", 0.25, 0, 90)},
			Activation: GELU, Residual: true, ResidualWeight: tensor("head0.residual", 0.25, 0, 90, 64)},
		Dense{In: 90, Out: 40, Linear: Linear{Weight: tensor("head1", 0.25, 0, 40, 90)}, Activation: Tanh},
		Dense{In: 40, Out: 40, Linear: Linear{Weight: tensor("head2", 0.25, 0, 40, 40)}, Residual: true})
}

// batchOf puts texts together.
func batchOf(texts ...[]int32) (b engine.Batch) {
	b.Offsets = []int{0}
	for _, x := range texts {
		b.IDs = append(b.IDs, x...)
		b.Offsets = append(b.Offsets, len(b.IDs))
	}
	return b
}

func encode(t testing.TB, m *Model, b engine.Batch) []float32 {
	t.Helper()
	dst := make([]float32, len(b.IDs)*m.Dim())
	require.NoError(t, m.Encode(t.Context(), dst, b))
	return dst
}

func newModel(t testing.TB, c Config, w *Weights, o Options) *Model {
	t.Helper()
	m, err := New(c, w, o)
	require.NoError(t, err)
	return m
}

// difference is the largest one.
func difference(t testing.TB, want, got []float32) (d float64) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		x := math.Abs(float64(want[i]) - float64(got[i]))
		require.False(t, math.IsNaN(x), "value %d", i)
		d = max(d, x)
	}
	return d
}
