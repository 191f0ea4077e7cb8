// Package modeltest writes folders of tiny models for tests. Their weights are
// those of encode/native/testdata/golden.py, so that they have its vectors, which numpy
// computed in float64.
package modeltest

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/transformer"
	"github.com/plaid-ir/plaid/vectors"
)

// Tensor is a tensor of a safetensors file.
type Tensor struct {
	Shape []int
	Data  []float32
}

// Random returns the random tensor of a name, as golden.py computes it (splitmix64).
func Random(name string, scale, offset float64, shape ...int) Tensor {
	n := 1
	for _, s := range shape {
		n *= s
	}
	f := fnv.New64a()
	f.Write([]byte(name))
	h, x := f.Sum64(), make([]float32, n)
	for i := range x {
		z := h + uint64(i+1)*0x9e3779b97f4a7c15
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		z ^= z >> 31
		x[i] = float32(offset + scale*(float64(z>>40)/(1<<23)-1))
	}
	return Tensor{shape, x}
}

// Floats returns the values of an array in a file.
func Floats(t testing.TB, file *vectors.NPZ, name string) []float32 {
	t.Helper()
	a, err := file.Array(name)
	require.NoError(t, err)
	x := make([]float32, a.Len())
	require.NoError(t, a.Float32s(x, 0))
	return x
}

// Ints returns the values of an array of integers in a file.
func Ints(t testing.TB, file *vectors.NPZ, name string) []int32 {
	t.Helper()
	a, err := file.Array(name)
	require.NoError(t, err)
	x, y := make([]int64, a.Len()), make([]int32, a.Len())
	require.NoError(t, a.Ints(x, 0))
	for i, v := range x {
		y[i] = int32(v)
	}
	return y
}

// OpenNPZ opens a file of arrays until the test ends.
func OpenNPZ(t testing.TB, path string) *vectors.NPZ {
	t.Helper()
	z, err := vectors.OpenNPZ(path)
	require.NoError(t, err)
	t.Cleanup(func() { z.Close() })
	return z
}

// Safetensors writes a file of tensors. kind is F32, F16 or BF16.
func Safetensors(t testing.TB, path, kind string, tensors map[string]Tensor) {
	t.Helper()
	header, data := map[string]any{"__metadata__": map[string]string{"format": "pt"}}, []byte{}
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		x, begin := tensors[name], len(data)
		for _, v := range x.Data {
			switch kind {
			case "F16":
				data = binary.LittleEndian.AppendUint16(data, kernels.F16FromF32(v))
			case "BF16":
				data = binary.LittleEndian.AppendUint16(data, uint16(math.Float32bits(v)>>16))
			default:
				data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
			}
		}
		header[name] = map[string]any{"dtype": kind, "shape": x.Shape, "data_offsets": []int{begin, len(data)}}
	}
	head, err := json.Marshal(header)
	require.NoError(t, err)
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(head)))
	WriteFile(t, path, append(append(b, head...), data...))
}

// WriteFile writes a file and the folders above it.
func WriteFile(t testing.TB, path string, b []byte) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, b, 0o600))
}

// JSON writes a value to a file.
func JSON(t testing.TB, path string, v any) {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	WriteFile(t, path, b)
}

// Edit changes keys of an object in a file. A nil value removes the key.
func Edit(t testing.TB, path string, changes map[string]any) {
	t.Helper()
	m := map[string]any{}
	if b, err := os.ReadFile(path); err == nil {
		require.NoError(t, json.Unmarshal(b, &m))
	}
	for k, v := range changes {
		if m[k] = v; v == nil {
			delete(m, k)
		}
	}
	JSON(t, path, m)
}

// Null is null as a value for Edit, where nil removes the key.
var Null = json.RawMessage("null")

// Pieces are the tokens of the tiny models, by ids. The markers end with a blank, as in
// PyLate's models; [unused0] and [unused1] are Stanford's markers.
var Pieces = []string{
	"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[Q] ", "[D] ", "[unused0]", "[unused1]",
	"!", ",", ".", "-", "cell", "cells", "the", "of", "search", "query", ":",
	"a", "b", "c", "##a", "##b", "##c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m",
	"n", "o", "p", "q", "r", "s", "t", "u", "v", "w", "x",
	"Cell", "y", "z",
}

// Tokenizer returns a tokenizer.json with these pieces. It does not lower texts.
func Tokenizer() map[string]any {
	vocab, added := map[string]int{}, []map[string]any{}
	for i, p := range Pieces {
		vocab[p] = i
		if i < 9 { // up to [unused1]: the special tokens
			added = append(added, map[string]any{
				"id": i, "content": p, "special": true,
				"single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
			})
		}
	}
	piece := func(name string) map[string]any {
		return map[string]any{"SpecialToken": map[string]any{"id": name, "type_id": 0}}
	}
	special := func(name string, id int) map[string]any {
		return map[string]any{"id": name, "ids": []int{id}, "tokens": []string{name}}
	}
	return map[string]any{
		"version": "1.0", "added_tokens": added,
		"normalizer": map[string]any{
			"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
			"strip_accents": false, "lowercase": false,
		},
		"pre_tokenizer": map[string]any{"type": "BertPreTokenizer"},
		"post_processor": map[string]any{
			"type": "TemplateProcessing",
			"single": []any{
				piece("[CLS]"), map[string]any{"Sequence": map[string]any{"id": "A", "type_id": 0}}, piece("[SEP]"),
			},
			"pair":           []any{},
			"special_tokens": map[string]any{"[CLS]": special("[CLS]", 2), "[SEP]": special("[SEP]", 3)},
		},
		"model": map[string]any{
			"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
			"max_input_chars_per_word": 100, "vocab": vocab,
		},
	}
}

