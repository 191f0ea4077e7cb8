package encode

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/modeltest"
)

// TestModules: tokenizers, prompts, heads and modules of all kinds, in folders that the real classes
// saved, give what these classes gave; see testdata/modules/make.py.
func TestModules(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("testdata", "golden", "texts.json"))
	require.NoError(t, err)
	var texts struct{ Queries, Documents []string }
	require.NoError(t, json.Unmarshal(b, &texts))
	for _, folder := range []string{
		"pylate-bos", "pylate-eos", "pylate-marks", "sentence-bos", "sentence-marks", "sentence-words",
	} {
		t.Run(folder, func(t *testing.T) {
			dir := filepath.Join("testdata", "modules", folder)
			e := open(t, dir, nil)
			z := modeltest.OpenNPZ(t, filepath.Join(dir, "golden.npz"))
			queries, err := e.Queries(t.Context(), texts.Queries)
			require.NoError(t, err)
			worst := 0.0
			for i, q := range queries {
				want := modeltest.Floats(t, z, fmt.Sprint("query", i))
				require.Len(t, q.Vectors, len(want), "query %q: %v", texts.Queries[i], q.Tokens)
				worst = max(worst, difference(t, want, q.Vectors))
				require.LessOrEqual(t, worst, 2e-6, "query %q", texts.Queries[i])
				tokens, err := e.Tokenize(Query, texts.Queries[i])
				require.NoError(t, err)
				require.Equal(t, q.Tokens, tokens)
			}
			i := 0
			var list []Text
			for _, s := range texts.Documents {
				list = append(list, Text{Text: s})
			}
			for doc, err := range e.Documents(t.Context(), Texts(list...)) {
				require.NoError(t, err)
				want := modeltest.Floats(t, z, fmt.Sprint("document", i))
				require.Len(t, doc.Tokens, len(want), "document %q", texts.Documents[i])
				got := slices.Clone(doc.Tokens)
				if e.Config().Pooling != nil { // the pools of scipy come in another order
					sortRows(want, e.Dim())
					sortRows(got, e.Dim())
				}
				worst = max(worst, difference(t, want, got))
				require.LessOrEqual(t, worst, 2e-6, "document %q", texts.Documents[i])
				i++
			}
			require.Equal(t, len(list), i)
			t.Logf("largest difference %.2g", worst)
		})
	}
}

func sortRows(x []float32, dim int) {
	rows := slices.SortedFunc(slices.Chunk(slices.Clone(x), dim), slices.Compare)
	copy(x, slices.Concat(rows...))
}
