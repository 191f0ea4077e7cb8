package transformer

import (
	"errors"
	"fmt"
	"math"
)

// Errors of models; test with errors.Is.
var (
	// ErrConfig: sizes that contradict each other or that cannot be computed here.
	ErrConfig = errors.New("model cannot be run")
	// ErrWeights: a tensor of another size than the config says, or not finite.
	ErrWeights = errors.New("unusable weights")
)

// Family is an architecture.
type Family int

const (
	// BERT: learned or rotary positions, norms after each sublayer, GELU.
	BERT Family = iota + 1
	// ModernBERT: rotary positions, norms before each sublayer, GeGLU, attention
	// within a window in most layers.
	ModernBERT
)

// Config has the sizes of a model.
type Config struct {
	Family       Family
	Hidden       int // a multiple of 16, and of 16 times Heads (with rotary positions: 32 times)
	Heads        int
	Intermediate int // of the feed-forward part, a multiple of 16
	// MaxPositions is the length of the longest text in tokens, and
	// PositionOffset the row of the position table that the first token takes.
	MaxPositions   int
	PositionOffset int
	Epsilon        float32 // of layer norms

	// Theta is the base of the rotary angles of a BERT; 0: its positions are learned.
	Theta float64

	// Of ModernBERT: every GlobalEvery-th layer, the first one among them,
	// attends to the whole text, the others to tokens at most Window/2 away.
	GlobalEvery             int
	Window                  int
	GlobalTheta, LocalTheta float64 // bases of the rotary angles
}

// Linear is y = W·x + b: a weight [out, in] in rows, as PyTorch has it, and a
// bias or nil.
type Linear struct {
	Weight, Bias []float32
}

// Norm is a layer norm; a nil Beta is 0.
type Norm struct {
	Gamma, Beta []float32
}

// Layer has the weights of one layer.
type Layer struct {
	// AttentionNorm comes after attention in BERT, before it in ModernBERT,
	// whose first layer has none: no Gamma.
	AttentionNorm Norm
	// Query, Key and Value are thirds of the rows of ModernBERT's Wqkv, in this order.
	Query, Key, Value, Output Linear
	// FeedForwardNorm comes after the feed-forward part in BERT, before it in ModernBERT.
	FeedForwardNorm Norm
	// Up has Intermediate rows, in ModernBERT twice as many: first those that
	// GELU is applied to, then the gates.
	Up, Down Linear
}

// Activation is that of a dense head.
type Activation int

const (
	Identity Activation = iota // x
	ReLU                       // the larger of x and 0
	GELU                       // with the exact Φ
	SiLU                       // x times the logistic function of x
	Tanh                       // the hyperbolic tangent
)

// Dense is a head: y = activation(W·x + b), and the residual where there is one,
// which may have a weight where sizes differ.
type Dense struct {
	In, Out int
	Linear
	Activation Activation
	Residual   bool
	// ResidualWeight [Out, In], or nil where In is Out.
	ResidualWeight []float32
}

// Weights are the tensors of a model, in float32.
type Weights struct {
	Words     []float32 // [vocabulary, Hidden]
	Positions []float32 // [at least MaxPositions + PositionOffset, Hidden], where they are learned
	Types     []float32 // [types, Hidden]: the first row is added to every token; nil: none
	Norm      Norm      // of the embeddings
	Layers    []Layer
	Final     Norm    // ModernBERT only
	Heads     []Dense // in order; what comes out of the last is made a unit vector
}

// Precision is how the products with weights are computed.
type Precision int

const (
	// F32 multiplies float32.
	F32 Precision = iota
	// Int8 rounds weights to bytes with a scale a column, and activations to bytes
	// with a scale a token. Attention and the heads stay in float32.
	Int8
	// F16 rounds weights, and what is multiplied with them, to 16 bits, and adds up in
	// float32. It is that of devices.
	F16
)

