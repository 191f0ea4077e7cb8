package command

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	folder "github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/server"
)

// Metadata keys of any text are stored over HTTP, named in conditions, facets and updates
// over HTTP and on the command line, and come back as they were.
func TestKeysOfAnyText(t *testing.T) {
	keys := []string{
		"", `"`, `""`, `a "b"`, "ptex.fullbanner", "Page Number", "publish-date", "in", "NULL", "1st", "größe", "_payload", "a=b", "--", "/*", "'", "?", ".", "a.", ";", "\t\n", "日本",
		strings.Repeat("long ", 100),
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for len(keys) < 80 {
		var b strings.Builder
		for range 1 + rng.IntN(6) {
			b.WriteString([]string{`"`, "'", ".", " ", "=", "?", "\\", "$", "\u2028", "\x01", "a", "é", "𝄞", "(", "%", "NOT", "-", "#"}[rng.IntN(18)])
		}
		keys = append(keys, fmt.Sprint(b.String(), len(keys))) // no two are alike
	}
	dir := t.TempDir()
	st, err := folder.Open(t.Context(), dir, nil)
	require.NoError(t, err)
	handler, err := server.New(st.Catalog(), nil, nil)
	require.NoError(t, err)
	service := httptest.NewServer(handler)
	ask := func(path string, body any) (answer map[string]any) {
		t.Helper()
		text, err := json.Marshal(body)
		require.NoError(t, err)
		r, err := http.Post(service.URL+"/indices"+path, "application/json", strings.NewReader(string(text)))
		require.NoError(t, err)
		defer r.Body.Close()
		said, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		require.Less(t, r.StatusCode, 300, "%s %s: %s", path, text, said)
		_ = json.Unmarshal(said, &answer) // or it is a sentence
		return answer
	}
	type object = map[string]any
	ask("", object{"name": "k"})
	var documents, metadata []object
	for i, key := range keys {
		documents = append(documents, object{"embeddings": [][]int{{1, i}}})
		metadata = append(metadata, object{"_id": fmt.Sprint("d", i), key: i})
	}
	ask("/k/update", object{"documents": documents, "metadata": metadata})
	quoted := func(key string) string { return `"` + strings.ReplaceAll(key, `"`, `""`) + `"` }
	for i, key := range keys {
		name := quoted(key)
		found := ask("/k/metadata/get", object{"condition": name + " = ?", "parameters": []int{i}})
		require.Equal(t, 1., found["count"], "%q", key)
		require.Equal(t, float64(i), found["metadata"].([]any)[0].(object)[key], "%q", key)
		hits := ask("/k/search", object{"queries": documents[:1], "filter_condition": string(condition.MakeField(key)) + " IS NOT NULL"})
		require.Equal(t, []any{float64(i)}, hits["results"].([]any)[0].(object)["document_ids"], "%q", key)
		facet := ask("/k/facets", object{"fields": []string{name}})["facets"].([]any)[0].(object)
		require.Equal(t, []any{object{"value": float64(i), "docs": 1.}}, facet["values"], "%q", key)
		require.Equal(t, object{"updated": 1., "passages": 0.}, ask("/k/metadata/update", object{"condition": name + " IS NOT NULL", "updates": object{key: i + 1000}}), "%q", key)
	}
	service.Close()
	require.NoError(t, st.Close(t.Context()))
	files, err := filepath.Glob(filepath.Join(dir, "k", "*.plaid"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	for i, key := range keys {
		name := quoted(key)
		code, stdout, stderr := try(t, "get", files[0], "--where", name+" = ?", "--param", fmt.Sprint(i+1000), "--json")
		require.Equal(t, exitOK, code, "%q: %s", key, stderr)
		var doc struct {
			ID       string
			Metadata object
		}
		require.NoError(t, json.Unmarshal([]byte(stdout), &doc), "%q: %s", key, stdout)
		require.Equal(t, fmt.Sprint("d", i), doc.ID)
		require.Equal(t, object{key: float64(i + 1000)}, doc.Metadata)
		if i > effort.Cases(8, 30) {
			continue // a command each is slow
		}
		code, _, stderr = try(t, "update", files[0], "--where", "_id = ?", "--param", doc.ID, "--set", name+"=7")
		require.Equal(t, exitOK, code, "%q: %s", key, stderr)
		code, stdout, stderr = try(t, "get", files[0], "--facet", name, "--where", name+" = 7")
		require.Equal(t, exitOK, code, "%q: %s", key, stderr)
		require.Contains(t, stdout, "1 document", "%q", key)
	}
	code, _, stderr := try(t, "update", files[0], "--where", "1=1", "--set", `"a"b=7`)
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "FIELD=JSON is needed")
}
