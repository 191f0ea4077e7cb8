package transformer

import (
	"cmp"
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

// NormKind is how rows are normed.
type NormKind int

const (
	// LayerNorm subtracts the mean and divides by the standard deviation.
	LayerNorm NormKind = iota
	// RMSNorm divides by the root mean square, and has no beta.
	RMSNorm
)

// NormPlace says where the norms of a layer are.
type NormPlace int

const (
	// PostNorm norms the sum of a sublayer's input and output: BERT.
	PostNorm NormPlace = iota
	// PreNorm norms the input of a sublayer, and the output of the last layer: ModernBERT.
	PreNorm
	// SandwichNorm is PreNorm, and norms the output of a sublayer before it is added: Gemma 3.
	SandwichNorm
)

// Config is the architecture of an encoder: its sizes, and the form of each of its parts.
type Config struct {
	Hidden int `json:"hidden"` // a multiple of 16
	// Embedding is the number of values of a word's embedding, where it is not Hidden:
	// [Weights.Project] brings it there. 0: Hidden.
	Embedding int `json:"embedding,omitempty"`
	Heads     int `json:"heads"` // of queries
	// KeyHeads is the number of heads of keys and values, a divisor of Heads: as many
	// consecutive heads of queries share one.
	KeyHeads int `json:"key_heads"`
	HeadSize int `json:"head_size"` // a multiple of 16; with rotary positions of 32
	// Intermediate is the inner size of the feed-forward part, a multiple of 16.
	Intermediate int `json:"intermediate"`
	// MaxPositions is the length of the longest text in tokens, and PositionOffset the row
	// of the table of positions that the first token takes.
	MaxPositions   int `json:"positions"`
	PositionOffset int `json:"position_offset,omitempty"`

	// LearnedPositions says that positions have embeddings, and RelativePositions that
	// attention adds a number for the distance of two tokens.
	LearnedPositions  bool `json:"learned_positions,omitempty"`
	RelativePositions bool `json:"relative_positions,omitempty"`

	Norm      NormKind  `json:"norm"`
	NormPlace NormPlace `json:"norm_place"`
	Epsilon   float32   `json:"epsilon"` // of all norms

	// Activation is that of the feed-forward part. Gated multiplies it with the second
	// half of what Up gives.
	Activation Activation `json:"activation"`
	Gated      bool       `json:"gated,omitempty"`

	// AttentionScale multiplies the products of queries and keys; 0 means 1/√HeadSize.
	AttentionScale float32 `json:"attention_scale,omitempty"`

	Layers []LayerForm `json:"layers"`
}

// Unbounded is a window without an end.
const Unbounded = -1

// LayerForm is how a layer brings tokens together.
type LayerForm struct {
	// Before and After are how many tokens before and behind its own place a token
	// attends to; [Unbounded]: all. After is 0 in a causal layer.
	Before int `json:"before"`
	After  int `json:"after"`
	// Theta is the base of rotary angles; 0 means that queries and keys are not rotated.
	Theta float64 `json:"theta,omitempty"`
	// Convolution says that a gated convolution is in place of attention, with a tap for each
	// token from Before before to After behind. ConvolveAll: tokens that are not attended to
	// take part in it.
	Convolution bool `json:"convolution,omitempty"`
	ConvolveAll bool `json:"convolve_all,omitempty"`
}

// Taps is the length of a convolution.
func (f *LayerForm) Taps() int { return f.Before + 1 + f.After }

// Sees is the range of tokens that token i of a text attends to, of those before attended.
// It may be empty, with first above end.
func (f *LayerForm) Sees(i, attended int) (first, end int) {
	first, end = 0, attended
	if f.Before != Unbounded {
		first = max(0, i-f.Before)
	}
	if f.After != Unbounded {
		end = min(attended, i+f.After+1)
	}
	return first, end
}

// EqualLayers is n layers that attend to the whole text, with one base of rotary angles or none.
func EqualLayers(n int, theta float64) []LayerForm {
	layers := make([]LayerForm, n)
	for i := range layers {
		layers[i] = LayerForm{Before: Unbounded, After: Unbounded, Theta: theta}
	}
	return layers
}

// Linear is y = W·x + b: a weight [out, in] in rows, as PyTorch has it, and a
// bias or nil.
type Linear struct {
	Weight, Bias []float32
}

// Norm has the parameters of a norm. nil Beta means 0. Without Gamma nothing is normed.
type Norm struct {
	Gamma, Beta []float32
}

// Layer has the weights of one layer.
type Layer struct {
	// AttentionNorm comes behind attention with [PostNorm], else before it. With [PreNorm]
	// the first layer may have none.
	AttentionNorm Norm
	// Query is [Heads·HeadSize, Hidden], Key and Value [KeyHeads·HeadSize, Hidden].
	Query, Key, Value Linear
	// QueryNorm and KeyNorm norm each head, before rotation: [HeadSize], or none.
	QueryNorm, KeyNorm Norm
	// Convolution is in place of queries, keys and values where the layer has one.
	Convolution Convolution
	Output      Linear // [Hidden, Heads·HeadSize], of a convolution [Hidden, Hidden]
	// AttentionOutputNorm and FeedForwardOutputNorm are those of [SandwichNorm].
	AttentionOutputNorm Norm
	// FeedForwardNorm comes behind the feed-forward part with [PostNorm], else before it.
	FeedForwardNorm Norm
	// Up has Intermediate rows, gated twice as many: first those that the activation is
	// applied to, then the gates.
	Up, Down              Linear
	FeedForwardOutputNorm Norm
}

// Convolution is out · conv(in · x) of three values of each dimension, which In makes: in, out
// and x. conv has a weight a tap for each dimension, the first one of the earliest token;
// beyond the ends of a text there are zeros.
type Convolution struct {
	In   Linear // [3·Hidden, Hidden]: in, out, x
	Taps Linear // [Hidden, taps]
}

// Activation is that of a dense head, or of the feed-forward part.
type Activation int

const (
	Identity Activation = iota // x
	ReLU                       // the larger of x and 0
	GELU                       // with the exact Φ
	SiLU                       // x times the logistic function of x
	Tanh                       // the hyperbolic tangent
	GELUTanh                   // GELU with Φ by a hyperbolic tangent
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
	Words     []float32 // [vocabulary, Embedding]
	Positions []float32 // [at least MaxPositions + PositionOffset, Embedding], where they are learned
	Types     []float32 // [types, Embedding]: the first row is added to every token; or nil
	Norm      Norm      // of the embeddings, [Embedding], or none
	Project   Linear    // [Hidden, Embedding], where Embedding is not Hidden
	// Relative is added to scaled products of attention where positions are relative:
	// [Heads, 2·MaxPositions − 1], by the places that a key is behind its query, from
	// 1 − MaxPositions on.
	Relative []float32
	Layers   []Layer
	Final    Norm    // none with [PostNorm]
	Heads    []Dense // in order; the output of the last is made a unit vector
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

// EmbeddingSize is the number of values of a word's embedding.
func (c *Config) EmbeddingSize() int { return cmp.Or(c.Embedding, c.Hidden) }

// Scale multiplies the products of queries and keys.
func (c *Config) Scale() float32 {
	return cmp.Or(c.AttentionScale, float32(1/math.Sqrt(float64(c.HeadSize))))
}
