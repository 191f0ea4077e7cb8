package modeldir

import (
	"math"
	"slices"

	"github.com/plaid-ir/plaid/kernels/transformer"
)

// Families that normalize the input of a sublayer. Positions are rotary, and feed-forward parts gated.

// Kinds of layers, as layer_types names them.
const full, sliding, convolution = "full_attention", "sliding_attention", "conv"

var modernBERT = family{
	activation: key[string]{"hidden_activation", "gelu"}, epsilon: key[float64]{"norm_eps", 1e-5},
	restrictions: []allowedValues{notCausal, {"causal_mask", isFalse}},
	readExtra: func(v values, b *Backbone) {
		b.NormPlace, b.Gated = transformer.PreNorm, true
		b.Biases = Biases{
			Attention: v.boolOr("attention_bias", false), FeedForward: v.boolOr("mlp_bias", false),
			Norms: v.boolOr("norm_bias", false),
		}
		global := v.rotaryBase(full, "global_rope_theta", 160_000)
		local := v.rotaryBase(sliding, "local_rope_theta", 10_000)
		every := v.intOr("global_attn_every_n_layers", 1, 3)
		half := v.intOr("sliding_window", 1, v.intOr("local_attention", 2, 128)/2) // the class reads either key
		kinds := v.layerTypes(len(b.Layers), full, sliding, fullEvery(every, 0))
		b.setLayerForms(kinds, global, transformer.LayerForm{Before: half, After: half, Theta: local})
	},
}

var euroBERT = family{
	activation: key[string]{"hidden_act", "silu"}, epsilon: key[float64]{"rms_norm_eps", 1e-5},
	classes: []string{"EuroBertModel"}, restrictions: []allowedValues{notCausal},
	readExtra: func(v values, b *Backbone) {
		b.Norm, b.NormPlace, b.Gated = transformer.RMSNorm, transformer.PreNorm, true
		b.Biases = Biases{Attention: v.boolOr("attention_bias", false), FeedForward: v.boolOr("mlp_bias", false)}
		v.readGroupedHeads(b, b.Heads, b.Hidden/b.Heads)
		b.useRotaryBase(v.rotaryBase("", "rope_theta", 10_000))
	},
}

var gemma3 = family{
	activation: key[string]{"hidden_activation", "gelu_pytorch_tanh"}, epsilon: key[float64]{"rms_norm_eps", 1e-6},
	// With is_causal false, the class attends to later tokens in windows of another size than with
	// use_bidirectional_attention.
	restrictions: []allowedValues{{"attn_logit_softcapping", nil}, {"is_causal", []string{"true"}}},
	readExtra: func(v values, b *Backbone) {
		b.Norm, b.NormPlace, b.Gated = transformer.RMSNorm, transformer.SandwichNorm, true
		b.Biases = Biases{Attention: v.boolOr("attention_bias", false)}
		v.readGroupedHeads(b, 4, 256)
		scalar := v.floatOr("query_pre_attn_scalar", 0, 256)
		if b.AttentionScale = float32(1 / math.Sqrt(scalar)); !(scalar > 1e-9 && scalar < 1e9) {
			v.setError("query_pre_attn_scalar", ErrConfig, "is %g", scalar)
		}
		global, local := v.rotaryBase(full, "rope_theta", 1e6), v.rotaryBase(sliding, "rope_local_base_freq", 1e4)
		every, window := v.intOr("sliding_window_pattern", 1, 6), v.intOr("sliding_window", 2, 4096)
		kinds := v.layerTypes(len(b.Layers), full, sliding, fullEvery(every, every-1))
		if v.boolOr("use_bidirectional_attention", false) {
			b.setLayerForms(kinds, global, transformer.LayerForm{Before: window / 2, After: window / 2, Theta: local})
		} else {
			b.setLayerForms(kinds, global, transformer.LayerForm{Before: window - 1, Theta: local})
			b.makeCausal()
		}
	},
}

// bidirectionalLFM2 is the class of LFM2.5's retrieval models, in the models' own code.
const bidirectionalLFM2 = "Lfm2BidirectionalModel"

var lfm2 = family{
	sizes:      sizeKeys{"hidden_size", "num_hidden_layers", "num_attention_heads", ""},
	activation: key[string]{"", "silu"}, epsilon: key[float64]{"norm_eps", 1e-5},
	classes: []string{bidirectionalLFM2},
	readExtra: func(v values, b *Backbone) {
		b.Norm, b.NormPlace, b.Gated = transformer.RMSNorm, transformer.PreNorm, true
		b.Biases = Biases{Convolution: v.boolOr("conv_bias", false)}
		v.readGroupedHeads(b, 8, b.Hidden/b.Heads)
		b.Intermediate = v.lfm2Intermediate()
		attending := v.intList("full_attn_idxs")
		kinds := v.layerTypes(len(b.Layers), full, convolution, func(i int) string {
			if attending == nil || slices.Contains(attending, i) {
				return full
			}
			return convolution
		})
		names, _, _ := stringList(v.file, "architectures")
		bidirectional := slices.Contains(append(names, v.codeClass()), bidirectionalLFM2)
		taps := v.intOr("conv_L_cache", 1, 3)
		form := transformer.LayerForm{Convolution: true, Before: taps - 1}
		if bidirectional {
			form.ConvolveAll, form.Before, form.After = true, taps/2, taps-1-taps/2
		}
		b.setLayerForms(kinds, v.rotaryBase("", "rope_theta", 1e6), form)
		if !bidirectional && v.boolOr("is_causal", true) {
			b.makeCausal()
		}
	},
}

// lfm2Intermediate returns the size of the feed-forward part, which the class may adjust: to two thirds,
// times a multiplier, rounded up to a multiple.
func (v values) lfm2Intermediate() int {
	key := "block_ff_dim" // the older one
	if v.file.rawValue(key) == nil {
		key = "intermediate_size"
	}
	n := v.requiredSize(key, 1)
	if !v.boolOr("block_auto_adjust_ff_dim", true) {
		return n
	}
	n = 2 * n / 3
	if v.file.hasKey("block_ffn_dim_multiplier") && v.file.rawValue("block_ffn_dim_multiplier") == nil {
		return n
	}
	size := v.floatOr("block_ffn_dim_multiplier", 0, 1) * float64(n)
	if size > maxSize {
		v.setError("block_ffn_dim_multiplier", ErrConfig, "makes %g of %d", size, n)
		return n
	}
	n = int(size)
	multiple := v.intOr("block_multiple_of", 1, 256)
	return (n + multiple - 1) / multiple * multiple
}

// fullEvery returns the rule of models in which every n-th layer from first on attends to the whole text.
func fullEvery(n, first int) func(i int) string {
	return func(i int) string {
		if i%n == first {
			return full
		}
		return sliding
	}
}

// setLayerForms sets the base of rotary angles of layers that attend to the whole text, and the form of
// the others.
func (b *Backbone) setLayerForms(kinds []string, theta float64, other transformer.LayerForm) {
	b.useRotaryBase(theta)
	for i := range b.Layers {
		if i < len(kinds) && kinds[i] != full {
			b.Layers[i] = other
		}
	}
}

// makeCausal stops all layers from attending to later tokens.
func (b *Backbone) makeCausal() {
	for i := range b.Layers {
		b.Layers[i].After = 0
	}
}
