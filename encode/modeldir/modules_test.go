package modeldir_test

import (
	"maps"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode/modeldir"
	"github.com/plaid-ir/plaid/internal/testing/modeltest"
	"github.com/plaid-ir/plaid/vectors/pool"
)

const (
	settings = "config_sentence_transformers.json"
	lengths  = "sentence_bert_config.json"
	tokens   = "tokenizer_config.json"
)

// pooled is a folder whose last module pools documents.
func pooled(t *testing.T) string {
	dir := multiVector(t)
	modules := []map[string]any{}
	for _, m := range [][2]string{
		{"", "base.modules.transformer.Transformer"}, {"1_Dense", "base.modules.dense.Dense"},
		{"2_MultiVectorMask", "multi_vector_encoder.modules.multi_vector_mask.MultiVectorMask"},
		{"3_Normalize", "base.modules.normalize.Normalize"},
		{"4", "multi_vector_encoder.modules.token_pooling.HierarchicalTokenPooling"},
	} {
		modules = append(modules, map[string]any{"path": m[0], "type": "sentence_transformers." + m[1]})
	}
	modeltest.JSON(t, filepath.Join(dir, "modules.json"), modules)
	modeltest.JSON(t, filepath.Join(dir, "4", "config.json"), map[string]any{"pool_factor": 2.5, "num_protected_tokens": 0, "tasks": "document"})
	return dir
}

// TestPooling: the pooling of documents is read, and decides about their vectors.
func TestPooling(t *testing.T) {
	dir := pooled(t)
	c := read(t, dir, nil)
	require.Equal(t, &pool.Hierarchy{Factor: 2.5}, c.Pooling)
	sums, err := c.Fingerprints("f32")
	require.NoError(t, err)
	modeltest.Edit(t, filepath.Join(dir, "4", "config.json"), map[string]any{"normalize_embeddings": true, "num_protected_tokens": nil})
	c = read(t, dir, nil)
	require.Equal(t, &pool.Hierarchy{Factor: 2.5, Protected: 1, Unit: true}, c.Pooling)
	others, err := c.Fingerprints("f32")
	require.NoError(t, err)
	require.NotEqual(t, sums, others)
	modeltest.Edit(t, filepath.Join(dir, "4", "config.json"), map[string]any{"pool_factor": 1})
	require.Nil(t, read(t, dir, nil).Pooling)
}

// TestKeepOnly: ids that are kept of documents.
func TestKeepOnly(t *testing.T) {
	dir := multiVector(t)
	modeltest.Edit(t, filepath.Join(dir, "2_MultiVectorMask", "config.json"), map[string]any{"keep_only_token_ids": []int{3, 2}})
	require.Equal(t, []int32{3, 2}, read(t, dir, nil).Keep)
}

// TestPrefixes: an empty prefix is none, and so is a marker that a prompt has.
func TestPrefixes(t *testing.T) {
	dir := pylate(t)
	modeltest.Edit(t, filepath.Join(dir, settings), map[string]any{"query_prefix": "", "prompts": map[string]any{"query": " \u00a0ask: ", "document": nil}})
	c := read(t, dir, nil)
	require.Equal(t, modeldir.Role{Marker: -1, Prompt: "ask: ", Length: 16}, c.Query)
	require.Equal(t, int32(6), c.Document.Marker)
	// A prompt for all texts is for those without one of their own.
	modeltest.Edit(t, filepath.Join(dir, settings), map[string]any{"prompts": map[string]any{"query": "ask: ", "x": "text: "}, "default_prompt_name": "x"})
	c = read(t, dir, nil)
	require.Equal(t, "ask:  text: ", c.Query.Prompt+" "+c.Document.Prompt)
	// In version 6 each role has one, if only an empty one.
	dir = multiVector(t)
	modeltest.Edit(t, filepath.Join(dir, settings), map[string]any{"prompts": map[string]any{"query": " [Q]ask", "x": "text: "}, "default_prompt_name": "x"})
	c = read(t, dir, nil)
	require.Equal(t, modeldir.Role{Marker: -1, Prompt: " [Q]ask", Length: 64}, c.Query)
	require.Empty(t, c.Document.Prompt)
}

