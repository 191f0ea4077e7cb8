package modeldir_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode/modeldir"
	"github.com/plaid-ir/plaid/internal/testing/modeltest"
	"github.com/plaid-ir/plaid/kernels/transformer"
)

// golden is a copy of a folder that a class of transformers saved, with changes of its config.json.
func golden(t *testing.T, name string, changes map[string]any) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join("..", "testdata", "golden", name))))
	modeltest.Edit(t, filepath.Join(dir, "config.json"), changes)
	return dir
}

// The forms that the tests of families begin with.
var (
	whole = transformer.LayerForm{Before: transformer.Unbounded, After: transformer.Unbounded}
	post  = modeldir.Backbone{
		Family: modeldir.BERT, Biases: modeldir.Biases{Attention: true, FeedForward: true, Norms: true},
		Config: transformer.Config{
			Hidden: 32, Heads: 2, KeyHeads: 2, HeadSize: 16, Intermediate: 32, MaxPositions: 64, LearnedPositions: true,
			Epsilon: 1e-5, Activation: transformer.GELU, Layers: []transformer.LayerForm{whole, whole},
		},
	}
	pre = modeldir.Backbone{Config: transformer.Config{
		Hidden: 32, Heads: 2, KeyHeads: 1, HeadSize: 32, Intermediate: 32, MaxPositions: 64, Epsilon: 1e-5,
		Norm: transformer.RMSNorm, NormPlace: transformer.PreNorm, Activation: transformer.SiLU, Gated: true,
	}}
)

func rotated(theta float64) transformer.LayerForm {
	return near(transformer.Unbounded, transformer.Unbounded, theta)
}

func near(before, after int, theta float64) transformer.LayerForm {
	return transformer.LayerForm{Before: before, After: after, Theta: theta}
}

