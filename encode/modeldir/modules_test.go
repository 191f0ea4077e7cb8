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

type object = map[string]any

// pooled is a folder whose last module pools documents.
func pooled(t *testing.T) string {
	dir := multiVector(t)
	modules := []object{}
	for _, m := range [][2]string{
		{"", "base.modules.transformer.Transformer"}, {"1_Dense", "base.modules.dense.Dense"},
		{"2_MultiVectorMask", "multi_vector_encoder.modules.multi_vector_mask.MultiVectorMask"},
		{"3_Normalize", "base.modules.normalize.Normalize"},
		{"4", "multi_vector_encoder.modules.token_pooling.HierarchicalTokenPooling"},
	} {
		modules = append(modules, object{"path": m[0], "type": "sentence_transformers." + m[1]})
	}
	modeltest.JSON(t, filepath.Join(dir, "modules.json"), modules)
	modeltest.JSON(t, filepath.Join(dir, "4", "config.json"), object{
		"pool_factor": 2.5, "num_protected_tokens": 0, "tasks": "document",
	})
	return dir
}

// TestPooling: the pooling of documents is read, and decides about their vectors.
func TestPooling(t *testing.T) {
	dir := pooled(t)
	c := read(t, dir, nil)
	require.Equal(t, &pool.Hierarchy{Factor: 2.5}, c.Pooling)
	sums, err := c.Fingerprints("f32")
	require.NoError(t, err)
	modeltest.Edit(t, filepath.Join(dir, "4", "config.json"), object{
		"normalize_embeddings": true, "num_protected_tokens": nil,
	})
	c = read(t, dir, nil)
	require.Equal(t, &pool.Hierarchy{Factor: 2.5, Protected: 1, Unit: true}, c.Pooling)
	others, err := c.Fingerprints("f32")
	require.NoError(t, err)
	require.NotEqual(t, sums, others)
	modeltest.Edit(t, filepath.Join(dir, "4", "config.json"), object{"pool_factor": 1})
	require.Nil(t, read(t, dir, nil).Pooling)
}

// TestKeepOnly: ids that are kept of documents.
func TestKeepOnly(t *testing.T) {
	dir := multiVector(t)
	modeltest.Edit(t, filepath.Join(dir, "2_MultiVectorMask", "config.json"), object{"keep_only_token_ids": []int{3, 2}})
	require.Equal(t, []int32{3, 2}, read(t, dir, nil).Keep)
}

// TestPrefixes: an empty prefix is none, and so is a marker that a prompt has.
func TestPrefixes(t *testing.T) {
	dir := pylate(t)
	modeltest.Edit(t, filepath.Join(dir, settings), object{
		"query_prefix": "", "prompts": object{"query": " \u00a0ask: ", "document": nil},
	})
	c := read(t, dir, nil)
	require.Equal(t, modeldir.Role{Marker: -1, Prompt: "ask: ", Length: 16}, c.Query)
	require.Equal(t, int32(6), c.Document.Marker)
	// A prompt for all texts is for those without one of their own.
	modeltest.Edit(t, filepath.Join(dir, settings), object{
		"prompts": object{"query": "ask: ", "x": "text: "}, "default_prompt_name": "x",
	})
	c = read(t, dir, nil)
	require.Equal(t, "ask:  text: ", c.Query.Prompt+" "+c.Document.Prompt)
	// In version 6 each role has one, if only an empty one.
	dir = multiVector(t)
	modeltest.Edit(t, filepath.Join(dir, settings), object{
		"prompts": object{"query": " [Q]ask", "x": "text: "}, "default_prompt_name": "x",
	})
	c = read(t, dir, nil)
	require.Equal(t, modeldir.Role{Marker: -1, Prompt: " [Q]ask", Length: 64}, c.Query)
	require.Empty(t, c.Document.Prompt)
}

