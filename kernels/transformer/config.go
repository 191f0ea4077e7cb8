package transformer

import (
	"cmp"
	"errors"
	"fmt"
	"math"
)

// Errors of models; test with errors.Is.
var (
	// ErrConfig is returned for sizes that contradict each other or are not supported.
	ErrConfig = errors.New("model cannot be run")
	// ErrWeights is returned for a tensor with the wrong size or with an infinite value or
	// NaN.
	ErrWeights = errors.New("unusable weights")
)

// NormKind is the kind of normalization of rows.
type NormKind int

const (
	// LayerNorm subtracts the mean and divides by the standard deviation.
	LayerNorm NormKind = iota
	// RMSNorm divides by the root mean square, and has no beta.
	RMSNorm
)

// NormPlace is the position of the norms in a layer.
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
	// Embedding is the number of values of a word's embedding. If it is not Hidden,
	// [Weights.Project] projects embeddings to Hidden values. 0 means Hidden.
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

	// LearnedPositions means that positions have embeddings, and RelativePositions that
	// attention adds a number for the distance of two tokens.
	LearnedPositions  bool `json:"learned_positions,omitempty"`
	RelativePositions bool `json:"relative_positions,omitempty"`

	Norm      NormKind  `json:"norm"`
	NormPlace NormPlace `json:"norm_place"`
	Epsilon   float32   `json:"epsilon"` // of all norms

	// Activation is applied in the feed-forward part. Gated multiplies its results with the
	// second half of the outputs of Up.
	Activation Activation `json:"activation"`
	Gated      bool       `json:"gated,omitempty"`

	// AttentionScale multiplies the products of queries and keys. 0 means 1/√HeadSize.
	AttentionScale float32 `json:"attention_scale,omitempty"`

	Layers []LayerForm `json:"layers"`
}

// Unbounded is a Before or After without a limit.
const Unbounded = -1

// LayerForm is the form of a layer's attention, or of the convolution that replaces it.
type LayerForm struct {
	// Before and After are the numbers of tokens before and after itself that a token
	// attends to; [Unbounded] means all. After is 0 in a causal layer.
	Before int `json:"before"`
	After  int `json:"after"`
	// Theta is the base of rotary angles. 0 means that queries and keys are not rotated.
	Theta float64 `json:"theta,omitempty"`
	// Convolution means that the layer has a gated convolution instead of attention, with a
	// tap for each token from Before tokens before to After tokens after. ConvolveAll means
	// that it also reads tokens that attention does not read, see [Batch.Attended].
	Convolution bool `json:"convolution,omitempty"`
	ConvolveAll bool `json:"convolve_all,omitempty"`
}

// Taps returns the length of a convolution.
func (f *LayerForm) Taps() int { return f.Before + 1 + f.After }

// AttendedRange returns the tokens first to end that token i of a text attends to. Only the first
// attended tokens of the text count. The range may be empty, with first above end.
func (f *LayerForm) AttendedRange(i, attended int) (first, end int) {
	first, end = 0, attended
	if f.Before != Unbounded {
		first = max(0, i-f.Before)
	}
	if f.After != Unbounded {
		end = min(attended, i+f.After+1)
	}
	return first, end
}

// EqualLayers returns n layers that attend to the whole text. theta is the base of their
// rotary angles, or 0.
func EqualLayers(n int, theta float64) []LayerForm {
	layers := make([]LayerForm, n)
	for i := range layers {
		layers[i] = LayerForm{Before: Unbounded, After: Unbounded, Theta: theta}
	}
	return layers
}

// Linear is y = W·x + b, with a weight [out, in] in rows, as PyTorch stores it. A nil bias
// means 0.
type Linear struct {
	Weight, Bias []float32
}

// Norm has the parameters of a norm. A nil Beta means 0. A nil Gamma means that nothing is
// normalized.
type Norm struct {
	Gamma, Beta []float32
}

// Layer has the weights of one layer.
type Layer struct {
	// AttentionNorm comes after attention with [PostNorm], and otherwise before it. With
	// [PreNorm] the first layer may have none.
	AttentionNorm Norm
	// Query is [Heads·HeadSize, Hidden], Key and Value [KeyHeads·HeadSize, Hidden].
	Query, Key, Value Linear
	// QueryNorm and KeyNorm normalize each head, before rotation: [HeadSize], or none.
	QueryNorm, KeyNorm Norm
	// Convolution replaces queries, keys and values if the layer has one.
	Convolution Convolution
	Output      Linear // [Hidden, Heads·HeadSize], of a convolution [Hidden, Hidden]
	// AttentionOutputNorm and FeedForwardOutputNorm are those of [SandwichNorm].
	AttentionOutputNorm Norm
	// FeedForwardNorm comes after the feed-forward part with [PostNorm], and otherwise
	// before it.
	FeedForwardNorm Norm
	// Up has Intermediate rows. If gated, it has twice as many: the first half for the
	// activation, then the gates.
	Up, Down              Linear
	FeedForwardOutputNorm Norm
}

// Convolution computes out · conv(in · x) for each dimension, from the three values in, out
// and x that In gives. conv has a weight for each tap and dimension, the first for the
// earliest token; texts are padded with zeros.
type Convolution struct {
	In   Linear // [3·Hidden, Hidden]: in, out, x
	Taps Linear // [Hidden, taps]
}

// Activation is the function that a dense head or the feed-forward part applies.
type Activation int

const (
	Identity Activation = iota // x
	ReLU                       // the larger of x and 0
	GELU                       // with the exact Φ
	SiLU                       // x times the logistic function of x
	Tanh                       // the hyperbolic tangent
	GELUTanh                   // GELU with Φ by a hyperbolic tangent
)

// Dense is a head: y = activation(W·x + b). With a residual it adds x, or ResidualWeight·x,
// which it needs if sizes differ.
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
	Positions []float32 // [at least MaxPositions + PositionOffset, Embedding], if they are learned
	Types     []float32 // [types, Embedding]: the first row is added to every token; or nil
	Norm      Norm      // of the embeddings, [Embedding], or none
	Project   Linear    // [Hidden, Embedding], if Embedding is not Hidden
	// Relative is added to scaled products of attention if positions are relative:
	// [Heads, 2·MaxPositions − 1], by the position of the key less that of the query, from
	// 1 − MaxPositions on.
	Relative []float32
	Layers   []Layer
	Final    Norm    // none with [PostNorm]
	Heads    []Dense // in order; the output of the last is scaled to unit length
}

// Precision is the precision of products with weights.
type Precision int

const (
	// F32 multiplies float32.
	F32 Precision = iota
	// Int8 rounds weights to bytes with a scale a column, and activations to bytes
	// with a scale a token. Attention and the heads stay in float32.
	Int8
	// F16 rounds weights and activations to 16 bits, and adds up in float32. Devices use it.
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

// EmbeddingSize returns the number of values of a word's embedding.
func (c *Config) EmbeddingSize() int { return cmp.Or(c.Embedding, c.Hidden) }

// Scale returns the factor of the products of queries and keys.
func (c *Config) Scale() float32 {
	return cmp.Or(c.AttentionScale, float32(1/math.Sqrt(float64(c.HeadSize))))
}