// TestFamilies: the config of each family is read as its class reads it, also where a key is left out
// or has another value.
func TestFamilies(t *testing.T) {
	type b = *modeldir.Backbone
	type changes = map[string]any
	layers := func(b b, forms ...transformer.LayerForm) { b.Layers = forms }
	for _, f := range []struct {
		folder string
		change changes
		base   modeldir.Backbone
		want   func(b b)
	}{
		{"sentence-bert", nil, post, func(b b) { b.Family = "bert"; b.Intermediate, b.Epsilon = 48, 1e-12 }},
		{"roberta", nil, post, func(b b) {
			b.Family, b.PositionOffset, b.Activation = "roberta", 2, transformer.GELUTanh
		}},
		{"roberta", changes{"pad_token_id": 3, "hidden_act": nil, "layer_norm_eps": nil}, post, func(b b) {
			b.Family = "roberta"
			b.PositionOffset, b.MaxPositions, b.Epsilon = 4, 62, 1e-12
		}},
		{"camembert", nil, post, func(b b) {
			b.Family, b.PositionOffset, b.Activation = "camembert", 2, transformer.ReLU
		}},
		{"distilbert", changes{"layer_norm_eps": .5, "hidden_size": 32}, post, func(b b) {
			b.Family = "distilbert"
			b.Activation, b.Epsilon = transformer.SiLU, 1e-12
		}},
		{"mpnet", changes{"pad_token_id": 5}, post, func(b b) {
			b.Family, b.PositionOffset, b.RelativePositions = "mpnet", 2, true
		}},
		{"electra-narrow", nil, post, func(b b) {
			b.Family = "electra"
			b.Embedding, b.Activation, b.Epsilon = 16, transformer.GELUTanh, 1e-12
		}},
		{"electra-narrow", changes{"embedding_size": nil, "hidden_act": "tanh"}, post, func(b b) {
			b.Family = "electra"
			b.Embedding, b.Activation, b.Epsilon = 128, transformer.Tanh, 1e-12
		}},
		{"xlmr", changes{
			"position_embedding_type": "rotary", "auto_map": changes{"AutoModel": "jinaai/x--y.XLMRobertaLoRA"},
		}, post, func(b b) {
			b.Family = "xlm-roberta"
			b.Hidden, b.HeadSize, b.Intermediate, b.MaxPositions, b.LearnedPositions = 64, 32, 48, 50, false
			layers(b, rotated(10000), rotated(10000))
		}},

		{"mmbert", nil, pre, func(b b) {
			b.Family = "modernbert"
			b.Heads, b.Norm, b.Activation = 1, transformer.LayerNorm, transformer.GELU
			layers(b, rotated(160000), near(6, 6, 160000))
		}},
		{"mmbert", changes{
			"layer_types": nil, "global_attn_every_n_layers": 1, "local_attention": nil, "mlp_bias": true, "norm_bias": true,
			"rope_parameters": nil, "global_rope_theta": 5000,
		}, pre, func(b b) {
			b.Family = "modernbert"
			b.Heads, b.Norm, b.Activation = 1, transformer.LayerNorm, transformer.GELU
			b.Biases = modeldir.Biases{FeedForward: true, Norms: true}
			layers(b, rotated(5000), rotated(5000))
		}},
		{"mmbert", changes{
			"layer_types": []string{"sliding_attention", "full_attention"}, "local_attention": 9,
		}, pre, func(b b) {
			b.Family = "modernbert"
			b.Heads, b.Norm, b.Activation = 1, transformer.LayerNorm, transformer.GELU
			layers(b, near(4, 4, 160000), rotated(160000))
		}},
		{"eurobert", changes{"auto_map": changes{"AutoModel": "modeling_eurobert.EuroBertModel"}}, pre, func(b b) {
			b.Family = "eurobert"
			b.Heads, b.KeyHeads = 4, 2
			layers(b, rotated(250000), rotated(250000))
		}},
		{"eurobert", changes{
			"num_attention_heads": 1, "num_key_value_heads": nil, "head_dim": nil, "rope_parameters": nil, "rope_theta": 7000,
			"rope_scaling": modeltest.Null,
		}, pre, func(b b) {
			b.Family = "eurobert"
			b.Heads = 1
			layers(b, rotated(7000), rotated(7000))
		}},
		{"eurobert-biased", nil, pre, func(b b) {
			b.Family = "eurobert"
			b.Heads, b.Epsilon, b.Biases = 1, 1e-3, modeldir.Biases{Attention: true, FeedForward: true}
			layers(b, rotated(10000), rotated(10000))
		}},
		{"gemma", nil, pre, func(b b) {
			b.Family = "gemma3_text"
			b.Epsilon, b.NormPlace, b.Activation = 1e-6, transformer.SandwichNorm, transformer.GELUTanh
			b.AttentionScale = float32(1 / math.Sqrt(24))
			layers(b, near(4, 4, 10000), rotated(1000000))
		}},
		{"gemma", changes{
			"use_bidirectional_attention": nil, "sliding_window": 5, "layer_types": nil, "sliding_window_pattern": 1,
			"rope_parameters": nil, "rope_theta": 500, "rope_local_base_freq": 50, "head_dim": nil, "query_pre_attn_scalar": nil,
			"num_attention_heads": 8, "num_key_value_heads": nil, "attention_bias": true,
		}, pre, func(b b) {
			b.Family = "gemma3_text"
			b.Epsilon, b.NormPlace, b.Activation = 1e-6, transformer.SandwichNorm, transformer.GELUTanh
			b.Heads, b.KeyHeads, b.HeadSize, b.AttentionScale, b.Biases.Attention = 8, 4, 256, 1./16, true
			layers(b, near(-1, 0, 500), near(-1, 0, 500))
		}},
		{"gemma", changes{"use_bidirectional_attention": false, "sliding_window": 5, "layer_types": nil}, pre, func(b b) {
			b.Family = "gemma3_text"
			b.Epsilon, b.NormPlace, b.Activation = 1e-6, transformer.SandwichNorm, transformer.GELUTanh
			b.AttentionScale = float32(1 / math.Sqrt(24))
			layers(b, near(4, 0, 10000), near(4, 0, 10000))
		}},
		{"lfm2", nil, pre, func(b b) {
			b.Family = "lfm2"
			b.Intermediate = 48
			layers(b, near(-1, 0, 1000000), transformer.LayerForm{Convolution: true, Before: 2})
		}},
		{"lfm2", changes{
			"auto_map":     changes{"AutoModel": "a.Lfm2BidirectionalModel"},
			"conv_L_cache": 4, "block_auto_adjust_ff_dim": false, "intermediate_size": 80, "layer_types": nil,
			"full_attn_idxs": []int{1}, "conv_bias": true,
		}, pre, func(b b) {
			b.Family = "lfm2"
			b.Intermediate, b.Biases.Convolution = 80, true
			layers(b, transformer.LayerForm{Convolution: true, ConvolveAll: true, Before: 2, After: 1}, rotated(1000000))
		}},
		{"lfm2", changes{
			"block_ffn_dim_multiplier": nil, "block_multiple_of": nil, "block_ff_dim": 1000, "layer_types": nil,
			"num_key_value_heads": nil, "num_attention_heads": 8, "rope_parameters": nil, "rope_theta": 9000,
		}, pre, func(b b) {
			b.Family = "lfm2"
			b.Intermediate, b.Heads, b.KeyHeads = 768, 8, 8
			layers(b, near(-1, 0, 9000), near(-1, 0, 9000))
		}},
		{"lfm2", changes{"block_ffn_dim_multiplier": modeltest.Null, "intermediate_size": 49}, pre, func(b b) {
			b.Family = "lfm2"
			b.Intermediate = 32
			layers(b, near(-1, 0, 1000000), transformer.LayerForm{Convolution: true, Before: 2})
		}},
	} {
		want := f.base
		f.want(&want)
		c := read(t, golden(t, f.folder, f.change), &modeldir.Override{Expand: ptr(false)})
		want.Vocabulary = c.Backbone.Vocabulary
		require.Equal(t, want, c.Backbone, "%s %v", f.folder, f.change)
	}
}

