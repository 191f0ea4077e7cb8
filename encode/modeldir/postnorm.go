package modeldir

import "github.com/plaid-ir/plaid/kernels/transformer"

// Families that norm the sum of a sublayer's input and output. Every map has a bias.

var (
	gelu     = key[string]{"hidden_act", "gelu"}
	tiny     = key[float64]{"layer_norm_eps", 1e-12}
	absolute = []only{{"position_embedding_type", []string{`"absolute"`}}, notCausal}
)

var bert = family{
	activation: gelu, epsilon: tiny, only: absolute,
	form: func(_ values, b *Backbone) { b.learned() },
}

var roberta = family{
	activation: gelu, epsilon: tiny, only: absolute,
	form: func(v values, b *Backbone) {
		b.learned()
		v.behindPadding(b)
	},
}

var xlmr = family{
	activation: gelu, epsilon: key[float64]{"layer_norm_eps", 1e-5},
	classes: []string{"XLMRobertaModel", "XLMRobertaLoRA"},
	only:    []only{{"position_embedding_type", []string{`"absolute"`, `"rotary"`}}, notCausal},
	form: func(v values, b *Backbone) {
		if v.text("position_embedding_type", "absolute") == "rotary" {
			b.Biases = allBiases
			b.rotate(v.theta("", "rotary_emb_base", 10_000))
			return
		}
		b.learned()
		v.behindPadding(b)
	},
}

var jinaV3 = family{
	activation: gelu, epsilon: key[float64]{"layer_norm_eps", 1e-5},
	form: func(v values, b *Backbone) {
		b.Biases = allBiases
		b.rotate(v.theta("", "rope_theta", 20_000))
	},
}

var distilBERT = family{
	sizes:      sizeKeys{"dim", "n_layers", "n_heads", "hidden_dim"},
	activation: key[string]{"activation", "gelu"}, epsilon: key[float64]{"", 1e-12},
	only: []only{notCausal},
	form: func(v values, b *Backbone) {
		b.learned()
		// The class takes the names of other families, too.
		v.alias("hidden_size", "dim", b.Hidden)
		v.alias("num_attention_heads", "n_heads", b.Heads)
		v.alias("num_hidden_layers", "n_layers", len(b.Layers))
	},
}

// alias refuses another name of a key with another value.
func (v values) alias(other, key string, n int) {
	if x := v.int(other, 1, n); x != n {
		v.fail(other, ErrContradiction, "is %d, but %s is %d", x, key, n)
	}
}

// mpnetPadding is the row of the padding in MPNet's table of positions, whatever its id.
const mpnetPadding = 1

var mpnet = family{
	activation: gelu, epsilon: tiny,
	// The class has 32 buckets of distances, also where its table has more rows.
	only: []only{{"relative_attention_num_buckets", []string{"32"}}, notCausal},
	form: func(v values, b *Backbone) {
		b.learned()
		b.RelativePositions = true
		v.behind(b, mpnetPadding)
	},
}

var electra = family{
	activation: gelu, epsilon: tiny, only: absolute,
	form: func(v values, b *Backbone) {
		b.learned()
		if n := v.int("embedding_size", 1, 128); n != b.Hidden {
			b.Embedding = n
		}
	},
}

// learned says that positions have embeddings.
func (b *Backbone) learned() { b.LearnedPositions, b.Biases = true, allBiases }

// rotate gives all layers one base of rotary angles.
func (b *Backbone) rotate(theta float64) { b.Layers = transformer.EqualLayers(len(b.Layers), theta) }

// behindPadding is behind of the padding's id.
func (v values) behindPadding(b *Backbone) { v.behind(b, v.int("pad_token_id", 0, 1)) }

// behind takes the positions up to that of the padding off, which texts begin behind.
func (v values) behind(b *Backbone, padding int) {
	b.PositionOffset = padding + 1
	if b.MaxPositions -= b.PositionOffset; b.MaxPositions < 4 {
		v.fail("max_position_embeddings", ErrConfig, "leaves room for %d ids", b.MaxPositions)
	}
}
