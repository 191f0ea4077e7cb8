package encode

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/modeltest"
)

// TestFamilies: tiny models of more families, and other readings of their weights, from text to
// vectors, against what sentence-transformers gave; see testdata/golden/families.py.
func TestFamilies(t *testing.T) {
	dir := filepath.Join("testdata", "golden")
	b, err := os.ReadFile(filepath.Join(dir, "texts.json"))
	require.NoError(t, err)
	var texts struct{ Queries, Documents []string }
	require.NoError(t, json.Unmarshal(b, &texts))
	for _, f := range []struct {
		name, folder string // the folder has the name, if it is empty
		change       map[string]any
	}{
		{name: "roberta"}, {name: "camembert"}, {name: "distilbert"}, {name: "mpnet"}, {name: "electra-narrow"},
		{name: "eurobert"}, {name: "eurobert-biased"}, {name: "gemma"}, {name: "mmbert"}, {name: "lfm2"}, {name: "lfm2-biased"},
		{"electra", "sentence-bert", map[string]any{
			"model_type": "electra", "architectures": []string{"ElectraModel"}, "embedding_size": 32, "hidden_act": "tanh"}},
		{"gemma-causal", "gemma", map[string]any{"use_bidirectional_attention": false, "sliding_window": 5}},
		{"lfm25", "lfm2", map[string]any{"architectures": []string{"Lfm2BidirectionalModel"}}},
	} {
		t.Run(f.name, func(t *testing.T) {
			folder := filepath.Join(dir, f.name)
			if f.folder != "" {
				folder = t.TempDir()
				require.NoError(t, os.CopyFS(folder, os.DirFS(filepath.Join(dir, f.folder))))
				modeltest.Edit(t, filepath.Join(folder, "config.json"), f.change)
			}
			e := open(t, folder, nil)
			z := modeltest.OpenNPZ(t, filepath.Join(dir, "golden-"+f.name+".npz"))
			queries, err := e.Queries(t.Context(), texts.Queries)
			require.NoError(t, err)
			worst := 0.0
			for i, q := range queries {
				want := modeltest.Floats(t, z, fmt.Sprint("query", i))
				require.Len(t, q.Vectors, len(want), "query %q", texts.Queries[i])
				worst = max(worst, difference(t, want, q.Vectors))
				alone, err := e.Query(t.Context(), texts.Queries[i])
				require.NoError(t, err)
				require.Equal(t, q.Vectors, alone.Vectors, "query %q", texts.Queries[i])
			}
			var list []Text
			for _, s := range texts.Documents {
				list = append(list, Text{Text: s})
			}
			i := 0
			for doc, err := range e.Documents(t.Context(), Texts(list...)) {
				require.NoError(t, err)
				want := modeltest.Floats(t, z, fmt.Sprint("document", i))
				require.Len(t, doc.Tokens, len(want), "document %q", texts.Documents[i])
				worst = max(worst, difference(t, want, doc.Tokens))
				i++
			}
			require.Equal(t, len(list), i)
			require.LessOrEqual(t, worst, 2e-6)
			t.Logf("largest difference %.2g", worst)
		})
	}
}