const hidden, wide, layers, positions = 64, 48, 4, 64

// Config returns the config.json of a family.
func Config(family string) map[string]any {
	c := map[string]any{
		"model_type": family, "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": 2,
		"intermediate_size": wide, "max_position_embeddings": positions, "vocab_size": len(Pieces),
	}
	if family == "bert" {
		maps.Copy(c, map[string]any{
			"hidden_act": "gelu", "layer_norm_eps": 1e-12, "type_vocab_size": 2,
			"position_embedding_type": "absolute",
		})
	} else {
		maps.Copy(c, map[string]any{
			"hidden_activation": "gelu", "norm_eps": 1e-5, "global_attn_every_n_layers": 3, "local_attention": 16,
			"global_rope_theta": 160000, "local_rope_theta": 10000,
		})
	}
	return c
}

// Tensors returns the tensors of a family, by their names in transformers. The positions of the golden
// BERT begin at row 2.
func Tensors(family string) map[string]Tensor {
	m := map[string]Tensor{}
	norm := func(to, name string) {
		m[to+".weight"] = Random(name+".gamma", 0.25, 1, hidden)
		if family == "bert" {
			m[to+".bias"] = Random(name+".beta", 0.25, 0, hidden)
		}
	}
	linear := func(to, name string, out, in int) {
		m[to+".weight"] = Random(name, 0.25, 0, out, in)
		if family == "bert" {
			m[to+".bias"] = Random(name+".bias", 0.25, 0, out)
		}
	}
	if family == "bert" {
		m["embeddings.word_embeddings.weight"] = Random("words", 1, 0, len(Pieces), hidden)
		m["embeddings.token_type_embeddings.weight"] = Random("types", 1, 0, 2, hidden)
		p := Random("positions", 1, 0, positions+2, hidden)
		m["embeddings.position_embeddings.weight"] = Tensor{[]int{positions, hidden}, p.Data[2*hidden:]}
		m["pooler.dense.weight"] = Random("pooler", 1, 0, hidden, hidden)
		norm("embeddings.LayerNorm", "norm")
	} else {
		m["embeddings.tok_embeddings.weight"] = Random("words", 1, 0, len(Pieces), hidden)
		norm("embeddings.norm", "norm")
		norm("final_norm", "final")
	}
	for i := range layers {
		name := fmt.Sprintf("layer%d.", i)
		if family == "bert" {
			l := fmt.Sprintf("encoder.layer.%d.", i)
			norm(l+"attention.output.LayerNorm", name+"attention norm")
			norm(l+"output.LayerNorm", name+"feed-forward norm")
			for _, p := range []string{"query", "key", "value"} {
				linear(l+"attention.self."+p, name+p, hidden, hidden)
			}
			linear(l+"attention.output.dense", name+"output", hidden, hidden)
			linear(l+"intermediate.dense", name+"up", wide, hidden)
			linear(l+"output.dense", name+"down", hidden, wide)
			continue
		}
		l := fmt.Sprintf("layers.%d.", i)
		if i > 0 {
			norm(l+"attn_norm", name+"attention norm")
		}
		norm(l+"mlp_norm", name+"feed-forward norm")
		var qkv []float32
		for _, p := range []string{"query", "key", "value"} {
			qkv = append(qkv, Random(name+p, 0.25, 0, hidden, hidden).Data...)
		}
		m[l+"attn.Wqkv.weight"] = Tensor{[]int{3 * hidden, hidden}, qkv}
		linear(l+"attn.Wo", name+"output", hidden, hidden)
		linear(l+"mlp.Wi", name+"up", 2*wide, hidden)
		linear(l+"mlp.Wo", name+"down", hidden, wide)
	}
	return m
}

