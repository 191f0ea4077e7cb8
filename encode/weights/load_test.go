package weights

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode/engine"
	"github.com/plaid-ir/plaid/encode/modeldir"
	"github.com/plaid-ir/plaid/encode/native"
	"github.com/plaid-ir/plaid/internal/testing/modeltest"
	"github.com/plaid-ir/plaid/internal/testing/torchtest"
	"github.com/plaid-ir/plaid/vectors"
)

func load(dir string) (native.Config, *native.Weights, error) {
	c, err := modeldir.Read(dir, nil)
	if err != nil {
		return native.Config{}, nil, err
	}
	return Load(c)
}

// check holds a folder against the vectors that numpy computed.
func check(t *testing.T, dir, family string) {
	t.Helper()
	longest := 64
	settings, err := modeldir.Read(dir, &modeldir.Override{DocumentLength: &longest})
	require.NoError(t, err)
	c, w, err := Load(settings)
	require.NoError(t, err)
	m, err := native.New(c, w, native.Options{})
	require.NoError(t, err)
	z := modeltest.OpenNPZ(t, "../native/testdata/golden.npz")
	for i := range 5 {
		ids := modeltest.Ints(t, z, fmt.Sprintf("text%d.ids", i))
		attended := modeltest.Ints(t, z, fmt.Sprintf("text%d.attended", i))
		want := modeltest.Floats(t, z, fmt.Sprintf("text%d.%s", i, family))
		got := make([]float32, len(want))
		require.NoError(t, m.Encode(t.Context(), got, engine.Batch{IDs: ids, Offsets: []int{0, len(ids)}, Attended: []int{int(attended[0])}}))
		for j := range want {
			require.InDelta(t, want[j], got[j], 2e-6)
		}
	}
}

// TestGolden: folders of PyLate's with both families and three heads, whole and
// in shards, with and without the prefix of names.
func TestGolden(t *testing.T) {
	for family, prefix := range map[string]string{"bert": "bert.", "modernbert": "model."} {
		dir := t.TempDir()
		modeltest.PyLate(t, dir, family)
		check(t, dir, family)
		require.NoError(t, os.Remove(filepath.Join(dir, "model.safetensors")))
		writeTensors(t, dir, ".safetensors", 2, prefixed(prefix, modeltest.Tensors(family)))
		check(t, dir, family)
	}
}

// torchFile writes tensors as torch.save does.
func torchFile(t *testing.T, path string, tensors map[string]modeltest.Tensor) {
	t.Helper()
	var list []torchtest.Tensor
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		x := torchtest.Tensor{Name: name, Class: "FloatStorage", Shape: tensors[name].Shape}
		for _, v := range tensors[name].Data {
			x.Data = binary.LittleEndian.AppendUint32(x.Data, math.Float32bits(v))
		}
		list = append(list, x)
	}
	modeltest.WriteFile(t, path, torchtest.File(t, list...))
}

// TestTorch: the weights of pytorch_model.bin, whole and in shards, with the prefix of names and
// without, and those of heads.
func TestTorch(t *testing.T) {
	for family, prefix := range map[string]string{"bert": "bert.", "modernbert": "model."} {
		dir := t.TempDir()
		modeltest.PyLate(t, dir, family)
		for i, head := range []map[string]modeltest.Tensor{
			{"linear.weight": modeltest.Random("head0", 0.25, 0, 90, 64), "linear.bias": modeltest.Random("head0.bias", 0.25, 0, 90),
				"residual.weight": modeltest.Random("head0.residual", 0.25, 0, 90, 64)},
			{"linear.weight": modeltest.Random("head1", 0.25, 0, 40, 90)}, {"linear.weight": modeltest.Random("head2", 0.25, 0, 40, 40)},
		} {
			folder := filepath.Join(dir, fmt.Sprintf("%d_Dense", i+1))
			require.NoError(t, os.Remove(filepath.Join(folder, "model.safetensors")))
			torchFile(t, filepath.Join(folder, "pytorch_model.bin"), head)
		}
		require.NoError(t, os.Remove(filepath.Join(dir, "model.safetensors")))
		written := writeTensors(t, dir, ".bin", 0, modeltest.Tensors(family))
		check(t, dir, family)
		require.NoError(t, os.Remove(written[0]))
		writeTensors(t, dir, ".bin", 2, prefixed(prefix, modeltest.Tensors(family)))
		check(t, dir, family)
	}
}

