package modeldir_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode/modeldir"
	"github.com/plaid-ir/plaid/encode/tokenizer"
	"github.com/plaid-ir/plaid/internal/testing/modeltest"
)

func pylate(t *testing.T) string {
	dir := t.TempDir()
	modeltest.PyLate(t, dir, "bert")
	return dir
}

func stanford(t *testing.T) string {
	dir := t.TempDir()
	modeltest.Stanford(t, dir)
	return dir
}

func multiVector(t *testing.T) string {
	dir := t.TempDir()
	modeltest.MultiVector(t, dir)
	return dir
}

func export(t *testing.T) string {
	dir := t.TempDir()
	modeltest.JSON(t, filepath.Join(dir, "tokenizer.json"), modeltest.Tokenizer())
	modeltest.JSON(t, filepath.Join(dir, "config.json"), modeltest.Config("bert"))
	modeltest.JSON(t, filepath.Join(dir, "onnx_config.json"), map[string]any{
		"model_type": "ColBERT", "query_prefix": "[Q] ", "query_prefix_id": 5, "document_prefix": "[D] ", "document_prefix_id": 6, "query_length": 20,
		"document_length": 30, "do_query_expansion": false, "attend_to_expansion_tokens": false, "skiplist_words": []string{"!"}, "embedding_dim": 40,
		"mask_token_id": 4, "pad_token_id": 4, "uses_token_type_ids": false, "do_lower_case": false,
	})
	modeltest.WriteFile(t, filepath.Join(dir, "model.onnx"), nil)
	return dir
}

func read(t *testing.T, dir string, o *modeldir.Override) *modeldir.Config {
	t.Helper()
	c, err := modeldir.Read(dir, o)
	require.NoError(t, err)
	return c
}

func TestPyLate(t *testing.T) {
	dir := pylate(t)
	c := read(t, dir, nil)
	require.Equal(t, modeldir.Role{Marker: 5, Length: 16}, c.Query)
	require.Equal(t, modeldir.Role{Marker: 6, Length: 40, Skip: true}, c.Document)
	require.Equal(t, modeldir.Expansion{On: true, Mask: 4, Length: 16}, c.Expand)
	require.Equal(t, []int32{9, 10}, c.Skip)
	require.Equal(t, 40, c.Dim)
	require.Len(t, c.Dense, 3)
	d := c.Dense[0]
	require.Equal(t, modeldir.Dense{In: 64, Out: 90, Bias: true, Activation: "gelu", Residual: true, Path: d.Path}, d)
	require.Equal(t, "tanh identity", c.Dense[1].Activation+" "+c.Dense[2].Activation)
	const file = "config_sentence_transformers.json"
	require.Equal(t, file, c.Origin["query.marker"])
	require.Equal(t, "default of "+file, c.Origin["expand"])
	require.Equal(t, "default", c.Origin["mask"])
	require.Equal(t, "config.json", c.Origin["backbone"])
	require.Empty(t, c.Warnings)

	// What a folder of PyLate's leaves out has PyLate's defaults.
	modeltest.JSON(t, filepath.Join(dir, file), map[string]any{"skiplist_words": modeltest.Null})
	c = read(t, dir, nil)
	require.Equal(t, []int{5, 6, 32, 64}, []int{int(c.Query.Marker), int(c.Document.Marker), c.Query.Length, c.Document.Length})
	require.True(t, c.Expand.On)
	require.Equal(t, []int32{1, 9, 10, 11, 12, 19}, c.Skip, "those of ASCII's punctuation that are tokens, and unknown pieces")
	require.Len(t, c.Warnings, 1)
	require.Regexp(t, `^default: words to skip that are not tokens: ("\S+" ){26}"\S+": as in PyLate, \[UNK\] is skipped`, c.Warnings[0])
	_, err := modeldir.Read(dir, &modeldir.Override{DocumentLength: ptr(180)})
	require.ErrorIs(t, err, modeldir.ErrConfig)
	require.ErrorContains(t, err, "document_length: 180: the model takes 64 at most")
}

func ptr[T any](v T) *T { return &v }