// TestFixedLength: in version 6 the length that queries are filled up to goes before query_length, which
// must not be less.
func TestFixedLength(t *testing.T) {
	dir := multiVector(t)
	file := filepath.Join(dir, lengths)
	modeltest.Edit(t, file, object{"query_length": 20, "query_expansion": object{"strategy": "fixed", "length": 9}})
	c := read(t, dir, nil)
	require.Equal(t, 9, c.Query.Length)
	require.Equal(t, 9, c.Expand.Length)
	modeltest.Edit(t, file, object{"query_length": 8})
	_, err := modeldir.Read(dir, nil)
	require.ErrorIs(t, err, modeldir.ErrContradiction)
	require.ErrorContains(t, err, "query_expansion.length: files contradict each other: is 9, but "+lengths+" says 8")
}

// TestSpecialTokens: what queries are filled up with, and how long texts are, by the tokenizer's files.
func TestSpecialTokens(t *testing.T) {
	token := func(name string) object {
		return object{"__type": "AddedToken", "content": name, "lstrip": true}
	}
	for _, c := range []struct {
		file, other object
		mask        int32
		origin      string
	}{
		{object{}, nil, 4, "default"},
		{object{"mask_token": "[PAD]"}, nil, 0, tokens},
		{object{"mask_token": token("[SEP]")}, nil, 3, tokens},
		{object{"mask_token": modeltest.Null, "eos_token": "[SEP]"}, nil, 3, tokens},
		{object{"mask_token": modeltest.Null, "pad_token": "[PAD]"}, nil, 0, tokens},
		{object{"mask_token": "[SEP]"}, object{"mask_token": token("[PAD]")}, 0, "special_tokens_map.json"},
		{object{"mask_token": "[SEP]", "added_tokens_decoder": object{}}, object{"mask_token": "[PAD]"}, 3, tokens},
	} {
		dir := pylate(t)
		modeltest.JSON(t, filepath.Join(dir, tokens), object{})
		modeltest.Edit(t, filepath.Join(dir, tokens), c.file)
		if c.other != nil {
			modeltest.JSON(t, filepath.Join(dir, "special_tokens_map.json"), c.other)
		}
		got := read(t, dir, nil)
		require.Equal(t, c.mask, got.Expand.Mask, "%v", c)
		require.Equal(t, c.origin, got.Origin["mask"], "%v", c)
	}
	dir := multiVector(t)
	modeltest.JSON(t, filepath.Join(dir, tokens), object{"model_max_length": 21})
	c := read(t, dir, nil)
	require.Equal(t, 21, c.Query.Length)
	require.Equal(t, tokens, c.Origin["query.length"])
	modeltest.JSON(t, filepath.Join(dir, tokens), object{"model_max_length": 1e30})
	require.Equal(t, 64, read(t, dir, nil).Query.Length)
	modeltest.Edit(t, filepath.Join(dir, lengths), object{"max_seq_length": 22})
	require.Equal(t, 22, read(t, dir, nil).Query.Length)
	// What stands on the left changes nothing for a text alone.
	modeltest.JSON(t, filepath.Join(dir, tokens), object{"padding_side": "left"})
	modeltest.Edit(t, filepath.Join(dir, lengths), object{"query_expansion": modeltest.Null})
	read(t, dir, nil)
	// A file goes before the class.
	dir = pylate(t)
	modeltest.JSON(t, filepath.Join(dir, tokens), object{"tokenizer_class": "LlamaTokenizer"})
	modeltest.Edit(t, filepath.Join(dir, "tokenizer.json"), object{"padding": object{"direction": "Right"}})
	read(t, dir, nil)
	modeltest.JSON(t, filepath.Join(dir, tokens), object{"tokenizer_class": "LlamaTokenizer", "padding_side": "right"})
	read(t, dir, nil)
}