// TestForms: the tensors of a folder are the same from every form of file, whatever stands before their
// names, and beside tensors of other tasks.
func TestForms(t *testing.T) {
	other := modeltest.Random("other", 1, 0, 3, 4)
	for folder, names := range map[string]struct {
		prefix string
		others []string
	}{
		"roberta": {"roberta.", []string{"lm_head.dense.weight", "roberta.pooler.dense.bias"}},
		"distilbert": {"distilbert.", []string{"vocab_transform.weight", "vocab_layer_norm.bias", "vocab_projector.bias",
			"pre_classifier.weight", "classifier.bias", "qa_outputs.weight"}},
		"mpnet":          {"mpnet.", []string{"lm_head.bias", "mpnet.embeddings.position_ids", "mpnet.pooler.dense.weight"}},
		"electra-narrow": {"electra.", []string{"discriminator_predictions.dense.weight", "electra.embeddings.position_ids"}},
		"eurobert":       {"model.", []string{"lm_head.weight", "model.layers.1.self_attn.rotary_emb.inv_freq"}},
		"gemma":          {"model.", []string{"lm_head.weight"}},
		"lfm2":           {"backbone.model.", []string{"lm_head.weight"}},
		"mmbert":         {"model.", []string{"head.dense.weight", "head.norm.weight", "decoder.bias", "classifier.bias"}},
	} {
		dir := t.TempDir()
		require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join("..", "testdata", "golden", folder))))
		c, want, err := load(dir)
		require.NoError(t, err, folder)
		require.NoError(t, c.Check(), folder)
		require.NoError(t, want.Check(&c), folder)
		whole := filepath.Join(dir, "model.safetensors")
		bare := tensorsOf(t, whole)
		require.NoError(t, os.Remove(whole))
		long := prefixed(names.prefix, bare)
		for _, name := range names.others {
			long[name] = other
		}
		for _, all := range []map[string]modeltest.Tensor{bare, long} {
			for _, ext := range []string{".safetensors", ".bin"} {
				for shards := range 3 {
					written := writeTensors(t, dir, ext, shards, all)
					_, got, err := load(dir)
					require.NoError(t, err, "%s: %s in %d shards", folder, ext, shards)
					require.Equal(t, want, got, "%s: %s in %d shards", folder, ext, shards)
					for _, path := range written {
						require.NoError(t, os.Remove(path))
					}
				}
			}
		}
		// The same tensors twice, under two prefixes, are no model.
		for name, x := range bare {
			long["twice."+name] = x
		}
		writeTensors(t, dir, ".safetensors", 0, long)
		_, _, err = load(dir)
		require.ErrorIs(t, err, modeldir.ErrWeights)
		require.ErrorContains(t, err, "is there, and ")
	}
}

// TestJinaNames: jina-colbert-v2's own class has other names, and one map for queries, keys and values.
// The same tensors come of them as of transformers' class.
func TestJinaNames(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join("..", "testdata", "golden", "xlmr-rotary"))))
	wantConfig, want, err := load(dir)
	require.NoError(t, err)
	path := filepath.Join(dir, "model.safetensors")
	theirs, all := tensorsOf(t, path), map[string]modeltest.Tensor{}
	renamed := strings.NewReplacer("embeddings.LayerNorm", "emb_ln", "roberta.layers.", "roberta.encoder.layers.",
		"self_attn.o_proj", "mixer.out_proj", "post_attention_layernorm", "norm1", "post_mlp_layernorm", "norm2")
	for name, x := range theirs {
		if strings.Contains(name, "k_proj") || strings.Contains(name, "v_proj") {
			continue
		}
		if strings.Contains(name, "q_proj") {
			for _, p := range []string{"k_proj", "v_proj"} {
				x.Data = slices.Concat(x.Data, theirs[strings.Replace(name, "q_proj", p, 1)].Data)
			}
			x.Shape = slices.Clone(x.Shape)
			x.Shape[0] *= 3
			name = strings.Replace(name, "self_attn.q_proj", "mixer.Wqkv", 1)
		}
		all[renamed.Replace(name)] = x
	}
	modeltest.Safetensors(t, path, "F32", all)
	modeltest.Edit(t, filepath.Join(dir, "config.json"), map[string]any{
		"model_type": "xlm-roberta", "position_embedding_type": "rotary", "rotary_emb_base": 20000, "rope_parameters": nil,
		"auto_map": map[string]any{"AutoModel": "modeling_lora.XLMRobertaLoRA"},
	})
	c, got, err := load(dir)
	require.NoError(t, err)
	require.Equal(t, wantConfig, c)
	require.Equal(t, want, got)
}

