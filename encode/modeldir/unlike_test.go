package modeldir_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode/modeldir"
	"github.com/plaid-ir/plaid/internal/testing/modeltest"
	"github.com/plaid-ir/plaid/kernels/transformer"
)

// TestUnlikeItsFiles: settings that change what a class computes, and are easily overlooked, are followed or refused.
// Each was run by the class that it is of: with all of them its vectors are others.
func TestUnlikeItsFiles(t *testing.T) {
	type object = map[string]any
	const config, tokens, bert = "config.json", "tokenizer_config.json", "sentence_bert_config.json"
	for _, test := range []struct {
		folder, file string
		change       object
		field        string // "": it is harmless
	}{
		{"roberta", config, object{"is_causal": true}, "is_causal"},
		{"sentence-bert", config, object{"is_causal": true}, "is_causal"},
		{"camembert", config, object{"is_causal": true}, "is_causal"},
		{"distilbert", config, object{"is_causal": true}, "is_causal"},
		{"mpnet", config, object{"is_causal": true}, "is_causal"},
		{"electra-narrow", config, object{"is_causal": true}, "is_causal"},
		{"roberta", config, object{"is_causal": false}, ""},
		{"roberta", config, object{"pad_token_id": 0}, "pad_token_id"},
		{"distilbert", config, object{"num_attention_heads": 1}, "num_attention_heads"},
		{"gemma", config, object{"is_causal": false}, "is_causal"},
		{"gemma", config, object{"is_causal": true}, ""},
		{"eurobert", config, object{"rope_scaling": object{"rope_type": "default", "rope_theta": 5}}, "rope_scaling.rope_theta"},
		{"lfm2", config, object{"rope_scaling": object{"type": "default", "rope_theta": 5}}, "rope_scaling.rope_theta"},
		{"eurobert", config, object{"rope_scaling": object{"factor": 8}}, "rope_scaling"},
		{"eurobert", config, object{"rope_scaling": object{}}, ""},
		{"gemma", tokens, object{"split_special_tokens": true}, "split_special_tokens"},
		{"gemma", tokens, object{"split_special_tokens": false}, ""},
		{"gemma", tokens, object{"tokenizer_class": "GemmaTokenizer"}, "padding_side"},
		{"gemma", tokens, object{"tokenizer_class": "GemmaTokenizerFast"}, "padding_side"},
		{"gemma", tokens, object{"tokenizer_class": "GemmaTokenizer", "padding_side": "right"}, ""},
		{"roberta", bert, object{"config_args": object{"hidden_act": "relu"}}, "config_args.hidden_act"},
		{"pylate-heads", bert, object{"config_args": object{"hidden_act": "relu"}}, "config_args.hidden_act"},
		{"roberta", bert, object{"config_kwargs": object{"hidden_act": "relu"}}, "config_kwargs.hidden_act"},
		{"roberta", bert, object{"tokenizer_args": object{"model_max_length": 10}}, "tokenizer_args.model_max_length"},
		{"roberta", bert, object{"model_kwargs": object{"trust_remote_code": true, "dtype": "float32"}}, ""},
	} {
		dir := golden(t, test.folder, nil)
		modeltest.Edit(t, filepath.Join(dir, test.file), test.change)
		_, err := modeldir.Read(dir, nil)
		if test.field == "" {
			require.NoError(t, err, "%s %v", test.folder, test.change)
			continue
		}
		var me *modeldir.ModelError
		require.ErrorAs(t, err, &me, "%s %v", test.folder, test.change)
		if !errors.Is(err, modeldir.ErrContradiction) {
			require.ErrorIs(t, err, modeldir.ErrFamily)
		}
		require.Equal(t, test.field, me.Field)
		require.Equal(t, test.file, filepath.Base(me.Path))
	}
}

// TestOlderKeys: keys that classes take, too, mean what they mean to them.
func TestOlderKeys(t *testing.T) {
	read := func(dir string) *modeldir.Config {
		c, err := modeldir.Read(dir, nil)
		require.NoError(t, err)
		return c
	}
	c := read(golden(t, "mmbert", map[string]any{"sliding_window": 3}))
	require.Equal(t, near(3, 3, 160_000), c.Backbone.Layers[1])
	c = read(golden(t, "lfm2", map[string]any{"block_ff_dim": 50, "intermediate_size": nil}))
	require.Equal(t, read(golden(t, "lfm2", nil)).Backbone, c.Backbone)
	c = read(golden(t, "lfm2", map[string]any{"is_causal": false}))
	require.Equal(t, []transformer.LayerForm{
		rotated(1_000_000), {Convolution: true, Before: 2},
	}, c.Backbone.Layers)
	dir := golden(t, "sentence-modernbert", nil)
	rename(t, dir, "sentence_bert_config.json", "sentence_roberta_config.json")
	require.Equal(t, read(golden(t, "sentence-modernbert", nil)).Document, read(dir).Document)
}