// TestSpecialTokens: what queries are filled up with, and how long texts are, by the tokenizer's files.
func TestSpecialTokens(t *testing.T) {
	object := func(name string) map[string]any {
		return map[string]any{"__type": "AddedToken", "content": name, "lstrip": true}
	}
	for _, c := range []struct {
		file, other map[string]any
		mask        int32
		origin      string
	}{
		{map[string]any{}, nil, 4, "default"},
		{map[string]any{"mask_token": "[PAD]"}, nil, 0, tokens},
		{map[string]any{"mask_token": object("[SEP]")}, nil, 3, tokens},
		{map[string]any{"mask_token": modeltest.Null, "eos_token": "[SEP]"}, nil, 3, tokens},
		{map[string]any{"mask_token": modeltest.Null, "pad_token": "[PAD]"}, nil, 0, tokens},
		{map[string]any{"mask_token": "[SEP]"}, map[string]any{"mask_token": object("[PAD]")}, 0, "special_tokens_map.json"},
		{map[string]any{"mask_token": "[SEP]", "added_tokens_decoder": map[string]any{}}, map[string]any{"mask_token": "[PAD]"}, 3, tokens},
	} {
		dir := pylate(t)
		modeltest.JSON(t, filepath.Join(dir, tokens), map[string]any{})
		modeltest.Edit(t, filepath.Join(dir, tokens), c.file)
		if c.other != nil {
			modeltest.JSON(t, filepath.Join(dir, "special_tokens_map.json"), c.other)
		}
		got := read(t, dir, nil)
		require.Equal(t, c.mask, got.Expand.Mask, "%v", c)
		require.Equal(t, c.origin, got.Origin["mask"], "%v", c)
	}
	dir := multiVector(t)
	modeltest.JSON(t, filepath.Join(dir, tokens), map[string]any{"model_max_length": 21})
	c := read(t, dir, nil)
	require.Equal(t, 21, c.Query.Length)
	require.Equal(t, tokens, c.Origin["query.length"])
	modeltest.JSON(t, filepath.Join(dir, tokens), map[string]any{"model_max_length": 1e30})
	require.Equal(t, 64, read(t, dir, nil).Query.Length)
	modeltest.Edit(t, filepath.Join(dir, lengths), map[string]any{"max_seq_length": 22})
	require.Equal(t, 22, read(t, dir, nil).Query.Length)
	// What stands on the left changes nothing for a text alone.
	modeltest.JSON(t, filepath.Join(dir, tokens), map[string]any{"padding_side": "left"})
	modeltest.Edit(t, filepath.Join(dir, lengths), map[string]any{"query_expansion": modeltest.Null})
	read(t, dir, nil)
}

