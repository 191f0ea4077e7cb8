package encode

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode/modeldir"
	"github.com/plaid-ir/plaid/encode/native"
	"github.com/plaid-ir/plaid/encode/weights"
	"github.com/plaid-ir/plaid/internal/testing/modeltest"
	"github.com/plaid-ir/plaid/kernels/transformer"
)

// TestGoldenForms: a form or a tensor of each family that is a little off gives vectors that are, too:
// the golden files would show it.
func TestGoldenForms(t *testing.T) {
	queries, documents := modeltest.GoldenTexts(t, goldens)
	type config = *native.Config
	type tensors = *native.Weights
	for rule, m := range map[string]struct {
		golden string
		change func(c config, w tensors)
	}{
		"positions' offset":     {"roberta", func(c config, w tensors) { c.PositionOffset-- }},
		"offset of the padding": {"mpnet", func(c config, w tensors) { c.PositionOffset-- }},
		"epsilon":               {"roberta", func(c config, w tensors) { c.Epsilon = 1e-12 }},
		"gelu_new":              {"roberta", func(c config, w tensors) { c.Activation = transformer.GELU }},
		"gelu_pytorch_tanh":     {"electra-narrow", func(c config, w tensors) { c.Activation = transformer.GELU }},
		"relu":                  {"camembert", func(c config, w tensors) { c.Activation = transformer.GELU }},
		"epsilon that is fixed": {"distilbert", func(c config, w tensors) { c.Epsilon = 1e-5 }},
		"types":                 {"electra", func(c config, w tensors) { w.Types = nil }},
		"projection":            {"electra-narrow", func(c config, w tensors) { w.Project.Bias = nil }},
		"norm before it":        {"electra-narrow", func(c config, w tensors) { w.Norm.Beta = nil }},
		"first bound":           {"mpnet", func(c config, w tensors) { copyDistance(c, w, 12, 11) }},
		"second bound":          {"mpnet", func(c config, w tensors) { copyDistance(c, w, 15, 16) }},
		"side of a distance":    {"mpnet", func(c config, w tensors) { slices.Reverse(w.Relative[:2*c.MaxPositions-1]) }},
		"RMS epsilon":           {"eurobert-biased", func(c config, w tensors) { c.Epsilon = 1e-5 }},
		"grouped keys":          {"eurobert", func(c config, w tensors) { interleave(&w.Layers[0].Query, c) }},
		"gates":                 {"eurobert", func(c config, w tensors) { swapHalves(w.Layers[0].Up.Weight) }},
		"biases of gates":       {"eurobert-biased", func(c config, w tensors) { w.Layers[0].Up.Bias = nil }},
		"base of angles":        {"eurobert", func(c config, w tensors) { c.Layers[1].Theta = 10_000 }},
		"last norm":             {"eurobert", func(c config, w tensors) { fill(w.Final.Gamma, 1) }},
		"window before":         {"gemma", func(c config, w tensors) { c.Layers[0].Before++ }},
		"window behind":         {"gemma", func(c config, w tensors) { c.Layers[0].After-- }},
		"window of the causal":  {"gemma-causal", func(c config, w tensors) { c.Layers[0].Before++ }},
		"causality":             {"gemma-causal", func(c config, w tensors) { c.Layers[1].After = transformer.Unbounded }},
		"one more":              {"gemma", func(c config, w tensors) { add(w.Layers[0].AttentionNorm.Gamma, -1) }},
		"one more of queries":   {"gemma", func(c config, w tensors) { add(w.Layers[1].QueryNorm.Gamma, -1) }},
		"norm of an output":     {"gemma", func(c config, w tensors) { fill(w.Layers[0].AttentionOutputNorm.Gamma, 1) }},
		"scale of attention":    {"gemma", func(c config, w tensors) { c.AttentionScale = 0 }},
		"scale of words":        {"gemma", func(c config, w tensors) { multiply(w.Words, 1/5.656854) }},
		"kind of angles":        {"gemma", func(c config, w tensors) { c.Layers[0].Theta = c.Layers[1].Theta }},
		"head norms":            {"lfm2", func(c config, w tensors) { swapNorms(&w.Layers[0]) }},
		"order of taps":         {"lfm2", func(c config, w tensors) { reverseTaps(w.Layers[1].Convolution.Taps.Weight, 3) }},
		"gates of convolutions": {"lfm2", func(c config, w tensors) {
			swapHalves(w.Layers[1].Convolution.In.Weight[:2*c.Hidden*c.Hidden])
		}},
		"bias of taps":          {"lfm2-biased", func(c config, w tensors) { w.Layers[0].Convolution.Taps.Bias = nil }},
		"taps behind":           {"lfm25", func(c config, w tensors) { c.Layers[1].Before, c.Layers[1].After = 2, 0 }},
		"rows of masks":         {"lfm25", func(c config, w tensors) { c.Layers[1].ConvolveAll = false }},
		"rows of masks, before": {"lfm2-biased", func(c config, w tensors) { c.Layers[0].ConvolveAll = true }},
	} {
		all := modeltest.Goldens()
		g := all[slices.IndexFunc(all, func(g modeltest.Golden) bool { return g.Name == m.golden })]
		dir, z := g.Open(t, goldens)
		e := open(t, dir, nil)
		read, err := modeldir.Read(dir, nil)
		require.NoError(t, err)
		c, w, err := weights.Load(read)
		require.NoError(t, err)
		m.change(&c, w)
		off, err := native.New(c, w, native.Options{})
		require.NoError(t, err, rule)
		localOf(e).engine = off
		worst := 0.0
		for name, v := range vectorsOf(t, e, queries, documents) {
			worst = max(worst, difference(t, modeltest.Floats(t, z, name), v))
		}
		require.Greater(t, worst, 2e-6, rule)
		t.Logf("%s of %s: %.2g", rule, m.golden, worst)
	}
}

// copyDistance gives one distance of a key the number of another.
func copyDistance(c *native.Config, w *native.Weights, from, to int) {
	for head := range c.Heads {
		row := w.Relative[head*(2*c.MaxPositions-1):]
		row[c.MaxPositions-1+to] = row[c.MaxPositions-1+from]
	}
}

// interleave orders heads of queries as if they took keys in turns.
func interleave(l *native.Linear, c *native.Config) {
	size, x := c.HeadSize*c.Hidden, slices.Clone(l.Weight)
	for head := range c.Heads {
		from := head%c.KeyHeads*(c.Heads/c.KeyHeads) + head/c.KeyHeads
		copy(l.Weight[head*size:(head+1)*size], x[from*size:])
	}
}

func swapHalves(x []float32) {
	y := slices.Concat(x[len(x)/2:], x[:len(x)/2])
	copy(x, y)
}

func swapNorms(l *native.Layer) { l.QueryNorm, l.KeyNorm = l.KeyNorm, l.QueryNorm }

func reverseTaps(x []float32, taps int) {
	for row := range slices.Chunk(x, taps) {
		slices.Reverse(row)
	}
}

func fill(x []float32, v float32) {
	for i := range x {
		x[i] = v
	}
}

func add(x []float32, v float32) {
	for i := range x {
		x[i] += v
	}
}

func multiply(x []float32, v float32) {
	for i := range x {
		x[i] *= v
	}
}
