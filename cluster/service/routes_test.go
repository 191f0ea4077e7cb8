package service_test

import (
	"archive/tar"
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/clustertest"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/server"
)

// Every route that the service describes works over a cluster whose front has the object store,
// with the body that the description has for an example: none is not supported.
func TestEveryRouteIsSupported(t *testing.T) {
	if !effort.Long() {
		t.Skip("trains many collections")
	}
	url := serveClients(t, clustertest.New(t, 3), words{}, &server.Options{}, operate.CreateOptions{Shards: 2, Replicas: 2})
	ask := func(method, path, kind string, body []byte) (int, []byte) {
		t.Helper()
		r, err := http.NewRequest(method, url+path, bytes.NewReader(body))
		require.NoError(t, err)
		if kind != "" {
			r.Header.Set("Content-Type", kind)
		}
		a, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer a.Body.Close()
		text, err := io.ReadAll(a.Body)
		require.NoError(t, err)
		return a.StatusCode, text
	}
	const asJSON = "application/json"
	setUp := func(path, body string) {
		t.Helper()
		status, text := ask("POST", path, asJSON, []byte(body))
		require.Less(t, status, 300, "%s: %s", path, text)
	}
	// What takes texts needs a collection of the encoder's vectors; other examples have two components.
	for name, update := range map[string]string{
		"pets":  `update?wait=true", {"documents": [{"embeddings": [[1, 0], [0, 1]]}, {"embeddings": [[0, 1]]}], "metadata": [{"_id": "a", "year": 2021, "lang": "en"}, {"_id": "b", "year": 2019}]}`,
		"texts": `update_with_encoding?wait=true", {"documents": ["Cats sleep for most of the day.", "Dogs bark."], "metadata": [{"year": 2021}, {"year": 2019}], "text_field": "text"}`,
	} {
		setUp("/indices", `{"name": "`+name+`"}`)
		path, body, _ := strings.Cut(update, `", `)
		setUp("/indices/"+name+"/"+path, body)
	}
	folder := &bytes.Buffer{}
	w := tar.NewWriter(folder)
	require.NoError(t, w.AddFS(os.DirFS("../../index/interop/testdata/real/fast-plaid")))
	require.NoError(t, w.Close())
	_, backup := ask("GET", "/indices/pets/backup", "", nil)

	var description struct {
		Paths map[string]map[string]struct {
			ID   string `json:"operationId"`
			Body struct {
				Content map[string]struct {
					Example json.RawMessage `json:"example"`
				} `json:"content"`
			} `json:"requestBody"`
		} `json:"paths"`
	}
	_, text := ask("GET", "/openapi.json", "", nil)
	require.NoError(t, json.Unmarshal(text, &description))
	type route struct{ method, path, id, kind, index, query, body string }
	var routes []route
	for path, methods := range description.Paths {
		for method, op := range methods {
			r := route{method: strings.ToUpper(method), path: path, id: op.ID, index: "pets"}
			if content, there := op.Body.Content[asJSON]; there {
				r.kind, r.body = asJSON, string(content.Example)
			}
			if strings.HasSuffix(path, "_with_encoding") {
				r.index = "texts"
			}
			switch r.id {
			case "update_index", "add_documents", "update_index_with_encoding":
				r.query = "?wait=true"
			case "get_image":
				r.query = "?id=a"
			case "get_documents":
				r.query = "?id=a&vectors=json"
			case "upload_backup":
				r.kind, r.body, r.index = "application/octet-stream", string(backup), "restored"
			case "import_index":
				r.kind, r.body, r.index = "application/x-tar", folder.String(), "imported"
			}
			routes = append(routes, r)
		}
	}
	require.Greater(t, len(routes), 40)
	last := func(r route) int { // what deletes comes after what reads
		return slices.Index([]string{"GET", "POST", "PUT", "DELETE"}, r.method)
	}
	slices.SortFunc(routes, func(a, b route) int {
		return cmp.Or(cmp.Compare(last(a), last(b)), cmp.Compare(strings.Count(b.path, "/"), strings.Count(a.path, "/")), cmp.Compare(a.id, b.id))
	})
	for _, r := range routes {
		status, text := ask(r.method, strings.ReplaceAll(r.path, "{name}", r.index)+r.query, r.kind, []byte(r.body))
		if r.id == "get_image" { // a folder of pictures is a setting, and none is given
			require.Contains(t, string(text), server.CodeImageNotFound)
			continue
		}
		require.Less(t, status, 400, "%s %s: %s", r.method, r.path, text)
	}
}
