package modeldir

import "github.com/plaid-ir/plaid/kernels/transformer"

// Families that normalize the sum of a sublayer's input and output. Every linear map has a bias.

var (
	gelu        = key[string]{"hidden_act", "gelu"}
	tinyEpsilon = key[float64]{"layer_norm_eps", 1e-12}
	absolute    = []allowedValues{{"position_embedding_type", []string{`"absolute"`}}, notCausal}
)

var bert = family{
	activation: gelu, epsilon: tinyEpsilon, restrictions: absolute,
	readExtra: func(_ values, b *Backbone) { b.useLearnedPositions() },
}

var roberta = family{
	activation: gelu, epsilon: tinyEpsilon, restrictions: absolute,
	readExtra: func(v values, b *Backbone) {
		b.useLearnedPositions()
		v.offsetByPadding(b)
	},
}

var xlmr = family{
	activation: gelu, epsilon: key[float64]{"layer_norm_eps", 1e-5},
	classes:      []string{"XLMRobertaModel", "XLMRobertaLoRA"},
	restrictions: []allowedValues{{"position_embedding_type", []string{`"absolute"`, `"rotary"`}}, notCausal},
	readExtra: func(v values, b *Backbone) {
		if v.stringOr("position_embedding_type", "absolute") == "rotary" {
			b.Biases = allBiases
			b.useRotaryBase(v.rotaryBase("", "rotary_emb_base", 10_000))
			return
		}
		b.useLearnedPositions()
		v.offsetByPadding(b)
	},
}

var jinaV3 = family{
	activation: gelu, epsilon: key[float64]{"layer_norm_eps", 1e-5},
	readExtra: func(v values, b *Backbone) {
		b.Biases = allBiases
		b.useRotaryBase(v.rotaryBase("", "rope_theta", 20_000))
	},
}

var distilBERT = family{
	sizes:      sizeKeys{"dim", "n_layers", "n_heads", "hidden_dim"},
	activation: key[string]{"activation", "gelu"}, epsilon: key[float64]{"", 1e-12},
	restrictions: []allowedValues{notCausal},
	readExtra: func(v values, b *Backbone) {
		b.useLearnedPositions()
		// The class also reads the keys of other families.
		v.checkAlias("hidden_size", "dim", b.Hidden)
		v.checkAlias("num_attention_heads", "n_heads", b.Heads)
		v.checkAlias("num_hidden_layers", "n_layers", len(b.Layers))
	},
}

// checkAlias sets an error if another name of a key has another value.
func (v values) checkAlias(other, key string, n int) {
	if x := v.intOr(other, 1, n); x != n {
		v.setError(other, ErrContradiction, "is %d, but %s is %d", x, key, n)
	}
}

// mpnetPadding is the row of the padding in MPNet's table of positions, independent of its id.
const mpnetPadding = 1

var mpnet = family{
	activation: gelu, epsilon: tinyEpsilon,
	// The class uses 32 buckets of distances, even if its table has more rows.
	restrictions: []allowedValues{{"relative_attention_num_buckets", []string{"32"}}, notCausal},
	readExtra: func(v values, b *Backbone) {
		b.useLearnedPositions()
		b.RelativePositions = true
		v.offsetPositions(b, mpnetPadding)
	},
}

var electra = family{
	activation: gelu, epsilon: tinyEpsilon, restrictions: absolute,
	readExtra: func(v values, b *Backbone) {
		b.useLearnedPositions()
		if n := v.intOr("embedding_size", 1, 128); n != b.Hidden {
			b.Embedding = n
		}
	},
}

// useLearnedPositions sets learned embeddings of positions, and biases.
func (b *Backbone) useLearnedPositions() { b.LearnedPositions, b.Biases = true, allBiases }

// useRotaryBase sets one base of rotary angles for all layers.
func (b *Backbone) useRotaryBase(theta float64) {
	b.Layers = transformer.EqualLayers(len(b.Layers), theta)
}

// offsetByPadding is offsetPositions for the id of the padding token.
func (v values) offsetByPadding(b *Backbone) { v.offsetPositions(b, v.intOr("pad_token_id", 0, 1)) }

// offsetPositions reserves the positions up to that of the padding: texts begin behind them.
func (v values) offsetPositions(b *Backbone, padding int) {
	b.PositionOffset = padding + 1
	if b.MaxPositions -= b.PositionOffset; b.MaxPositions < 4 {
		v.setError("max_position_embeddings", ErrConfig, "leaves room for %d ids", b.MaxPositions)
	}
}
