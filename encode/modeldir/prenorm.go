package modeldir

import (
	"math"
	"slices"

	"github.com/plaid-ir/plaid/kernels/transformer"
)

// Families that norm the input of a sublayer. Positions are rotary, and maps are gated.

const full, sliding, convolution = "full_attention", "sliding_attention", "conv"

var modernBERT = family{
	activation: key[string]{"hidden_activation", "gelu"}, epsilon: key[float64]{"norm_eps", 1e-5},
	only: []only{notCausal, {"causal_mask", isFalse}},
	form: func(v values, b *Backbone) {
		b.NormPlace, b.Gated = transformer.PreNorm, true
		b.Biases = Biases{
			Attention: v.bool("attention_bias", false), FeedForward: v.bool("mlp_bias", false),
			Norms: v.bool("norm_bias", false),
		}
		global, local := v.theta(full, "global_rope_theta", 160_000), v.theta(sliding, "local_rope_theta", 10_000)
		every := v.int("global_attn_every_n_layers", 1, 3)
		half := v.int("sliding_window", 1, v.int("local_attention", 2, 128)/2) // the class takes either
		kinds := v.layerTypes(len(b.Layers), full, sliding, everyFull(every, 0))
		b.windows(kinds, global, transformer.LayerForm{Before: half, After: half, Theta: local})
	},
}

var euroBERT = family{
	activation: key[string]{"hidden_act", "silu"}, epsilon: key[float64]{"rms_norm_eps", 1e-5},
	classes: []string{"EuroBertModel"}, only: []only{notCausal},
	form: func(v values, b *Backbone) {
		b.Norm, b.NormPlace, b.Gated = transformer.RMSNorm, transformer.PreNorm, true
		b.Biases = Biases{Attention: v.bool("attention_bias", false), FeedForward: v.bool("mlp_bias", false)}
		v.grouped(b, b.Heads, b.Hidden/b.Heads)
		b.rotate(v.theta("", "rope_theta", 10_000))
	},
}

var gemma3 = family{
	activation: key[string]{"hidden_activation", "gelu_pytorch_tanh"}, epsilon: key[float64]{"rms_norm_eps", 1e-6},
	// With is_causal false the class looks ahead in windows of another size than those of
	// use_bidirectional_attention.
	only: []only{{"attn_logit_softcapping", nil}, {"is_causal", []string{"true"}}},
	form: func(v values, b *Backbone) {
		b.Norm, b.NormPlace, b.Gated = transformer.RMSNorm, transformer.SandwichNorm, true
		b.Biases = Biases{Attention: v.bool("attention_bias", false)}
		v.grouped(b, 4, 256)
		scalar := v.float("query_pre_attn_scalar", 0, 256)
		if b.AttentionScale = float32(1 / math.Sqrt(scalar)); !(scalar > 1e-9 && scalar < 1e9) {
			v.fail("query_pre_attn_scalar", ErrConfig, "is %g", scalar)
		}
		global, local := v.theta(full, "rope_theta", 1e6), v.theta(sliding, "rope_local_base_freq", 1e4)
		every, window := v.int("sliding_window_pattern", 1, 6), v.int("sliding_window", 2, 4096)
		kinds := v.layerTypes(len(b.Layers), full, sliding, everyFull(every, every-1))
		if v.bool("use_bidirectional_attention", false) {
			b.windows(kinds, global, transformer.LayerForm{Before: window / 2, After: window / 2, Theta: local})
		} else {
			b.windows(kinds, global, transformer.LayerForm{Before: window - 1, Theta: local})
			b.causal()
		}
	},
}

// bidirectionalLFM2 is the class of LFM2.5's models for retrieval, which is code of their own.
const bidirectionalLFM2 = "Lfm2BidirectionalModel"

var lfm2 = family{
	sizes:      sizeKeys{"hidden_size", "num_hidden_layers", "num_attention_heads", ""},
	activation: key[string]{"", "silu"}, epsilon: key[float64]{"norm_eps", 1e-5},
	classes: []string{bidirectionalLFM2},
	form: func(v values, b *Backbone) {
		b.Norm, b.NormPlace, b.Gated = transformer.RMSNorm, transformer.PreNorm, true
		b.Biases = Biases{Convolution: v.bool("conv_bias", false)}
		v.grouped(b, 8, b.Hidden/b.Heads)
		b.Intermediate = v.lfm2Intermediate()
		attending := v.list("full_attn_idxs")
		kinds := v.layerTypes(len(b.Layers), full, convolution, func(i int) string {
			if attending == nil || slices.Contains(attending, i) {
				return full
			}
			return convolution
		})
		names, _, _ := words(v.f, "architectures")
		both, taps := slices.Contains(append(names, v.class()), bidirectionalLFM2), v.int("conv_L_cache", 1, 3)
		form := transformer.LayerForm{Convolution: true, Before: taps - 1}
		if both {
			form.ConvolveAll, form.Before, form.After = true, taps/2, taps-1-taps/2
		}
		b.windows(kinds, v.theta("", "rope_theta", 1e6), form)
		if !both && v.bool("is_causal", true) {
			b.causal()
		}
	},
}

// lfm2Intermediate is the size of the feed-forward part, which the class may adjust.
func (v values) lfm2Intermediate() int {
	key := "block_ff_dim" // the older one
	if v.f.raw(key) == nil {
		key = "intermediate_size"
	}
	n := v.size(key, 1)
	if !v.bool("block_auto_adjust_ff_dim", true) {
		return n
	}
	n = 2 * n / 3
	if v.f.has("block_ffn_dim_multiplier") && v.f.raw("block_ffn_dim_multiplier") == nil {
		return n
	}
	size := v.float("block_ffn_dim_multiplier", 0, 1) * float64(n)
	if size > maxSize {
		v.fail("block_ffn_dim_multiplier", ErrConfig, "makes %g of %d", size, n)
		return n
	}
	n = int(size)
	multiple := v.int("block_multiple_of", 1, 256)
	return (n + multiple - 1) / multiple * multiple
}

// everyFull is the rule of layers that attend to the whole text every n-th time.
func everyFull(n, first int) func(i int) string {
	return func(i int) string {
		if i%n == first {
			return full
		}
		return sliding
	}
}

// windows gives layers that attend to the whole text a base of rotary angles, and others a form.
func (b *Backbone) windows(kinds []string, theta float64, other transformer.LayerForm) {
	b.rotate(theta)
	for i := range b.Layers {
		if i < len(kinds) && kinds[i] != full {
			b.Layers[i] = other
		}
	}
}

// causal lets no layer look behind a token.
func (b *Backbone) causal() {
	for i := range b.Layers {
		b.Layers[i].After = 0
	}
}