func TestStanford(t *testing.T) {
	dir := stanford(t)
	c := read(t, dir, nil)
	require.Equal(t, modeldir.Role{Marker: 7, Length: 16}, c.Query)
	require.Equal(t, modeldir.Role{Marker: 8, Length: 40, Skip: true}, c.Document)
	require.Equal(t, modeldir.Expansion{On: true, Mask: 4, Length: 16}, c.Expand)
	require.Equal(t, 32, c.Dim)
	require.Equal(t, "artifact.metadata", c.Origin["expand"])
	modeltest.Edit(t, filepath.Join(dir, "artifact.metadata"), map[string]any{"attend_to_mask_tokens": true, "mask_punctuation": false})
	c = read(t, dir, nil)
	require.True(t, c.Expand.Attend)
	require.Empty(t, c.Skip)
	c = read(t, dir, &modeldir.Override{
		QueryMarker: ptr("[Q]"), DocumentMarker: ptr(""), QueryLength: ptr(20), Attend: ptr(false), Skip: &[]string{".", "nowhere"}, LowerCase: ptr(true),
		Mask: ptr("[PAD]"), QueryPrompt: ptr("query: "), Expand: ptr(true),
	})
	require.Equal(t, modeldir.Expansion{On: true, Mask: 0, Length: 20}, c.Expand)
	require.Equal(t, []int32{11}, c.Skip)
	require.Equal(t, int32(-1), c.Document.Marker)
	require.Equal(t, "query: ", c.Query.Prompt)
	require.Equal(t, "override", c.Origin["attend"])
	require.Contains(t, c.Warnings[0], `override: words to skip that are not tokens: "nowhere": ignored`)
	require.Equal(t, int32(5), c.Query.Marker)
}

func TestMultiVector(t *testing.T) {
	dir := multiVector(t)
	c := read(t, dir, nil)
	require.Equal(t, modeldir.Role{Marker: -1, Prompt: "[Q] query: ", Length: 64}, c.Query)
	require.Equal(t, modeldir.Role{Marker: -1, Prompt: "[D] ", Length: 30, Skip: true}, c.Document)
	require.Equal(t, modeldir.Expansion{On: true, Mask: 4, Length: 12, Longer: true}, c.Expand)
	require.Equal(t, []int32{9, 11}, c.Skip)
	require.Equal(t, 90, c.Dim)
	require.Equal(t, modeldir.ModernBERT, c.Backbone.Family)
	bert := filepath.Join(dir, "sentence_bert_config.json")
	modeltest.Edit(t, bert, map[string]any{"query_expansion": modeltest.Null, "query_length": 9})
	c = read(t, dir, nil)
	require.False(t, c.Expand.On)
	require.Equal(t, 9, c.Query.Length)
	modeltest.Edit(t, bert, map[string]any{"query_expansion": map[string]any{"strategy": "fixed", "length": 9, "attend": true, "token": "[PAD]"}})
	require.Equal(t, modeldir.Expansion{On: true, Attend: true, Mask: 0, Length: 9}, read(t, dir, nil).Expand)
	// Of version 6, what is absent is off.
	modeltest.Edit(t, bert, map[string]any{"query_expansion": nil, "query_length": nil, "document_length": nil})
	c = read(t, dir, nil)
	require.False(t, c.Expand.On)
	require.Equal(t, []int{64, 64}, []int{c.Query.Length, c.Document.Length})
}

func TestExport(t *testing.T) {
	dir := export(t)
	_, err := modeldir.Read(dir, nil)
	require.ErrorIs(t, err, modeldir.ErrIncomplete)
	require.ErrorContains(t, err, "no model.safetensors or pytorch_model.bin (the folder has a graph, which the backend onnxruntime runs)")
	read := func(t *testing.T, dir string, o *modeldir.Override) *modeldir.Config {
		c, err := modeldir.ReadGraph(dir, []string{"model.onnx"}, o)
		require.NoError(t, err)
		return c
	}
	c := read(t, dir, nil)
	require.Equal(t, modeldir.Role{Marker: 5, Length: 20}, c.Query)
	require.False(t, c.Expand.On)
	require.Len(t, c.Warnings, 1)
	require.Contains(t, c.Warnings[0], "do_query_expansion false, as its exporter always does")
	// Beside a file that knows better, it is neither a contradiction nor a warning.
	modeltest.JSON(t, filepath.Join(dir, "config_sentence_transformers.json"), map[string]any{"query_prefix": "[Q] ", "query_length": 20, "document_length": 30,
		"skiplist_words": []string{"!"}})
	c = read(t, dir, nil)
	require.True(t, c.Expand.On)
	require.Empty(t, c.Warnings)
	require.True(t, read(t, dir, &modeldir.Override{Expand: ptr(true)}).Expand.On)
}

