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

// random returns weights for a config, those of testdata/golden.py where its
// sizes are. Their scale lets activations neither grow nor vanish.
func random(c *Config, vocab int, heads ...Dense) *Weights {
	h, e, scale := c.Hidden, c.EmbeddingSize(), math.Ldexp(1, -int(math.Round(math.Log2(float64(c.Hidden))/2))+1)
	bert := c.NormPlace == transformer.PostNorm
	norm := func(name string, size int) Norm {
		n := Norm{Gamma: tensor(name+".gamma", 0.25, 1, size)}
		if bert && c.Norm == transformer.LayerNorm {
			n.Beta = tensor(name+".beta", 0.25, 0, size)
		}
		return n
	}
	linear := func(name string, out, in int) Linear {
		l := Linear{Weight: tensor(name, scale, 0, out, in)}
		if bert {
			l.Bias = tensor(name+".bias", 0.25, 0, out)
		}
		return l
	}
	w := &Weights{Words: tensor("words", 1, 0, vocab, e), Norm: norm("norm", e), Heads: heads}
	if e != h {
		w.Project = linear("project", h, e)
	}
	if c.LearnedPositions {
		w.Positions = tensor("positions", 1, 0, c.MaxPositions+c.PositionOffset, e)
	}
	if c.RelativePositions {
		w.Relative = tensor("relative", 2, 0, c.Heads, 2*c.MaxPositions-1)
	}
	if bert {
		w.Types = tensor("types", 1, 0, 2, e)
	} else {
		w.Final = norm("final", h)
	}
	up := c.Intermediate
	if c.Gated {
		up *= 2
	}
	for i := range c.Layers {
		name := "layer" + string(rune('0'+i)) + "."
		l := Layer{
			AttentionNorm: norm(name+"attention norm", h), FeedForwardNorm: norm(name+"feed-forward norm", h),
			Up: linear(name+"up", up, h), Down: linear(name+"down", h, c.Intermediate),
		}
		if c.Layers[i].Convolution {
			l.Convolution.In, l.Convolution.Taps = linear(name+"in", 3*h, h), linear(name+"taps", h, c.Layers[i].Taps())
			l.Output = linear(name+"output", h, h)
		} else {
			queries, keys := c.Heads*c.HeadSize, c.KeyHeads*c.HeadSize
			l.Query, l.Key = linear(name+"query", queries, h), linear(name+"key", keys, h)
			l.Value = linear(name+"value", keys, h)
			l.Output = linear(name+"output", h, queries)
		}
		if c.NormPlace == transformer.SandwichNorm {
			l.AttentionOutputNorm = norm(name+"attention output norm", h)
			l.FeedForwardOutputNorm = norm(name+"feed-forward output norm", h)
		}
		if i == 0 && c.NormPlace == transformer.PreNorm {
			l.AttentionNorm = Norm{}
		}
		w.Layers = append(w.Layers, l)
	}
	return w
}

// normHeads gives layers norms of queries and keys.
func normHeads(c *Config, w *Weights) {
	for i := range w.Layers {
		if !c.Layers[i].Convolution {
			w.Layers[i].QueryNorm = Norm{Gamma: tensor("query norm", 0.5, 1, c.HeadSize)}
			w.Layers[i].KeyNorm = Norm{Gamma: tensor("key norm", 0.5, 1, c.HeadSize)}
		}
	}
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