// TestFaultsOfModules: each is named with its file, field and value.
func TestFaultsOfModules(t *testing.T) {
	const mask, normalize, dense, pooling = "2_MultiVectorMask/config.json", "3_Normalize/config.json", "1_Dense/config.json", "4/config.json"
	for _, f := range []struct {
		folder  func(*testing.T) string
		file    string
		changes map[string]any
		kind    error
		message string
	}{
		{pooled, pooling, map[string]any{"pool_factor": 0.5}, modeldir.ErrConfig, "4/config.json: pool_factor: unusable configuration: is 0.5"},
		{pooled, pooling, map[string]any{"pool_factor": "2"}, modeldir.ErrConfig, `pool_factor: unusable configuration: is "2", want a number`},
		{pooled, pooling, map[string]any{"num_protected_tokens": -1}, modeldir.ErrConfig, "num_protected_tokens: unusable configuration: is -1"},
		{pooled, pooling, map[string]any{"normalize_embeddings": 1}, modeldir.ErrConfig, "normalize_embeddings"},
		{pooled, pooling, map[string]any{"tasks": []string{"query", "document"}}, modeldir.ErrFamily, `tasks: kind of model is not supported: is ["query","document"]`},
		{pooled, pooling, map[string]any{"tasks": 1}, modeldir.ErrConfig, "tasks"},
		{multiVector, normalize, map[string]any{"module_input_name": "sentence_embedding"}, modeldir.ErrFamily, `is "sentence_embedding", want token_embeddings`},
		{multiVector, normalize, map[string]any{"module_input_name": nil}, modeldir.ErrFamily, "module_input_name: kind of model is not supported: is missing"},
		{multiVector, mask, map[string]any{"keep_only_token_ids": []any{"x"}}, modeldir.ErrConfig, `keep_only_token_ids: unusable configuration: is ["x"]`},
		{multiVector, mask, map[string]any{"skiplist_tasks": 3}, modeldir.ErrConfig, "skiplist_tasks"},
		{multiVector, dense, map[string]any{"activation_function": "mine.GELU"}, modeldir.ErrFamily, `activation_function: kind of model is not supported: "mine.GELU" is not known`},
		{multiVector, dense, map[string]any{"activation_function": "torch.nn.modules.activation.Sigmoid"}, modeldir.ErrFamily, "Sigmoid"},
		{multiVector, settings, map[string]any{"similarity_fn_name": "meanmaxsim"}, modeldir.ErrFamily, `similarity_fn_name: kind of model is not supported: is "meanmaxsim"`},
		{multiVector, settings, map[string]any{"prompts": map[string]any{"query": 1}}, modeldir.ErrConfig, "prompts.query: unusable configuration: is 1, want a string"},
		{multiVector, settings, map[string]any{"default_prompt_name": "x"}, modeldir.ErrConfig, "default_prompt_name"},
		{multiVector, lengths, map[string]any{"transformer_task": "text-generation"}, modeldir.ErrFamily, "transformer_task"},
		{multiVector, lengths, map[string]any{"module_output_name": "sentence_embedding"}, modeldir.ErrFamily, "module_output_name"},
		{multiVector, lengths, map[string]any{"processing_kwargs": map[string]any{"text": map[string]any{"max_length": 3}}}, modeldir.ErrFamily, "processing_kwargs.text"},
		{multiVector, lengths, map[string]any{"modality_config": map[string]any{"message": map[string]any{}}}, modeldir.ErrFamily, "modality_config.message"},
		{multiVector, lengths, map[string]any{"modality_config": map[string]any{"text": map[string]any{"method_output_name": "logits"}}}, modeldir.ErrFamily, "logits"},
		{multiVector, tokens, map[string]any{"model_max_length": "x"}, modeldir.ErrConfig, `model_max_length: unusable configuration: is "x"`},
		{pylate, tokens, map[string]any{"mask_token": 3}, modeldir.ErrConfig, "mask_token: unusable configuration: is 3, want a string"},
		{pylate, tokens, map[string]any{"mask_token": "<m>"}, modeldir.ErrTokenizer, `mask_token: unusable tokenizer: "<m>" is no token`},
		{pylate, tokens, map[string]any{"padding_side": "left"}, modeldir.ErrFamily, `padding_side: kind of model is not supported: is "left", want right`},
		{pylate, tokens, map[string]any{"truncation_side": "left"}, modeldir.ErrFamily, "truncation_side"},
	} {
		dir := f.folder(t)
		path := filepath.Join(dir, filepath.FromSlash(f.file))
		if f.file == tokens {
			modeltest.JSON(t, path, map[string]any{})
		}
		modeltest.Edit(t, path, maps.Clone(f.changes))
		_, err := modeldir.Read(dir, nil)
		require.ErrorIs(t, err, f.kind, "%s %v: %v", f.file, f.changes, err)
		var me *modeldir.ModelError
		require.ErrorAs(t, err, &me)
		require.Contains(t, filepath.ToSlash(err.Error()), f.message)
		require.Equal(t, path, me.Path)
	}
}