// TestMissing: all that is missing is named at once.
func TestMissing(t *testing.T) {
	dir := pylate(t)
	for _, name := range []string{"tokenizer.json", "model.safetensors", "1_Dense/model.safetensors", "3_Dense/model.safetensors"} {
		require.NoError(t, os.Remove(filepath.Join(dir, filepath.FromSlash(name))))
	}
	_, err := modeldir.Read(dir, nil)
	require.ErrorIs(t, err, modeldir.ErrIncomplete)
	require.EqualError(t, err, dir+": model folder is incomplete: there is no tokenizer.json, no 1_Dense/model.safetensors, "+
		"no 3_Dense/model.safetensors, no model.safetensors or pytorch_model.bin")
	modeltest.WriteFile(t, filepath.Join(dir, "spiece.model"), nil)
	_, err = modeldir.Read(dir, nil)
	require.ErrorContains(t, err, "there is no tokenizer.json (spiece.model is the tokenizer's older form: transformers' AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR) "+
		"writes the file)")
	_, err = modeldir.Read(t.TempDir(), nil)
	require.ErrorIs(t, err, modeldir.ErrIncomplete)
	require.ErrorContains(t, err, "no config.json, no tokenizer.json, no config_sentence_transformers.json or artifact.metadata or onnx_config.json (one of which says "+
		"how a late-interaction model treats texts)")
	_, err = modeldir.Read(filepath.Join(dir, "nowhere"), nil)
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = modeldir.Read(filepath.Join(dir, "config.json"), nil)
	require.ErrorIs(t, err, modeldir.ErrConfig)
	for _, name := range []string{"1_Dense/config.json", "config.json", "tokenizer.json", "model.safetensors"} {
		dir := pylate(t)
		require.NoError(t, os.Remove(filepath.Join(dir, filepath.FromSlash(name))))
		_, err := modeldir.Read(dir, nil)
		require.ErrorIs(t, err, modeldir.ErrIncomplete, name)
		require.ErrorContains(t, err, name)
	}
}

// TestMark: files may begin with the mark that editors of Windows put there.
func TestMark(t *testing.T) {
	dir := t.TempDir()
	modeltest.MultiVector(t, dir)
	modeltest.Edit(t, filepath.Join(dir, "sentence_bert_config.json"), map[string]any{"do_lower_case": true})
	want := read(t, dir, nil)
	for _, name := range []string{"config.json", "config_sentence_transformers.json", "modules.json", "sentence_bert_config.json", "tokenizer.json", "1_Dense/config.json"} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, append([]byte("\ufeff"), b...), 0o600))
		got := read(t, dir, nil)
		require.Equal(t, want.Tokenizer.Fingerprint(), got.Tokenizer.Fingerprint(), name)
		got.Tokenizer = want.Tokenizer
		require.Equal(t, want, got, name)
	}
	path := filepath.Join(t.TempDir(), "o.json")
	modeltest.WriteFile(t, path, []byte("\ufeff{\"expand\": false}"))
	o, err := modeldir.ReadOverride(path)
	require.NoError(t, err)
	require.Equal(t, ptr(false), o.Expand)
}

