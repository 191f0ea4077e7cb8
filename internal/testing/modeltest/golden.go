package modeltest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/vectors"
)

// Golden is a tiny model in a folder of encode/testdata/golden that published classes saved, and
// what such a class gave for it.
type Golden struct {
	Name   string // of the file of vectors
	Folder string
	// Change is made in config.json.
	Change map[string]any
	// Foreign says that the vectors are another package's than the folder is of.
	Foreign bool
}

// Goldens are those of texts.json.
func Goldens() []Golden {
	var list []Golden
	for _, name := range []string{
		"pylate-bert", "pylate-heads", "pylate-attend", "stanford", "sentence-bert", "sentence-modernbert", "xlmr", "xlmr-rotary",
		"roberta", "camembert", "distilbert", "mpnet", "electra-narrow", "eurobert", "eurobert-biased", "gemma", "mmbert", "lfm2", "lfm2-biased",
	} {
		list = append(list, Golden{Name: name, Folder: name})
	}
	for _, name := range []string{"pylate-bert", "pylate-heads", "pylate-attend", "stanford"} {
		list = append(list, Golden{Name: name + "-sentence", Folder: name, Foreign: true})
	}
	type change = map[string]any
	return append(list,
		Golden{Name: "electra", Folder: "sentence-bert", Change: change{
			"model_type": "electra", "architectures": []string{"ElectraModel"}, "embedding_size": 32, "hidden_act": "tanh"}},
		Golden{Name: "gemma-causal", Folder: "gemma", Change: change{"use_bidirectional_attention": false, "sliding_window": 5}},
		Golden{Name: "lfm25", Folder: "lfm2", Change: change{"architectures": []string{"Lfm2BidirectionalModel"}}})
}

// Open gives the folder of the model, and its vectors, below the path of encode/testdata/golden.
func (g Golden) Open(t testing.TB, root string) (dir string, z *vectors.NPZ) {
	t.Helper()
	dir = filepath.Join(root, g.Folder)
	if g.Change != nil {
		dir = t.TempDir()
		require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join(root, g.Folder))))
		Edit(t, filepath.Join(dir, "config.json"), g.Change)
	}
	return dir, OpenNPZ(t, filepath.Join(root, "golden-"+g.Name+".npz"))
}

// GoldenTexts are the queries and documents of the vectors.
func GoldenTexts(t testing.TB, root string) (queries, documents []string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, "texts.json"))
	require.NoError(t, err)
	var texts struct{ Queries, Documents []string }
	require.NoError(t, json.Unmarshal(b, &texts))
	return texts.Queries, texts.Documents
}