// MarshalText implements [encoding.TextMarshaler].
func (p Precision) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

func (p Precision) String() string {
	switch p {
	case F32:
		return "f32"
	case Int8:
		return "int8"
	case F16:
		return "f16"
	}
	return fmt.Sprintf("Precision(%d)", int(p))
}

// Learned says that positions have embeddings, and not angles.
func (c *Config) Learned() bool { return c.Family == BERT && c.Theta == 0 }

// Check checks the sizes. Errors: [ErrConfig].
func (c *Config) Check() error {
	headMultiple := 16
	switch c.Family {
	case BERT:
		if c.Theta != 0 {
			headMultiple = 32
			if !(c.Theta > 1) || c.PositionOffset != 0 {
				return fmt.Errorf("%w: theta %g, and positions from %d on", ErrConfig, c.Theta, c.PositionOffset)
			}
		}
	case ModernBERT:
		headMultiple = 32
		if c.GlobalEvery < 1 || c.Window < 2 || !(c.GlobalTheta > 1) || !(c.LocalTheta > 1) {
			return fmt.Errorf("%w: global attention every %d layers, window %d, thetas %g and %g", ErrConfig,
				c.GlobalEvery, c.Window, c.GlobalTheta, c.LocalTheta)
		}
	default:
		return fmt.Errorf("%w: no family %d", ErrConfig, int(c.Family))
	}
	switch {
	case c.Hidden < 1 || c.Heads < 1 || c.Hidden%(c.Heads*headMultiple) != 0:
		return fmt.Errorf("%w: %d dimensions in %d heads: a head needs a multiple of %d", ErrConfig, c.Hidden, c.Heads, headMultiple)
	case c.Intermediate < 1 || c.Intermediate%16 != 0:
		return fmt.Errorf("%w: feed-forward size %d is no multiple of 16", ErrConfig, c.Intermediate)
	case c.MaxPositions < 1 || c.PositionOffset < 0:
		return fmt.Errorf("%w: %d positions from %d on", ErrConfig, c.MaxPositions, c.PositionOffset)
	case !(c.Epsilon >= 0):
		return fmt.Errorf("%w: epsilon %g", ErrConfig, c.Epsilon)
	}
	return nil
}

// checker collects the first fault of many tensors.
type checker struct{ err error }

// size checks a tensor that must be there.
func (k *checker) size(name string, x []float32, shape ...int) {
	n := 1
	for _, s := range shape {
		n *= s
	}
	k.values(name, x)
	if k.err == nil && len(x) != n {
		k.err = fmt.Errorf("%w: %s has %d values, not %v", ErrWeights, name, len(x), shape)
	}
}