// TestFaults: damaged files, values of no use and kinds that are not known are
// errors that name the file and the value.
func TestFaults(t *testing.T) {
	const sentence = "config_sentence_transformers.json"
	for _, f := range []struct {
		folder  func(*testing.T) string
		file    string
		changes map[string]any // nil: the file is cut short
		kind    error
		message string
	}{
		{pylate, "config.json", nil, modeldir.ErrConfig, "is not a JSON object"},
		{pylate, "tokenizer.json", nil, modeldir.ErrTokenizer, "not JSON"},
		{pylate, sentence, nil, modeldir.ErrConfig, "is not a JSON object"},
		{pylate, "modules.json", nil, modeldir.ErrConfig, "is not a JSON object"},
		{pylate, "1_Dense/config.json", nil, modeldir.ErrConfig, "is not a JSON object"},
		{stanford, "artifact.metadata", nil, modeldir.ErrConfig, "is not a JSON object"},
		{export, "onnx_config.json", nil, modeldir.ErrConfig, "is not a JSON object"},
		{pylate, "config.json", map[string]any{"model_type": "llama"}, modeldir.ErrFamily, `model_type: kind of model is not supported: is "llama"`},
		{pylate, "config.json", map[string]any{"hidden_act": "mish"}, modeldir.ErrFamily, `hidden_act: kind of model is not supported: is "mish"`},
		{pylate, "config.json", map[string]any{"position_embedding_type": "relative_key"}, modeldir.ErrFamily, "position_embedding_type"},
		{pylate, "config.json", map[string]any{"hidden_size": "x"}, modeldir.ErrConfig, `hidden_size: unusable configuration: is "x", want a whole number`},
		{pylate, "config.json", map[string]any{"hidden_size": 0.5}, modeldir.ErrConfig, "hidden_size"},
		{pylate, "config.json", map[string]any{"num_hidden_layers": nil}, modeldir.ErrConfig, "num_hidden_layers: unusable configuration: is missing"},
		{pylate, "config.json", map[string]any{"num_hidden_layers": 1e12}, modeldir.ErrConfig, "num_hidden_layers"},
		{pylate, "config.json", map[string]any{"vocab_size": 40}, modeldir.ErrContradiction, "has 50 tokens, but config.json says vocab_size 40"},
		{pylate, "config.json", map[string]any{"max_position_embeddings": 30}, modeldir.ErrContradiction,
			"document.length: files contradict each other: is 40 by " + sentence + ", but the model takes 30 tokens by config.json"},
		{multiVector, "config.json", map[string]any{"layer_types": []string{"full_attention", "full_attention", "x", "x"}}, modeldir.ErrFamily, "layer_types[2]"},
		{multiVector, "config.json", map[string]any{"rope_parameters": map[string]any{"full_attention": map[string]any{"rope_theta": 5}}},
			modeldir.ErrContradiction, "rope_parameters.full_attention.rope_theta"},
		{pylate, sentence, map[string]any{"query_prefix": "[nope]"}, modeldir.ErrTokenizer, `query_prefix: unusable tokenizer: "[nope]" is not a token`},
		{pylate, sentence, map[string]any{"query_length": 2}, modeldir.ErrConfig, "query_length"},
		{pylate, sentence, map[string]any{"similarity_fn_name": "euclidean"}, modeldir.ErrFamily, "similarity_fn_name"},
		{pylate, sentence, map[string]any{"default_prompt_name": "x"}, modeldir.ErrConfig, "default_prompt_name"},
		{pylate, "sentence_bert_config.json", map[string]any{"query_length": 17}, modeldir.ErrContradiction, "is 17, but " + sentence + " says 16"},
		{pylate, "1_Dense/config.json", map[string]any{"activation_function": "torch.nn.modules.activation.Mish"}, modeldir.ErrFamily, "Mish"},
		{pylate, "2_Dense/config.json", map[string]any{"in_features": 91}, modeldir.ErrContradiction, "is 91, but what comes before has 90 dimensions"},
		{pylate, "2_Dense/config.json", map[string]any{"out_features": nil}, modeldir.ErrConfig, "out_features: unusable configuration: is missing"},
		{pylate, "1_Dense/config.json", map[string]any{"module_input_name": "sentence_embedding"}, modeldir.ErrFamily, "module_input_name"},
		{pylate, "artifact.metadata", map[string]any{"query_maxlen": 32}, modeldir.ErrContradiction,
			"artifact.metadata: query_maxlen: files contradict each other: is 32, but " + sentence + " says 16"},
		{pylate, "artifact.metadata", map[string]any{"doc_token_id": "[unused1]"}, modeldir.ErrContradiction, "is [unused1], but " + sentence + " says [D] "},
		{pylate, "onnx_config.json", map[string]any{"embedding_dim": 41}, modeldir.ErrContradiction, "3_Dense/config.json: out_features"},
		{pylate, "tokenizer.json", map[string]any{"normalizer": map[string]any{"type": "Nmt"}}, modeldir.ErrTokenizer, `normalizer.type: "Nmt" is not known`},
		{stanford, "artifact.metadata", map[string]any{"similarity": "l2"}, modeldir.ErrFamily, "similarity"},
		{stanford, "config.json", map[string]any{"colbert": map[string]any{"cls_id": 4}}, modeldir.ErrContradiction, "colbert.cls_id"},
		{stanford, "config.json", map[string]any{"colbert": map[string]any{"query_marker_id": 99}}, modeldir.ErrTokenizer, "colbert.query_marker_id"},
		{multiVector, "2_MultiVectorMask/config.json", map[string]any{"keep_only_token_ids": "1"}, modeldir.ErrConfig, "keep_only_token_ids"},
		{multiVector, "sentence_bert_config.json", map[string]any{"query_expansion": map[string]any{"strategy": "pad", "length": 5}}, modeldir.ErrFamily, "strategy"},
		{multiVector, "sentence_bert_config.json", map[string]any{"query_expansion": true}, modeldir.ErrConfig, "query_expansion"},
	} {
		dir := f.folder(t)
		path := filepath.Join(dir, filepath.FromSlash(f.file))
		if f.changes == nil {
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, b[:len(b)/2], 0o600))
		} else {
			modeltest.Edit(t, path, f.changes)
		}
		_, err := modeldir.Read(dir, nil)
		require.ErrorIs(t, err, f.kind, "%s %v: %v", f.file, f.changes, err)
		var me *modeldir.ModelError
		require.ErrorAs(t, err, &me)
		require.Contains(t, filepath.ToSlash(err.Error()), f.message)
		require.Equal(t, 1, strings.Count(err.Error(), dir), err)
		if f.kind == modeldir.ErrTokenizer && f.file == "tokenizer.json" && f.changes["normalizer"] != nil {
			require.ErrorIs(t, err, tokenizer.ErrTokenizer)
		}
	}
	for modules, message := range map[string]string{
		`[{"path": "", "type": "pylate.Transformer"}, {"path": "1", "type": "a.Dense"}]`:                                          "module 1 is a a.Dense, which is not known",
		`[{"path": "", "type": "pylate.Transformer"}, {"path": "1", "type": "pylate.Pooling"}]`:                                   "module 1 is a Pooling, which makes one vector of a text: no late-interaction model",
		`[{"path": "1_Dense", "type": "pylate.Dense"}]`:                                                                           "want one Transformer, at the beginning",
		`[{"path": "../x", "type": "pylate.Transformer"}]`:                                                                        "not within the folder",
		`[{"path": "", "type": "pylate.Transformer"}, {"path": "m", "type": "pylate.MultiVectorMask"}]`:                           "there is no Normalize",
		`[{"path": "", "type": "pylate.Transformer"}, {"type": "pylate.Normalize"}, {"path": "1_Dense", "type": "pylate.Dense"}]`: "comes after Normalize",
		`[{"path": "", "type": "pylate.Transformer"}, {"path": "p", "type": "pylate.HierarchicalTokenPooling"}]`:                  "comes before Normalize",
	} {
		dir := pylate(t)
		modeltest.WriteFile(t, filepath.Join(dir, "modules.json"), []byte(modules))
		_, err := modeldir.Read(dir, nil)
		require.ErrorContains(t, err, message)
	}
}

