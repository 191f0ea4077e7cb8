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
	c, w, err := load(dir)
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
		shards, index := []map[string]modeltest.Tensor{{}, {}}, map[string]string{}
		i := 0
		for name, x := range modeltest.Tensors(family) {
			index[prefix+name] = fmt.Sprintf("model-0000%d-of-00002.safetensors", i%2+1)
			shards[i%2][prefix+name] = x
			i++
		}
		require.NoError(t, os.Remove(filepath.Join(dir, "model.safetensors")))
		for i, s := range shards {
			modeltest.Safetensors(t, filepath.Join(dir, fmt.Sprintf("model-0000%d-of-00002.safetensors", i+1)), "F32", s)
		}
		modeltest.JSON(t, filepath.Join(dir, "model.safetensors.index.json"), map[string]any{"metadata": map[string]any{}, "weight_map": index})
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
		all := modeltest.Tensors(family)
		bin := filepath.Join(dir, "pytorch_model.bin")
		torchFile(t, bin, all)
		check(t, dir, family)
		shards, index := []map[string]modeltest.Tensor{{}, {}}, map[string]string{}
		for i, name := range slices.Sorted(maps.Keys(all)) {
			index[prefix+name] = fmt.Sprintf("pytorch_model-0000%d-of-00002.bin", i%2+1)
			shards[i%2][prefix+name] = all[name]
		}
		require.NoError(t, os.Remove(bin))
		for i, s := range shards {
			torchFile(t, filepath.Join(dir, fmt.Sprintf("pytorch_model-0000%d-of-00002.bin", i+1)), s)
		}
		modeltest.JSON(t, bin+".index.json", map[string]any{"metadata": map[string]any{}, "weight_map": index})
		check(t, dir, family)
	}
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
		"encoder.layer.4.extra: unusable weights: is no tensor of such a model": change(func(m map[string]modeltest.Tensor) {
			m["encoder.layer.4.extra"] = modeltest.Random("x", 1, 0, 2)
		}),
		"1_Dense/model.safetensors: residual.weight: unusable weights: is missing": func(t *testing.T, dir string) {
			modeltest.Safetensors(t, filepath.Join(dir, "1_Dense", "model.safetensors"), "F32", map[string]modeltest.Tensor{
				"linear.weight": modeltest.Random("head0", 1, 0, 90, 64), "linear.bias": modeltest.Random("b", 1, 0, 90)})
		},
		"2_Dense/model.safetensors: linear.bias: unusable weights: is no tensor": func(t *testing.T, dir string) {
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
