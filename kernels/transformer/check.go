package transformer

import (
	"fmt"
	"math"
)

// maxTaps is the largest number of taps of a convolution.
const maxTaps = 64

// Check checks sizes and forms. Errors wrap [ErrConfig].
func (c *Config) Check() error {
	switch {
	case c.Hidden < 1 || c.Hidden%16 != 0 || c.EmbeddingSize() < 1 || c.EmbeddingSize()%16 != 0:
		return fmt.Errorf("%w: %d dimensions of %d of words: want multiples of 16",
			ErrConfig, c.Hidden, c.EmbeddingSize())
	case c.Heads < 1 || c.KeyHeads < 1 || c.Heads%c.KeyHeads != 0:
		return fmt.Errorf("%w: %d heads of queries, %d of keys", ErrConfig, c.Heads, c.KeyHeads)
	case c.HeadSize < 1 || c.HeadSize%16 != 0:
		return fmt.Errorf("%w: heads of %d dimensions: want a multiple of 16", ErrConfig, c.HeadSize)
	case c.Intermediate < 1 || c.Intermediate%16 != 0:
		return fmt.Errorf("%w: feed-forward size %d is no multiple of 16", ErrConfig, c.Intermediate)
	case c.MaxPositions < 1 || c.PositionOffset < 0 || c.PositionOffset > 0 && !c.LearnedPositions:
		return fmt.Errorf("%w: %d positions from %d on", ErrConfig, c.MaxPositions, c.PositionOffset)
	case !(c.Epsilon >= 0) || !(c.AttentionScale >= 0):
		return fmt.Errorf("%w: epsilon %g, attention scaled by %g", ErrConfig, c.Epsilon, c.AttentionScale)
	case c.Norm < LayerNorm || c.Norm > RMSNorm || c.NormPlace < PostNorm || c.NormPlace > SandwichNorm:
		return fmt.Errorf("%w: norms of kind %d at place %d", ErrConfig, c.Norm, c.NormPlace)
	case c.Activation <= Identity || c.Activation > GELUTanh:
		return fmt.Errorf("%w: no activation %d of the feed-forward part", ErrConfig, c.Activation)
	}
	for i := range c.Layers {
		f := &c.Layers[i]
		switch {
		case f.Before < Unbounded || f.After < Unbounded:
			return fmt.Errorf("%w: layer %d attends to %d tokens before and %d behind", ErrConfig, i, f.Before, f.After)
		case f.Theta != 0 && !(f.Theta > 1):
			return fmt.Errorf("%w: layer %d has theta %g", ErrConfig, i, f.Theta)
		case f.Theta != 0 && c.HeadSize%32 != 0:
			return fmt.Errorf("%w: heads of %d dimensions: want a multiple of 32, with rotary positions",
				ErrConfig, c.HeadSize)
		case f.Convolution && (f.Before == Unbounded || f.After == Unbounded || f.Taps() > maxTaps):
			return fmt.Errorf("%w: layer %d has a convolution of more than %d taps", ErrConfig, i, maxTaps)
		}
	}
	return nil
}

// checker checks tensors, and keeps the first error.
type checker struct {
	kind NormKind
	err  error
}

// checkSize checks the size and the values of a required tensor.
func (k *checker) checkSize(name string, x []float32, shape ...int) {
	n := 1
	for _, s := range shape {
		n *= s
	}
	k.checkFinite(name, x)
	if k.err == nil && len(x) != n {
		k.err = fmt.Errorf("%w: %s has %d values, not %v", ErrWeights, name, len(x), shape)
	}
}

// checkFinite checks that a tensor has no infinite value and no NaN.
func (k *checker) checkFinite(name string, x []float32) {
	if k.err != nil {
		return
	}
	for i, v := range x {
		if v-v != 0 {
			k.err = fmt.Errorf("%w: %s: value %d is %v", ErrWeights, name, i, v)
			return
		}
	}
}

// checkLinear checks a weight, and a bias if there is one.
func (k *checker) checkLinear(name string, l Linear, out, in int) {
	k.checkSize(name+" weight", l.Weight, out, in)
	if l.Bias != nil {
		k.checkSize(name+" bias", l.Bias, out)
	}
}

// checkNorm checks a required norm of the model's kind.
func (k *checker) checkNorm(name string, n Norm, size int) {
	k.checkSize(name+" gamma", n.Gamma, size)
	switch {
	case k.kind == RMSNorm:
		k.checkAbsent(name+" beta", n.Beta)
	case n.Beta != nil:
		k.checkSize(name+" beta", n.Beta, size)
	}
}

// checkOptionalNorm checks a norm, which may be absent.
func (k *checker) checkOptionalNorm(name string, n Norm, size int) {
	if n.Gamma != nil || n.Beta != nil {
		k.checkNorm(name, n, size)
	}
}

// checkAbsent checks that a tensor is absent.
func (k *checker) checkAbsent(name string, x []float32) {
	if k.err == nil && x != nil {
		k.err = fmt.Errorf("%w: %s has %d values, and is not used", ErrWeights, name, len(x))
	}
}

