package native

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/modeltest"
	"github.com/plaid-ir/plaid/kernels/transformer"
)

// sample is a model for tests: edit changes random weights.
type sample struct {
	config Config
	edit   func(c *Config, w *Weights)
}

func (s *sample) weights(heads ...Dense) *Weights {
	w := random(&s.config, 90, heads...)
	if s.edit != nil {
		s.edit(&s.config, w)
	}
	return w
}

// noNorm takes the norm of the embeddings away.
func noNorm(_ *Config, w *Weights) { w.Norm = Norm{} }

// sameModels are shapes whose panels end unevenly in every tier.
func sameModels() map[string]*sample {
	alternate, unbounded := modeltest.AlternateLayers, transformer.Unbounded
	models := map[string]*sample{
		"bert":               {config: bert(112, 7, 208, 700, 1e-12, 3, 0)},
		"bert, heads of 80":  {config: bert(160, 2, 16, 700, 1e-12, 3, 0)},
		"bert, rotary":       {config: bert(96, 3, 80, 700, 1e-5, 3, 20000)},
		"modernbert":         {config: modernBERT(96, 3, 80, 700, alternate(3, 2, 128, 160000, 10000))},
		"modernbert, narrow": {config: modernBERT(64, 1, 16, 700, alternate(3, 3, 10, 1000, 100))},
	}
	c := modernBERT(96, 6, 80, 700, transformer.EqualLayers(3, 250000))
	c.HeadSize, c.KeyHeads, c.Norm, c.Activation = 32, 2, transformer.RMSNorm, SiLU
	models["eurobert"] = &sample{c, noNorm}

	c = bert(112, 7, 48, 700, 1e-12, 3, 0)
	c.Embedding, c.Activation = 64, GELUTanh
	models["electra"] = &sample{config: c}

	c = bert(64, 4, 80, 700, 1e-5, 3, 0)
	c.PositionOffset, c.RelativePositions, c.Activation = 2, true, ReLU
	models["mpnet"] = &sample{config: c}

	c = modernBERT(80, 3, 48, 700, transformer.EqualLayers(3, 1e6))
	c.HeadSize, c.KeyHeads, c.AttentionScale, c.Epsilon = 64, 1, 0.11, 1e-6
	c.Norm, c.NormPlace, c.Activation = transformer.RMSNorm, transformer.SandwichNorm, GELUTanh
	c.Layers[1] = transformer.LayerForm{Before: 20, After: 20, Theta: 10000}
	models["gemma"] = &sample{c, func(c *Config, w *Weights) { noNorm(c, w); modeltest.NormHeads(c, w) }}

	c.Layers = []transformer.LayerForm{
		{Before: 50, Theta: 10000}, {Before: unbounded, Theta: 1e6}, {Before: 7, Theta: 10000}}
	models["gemma, causal"] = &sample{c, func(c *Config, w *Weights) { noNorm(c, w); modeltest.NormHeads(c, w) }}

	c = modernBERT(80, 6, 48, 700, []transformer.LayerForm{
		{Convolution: true, Before: 2}, {Before: unbounded, Theta: 1e6}, {Convolution: true, Before: 3}})
	c.HeadSize, c.KeyHeads, c.Norm, c.Activation = 32, 2, transformer.RMSNorm, SiLU
	models["lfm2"] = &sample{c, func(c *Config, w *Weights) { noNorm(c, w); modeltest.NormHeads(c, w) }}

	c.Layers = []transformer.LayerForm{
		{Convolution: true, Before: 1, After: 1, ConvolveAll: true}, transformer.EqualLayers(1, 1e6)[0],
		{Convolution: true, Before: 2, After: 1, ConvolveAll: true},
	}
	models["lfm2.5"] = &sample{c, func(c *Config, w *Weights) { noNorm(c, w); modeltest.NormHeads(c, w) }}

	c = bert(64, 4, 80, 700, 1e-5, 3, 0)
	c.Activation, c.Gated = Tanh, true
	c.Layers[1] = transformer.LayerForm{Convolution: true, Before: 4}
	models["no family"] = &sample{c, modeltest.NormHeads}
	return models
}

// TestAnyForm: random models against float64, with the same bits on every tier.
func TestAnyForm(t *testing.T) {
	rng := rand.New(rand.NewPCG(12, 3))
	worst := 0.0
	for i := range effort.Cases(60, 400) {
		config, edit := modeltest.AnyForm(rng, 150, 16, 32, 48, 64, 96)
		s := sample{config, edit}
		c := &s.config
		w := s.weights(Dense{In: c.Hidden, Out: 40, Linear: Linear{Weight: tensor("head", 0.25, 0, 40, c.Hidden)}})
		texts, attended := mixed(rng, 90, 1+rng.IntN(150), 9+rng.IntN(30), rng.IntN(10))
		attended[0] = 1 + rng.IntN(len(texts[0]))
		b := batchOf(texts...)
		b.Attended = attended
		want := expected(c, w, b)
		var first [2][]float32
		for _, tier := range Tiers() {
			for _, p := range []Precision{F32, Int8} {
				got := encode(t, newModel(t, *c, w, Options{Tier: tier, Precision: p}), b)
				if first[p] == nil {
					first[p] = got
				}
				requireSame(t, first[p], got, "case %d, %s, %v: %+v", i, tier, p, *c)
			}
		}
		d := difference(t, want, first[F32])
		require.Less(t, d, 4e-5, fmt.Sprintf("case %d: %+v", i, *c)) // attention of some is nearly a choice
		worst = max(worst, d)
		_, mean := cosines(want, first[Int8], 40)
		require.Greater(t, mean, 0.98, fmt.Sprintf("case %d: %+v", i, *c))
	}
	t.Logf("largest difference %.2g", worst)
}
