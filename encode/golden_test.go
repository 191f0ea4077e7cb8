package encode

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/vectors"
)

// TestGolden: tiny models in folders that the real classes saved, from text to
// vectors, against what these classes gave; see testdata/golden/make.py.
func TestGolden(t *testing.T) {
	dir := filepath.Join("testdata", "golden")
	b, err := os.ReadFile(filepath.Join(dir, "texts.json"))
	require.NoError(t, err)
	var texts struct{ Queries, Documents []string }
	require.NoError(t, json.Unmarshal(b, &texts))
	for _, g := range []struct{ folder, by string }{
		{"pylate-bert", "pylate-bert"}, {"pylate-bert", "pylate-bert-sentence"},
		{"pylate-heads", "pylate-heads"}, {"pylate-heads", "pylate-heads-sentence"},
		{"pylate-attend", "pylate-attend"}, {"pylate-attend", "pylate-attend-sentence"},
		{"stanford", "stanford"}, {"stanford", "stanford-sentence"},
		{"sentence-bert", "sentence-bert"}, {"sentence-modernbert", "sentence-modernbert"},
	} {
		t.Run(g.by, func(t *testing.T) {
			e := open(t, filepath.Join(dir, g.folder), nil)
			z, err := vectors.OpenNPZ(filepath.Join(dir, "golden-"+g.by+".npz"))
			require.NoError(t, err)
			defer z.Close()
			queries, err := e.Queries(t.Context(), texts.Queries)
			require.NoError(t, err)
			worst := 0.0
			for i, q := range queries {
				// Of the two packages only PyLate drops white space around texts, whose
				// folders are taken as it takes them.
				if foreign := strings.HasSuffix(g.by, "-sentence"); foreign && strings.HasPrefix(texts.Queries[i], " ") {
					continue
				}
				want := floatsOf(t, z, fmt.Sprint("query", i))
				require.Len(t, q.Vectors, len(want), "query %q", texts.Queries[i])
				worst = max(worst, difference(t, want, q.Vectors))
				require.LessOrEqual(t, worst, 2e-6, "query %q", texts.Queries[i])
			}
			i := 0
			var list []Text
			for _, s := range texts.Documents {
				list = append(list, Text{Text: s})
			}
			for doc, err := range e.Documents(t.Context(), seq(list)) {
				require.NoError(t, err)
				want := floatsOf(t, z, fmt.Sprint("document", i))
				require.Len(t, doc.Tokens, len(want), "document %q", texts.Documents[i])
				worst = max(worst, difference(t, want, doc.Tokens))
				require.LessOrEqual(t, worst, 2e-6, "document %q", texts.Documents[i])
				i++
			}
			require.Equal(t, len(list), i)
			t.Logf("largest difference %.2g", worst)
		})
	}
}