// TestBuckets: the buckets of distances are those of MPNet's class, which gave these, each from a distance
// on.
func TestBuckets(t *testing.T) {
	bucket, torch := 15, map[int]int{
		-90: 14, -63: 13, -45: 12, -31: 11, -22: 10, -15: 9, -11: 8, -7: 7, -6: 6, -5: 5, -4: 4, -3: 3, -2: 2, -1: 1, 0: 0, 1: 17,
		2: 18, 3: 19, 4: 20, 5: 21, 6: 22, 7: 23, 8: 24, 12: 25, 16: 26, 23: 27, 32: 28, 46: 29, 64: 30, 91: 31,
	}
	for d := -600; d <= 600; d++ {
		if b, ok := torch[d]; ok {
			bucket = b
		}
		require.Equal(t, bucket, bucketOf(d), d)
	}
}

// prefixed puts a prefix before the names of tensors.
func prefixed(prefix string, bare map[string]modeltest.Tensor) map[string]modeltest.Tensor {
	all := map[string]modeltest.Tensor{}
	for name, x := range bare {
		all[prefix+name] = x
	}
	return all
}

// tensorsOf are those of a file.
func tensorsOf(t *testing.T, path string) map[string]modeltest.Tensor {
	t.Helper()
	f, err := vectors.OpenSafetensors(path)
	require.NoError(t, err)
	defer f.Close()
	all := map[string]modeltest.Tensor{}
	for _, name := range f.Names() {
		a, err := f.Array(name)
		require.NoError(t, err)
		x := modeltest.Tensor{Shape: a.Shape, Data: make([]float32, a.Len())}
		require.NoError(t, a.Float32s(x.Data, 0))
		all[name] = x
	}
	return all
}

// writeTensors writes them to one file, or to shards with an index.
func writeTensors(t *testing.T, dir, ext string, shards int, all map[string]modeltest.Tensor) (paths []string) {
	t.Helper()
	name := map[string]string{".safetensors": "model", ".bin": "pytorch_model"}[ext]
	write := func(path string, x map[string]modeltest.Tensor) {
		if paths = append(paths, path); ext == ".bin" {
			torchFile(t, path, x)
		} else {
			modeltest.Safetensors(t, path, "F32", x)
		}
	}
	if shards == 0 {
		write(filepath.Join(dir, name+ext), all)
		return paths
	}
	parts, index := make([]map[string]modeltest.Tensor, shards), map[string]string{}
	for i, key := range slices.Sorted(maps.Keys(all)) {
		file := fmt.Sprintf("%s-%05d-of-%05d%s", name, i%shards+1, shards, ext)
		if index[key] = file; parts[i%shards] == nil {
			parts[i%shards] = map[string]modeltest.Tensor{}
		}
		parts[i%shards][key] = all[key]
	}
	for i, x := range parts {
		write(filepath.Join(dir, fmt.Sprintf("%s-%05d-of-%05d%s", name, i+1, shards, ext)), x)
	}
	paths = append(paths, filepath.Join(dir, name+ext+".index.json"))
	modeltest.JSON(t, paths[len(paths)-1], map[string]any{"metadata": map[string]any{}, "weight_map": index})
	return paths
}