// checkEmbeddings checks the tensors of embeddings.
func (k *checker) checkEmbeddings(w *Weights, c *Config) {
	e := c.EmbeddingSize()
	k.checkFinite("word embeddings", w.Words)
	if c.LearnedPositions {
		if need := (c.MaxPositions + c.PositionOffset) * e; k.err == nil && len(w.Positions) < need {
			k.err = fmt.Errorf("%w: position embeddings have %d values, %d are needed",
				ErrWeights, len(w.Positions), need)
		}
		k.checkFinite("position embeddings", w.Positions)
	}
	if w.Types != nil {
		if k.err == nil && len(w.Types) < e {
			k.err = fmt.Errorf("%w: type embeddings have %d values", ErrWeights, len(w.Types))
		}
		k.checkFinite("type embeddings", w.Types)
	}
	k.checkOptionalNorm("embedding norm", w.Norm, e)
	if e != c.Hidden {
		k.checkLinear("embedding projection", w.Project, c.Hidden, e)
	} else {
		k.checkAbsent("embedding projection", w.Project.Weight)
	}
	if c.RelativePositions {
		k.checkSize("relative positions", w.Relative, c.Heads, 2*c.MaxPositions-1)
	} else {
		k.checkAbsent("relative positions", w.Relative)
	}
}

// checkLayer checks the tensors of layer i.
func (k *checker) checkLayer(l *Layer, c *Config, i int) {
	name, h := fmt.Sprintf("layer %d ", i), c.Hidden
	if c.NormPlace == PreNorm && i == 0 {
		k.checkOptionalNorm(name+"attention norm", l.AttentionNorm, h)
	} else {
		k.checkNorm(name+"attention norm", l.AttentionNorm, h)
	}
	out := h
	if f := &c.Layers[i]; f.Convolution {
		k.checkLinear(name+"convolution input", l.Convolution.In, 3*h, h)
		k.checkLinear(name+"convolution", l.Convolution.Taps, h, f.Taps())
	} else {
		out = c.Heads * c.HeadSize
		k.checkLinear(name+"query", l.Query, out, h)
		k.checkLinear(name+"key", l.Key, c.KeyHeads*c.HeadSize, h)
		k.checkLinear(name+"value", l.Value, c.KeyHeads*c.HeadSize, h)
		k.checkOptionalNorm(name+"query norm", l.QueryNorm, c.HeadSize)
		k.checkOptionalNorm(name+"key norm", l.KeyNorm, c.HeadSize)
	}
	k.checkLinear(name+"output", l.Output, h, out)
	k.checkNorm(name+"feed-forward norm", l.FeedForwardNorm, h)
	up := c.Intermediate
	if c.Gated {
		up *= 2
	}
	k.checkLinear(name+"up", l.Up, up, h)
	k.checkLinear(name+"down", l.Down, h, c.Intermediate)
	if c.NormPlace == SandwichNorm {
		k.checkNorm(name+"attention output norm", l.AttentionOutputNorm, h)
		k.checkNorm(name+"feed-forward output norm", l.FeedForwardOutputNorm, h)
	}
}

// Check checks that the tensors match a checked config and have no infinite value or NaN.
// Errors wrap [ErrConfig] or [ErrWeights].
func (w *Weights) Check(c *Config) error {
	k := checker{kind: c.Norm}
	h, e := c.Hidden, c.EmbeddingSize()
	if len(w.Words) == 0 || len(w.Words)%e != 0 || len(w.Words)/e > math.MaxInt32 {
		return fmt.Errorf("%w: word embeddings have %d values, no multiple of %d", ErrWeights, len(w.Words), e)
	}
	if len(w.Layers) != len(c.Layers) {
		return fmt.Errorf("%w: of %d layers, not %d", ErrWeights, len(w.Layers), len(c.Layers))
	}
	k.checkEmbeddings(w, c)
	for i := range w.Layers {
		k.checkLayer(&w.Layers[i], c, i)
	}
	if c.NormPlace != PostNorm {
		k.checkNorm("final norm", w.Final, h)
	}
	in := h
	for i, d := range w.Heads {
		name := fmt.Sprintf("dense head %d", i)
		if d.In != in || d.Out < 1 {
			return fmt.Errorf("%w: %s takes %d dimensions of %d and gives %d", ErrWeights, name, d.In, in, d.Out)
		}
		if d.Activation < Identity || d.Activation > GELUTanh {
			return fmt.Errorf("%w: %s: no activation %d", ErrConfig, name, int(d.Activation))
		}
		if d.Residual && d.ResidualWeight == nil && d.In != d.Out {
			return fmt.Errorf("%w: %s: a residual from %d to %d dimensions needs a weight",
				ErrWeights, name, d.In, d.Out)
		}
		if d.ResidualWeight != nil {
			k.checkSize(name+" residual weight", d.ResidualWeight, d.Out, d.In)
		}
		k.checkLinear(name, d.Linear, d.Out, d.In)
		in = d.Out
	}
	return k.err
}