// TestLowerCase: a file beside the tokenizer may ask for it. PyLate lowers the whole text, so that
// the name of a special token in it is none; sentence-transformers 6 lowers what lies between.
func TestLowerCase(t *testing.T) {
	dir := pylate(t)
	c := read(t, dir, nil)
	ids, err := c.Tokenizer.EncodeIDs(nil, "Cell [MASK] CELLS")
	require.NoError(t, err)
	require.Equal(t, []int32{47, 4, 1}, ids)
	modeltest.Edit(t, filepath.Join(dir, "sentence_bert_config.json"), map[string]any{"do_lower_case": true})
	c = read(t, dir, nil)
	ids, err = c.Tokenizer.EncodeIDs(nil, "Cell [MASK] CELLS")
	require.NoError(t, err)
	require.Equal(t, []int32{13, 1, 1, 1, 14}, ids)
	modeltest.MultiVector(t, dir)
	modeltest.Edit(t, filepath.Join(dir, "sentence_bert_config.json"), map[string]any{"do_lower_case": true})
	c = read(t, dir, nil)
	ids, err = c.Tokenizer.EncodeIDs(nil, "Cell [MASK] CELLS")
	require.NoError(t, err)
	require.Equal(t, []int32{13, 4, 14}, ids)
}

// TestFingerprint: it changes with all that vectors of documents depend on, and with nothing else:
// not with the settings of queries.
func TestFingerprint(t *testing.T) {
	dir := pylate(t)
	of := func(dir, precision string, o *modeldir.Override) string {
		s, err := read(t, dir, o).Fingerprints(precision)
		require.NoError(t, err)
		return s[0]
	}
	seen := map[string]string{of(dir, "f32", nil): "first"}
	same := func(s string) { require.Equal(t, "first", seen[s]) }
	other := func(what, s string) {
		require.Empty(t, seen[s], "%s: as %s", what, seen[s])
		seen[s] = what
	}
	same(of(pylate(t), "f32", nil))
	for _, o := range []modeldir.Override{
		{QueryLength: ptr(17)}, {Expand: ptr(false)}, {Attend: ptr(true)}, {QueryPrompt: ptr("query: ")}, {QueryMarker: ptr("[D] ")}, {Mask: ptr("[SEP]")},
	} {
		same(of(dir, "f32", &o))
	}
	other("precision", of(dir, "int8", nil))
	other("length", of(dir, "f32", &modeldir.Override{DocumentLength: ptr(17)}))
	other("prompt", of(dir, "f32", &modeldir.Override{DocumentPrompt: ptr("title: ")}))
	other("marker", of(dir, "f32", &modeldir.Override{DocumentMarker: ptr("[Q] ")}))
	other("skip", of(dir, "f32", &modeldir.Override{Skip: &[]string{"!"}}))
	for _, file := range []string{"model.safetensors", "1_Dense/model.safetensors"} {
		path := filepath.Join(dir, filepath.FromSlash(file))
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		b[len(b)-3] ^= 1
		require.NoError(t, os.WriteFile(path, b, 0o600))
		other(file, of(dir, "f32", nil))
	}
	modeltest.Edit(t, filepath.Join(dir, "tokenizer.json"), map[string]any{"pre_tokenizer": map[string]any{"type": "Whitespace"}})
	other("tokenizer", of(dir, "f32", nil))
}