func TestHalves(t *testing.T) {
	dir := t.TempDir()
	modeltest.PyLate(t, dir, "bert")
	x := modeltest.Tensors("bert")
	for kind, err := range map[string]float64{"F16": 1.0 / 2048, "BF16": 1.0 / 128} {
		modeltest.Safetensors(t, filepath.Join(dir, "model.safetensors"), kind, x)
		_, w, e := load(dir)
		require.NoError(t, e)
		for i, v := range x["embeddings.word_embeddings.weight"].Data {
			require.InDelta(t, v, w.Words[i], err*math.Abs(float64(v))+1e-7)
		}
	}
}

// TestFaults: each is an error of its kind that names the file and the tensor.
func TestFaults(t *testing.T) {
	const query = "encoder.layer.2.attention.self.query.weight"
	change := func(f func(m map[string]modeltest.Tensor)) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			m := modeltest.Tensors("bert")
			f(m)
			modeltest.Safetensors(t, filepath.Join(dir, "model.safetensors"), "F32", m)
		}
	}
	for message, f := range map[string]func(t *testing.T, dir string){
		"model.safetensors: " + query + ": unusable weights: is missing": change(func(m map[string]modeltest.Tensor) { delete(m, query) }),
		"model.safetensors: " + query + ": unusable weights: has shape [32 128], want [64 64]": change(func(m map[string]modeltest.Tensor) {
			m[query] = modeltest.Random("x", 1, 0, 32, 128)
		}),
		"model.safetensors: " + query + ": unusable weights: value 7 is NaN": change(func(m map[string]modeltest.Tensor) {
			m[query].Data[7] = float32(math.NaN())
		}),
		"embeddings.LayerNorm.bias: unusable weights: is missing": change(func(m map[string]modeltest.Tensor) { delete(m, "embeddings.LayerNorm.bias") }),
		"encoder.layer.4.extra: unusable weights: is not a tensor of this kind of model": change(func(m map[string]modeltest.Tensor) {
			m["encoder.layer.4.extra"] = modeltest.Random("x", 1, 0, 2)
		}),
		"1_Dense/model.safetensors: residual.weight: unusable weights: is missing": func(t *testing.T, dir string) {
			modeltest.Safetensors(t, filepath.Join(dir, "1_Dense", "model.safetensors"), "F32", map[string]modeltest.Tensor{
				"linear.weight": modeltest.Random("head0", 1, 0, 90, 64), "linear.bias": modeltest.Random("b", 1, 0, 90)})
		},
		"2_Dense/model.safetensors: linear.bias: unusable weights: is not a tensor": func(t *testing.T, dir string) {
			modeltest.Safetensors(t, filepath.Join(dir, "2_Dense", "model.safetensors"), "F32", map[string]modeltest.Tensor{
				"linear.weight": modeltest.Random("head1", 1, 0, 40, 90), "linear.bias": modeltest.Random("b", 1, 0, 40)})
		},
		"model.safetensors: unusable weights: malformed: is cut short": func(t *testing.T, dir string) {
			path := filepath.Join(dir, "model.safetensors")
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, b[:len(b)/2], 0o600))
		},
	} {
		dir := t.TempDir()
		modeltest.PyLate(t, dir, "bert")
		f(t, dir)
		_, _, err := load(dir)
		require.ErrorIs(t, err, modeldir.ErrWeights)
		require.Contains(t, filepath.ToSlash(err.Error()), message)
		require.Equal(t, 1, strings.Count(err.Error(), dir), err)
	}
	old := t.TempDir()
	modeltest.PyLate(t, old, "bert")
	require.NoError(t, os.Remove(filepath.Join(old, "model.safetensors")))
	modeltest.WriteFile(t, filepath.Join(old, "pytorch_model.bin"), []byte("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."))
	_, _, err := load(old)
	require.ErrorIs(t, err, modeldir.ErrWeights)
	require.ErrorContains(t, err, "a file of the format before 1.6: load it and save it again")
	dir := t.TempDir()
	modeltest.Stanford(t, dir)
	modeltest.Edit(t, filepath.Join(dir, "artifact.metadata"), map[string]any{"dim": 48})
	_, _, err = load(dir)
	require.ErrorIs(t, err, modeldir.ErrContradiction)
	require.ErrorContains(t, err, "gives vectors of 32 dimensions, but artifact.metadata says 48")
	require.False(t, errors.Is(err, fs.ErrNotExist))
}