// TestRefusals: a value that changes the vectors and that is not computed here is an error with its file, its key and itself.
func TestRefusals(t *testing.T) {
	type changes = map[string]any
	text := func(v any) string {
		b, err := json.Marshal(v)
		require.NoError(t, err)
		return string(b)
	}
	const family, config, against = 0, 1, 2
	kinds := []error{modeldir.ErrFamily, modeldir.ErrConfig, modeldir.ErrContradiction}
	full := []string{"full_attention"}
	yarn := changes{"rope_type": "yarn", "factor": 4}
	for _, f := range []struct {
		folder, key string
		value       any
		kind        int
		message     string
	}{
		{"roberta", "model_type", "xmod", family, `is "xmod", want one of [bert camembert distilbert`},
		{"roberta", "model_type", nil, config, "is missing"},
		{"roberta", "is_decoder", true, family, "is true, want false"},
		{"electra-narrow", "add_cross_attention", true, family, "is true, want false"},
		{"roberta", "position_embedding_type", "relative_key", family, `is "relative_key", want "absolute"`},
		{"sentence-bert", "position_embedding_type", "alibi", family, `is "alibi", want "absolute"`},
		{"xlmr", "position_embedding_type", "alibi", family, `is "alibi", want "absolute" or "rotary"`},
		{"xlmr", "lora_adaptations", []string{"retrieval.query"}, family, `is not supported: is ["retrieval.query"]`},
		{"sentence-bert", "auto_map.AutoModel", changes{"AutoModel": "m.JinaBertModel"}, family, `code of a model's own`},
		{"lfm2", "auto_map.AutoModel", changes{"AutoModel": "m.OtherModel"}, family, `is "OtherModel": code of`},
		{"mpnet", "quantization_config", changes{"quant_method": "gptq"}, family, `is {"quant_method":"gptq"}`},
		{"mpnet", "relative_attention_num_buckets", 64, family, "is 64, want 32"},
		{"mpnet", "hidden_act", "quick_gelu", family, `is "quick_gelu", want one of [gelu gelu_accurate`},
		{"distilbert", "activation", "mish", family, `is "mish"`},
		{"distilbert", "n_layers", nil, config, "is missing"},
		{"distilbert", "n_heads", 3, config, "is 3, which do not divide 32 dimensions"},
		{"distilbert", "n_layers", 5000, config, "is 5000, want 1024 at most"},
		{"roberta", "layer_norm_eps", -1, config, "is -1, want a number from 0 to less than 1"},
		{"roberta", "layer_norm_eps", 7, config, "is 7, want a number from 0 to less than 1"},
		{"roberta", "max_position_embeddings", 5, config, "leaves room for 3 ids"},
		{"mmbert", "is_causal", true, family, "is true, want false"},
		{"mmbert", "layer_types", full, against, "has 1 layers, num_hidden_layers is 2"},
		{"mmbert", "rope_parameters.sliding_attention", changes{"full_attention": changes{}}, config, "is missing"},
		{"mmbert", "rope_parameters.full_attention.rope_type",
			changes{"full_attention": yarn, "sliding_attention": changes{}}, family, `is "yarn", want default`},
		{"eurobert", "rope_scaling.rope_type", yarn, family, `is "yarn", want default`},
		{"eurobert", "rope_scaling.type", changes{"type": "linear", "factor": 2}, family, `is "linear", want default`},
		{"eurobert", "rope_parameters.rope_type", yarn, family, `is "yarn", want default`},
		{"eurobert", "partial_rotary_factor", .5, family, "is 0.5, want 1"},
		{"eurobert", "rope_theta", 5000, against, "is 250000, but rope_theta is 5000"},
		{"eurobert", "num_key_value_heads", 3, config, "is 3, which do not divide 4 heads"},
		{"gemma", "attn_logit_softcapping", 50, family, "is not supported: is 50"},
		{"gemma", "use_bidirectional_attention", "vision", config, `is "vision", want true or false`},
		{"gemma", "layer_types", append(full, "chunked_attention"), family, `is "chunked_attention"`},
		{"gemma", "query_pre_attn_scalar", 0, config, "is 0, want more than 0"},
		{"lfm2", "layer_types", append(full, "sliding_attention"), family, `layer_types[1]: `},
		{"lfm2", "model_type", "lfm2_bidirectional", family, `is "lfm2_bidirectional"`},
		{"lfm2", "full_attn_idxs", "all", config, `is "all", want a list of whole numbers`},
	} {
		key, _, _ := strings.Cut(f.key, ".")
		change := changes{key: f.value}
		dir := golden(t, f.folder, change)
		_, err := modeldir.Read(dir, nil)
		require.ErrorIs(t, err, kinds[f.kind], "%s %s", f.folder, text(change))
		place := filepath.Join(dir, "config.json") + ": "
		require.Contains(t, err.Error(), place, text(change))
		require.Contains(t, strings.TrimPrefix(err.Error(), place), f.key, text(change))
		require.Contains(t, err.Error(), f.message, text(change))
	}
	dir := golden(t, "eurobert", changes{"head_dim": 48})
	_, err := modeldir.Read(dir, nil)
	require.ErrorIs(t, err, modeldir.ErrFamily)
	require.ErrorContains(t, err, filepath.Join(dir, "config.json")+": ")
	require.ErrorContains(t, err, "heads of 48 dimensions: want a multiple of 32, with rotary positions")
	dir = golden(t, "roberta", nil)
	modeltest.JSON(t, filepath.Join(dir, "adapter_config.json"), changes{"peft_type": "LORA"})
	_, err = modeldir.Read(dir, nil)
	require.ErrorIs(t, err, modeldir.ErrFamily)
	require.ErrorContains(t, err, filepath.Join(dir, "adapter_config.json")+": ")
	require.ErrorContains(t, err, "adapters are not computed: merge them into the weights")
}