func TestReadOverride(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "o.json")
	modeltest.WriteFile(t, path, []byte(`{"query_marker": "[Q] ", "attend": true, "skip": [], "query_length": 9}`))
	o, err := modeldir.ReadOverride(path)
	require.NoError(t, err)
	require.Equal(t, &modeldir.Override{QueryMarker: ptr("[Q] "), Attend: ptr(true), Skip: &[]string{}, QueryLength: ptr(9)}, o)
	require.Equal(t, &modeldir.Override{QueryMarker: ptr("[Q] "), Attend: ptr(true), Skip: &[]string{}, QueryLength: ptr(9), DocumentLength: ptr(50)},
		o.WithDefaults(&modeldir.Override{Attend: ptr(false), DocumentLength: ptr(50)}))
	for _, bad := range []string{`{"querymarker": ""}`, `{"attend": 1}`, `[]`, `null`} {
		modeltest.WriteFile(t, path, []byte(bad))
		_, err := modeldir.ReadOverride(path)
		require.ErrorIs(t, err, modeldir.ErrConfig, bad)
	}
	_, err = modeldir.ReadOverride(filepath.Join(dir, "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// FuzzConfig: no file of settings makes Read panic, and a config that it gives
// can be used.
func FuzzConfig(f *testing.F) {
	names := []string{"config.json", "config_sentence_transformers.json", "modules.json", "sentence_bert_config.json", "artifact.metadata", "onnx_config.json",
		"1_Dense/config.json", "2_MultiVectorMask/config.json", "model.safetensors.index.json", "3_Normalize/config.json", "tokenizer_config.json",
		"special_tokens_map.json"}
	for i := range names {
		f.Add(uint8(i), `{"query_length": 9, "query_expansion": {"strategy": "min", "length": 5}, "prompts": {"query": "[Q] a"}, "dim": 4}`)
		f.Add(uint8(i), `[{"path": "", "type": "pylate.Transformer"}, {"path": "1_Dense", "type": "pylate.Dense"}]`)
		f.Add(uint8(i), `[{"path": "", "type": "pylate.Transformer"}, {"path": "3_Normalize", "type": "pylate.Normalize"}, {"path": "2", "type": "pylate.HierarchicalTokenPooling"}]`)
		f.Add(uint8(i), `{"mask_token": {"content": "[MASK]"}, "model_max_length": 9, "padding_side": "left", "pool_factor": 2}`)
		f.Add(uint8(i), `{"hidden_size": 1e300, "weight_map": {"a": "b.safetensors"}, "colbert": {"query_marker_id": -1}}`)
	}
	dirs := []string{f.TempDir(), f.TempDir()}
	modeltest.PyLate(f, dirs[0], "modernbert")
	modeltest.MultiVector(f, dirs[1])
	f.Fuzz(func(t *testing.T, which uint8, content string) {
		dir := dirs[which%2]
		path := filepath.Join(dir, filepath.FromSlash(names[int(which)%len(names)]))
		before, err := os.ReadFile(path)
		if err == nil {
			defer modeltest.WriteFile(t, path, before)
		} else {
			defer os.Remove(path)
		}
		modeltest.WriteFile(t, path, []byte(content))
		graph, err := modeldir.ReadGraph(dir, []string{"tokenizer.json"}, nil) // a file that is there
		if err != nil {
			var me *modeldir.ModelError
			require.ErrorAs(t, err, &me)
		} else {
			require.LessOrEqual(t, graph.Document.Length, graph.Backbone.MaxPositions)
		}
		c, err := modeldir.Read(dir, nil)
		if err != nil {
			var me *modeldir.ModelError
			require.ErrorAs(t, err, &me)
			return
		}
		require.LessOrEqual(t, c.Expand.Length, c.Query.Length)
		require.LessOrEqual(t, c.Document.Length, c.Backbone.MaxPositions)
		require.Positive(t, c.Backbone.Hidden)
	})
}

// TestGraphs: of a graph that is run as a whole, less has to be known.
func TestGraphs(t *testing.T) {
	dir := t.TempDir()
	modeltest.PyLate(t, dir, "bert")
	names := []string{"model.onnx", "onnx/model.onnx"}
	_, err := modeldir.ReadGraph(dir, names, nil)
	require.ErrorIs(t, err, modeldir.ErrIncomplete)
	require.ErrorContains(t, err, "model.onnx or onnx/model.onnx")
	modeltest.WriteFile(t, filepath.Join(dir, "onnx", "model.onnx"), []byte("graph"))
	modeltest.WriteFile(t, filepath.Join(dir, "onnx", "model.onnx_data"), []byte("tensors"))
	c, err := modeldir.ReadGraph(dir, names, nil)
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(dir, "onnx", "model.onnx"), filepath.Join(dir, "onnx", "model.onnx_data")}, c.Weights)
	require.Equal(t, 40, c.Dim, "of the last head")
	require.Empty(t, c.Dense)
	require.Len(t, c.Warnings, 3, "of three heads that exporters spoil")
	first, err := c.Fingerprints("f32")
	require.NoError(t, err)
	modeltest.WriteFile(t, filepath.Join(dir, "onnx", "model.onnx_data"), []byte("others"))
	second, err := c.Fingerprints("f32")
	require.NoError(t, err)
	require.NotEqual(t, first, second)

	// Families that are not computed here, whose positions begin behind the padding.
	config := filepath.Join(dir, "config.json")
	modeltest.Edit(t, config, map[string]any{"model_type": "xlm-roberta", "max_position_embeddings": 42, "hidden_act": "silu"})
	c, err = modeldir.ReadGraph(dir, names, nil)
	require.NoError(t, err)
	require.Equal(t, modeldir.Family("xlm-roberta"), c.Backbone.Family)
	require.Equal(t, 40, c.Backbone.MaxPositions)
	modeltest.Edit(t, config, map[string]any{"max_position_embeddings": 41})
	_, err = modeldir.ReadGraph(dir, names, nil)
	require.ErrorIs(t, err, modeldir.ErrContradiction)
	modeltest.Edit(t, config, map[string]any{"max_position_embeddings": 3})
	_, err = modeldir.ReadGraph(dir, names, nil)
	require.ErrorIs(t, err, modeldir.ErrConfig)
	// Without config.json nothing bounds a length but the folder's own words.
	require.NoError(t, os.Remove(config))
	c, err = modeldir.ReadGraph(dir, names, nil)
	require.NoError(t, err)
	require.Equal(t, []int{16, 40}, []int{c.Query.Length, c.Document.Length})
	huge := 1 << 30
	_, err = modeldir.ReadGraph(dir, names, &modeldir.Override{DocumentLength: &huge})
	require.ErrorIs(t, err, modeldir.ErrConfig)
	require.ErrorContains(t, err, "document_length: 1073741824: the model takes 16777216 at most")
	// Heads without files are in the graph.
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "3_Dense")))
	_, err = modeldir.ReadGraph(dir, names, nil)
	require.NoError(t, err)
	_, err = modeldir.ReadGraph(dir, []string{"../x.onnx"}, nil)
	require.ErrorIs(t, err, modeldir.ErrConfig)
}