// TestSettingsOfTheTokenizersFile: what tokenizer.json says of sides and types is not overlooked, and a class
// without special tokens of its own has no mask.
func TestSettingsOfTheTokenizersFile(t *testing.T) {
	type object = map[string]any
	typed := func(m object) {
		m["post_processor"].(object)["single"].([]any)[1].(object)["Sequence"].(object)["type_id"] = 1
	}
	side := func(key string) func(m object) {
		return func(m object) { m[key] = object{"direction": "Left", "max_length": 10} }
	}
	for _, test := range []struct {
		folder string
		change func(m object)
		tokens object
		field  string // "": it is harmless
	}{
		{"roberta", side("truncation"), nil, "truncation_side"},
		{"roberta", side("padding"), nil, "padding_side"},
		{"roberta", side("padding"), object{"padding_side": "right"}, ""},
		{"sentence-bert", typed, nil, "post_processor"},
		{"sentence-bert", typed, object{"model_input_names": []string{"input_ids", "attention_mask"}}, ""},
		{"distilbert", typed, nil, ""},
	} {
		dir := golden(t, test.folder, nil)
		path := filepath.Join(dir, "tokenizer.json")
		m := object{}
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(b, &m))
		test.change(m)
		modeltest.JSON(t, path, m)
		modeltest.Edit(t, filepath.Join(dir, "tokenizer_config.json"), object{"model_input_names": nil})
		modeltest.Edit(t, filepath.Join(dir, "tokenizer_config.json"), test.tokens)
		_, err = modeldir.Read(dir, nil)
		if test.field == "" {
			require.NoError(t, err, test.folder)
			continue
		}
		var me *modeldir.ModelError
		require.ErrorAs(t, err, &me, "%s: %s", test.folder, test.field)
		require.ErrorIs(t, err, modeldir.ErrFamily)
		require.Equal(t, test.field, me.Field)
	}
	for class, piece := range map[string]string{"TokenizersBackend": "</s>", "RobertaTokenizer": "<mask>"} {
		dir := golden(t, "roberta", nil)
		modeltest.Edit(t, filepath.Join(dir, "tokenizer_config.json"), object{"mask_token": nil, "tokenizer_class": class})
		c, err := modeldir.Read(dir, nil)
		require.NoError(t, err)
		require.Equal(t, piece, c.Tokenizer.Piece(c.Expand.Mask), class)
	}
}

// TestPieceClasses: the classes of XLM-R and CamemBERT make their own steps; the ids are theirs.
func TestPieceClasses(t *testing.T) {
	lines := []string{"  How do\n cells ", "a \u2581 b ½"}
	always := [][]int32{{4, 119, 72, 42, 25, 5}, {15, 4, 92, 4, 3}}
	for _, test := range []struct {
		change map[string]any
		ids    [][]int32
	}{
		{map[string]any{"tokenizer_class": "XLMRobertaTokenizer"}, always},
		{map[string]any{"tokenizer_class": "CamembertTokenizerFast"}, always},
		{
			map[string]any{"tokenizer_class": "XLMRobertaTokenizer", "add_prefix_space": false},
			[][]int32{{119, 72, 6, 8, 22, 101, 5}, {12, 4, 135, 3}},
		},
	} {
		dir := golden(t, "camembert", nil)
		modeltest.Edit(t, filepath.Join(dir, "tokenizer_config.json"), test.change)
		c, err := modeldir.Read(dir, nil)
		require.NoError(t, err)
		require.Len(t, c.Warnings, 1)
		for i, line := range lines {
			ids, err := c.Tokenizer.EncodeIDs(nil, line)
			require.NoError(t, err)
			require.Equal(t, test.ids[i], ids, "%v %q", test.change, line)
		}
	}
	// The class's own steps, as several versions write them, are left alone.
	for _, marks := range []string{
		`{"type":"Metaspace","replacement":"\u2581","add_prefix_space":true}`,
		`{"type":"Metaspace","replacement":"\u2581","prepend_scheme":"always","split":true}`,
	} {
		dir := golden(t, "camembert", nil)
		modeltest.Edit(t, filepath.Join(dir, "tokenizer_config.json"), map[string]any{"tokenizer_class": "XLMRobertaTokenizer"})
		modeltest.Edit(t, filepath.Join(dir, "tokenizer.json"), map[string]any{
			"normalizer":    nil,
			"pre_tokenizer": json.RawMessage(`{"type":"Sequence","pretokenizers":[{"type":"WhitespaceSplit"},` + marks + `]}`),
		})
		c, err := modeldir.Read(dir, nil)
		require.NoError(t, err)
		require.Empty(t, c.Warnings)
	}
}