// TestBeyond: added tokens that the model has no embeddings of, as Gemma's token of images, are text
// like other text, with a warning.
func TestBeyond(t *testing.T) {
	dir := golden(t, "gemma", nil)
	path := filepath.Join(dir, "tokenizer.json")
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	var m map[string]any
	require.NoError(t, json.Unmarshal(b, &m))
	m["added_tokens"] = append(m["added_tokens"].([]any), map[string]any{
		"id": 353, "content": "<image>", "special": true, "single_word": false, "lstrip": false, "rstrip": false,
		"normalized": false,
	})
	modeltest.JSON(t, path, m)
	c := read(t, dir, nil)
	require.Equal(t, []string{"tokenizer.json has 354 tokens, but config.json says vocab_size 353: " +
		"added tokens from 353 on are taken for other text"}, c.Warnings)
	require.Equal(t, 353, c.Tokenizer.VocabSize())
	_, known := c.Tokenizer.ID("<image>")
	require.False(t, known)
	ids, err := c.Tokenizer.EncodeIDs(nil, "an <image>")
	require.NoError(t, err)
	require.Greater(t, len(ids), 5)
	require.Less(t, slices.Max(ids), int32(353))
	// Pieces of the tokenizer's own, and tokens of prompts, cannot be left out.
	for n, message := range map[int]string{
		100: "has 354 tokens, but config.json says vocab_size 100",
		352: `"[D] " is in a prompt, but config.json says vocab_size 352`,
	} {
		modeltest.Edit(t, filepath.Join(dir, "config.json"), map[string]any{"vocab_size": n})
		_, err := modeldir.Read(dir, nil)
		require.ErrorIs(t, err, modeldir.ErrContradiction)
		require.ErrorContains(t, err, message)
	}
}

// FuzzBackbone: no config.json of any family makes Read panic, and one that is read is of a model that is
// computed.
func FuzzBackbone(f *testing.F) {
	root := filepath.Join("..", "testdata", "golden")
	configs, err := filepath.Glob(filepath.Join(root, "*", "config.json"))
	require.NoError(f, err)
	for _, path := range configs {
		b, err := os.ReadFile(path)
		require.NoError(f, err)
		f.Add(string(b))
	}
	dir := f.TempDir()
	require.NoError(f, os.CopyFS(dir, os.DirFS(filepath.Join(root, "distilbert"))))
	f.Fuzz(func(t *testing.T, content string) {
		modeltest.WriteFile(t, filepath.Join(dir, "config.json"), []byte(content))
		c, err := modeldir.Read(dir, nil)
		if err != nil {
			var me *modeldir.ModelError
			require.ErrorAs(t, err, &me)
			return
		}
		require.NoError(t, c.Backbone.Check())
	})
}