// TestFaultsOfModules: each is named with its file, field and value.
func TestFaultsOfModules(t *testing.T) {
	const mask, normalize = "2_MultiVectorMask/config.json", "3_Normalize/config.json"
	const dense, pooling = "1_Dense/config.json", "4/config.json"
	for _, f := range []struct {
		folder  func(*testing.T) string
		file    string
		changes object
		kind    error
		message string
	}{
		{pooled, pooling, object{"pool_factor": 0.5},
			modeldir.ErrConfig, "4/config.json: pool_factor: unusable configuration: is 0.5"},
		{pooled, pooling, object{"pool_factor": "2"},
			modeldir.ErrConfig, `pool_factor: unusable configuration: is "2", want a number`},
		{pooled, pooling, object{"num_protected_tokens": -1},
			modeldir.ErrConfig, "num_protected_tokens: unusable configuration: is -1"},
		{pooled, pooling, object{"normalize_embeddings": 1}, modeldir.ErrConfig, "normalize_embeddings"},
		{pooled, pooling, object{"tasks": []string{"query", "document"}},
			modeldir.ErrFamily, `tasks: kind of model is not supported: is ["query","document"]`},
		{pooled, pooling, object{"tasks": 1}, modeldir.ErrConfig, "tasks"},
		{multiVector, normalize, object{"module_input_name": "sentence_embedding"},
			modeldir.ErrFamily, `is "sentence_embedding", want token_embeddings`},
		{multiVector, normalize, object{"module_input_name": nil},
			modeldir.ErrFamily, "module_input_name: kind of model is not supported: is missing"},
		{multiVector, mask, object{"keep_only_token_ids": []any{"x"}},
			modeldir.ErrConfig, `keep_only_token_ids: unusable configuration: is ["x"]`},
		{multiVector, mask, object{"skiplist_tasks": 3}, modeldir.ErrConfig, "skiplist_tasks"},
		{multiVector, dense, object{"activation_function": "mine.GELU"},
			modeldir.ErrFamily, `activation_function: kind of model is not supported: "mine.GELU" is not known`},
		{multiVector, dense, object{"activation_function": "torch.nn.modules.activation.Sigmoid"},
			modeldir.ErrFamily, "Sigmoid"},
		{multiVector, settings, object{"similarity_fn_name": "meanmaxsim"},
			modeldir.ErrFamily, `similarity_fn_name: kind of model is not supported: is "meanmaxsim"`},
		{multiVector, settings, object{"prompts": object{"query": 1}},
			modeldir.ErrConfig, "prompts.query: unusable configuration: is 1, want a string"},
		{multiVector, settings, object{"default_prompt_name": "x"}, modeldir.ErrConfig, "default_prompt_name"},
		{multiVector, lengths, object{"transformer_task": "text-generation"},
			modeldir.ErrFamily, "transformer_task"},
		{multiVector, lengths, object{"module_output_name": "sentence_embedding"},
			modeldir.ErrFamily, "module_output_name"},
		{multiVector, lengths, object{"processing_kwargs": object{"text": object{"max_length": 3}}},
			modeldir.ErrFamily, "processing_kwargs.text"},
		{multiVector, lengths, object{"modality_config": object{"message": object{}}},
			modeldir.ErrFamily, "modality_config.message"},
		{multiVector, lengths, object{"modality_config": object{"text": object{"method_output_name": "logits"}}},
			modeldir.ErrFamily, "logits"},
		{multiVector, tokens, object{"model_max_length": "x"},
			modeldir.ErrConfig, `model_max_length: unusable configuration: is "x"`},
		{pylate, tokens, object{"mask_token": 3},
			modeldir.ErrConfig, "mask_token: unusable configuration: is 3, want a string"},
		{pylate, tokens, object{"mask_token": "<m>"},
			modeldir.ErrTokenizer, `mask_token: unusable tokenizer: "<m>" is not a token`},
		{pylate, tokens, object{"tokenizer_class": "BertTokenizer", "do_lower_case": "x"},
			modeldir.ErrConfig, `do_lower_case: unusable configuration: is "x"`},
		{pylate, tokens, object{"padding_side": "left"},
			modeldir.ErrFamily, `padding_side: kind of model is not supported: is "left", want right`},
		{pylate, tokens, object{"truncation_side": "left"}, modeldir.ErrFamily, "truncation_side"},
		{pylate, tokens, object{"tokenizer_class": "GemmaTokenizerFast"},
			modeldir.ErrFamily, `padding_side: kind of model is not supported: is "left, as GemmaTokenizer does", want right`},
		{pylate, "tokenizer.json", object{"truncation": object{"direction": "Left"}}, modeldir.ErrFamily, "truncation_side"},
	} {
		dir := f.folder(t)
		path := filepath.Join(dir, filepath.FromSlash(f.file))
		if f.file == tokens {
			modeltest.JSON(t, path, object{})
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
