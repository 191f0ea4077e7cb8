package modeldir_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode/modeldir"
	"github.com/plaid-ir/plaid/internal/testing/modeltest"
)

// remote is a folder that is copied file by file into another, which is empty at first.
type remote struct {
	t        *testing.T
	from, to string
	got      []string
	fail     func(name string) error
}

func (r *remote) Dir() string { return r.to }

func (r *remote) Has(name string) (bool, error) {
	require.True(r.t, filepath.IsLocal(name), name)
	require.NotContains(r.t, name, `\`)
	if r.fail != nil && r.fail(name) != nil {
		return false, r.fail(name)
	}
	info, err := os.Stat(filepath.Join(r.from, filepath.FromSlash(name)))
	return err == nil && !info.IsDir(), nil
}

func (r *remote) Get(name string) error {
	if !slices.Contains(r.got, name) {
		r.got = append(r.got, name)
	}
	b, err := os.ReadFile(filepath.Join(r.from, filepath.FromSlash(name)))
	require.NoError(r.t, err)
	modeltest.WriteFile(r.t, filepath.Join(r.to, filepath.FromSlash(name)), b)
	return nil
}

// tensors are the paths of the files with tensors, within the folder.
func tensors(t *testing.T, c *modeldir.Config) (names []string) {
	for _, path := range c.Tensors() {
		name, err := filepath.Rel(c.Dir, path)
		require.NoError(t, err)
		names = append(names, filepath.ToSlash(name))
	}
	return names
}

// A folder whose files come when they are asked for is read as one that has all of them: nothing is
// read that is not asked for. With the tensors that it names it is the same model.
func TestFilesAskedFor(t *testing.T) {
	sentence := []string{"config_sentence_transformers.json", "modules.json", "1_Dense/config.json"}
	for _, test := range []struct {
		name   string
		from   string
		graphs []string
		reads  []string
		names  []string
	}{
		{name: "pylate", from: pylate(t), reads: append(sentence, "2_Dense/config.json", "3_Dense/config.json",
			"sentence_bert_config.json", "config.json", "tokenizer.json"),
			names: []string{
				"model.safetensors", "1_Dense/model.safetensors", "2_Dense/model.safetensors", "3_Dense/model.safetensors",
			}},
		{name: "stanford", from: stanford(t), reads: []string{"config.json", "artifact.metadata", "tokenizer.json"},
			names: []string{"model.safetensors"}},
		{name: "graph", from: export(t), graphs: []string{"model.onnx", "onnx/model.onnx"},
			reads: []string{"config.json", "onnx_config.json", "tokenizer.json"},
			names: []string{"model.onnx"}},
		{name: "sentence-transformers", from: multiVector(t)},
		{name: "xlmr", from: "../testdata/golden/xlmr"},
		{name: "lower", from: "../testdata/golden/pylate-lower"},
		{name: "heads", from: "../testdata/golden/pylate-heads"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := &remote{t: t, from: test.from, to: t.TempDir()}
			c, err := modeldir.ReadFiles(r, test.graphs, nil)
			require.NoError(t, err)
			if test.reads != nil {
				require.ElementsMatch(t, test.reads, r.got)
				require.Equal(t, test.names, tensors(t, c))
			}
			for _, name := range tensors(t, c) {
				require.NotContains(t, r.got, name)
			}
			for _, name := range tensors(t, c) {
				require.NoError(t, r.Get(name))
			}
			var want *modeldir.Config
			if test.graphs != nil {
				want, err = modeldir.ReadGraph(test.from, test.graphs, nil)
			} else {
				want, err = modeldir.Read(test.from, nil)
			}
			require.NoError(t, err)
			require.Equal(t, want.Origin, c.Origin)
			require.Equal(t, tensors(t, want), tensors(t, c))
			sums, err := c.Fingerprints("f32")
			require.NoError(t, err)
			of, err := want.Fingerprints("f32")
			require.NoError(t, err)
			require.Equal(t, of, sums)
		})
	}
}

// A model in shards names them by the list of them, which is read.
func TestFilesOfShards(t *testing.T) {
	from := pylate(t)
	first := filepath.Join(from, "model-00001-of-00002.safetensors")
	require.NoError(t, os.Rename(filepath.Join(from, "model.safetensors"), first))
	modeltest.WriteFile(t, filepath.Join(from, "model-00002-of-00002.safetensors"), nil)
	modeltest.JSON(t, filepath.Join(from, "model.safetensors.index.json"), map[string]any{"weight_map": map[string]string{
		"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}})
	r := &remote{t: t, from: from, to: t.TempDir()}
	c, err := modeldir.ReadFiles(r, nil, nil)
	require.NoError(t, err)
	require.Contains(t, r.got, "model.safetensors.index.json")
	require.Equal(t, []string{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}, tensors(t, c)[:2])
}

// What goes wrong where files come from is the error, not what is missing for that.
func TestFilesThatFail(t *testing.T) {
	lost := errors.New("lost")
	for _, name := range []string{
		"config_sentence_transformers.json", "modules.json", "3_Dense/config.json", "tokenizer.json", "model.safetensors",
	} {
		r := &remote{t: t, from: pylate(t), to: t.TempDir(), fail: func(asked string) error {
			if asked == name {
				return lost
			}
			return nil
		}}
		_, err := modeldir.ReadFiles(r, nil, nil)
		require.Equal(t, lost, err, name)
	}
}
