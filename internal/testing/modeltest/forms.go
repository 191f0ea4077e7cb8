package modeltest

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/plaid-ir/plaid/kernels/transformer"
)

// Weights returns random weights for a config. With the series "" they are those of golden.py, for its
// sizes. Their scale keeps activations from growing and from vanishing.
func Weights(c *transformer.Config, vocabulary int, series string, heads ...transformer.Dense) *transformer.Weights {
	h, e, bert := c.Hidden, c.EmbeddingSize(), c.NormPlace == transformer.PostNorm
	scale := math.Ldexp(1, -int(math.Round(math.Log2(float64(h))/2))+1)
	tensor := func(name string, scale, offset float64, shape ...int) []float32 {
		return Random(series+name, scale, offset, shape...).Data
	}
	norm := func(name string, size int) transformer.Norm {
		n := transformer.Norm{Gamma: tensor(name+".gamma", 0.25, 1, size)}
		if bert && c.Norm == transformer.LayerNorm {
			n.Beta = tensor(name+".beta", 0.25, 0, size)
		}
		return n
	}
	linear := func(name string, out, in int) transformer.Linear {
		l := transformer.Linear{Weight: tensor(name, scale, 0, out, in)}
		if bert {
			l.Bias = tensor(name+".bias", 0.25, 0, out)
		}
		return l
	}
	w := &transformer.Weights{Words: tensor("words", 1, 0, vocabulary, e), Norm: norm("norm", e), Heads: heads}
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
		name := fmt.Sprintf("layer%d.", i)
		l := transformer.Layer{
			AttentionNorm: norm(name+"attention norm", h), FeedForwardNorm: norm(name+"feed-forward norm", h),
			Up: linear(name+"up", up, h), Down: linear(name+"down", h, c.Intermediate),
		}
		if f := &c.Layers[i]; f.Convolution {
			l.Convolution.In, l.Convolution.Taps = linear(name+"in", 3*h, h), linear(name+"taps", h, f.Taps())
			l.Output = linear(name+"output", h, h)
		} else {
			queries, keys := c.Heads*c.HeadSize, c.KeyHeads*c.HeadSize
			l.Query, l.Key = linear(name+"query", queries, h), linear(name+"key", keys, h)
			l.Value, l.Output = linear(name+"value", keys, h), linear(name+"output", h, queries)
		}
		if c.NormPlace == transformer.SandwichNorm {
			l.AttentionOutputNorm = norm(name+"attention output norm", h)
			l.FeedForwardOutputNorm = norm(name+"feed-forward output norm", h)
		}
		if i == 0 && c.NormPlace == transformer.PreNorm {
			l.AttentionNorm = transformer.Norm{}
		}
		w.Layers = append(w.Layers, l)
	}
	return w
}

// NormHeads adds norms of queries and keys to all layers.
func NormHeads(c *transformer.Config, w *transformer.Weights) {
	for i := range w.Layers {
		if !c.Layers[i].Convolution {
			w.Layers[i].QueryNorm.Gamma = Random("query norm", 0.5, 1, c.HeadSize).Data
			w.Layers[i].KeyNorm.Gamma = Random("key norm", 0.5, 1, c.HeadSize).Data
		}
	}
}

// AnyForm draws a config among all that [transformer.Config.Check] accepts, with heads of one of the
// sizes, and a function that removes optional parts of its random weights.
func AnyForm(rng *rand.Rand, positions int, headSizes ...int) (
	transformer.Config, func(*transformer.Config, *transformer.Weights),
) {
	pick := func(from ...int) int { return from[rng.IntN(len(from))] }
	coin := func() bool { return rng.IntN(2) == 0 }
	c := transformer.Config{
		Hidden: pick(16, 48, 64, 112), Embedding: pick(0, 0, 32, 80),
		KeyHeads: pick(1, 1, 2, 3), HeadSize: pick(headSizes...),
		Intermediate: pick(16, 64, 80), MaxPositions: positions, RelativePositions: coin(), LearnedPositions: coin(),
		Norm: transformer.NormKind(pick(0, 1)), NormPlace: transformer.NormPlace(pick(0, 1, 2)), Epsilon: 1e-5,
		Activation: transformer.Activation(pick(1, 2, 3, 4, 5)), Gated: coin(),
	}
	// A larger scale would make attention select a single token, which rounding could change.
	c.AttentionScale = []float32{0, 0.3, 0.8}[rng.IntN(3)] * c.Scale()
	if c.LearnedPositions {
		c.PositionOffset = pick(0, 2)
	}
	c.Heads = c.KeyHeads * pick(1, 2, 3)
	for range pick(1, 2, 3) {
		f := transformer.LayerForm{Before: pick(-1, -1, 0, 5, 40), After: pick(-1, -1, 0, 5, 40)}
		if f.Convolution = f.Before >= 0 && f.After >= 0 && f.Taps() <= 64 && coin(); f.Convolution {
			f.ConvolveAll = coin()
		}
		if c.HeadSize%32 == 0 && coin() {
			f.Theta = 10000
		}
		c.Layers = append(c.Layers, f)
	}
	return c, func(c *transformer.Config, w *transformer.Weights) {
		if coin() {
			w.Norm = transformer.Norm{}
		}
		if coin() {
			w.Types = nil
		}
		if coin() {
			NormHeads(c, w)
		}
		for i := range w.Layers {
			l := &w.Layers[i]
			for _, m := range []*transformer.Linear{
				&l.Query, &l.Value, &l.Convolution.In, &l.Convolution.Taps, &l.Output, &l.Up, &l.Down,
			} {
				if m.Weight != nil && coin() {
					m.Bias = nil
				}
			}
			if l.AttentionNorm.Gamma == nil && coin() {
				l.AttentionNorm = w.Final
			}
		}
	}
}