// PyLate writes a folder of PyLate with three heads: GELU with a bias and a
// residual through a weight, tanh, and identity with a residual.
func PyLate(t testing.TB, dir, family string) {
	t.Helper()
	JSON(t, filepath.Join(dir, "tokenizer.json"), Tokenizer())
	JSON(t, filepath.Join(dir, "config.json"), Config(family))
	JSON(t, filepath.Join(dir, "config_sentence_transformers.json"), map[string]any{
		"query_prefix": "[Q] ", "document_prefix": "[D] ", "query_length": 16, "document_length": 40,
		"attend_to_expansion_tokens": false, "similarity_fn_name": "MaxSim", "prompts": map[string]any{},
		"default_prompt_name": nil, "skiplist_words": []string{"!", ","},
	})
	JSON(t, filepath.Join(dir, "sentence_bert_config.json"), map[string]any{
		"max_seq_length": 39, "do_lower_case": false,
	})
	Safetensors(t, filepath.Join(dir, "model.safetensors"), "F32", Tensors(family))
	modules := []map[string]any{{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}}
	head := func(in, out int, activation string, bias, residual bool) {
		i := len(modules)
		path := fmt.Sprintf("%d_Dense", i)
		modules = append(modules, map[string]any{
			"idx": i, "name": fmt.Sprint(i), "path": path, "type": "pylate.models.Dense.Dense",
		})
		JSON(t, filepath.Join(dir, path, "config.json"), map[string]any{
			"in_features": in, "out_features": out, "bias": bias,
			"activation_function": "torch.nn.modules." + activation, "use_residual": residual,
		})
		name := fmt.Sprintf("head%d", i-1)
		m := map[string]Tensor{"linear.weight": Random(name, 0.25, 0, out, in)}
		if bias {
			m["linear.bias"] = Random(name+".bias", 0.25, 0, out)
		}
		if residual && in != out {
			m["residual.weight"] = Random(name+".residual", 0.25, 0, out, in)
		}
		Safetensors(t, filepath.Join(dir, path, "model.safetensors"), "F32", m)
	}
	head(hidden, 90, "activation.GELU", true, true)
	head(90, 40, "activation.Tanh", false, false)
	head(40, 40, "linear.Identity", false, true)
	JSON(t, filepath.Join(dir, "modules.json"), modules)
}

// Stanford writes a folder of Stanford's ColBERT, with one head.
func Stanford(t testing.TB, dir string) {
	t.Helper()
	JSON(t, filepath.Join(dir, "tokenizer.json"), Tokenizer())
	c := Config("bert")
	c["architectures"] = []string{"HF_ColBERT"}
	JSON(t, filepath.Join(dir, "config.json"), c)
	JSON(t, filepath.Join(dir, "artifact.metadata"), map[string]any{
		"query_token_id": "[unused0]", "doc_token_id": "[unused1]", "query_maxlen": 16, "doc_maxlen": 40,
		"dim": 32, "similarity": "cosine", "attend_to_mask_tokens": false, "mask_punctuation": true, "nbits": 2,
	})
	m := map[string]Tensor{"linear.weight": Random("linear", 0.25, 0, 32, hidden)}
	for name, x := range Tensors("bert") {
		m["bert."+name] = x
	}
	Safetensors(t, filepath.Join(dir, "model.safetensors"), "F16", m)
}

// MultiVector writes a folder of sentence-transformers 6.
func MultiVector(t testing.TB, dir string) {
	t.Helper()
	PyLate(t, dir, "modernbert")
	JSON(t, filepath.Join(dir, "config_sentence_transformers.json"), map[string]any{
		"model_type": "MultiVectorEncoder", "similarity_fn_name": "maxsim", "default_prompt_name": nil,
		"prompts": map[string]string{"query": "[Q] query: ", "document": "[D] "},
	})
	JSON(t, filepath.Join(dir, "sentence_bert_config.json"), map[string]any{
		"query_length": nil, "document_length": 30,
		"query_expansion": map[string]any{"strategy": "min", "attend": false, "token": nil, "length": 12},
	})
	const base = "sentence_transformers."
	JSON(t, filepath.Join(dir, "modules.json"), []map[string]any{
		{"idx": 0, "path": "", "type": base + "base.modules.transformer.Transformer"},
		{"idx": 1, "path": "1_Dense", "type": base + "base.modules.dense.Dense"},
		{
			"idx": 2, "path": "2_MultiVectorMask",
			"type": base + "multi_vector_encoder.modules.multi_vector_mask.MultiVectorMask",
		},
		{"idx": 3, "path": "3_Normalize", "type": base + "sentence_transformer.modules.normalize.Normalize"},
	})
	for _, stale := range []string{"2_Dense", "3_Dense"} {
		require.NoError(t, os.RemoveAll(filepath.Join(dir, stale)))
	}
	Edit(t, filepath.Join(dir, "1_Dense", "config.json"), map[string]any{
		"module_input_name": "token_embeddings", "module_output_name": "token_embeddings",
	})
	JSON(t, filepath.Join(dir, "2_MultiVectorMask", "config.json"), map[string]any{
		"skiplist_words": []string{".", "!"}, "skiplist_tasks": []string{"document"}, "keep_only_token_ids": nil,
	})
	JSON(t, filepath.Join(dir, "3_Normalize", "config.json"), map[string]any{
		"module_input_name": "token_embeddings", "module_output_name": "token_embeddings",
	})
}

// AlternateLayers returns n layers like those of ModernBERT: layers whose number is a multiple of every
// attend to the whole text, the others to tokens at most half a window away.
func AlternateLayers(n, every, window int, globalTheta, localTheta float64) []transformer.LayerForm {
	layers := transformer.EqualLayers(n, globalTheta)
	for i := range layers {
		if i%every != 0 {
			layers[i] = transformer.LayerForm{Before: window / 2, After: window / 2, Theta: localTheta}
		}
	}
	return layers
}