func (k *checker) values(name string, x []float32) {
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

func (k *checker) linear(name string, l Linear, out, in int) {
	k.size(name+" weight", l.Weight, out, in)
	if l.Bias != nil {
		k.size(name+" bias", l.Bias, out)
	}
}

func (k *checker) norm(name string, n Norm, size int) {
	k.size(name+" gamma", n.Gamma, size)
	if n.Beta != nil {
		k.size(name+" beta", n.Beta, size)
	}
}

// Check checks that the tensors are those of a config that was checked, and finite.
// Errors: [ErrConfig], [ErrWeights].
func (w *Weights) Check(c *Config) error {
	var k checker
	h := c.Hidden
	if len(w.Words) == 0 || len(w.Words)%h != 0 || len(w.Words)/h > math.MaxInt32 {
		return fmt.Errorf("%w: word embeddings have %d values, no multiple of %d", ErrWeights, len(w.Words), h)
	}
	k.values("word embeddings", w.Words)
	if c.Learned() {
		if need := (c.MaxPositions + c.PositionOffset) * h; len(w.Positions) < need {
			return fmt.Errorf("%w: position embeddings have %d values, %d are needed", ErrWeights, len(w.Positions), need)
		}
		k.values("position embeddings", w.Positions)
	}
	if w.Types != nil {
		if len(w.Types) < h {
			return fmt.Errorf("%w: type embeddings have %d values", ErrWeights, len(w.Types))
		}
		k.values("type embeddings", w.Types)
	}
	k.norm("embedding norm", w.Norm, h)
	up := c.Intermediate
	if c.Family == ModernBERT {
		up *= 2
		k.norm("final norm", w.Final, h)
	}
	for i, l := range w.Layers {
		name := fmt.Sprintf("layer %d ", i)
		if c.Family == BERT || i > 0 || l.AttentionNorm.Gamma != nil {
			k.norm(name+"attention norm", l.AttentionNorm, h)
		}
		k.linear(name+"query", l.Query, h, h)
		k.linear(name+"key", l.Key, h, h)
		k.linear(name+"value", l.Value, h, h)
		k.linear(name+"output", l.Output, h, h)
		k.norm(name+"feed-forward norm", l.FeedForwardNorm, h)
		k.linear(name+"up", l.Up, up, h)
		k.linear(name+"down", l.Down, h, c.Intermediate)
	}
	in := h
	for i, d := range w.Heads {
		name := fmt.Sprintf("dense head %d", i)
		if d.In != in || d.Out < 1 {
			return fmt.Errorf("%w: %s takes %d dimensions of %d and gives %d", ErrWeights, name, d.In, in, d.Out)
		}
		if d.Activation < Identity || d.Activation > Tanh {
			return fmt.Errorf("%w: %s: no activation %d", ErrConfig, name, int(d.Activation))
		}
		if d.Residual && d.ResidualWeight == nil && d.In != d.Out {
			return fmt.Errorf("%w: %s: a residual from %d to %d dimensions needs a weight", ErrWeights, name, d.In, d.Out)
		}
		if d.ResidualWeight != nil {
			k.size(name+" residual weight", d.ResidualWeight, d.Out, d.In)
		}
		k.linear(name, d.Linear, d.Out, d.In)
		in = d.Out
	}
	return k.err
}

// Rotary has the angles of rotary positions (Su et al., RoFormer, 2021).
type Rotary struct {
	Half     int       // angles of a position: half a head
	Cos, Sin []float32 // [positions, Half]
}

// NewRotary computes angles as transformers does: frequencies and their products
// with positions are float32.
func NewRotary(theta float64, half, positions int) *Rotary {
	r := &Rotary{half, make([]float32, positions*half), make([]float32, positions*half)}
	for j := range half {
		exponent := float32(2*j) / float32(2*half)
		frequency := 1 / float32(math.Pow(theta, float64(exponent)))
		for p := range positions {
			sin, cos := sincos(float64(float32(p) * frequency))
			r.Sin[p*half+j], r.Cos[p*half+j] = float32(sin), float32(cos)
		}
	}
	return r
}

// sincos is that of x ≥ 0 to more digits than float32 has. The conversions keep
// compilers from fusing operations, so that every processor has the same tables.
func sincos(x float64) (sin, cos float64) {
	const (
		high = 1.57079632673412561417e+00 // π/2, the first 33 bits of it
		low  = 6.07710050650619224932e-11
	)
	n := math.Round(float64(x / (math.Pi / 2)))
	y := float64(float64(x-float64(n*high)) - float64(n*low)) // |y| ≤ π/4
	z := float64(y * y)
	// Taylor series; the first term left out is below 1e-13.
	sin, cos = 1, 1
	for k := 14; k > 0; k -= 2 {
		sin = float64(1 - float64(float64(z*sin)/float64(k*(k+1))))
		cos = float64(1 - float64(float64(z*cos)/float64(k*(k-1))))
	}
	sin = float64(sin * y)
	switch int64(n) & 3 {
	case 1:
		sin, cos = cos, -sin
	case 2:
		sin, cos = -sin, -cos
	case 3:
		sin, cos = -cos, sin
	}
	return sin, cos
}