// TestAddedTokens: tokens that tokenizer_config.json adds, or has with other settings, are as its class has them.
func TestAddedTokens(t *testing.T) {
	type object = map[string]any
	token := func(content string, settings object) object {
		o := object{
			"content": content, "lstrip": false, "rstrip": false, "normalized": false, "single_word": false, "special": false,
		}
		for k, v := range settings {
			o[k] = v
		}
		return o
	}
	for _, test := range []struct {
		folder, id string
		token      object
		text       string
		ids        []int32
	}{
		{"sentence-bert", "60", token("the", object{"single_word": true}), "the bird", []int32{88, 94}},
		{"sentence-bert", "60", token("the", object{"single_word": true}), "other", []int32{127}},
		{"roberta", "4", token("<mask>", object{"lstrip": true, "rstrip": true, "special": true}), "a <mask> b", []int32{69, 4, 70}},
		{"roberta", "9000", token("QQ", nil), "QQ", nil}, // which the model has no embedding of
	} {
		dir := golden(t, test.folder, nil)
		plain, err := modeldir.Read(dir, nil)
		require.NoError(t, err)
		want, warnings := test.ids, 1
		if want == nil {
			warnings = 0
			want, err = plain.Tokenizer.EncodeIDs(nil, test.text)
			require.NoError(t, err)
		}
		modeltest.Edit(t, filepath.Join(dir, "tokenizer_config.json"), object{"added_tokens_decoder": object{test.id: test.token}})
		c, err := modeldir.Read(dir, nil)
		require.NoError(t, err)
		require.Len(t, c.Warnings, warnings)
		ids, err := c.Tokenizer.EncodeIDs(nil, test.text)
		require.NoError(t, err)
		require.Equal(t, want, ids, "%q", test.text)
		require.Equal(t, warnings > 0, c.Tokenizer.Fingerprint() != plain.Tokenizer.Fingerprint())
	}
	dir := golden(t, "roberta", nil)
	modeltest.Edit(t, filepath.Join(dir, "tokenizer_config.json"), object{"tokenizer_class": "GPTNeoXTokenizerFast"})
	other, err := modeldir.Read(dir, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"tokenizer_config.json: tokenizer_class is GPTNeoXTokenizer, which may have steps of its own: " +
		"tokenizer.json is read as it stands"}, other.Warnings)
	dir = golden(t, "roberta", nil)
	modeltest.Edit(t, filepath.Join(dir, "tokenizer_config.json"), object{"eos_token": "a"})
	c, err := modeldir.Read(dir, nil)
	require.NoError(t, err)
	ids, err := c.Tokenizer.EncodeIDs(nil, "a bad a")
	require.NoError(t, err)
	require.Equal(t, []int32{69, 268, 69, 72, 225, 69}, ids)
}

// TestBounds: no number makes tables that memory cannot hold, or one that is none.
func TestBounds(t *testing.T) {
	dir := golden(t, "eurobert", map[string]any{"max_position_embeddings": 1 << 24})
	modeltest.Edit(t, filepath.Join(dir, "sentence_bert_config.json"), map[string]any{"document_length": 1 << 24})
	_, err := modeldir.Read(dir, nil)
	require.ErrorIs(t, err, modeldir.ErrConfig)
	require.ErrorContains(t, err, "document.length: unusable configuration: is 16777216 by sentence_bert_config.json, "+
		"want 1048576 at most")
	for _, n := range []float64{1e-300, 1e300} {
		_, err = modeldir.Read(golden(t, "gemma", map[string]any{"query_pre_attn_scalar": n}), nil)
		require.ErrorIs(t, err, modeldir.ErrConfig)
		require.ErrorContains(t, err, "query_pre_attn_scalar")
	}
	_, err = modeldir.Read(golden(t, "lfm2", map[string]any{"block_ffn_dim_multiplier": 1e300}), nil)
	require.ErrorIs(t, err, modeldir.ErrConfig)
	require.ErrorContains(t, err, "block_ffn_dim_multiplier")
}

func rename(t *testing.T, dir, from, to string) {
	t.Helper()
	require.NoError(t, os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)))
}

// TestManyMissing: an index of shards that names more files than anyone would read about is an error of some of them.
func TestManyMissing(t *testing.T) {
	dir := golden(t, "roberta", nil)
	require.NoError(t, os.Remove(filepath.Join(dir, "model.safetensors")))
	shards := map[string]string{}
	for i := range 1000 {
		shards[fmt.Sprint("x", i)] = fmt.Sprintf("m%03d.safetensors", i)
	}
	modeltest.JSON(t, filepath.Join(dir, "model.safetensors.index.json"), map[string]any{"weight_map": shards})
	_, err := modeldir.Read(dir, nil)
	require.ErrorIs(t, err, modeldir.ErrIncomplete)
	require.ErrorContains(t, err, "no m019.safetensors, and 980 more")
	require.NotContains(t, err.Error(), "m020")
}
