package encoder

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/modeltest"
	"github.com/plaid-ir/plaid/kernels/transformer"
)

// withoutNorm takes the norm of the embeddings away.
func withoutNorm(_ *transformer.Config, w *transformer.Weights) { w.Norm = transformer.Norm{} }

// normHeads gives layers norms of queries and keys, and takes that of the embeddings away.
func normHeads(c *transformer.Config, w *transformer.Weights) {
	withoutNorm(c, w)
	modeltest.NormHeads(c, w)
}

// families are tiny models of the forms that backbones other than BERT and ModernBERT have.
func families() []kind {
	post := func(hidden, heads, inner int) transformer.Config {
		c := sizes(hidden, heads, inner, longest, transformer.EqualLayers(3, 0))
		c.LearnedPositions = true
		return c
	}
	pre := func(hidden, heads, keys, size, inner int, a transformer.Activation,
		layers []transformer.LayerForm) transformer.Config {
		return transformer.Config{
			Hidden: hidden, Heads: heads, KeyHeads: keys, HeadSize: size, Intermediate: inner, MaxPositions: longest,
			Epsilon: 1e-5, Norm: transformer.RMSNorm, NormPlace: transformer.PreNorm, Activation: a, Gated: true,
			Layers: layers,
		}
	}
	out := []transformer.Dense{{Out: 48}}
	var all []kind
	add := func(name string, c transformer.Config, edit func(*transformer.Config, *transformer.Weights)) {
		all = append(all, kind{name, c, out, edit})
	}
	add("eurobert", pre(96, 3, 3, 32, 80, transformer.SiLU, transformer.EqualLayers(3, 250000)), withoutNorm)
	add("eurobert, keys shared, heads of 64",
		pre(128, 4, 2, 64, 128, transformer.SiLU, transformer.EqualLayers(3, 250000)), withoutNorm)

	c := post(112, 7, 48)
	c.Embedding, c.Activation = 64, transformer.GELUTanh
	add("electra", c, nil)
	c = post(64, 2, 80)
	c.PositionOffset, c.RelativePositions, c.Activation = 2, true, transformer.ReLU
	add("mpnet", c, nil)
	c = post(64, 4, 80)
	c.Activation = transformer.SiLU
	add("bert with SiLU", c, nil)
	c.Activation, c.Layers = transformer.Tanh,
		[]transformer.LayerForm{transformer.EqualLayers(1, 0)[0], {Convolution: true, Before: 4, After: 1}}
	add("bert with tanh and a convolution", c, nil)

	unbounded := transformer.Unbounded
	c = pre(80, 3, 1, 256, 48, transformer.GELUTanh, []transformer.LayerForm{
		{Before: 20, After: 20, Theta: 10000}, {Before: unbounded, After: unbounded, Theta: 1e6},
		{Before: 64, After: 64, Theta: 10000},
	})
	c.NormPlace, c.AttentionScale, c.Epsilon = transformer.SandwichNorm, .11, 1e-6
	add("gemma", c, normHeads)
	// Products of the two halves are far beyond 65,504, and so is what tokens add up to.
	c.HeadSize = 64
	add("gemma, large activations", c, func(c *transformer.Config, w *transformer.Weights) {
		normHeads(c, w)
		for i := range w.Words {
			w.Words[i] *= 3000
		}
		for i := range w.Layers {
			for j := range c.Hidden {
				w.Layers[i].FeedForwardNorm.Gamma[j] *= 240
				w.Layers[i].FeedForwardOutputNorm.Gamma[j] *= 5000
			}
		}
	})
	c.Layers = []transformer.LayerForm{{Before: 50, Theta: 10000}, {Before: unbounded, Theta: 1e6},
		{Before: 7, Theta: 10000}}
	add("gemma, causal", c, normHeads)

	c = pre(80, 6, 2, 32, 48, transformer.SiLU, []transformer.LayerForm{
		{Convolution: true, Before: 2}, {Before: unbounded, Theta: 1e6}, {Convolution: true, Before: 3},
	})
	add("lfm2", c, normHeads)
	c.Layers = []transformer.LayerForm{
		{Convolution: true, Before: 1, After: 1, ConvolveAll: true}, transformer.EqualLayers(1, 1e6)[0],
		{Convolution: true, Before: 2, After: 1, ConvolveAll: true},
	}
	add("lfm2.5", c, normHeads)

	c = pre(96, 2, 1, 160, 64, transformer.ReLU, transformer.EqualLayers(2, 10000))
	c.Norm, c.Embedding = transformer.LayerNorm, 48
	add("no family, heads of 160", c, nil)
	c = pre(64, 4, 2, 80, 64, transformer.Tanh, transformer.EqualLayers(2, 0))
	c.NormPlace, c.RelativePositions = transformer.SandwichNorm, true
	add("no family, heads of 80", c, normHeads)
	return all
}

// wideRows are models whose rows are wider than the others' kernels take.
func wideRows() []kind {
	all := families()
	gemma, electra := all[6], all[2]
	gemma.name, gemma.config.Hidden, gemma.config.Layers = "gemma, wide", 1152, gemma.config.Layers[:2]
	electra.name, electra.config.Hidden, electra.config.Embedding = "electra, wide", 64, 1104
	electra.config.Heads, electra.config.KeyHeads, electra.config.HeadSize = 4, 4, 16
	widest := all[0]
	widest.name, widest.config.Hidden, widest.config.Layers = "eurobert, widest", maxColumns, widest.config.Layers[:1]
	return []kind{gemma, electra, widest}
}

// anyForm draws a model out of all that a device has kernels for.
func anyForm(rng *rand.Rand) kind {
	c, edit := modeltest.AnyForm(rng, longest, 16, 32, 48, 64, 96, 112, 128)
	return kind{"any", c, []transformer.Dense{{Out: 40, Activation: transformer.Activation(rng.IntN(2) * 5)}}, edit}
}

// mixed are texts of many lengths, of which some tokens are not attended to.
func mixed(r *rand.Rand) transformer.Batch {
	b := batchOf(textOf(r, 1+r.IntN(longest)), textOf(r, 1), nil, textOf(r, 1+r.IntN(40)), textOf(r, 65))
	for i := range b.Texts() {
		b.Attended = append(b.Attended, attendedOf(i, b.Length(i)))
	}
	return b
}

// TestAnyForm: random models of all forms, against the processor's float32.
func TestAnyForm(t *testing.T) {
	rng := rand.New(rand.NewPCG(12, 3))
	lowest := 1.0
	for i := range effort.Cases(15, 400) {
		k := anyForm(rng)
		w := k.weights(uint64(i))
		b := mixed(rng)
		t.Run(fmt.Sprint(i), func(t *testing.T) { // which frees the model at its end
			m := openModel(t, k.config, w, transformer.Options{}, i%2 == 0)
			l := least(t, onProcessor(t, k.config, w, b), encodeOn(t, m, b), 40)
			lowest = min(lowest, l)
			require.Greater(t, l, .9998, fmt.Sprintf("%+v", k.config))
		})
	}
	t.Logf("lowest cosine 1 − %.2g", 1-lowest)
}
