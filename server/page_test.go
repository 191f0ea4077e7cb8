package server_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/server"
)

var ofPage = regexp.MustCompile(`(?:href|src)="(ui/[^"]+)"|from "\./([^"]+)"`)

// The page and whatever it and its scripts name are there, without a token, and what
// they may do is limited by the browser.
func TestFilesOfThePage(t *testing.T) {
	s := start(t, nil, &server.Options{Tokens: server.Tokens{server.NewToken("reader", server.Read, "a secret of readers")}})
	wanted := []string{"/ui"}
	seen := map[string]bool{}
	for len(wanted) > 0 {
		path := wanted[0]
		wanted = wanted[1:]
		if seen[path] {
			continue
		}
		seen[path] = true
		r := s.send(t, "GET", path, nil)
		require.Equal(t, 200, r.status, path)
		policy := r.header.Get("Content-Security-Policy")
		require.Contains(t, policy, "default-src 'none'")
		require.NotContains(t, policy, "unsafe")
		require.Equal(t, "nosniff", r.header.Get("X-Content-Type-Options"))
		for _, m := range ofPage.FindAllStringSubmatch(r.body, -1) {
			wanted = append(wanted, "/"+strings.TrimPrefix(m[1], "/"))
			if m[1] == "" {
				wanted[len(wanted)-1] = "/ui/" + m[2]
			}
		}
		require.NotContains(t, r.body, "innerHTML", path)
		if !strings.HasSuffix(path, ".svg") { // the name of a format is an address
			require.NotRegexp(t, `https?://`, r.body, path)
		}
		// Who has it already is told so.
		same := s.send(t, "GET", path, nil, "If-None-Match: "+r.header.Get("ETag"))
		require.Equal(t, 304, same.status, path)
		require.Empty(t, same.body)
		head := s.send(t, "HEAD", path, nil)
		require.Equal(t, 200, head.status, path)
		require.Equal(t, r.header.Get("Content-Length"), head.header.Get("Content-Length"))
	}
	require.Len(t, seen, 17)
	require.Equal(t, "text/html; charset=utf-8", s.send(t, "GET", "/ui", nil).header.Get("Content-Type"))
	require.Equal(t, "text/javascript; charset=utf-8", s.send(t, "GET", "/ui/page.js", nil).header.Get("Content-Type"))

	r := s.send(t, "GET", "/ui/", nil)
	require.Equal(t, 301, r.status)
	require.Equal(t, "../ui", r.header.Get("Location"))
	s.refused(t, 404, server.CodeNoRoute, "GET", "/ui/ui.go", nil)
	s.refused(t, 404, server.CodeNoRoute, "GET", "/ui/page.html", nil)
	s.refused(t, 405, server.CodeMethod, "POST", "/ui", nil)
}

// somePNG is enough of one to be taken for one.
const somePNG = "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"

func TestImages(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "secret.png")
	require.NoError(t, os.WriteFile(outside, []byte(somePNG), 0o600))
	all := t.TempDir()
	dir := filepath.Join(all, "p") // of the index
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "scans"), 0o755))
	for name, text := range map[string]string{
		"scans/1.png": somePNG, "a b.gif": "GIF89a…", "page.svg": `<svg xmlns="http://www.w3.org/2000/svg"><script/></svg>`, "notes.png": "text", "empty.png": "",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	large, err := os.Create(filepath.Join(dir, "large.png"))
	require.NoError(t, err)
	_, err = large.WriteString(somePNG)
	require.NoError(t, err)
	require.NoError(t, large.Truncate(65<<20))
	require.NoError(t, large.Close())
	if runtime.GOOS != "windows" {
		require.NoError(t, os.Symlink(outside, filepath.Join(dir, "link.png")))
		require.NoError(t, os.Symlink(filepath.Dir(outside), filepath.Join(dir, "out")))
		require.NoError(t, os.Symlink("scans/1.png", filepath.Join(dir, "within.png")))
	}
	root, err := os.OpenRoot(all)
	require.NoError(t, err)
	defer root.Close()
	s := start(t, nil, &server.Options{Images: root})
	s.ok(t, 200, "POST", "/indices", map[string]any{"name": "p", "config": map[string]any{}}, nil)
	images := map[string]string{
		"png": "scans/1.png", "blank": "a b.gif", "dots": "scans/../a b.gif", "svg": "page.svg", "text": "notes.png", "empty": "empty.png", "large": "large.png", "link": "link.png",
		"out": "out/secret.png", "within": "within.png", "up": "../" + filepath.Base(filepath.Dir(outside)) + "/secret.png", "root": outside, "folder": "scans", "none": "gone.png",
		"nothing": "", "address": "https://example.org/x.png", "back": `scans\1.png`, "zero": "scans/1.png\x00",
	}
	docs, metadata := []any{}, []any{}
	for id, image := range images {
		docs = append(docs, map[string]any{"embeddings": [][]float32{{1, 0}, {0, 1}}})
		metadata = append(metadata, map[string]any{"_id": id, "image": image, "grid": []int{1, 2}})
	}
	docs = append(docs, map[string]any{"embeddings": [][]float32{{1, 0}}})
	metadata = append(metadata, map[string]any{"_id": "plain"})
	s.ok(t, 202, "POST", "/indices/p/update", map[string]any{"documents": docs, "metadata": metadata}, nil)
	sent := map[string]string{"png": "image/png", "blank": "image/gif", "dots": "image/gif", "within": "image/png"}
	if runtime.GOOS == "windows" {
		delete(sent, "within")
	}
	for id := range images {
		r := s.send(t, "GET", "/indices/p/image?id="+id, nil)
		if media := sent[id]; media != "" {
			require.Equal(t, 200, r.status, "%s: %s", id, r.body)
			require.Equal(t, media, r.header.Get("Content-Type"))
			require.Equal(t, "nosniff", r.header.Get("X-Content-Type-Options"))
			require.Contains(t, r.header.Get("Content-Security-Policy"), "sandbox")
			again := s.send(t, "GET", "/indices/p/image?id="+id, nil, "If-Modified-Since: "+r.header.Get("Last-Modified"))
			require.Equal(t, http.StatusNotModified, again.status)
			continue
		}
		require.Equal(t, 404, r.status, id)
		require.Contains(t, r.body, "IMAGE_NOT_FOUND", id)
		require.NotContains(t, r.body, dir, "the folder is nobody's business")
	}
	require.Contains(t, s.send(t, "GET", "/indices/p/image?id=plain", nil).body, "IMAGE_NOT_FOUND")
	require.Contains(t, s.send(t, "GET", "/indices/p/image?id=gone", nil).body, "DOCUMENT_NOT_FOUND")
	require.Contains(t, s.send(t, "GET", "/indices/p/image?document_id=99", nil).body, "DOCUMENT_NOT_FOUND")
	for _, query := range []string{"", "?id=png&document_id=1", "?document_id=x", "?id=png&id=link"} {
		require.Equal(t, 400, s.send(t, "GET", "/indices/p/image"+query, nil).status, query)
	}
	head := s.send(t, "HEAD", "/indices/p/image?id=png", nil)
	require.Equal(t, 200, head.status)
	require.Empty(t, head.body)

	// Where in a picture the tokens of a query are.
	var x struct {
		Image string
		Grid  *struct {
			Rows, Columns, Special int
			Scores                 []struct {
				QueryToken     int `json:"query_token"`
				Cells, Special []float64
			}
		}
	}
	s.ok(t, 200, "POST", "/indices/p/explain", map[string]any{"query": map[string]any{"embeddings": [][]float32{{0, 1}}}, "id": "png"}, &x)
	require.Equal(t, "scans/1.png", x.Image)
	require.Equal(t, []int{1, 2, 0}, []int{x.Grid.Rows, x.Grid.Columns, x.Grid.Special})
	require.Len(t, x.Grid.Scores, 1)
	require.InDelta(t, 0, x.Grid.Scores[0].Cells[0], 0.01)
	require.InDelta(t, 1, x.Grid.Scores[0].Cells[1], 0.01)

	// A grid that the vectors have no cells for is refused, and names the document.
	bad := s.send(t, "POST", "/indices/p/update", map[string]any{
		"documents": []any{map[string]any{"embeddings": [][]float32{{1, 0}}}}, "metadata": []any{map[string]any{"_id": "bad", "image": "x.png", "grid": []int{3, 3}}},
	})
	require.Equal(t, 400, bad.status, bad.body)
	require.Contains(t, bad.body, fmt.Sprintf("%d × %d cells", 3, 3))

	// The pictures of an index are not those of another, whatever its documents name.
	require.NoError(t, os.WriteFile(filepath.Join(all, "loose.png"), []byte(somePNG), 0o644))
	for _, other := range []string{"q", "r"} { // with a folder of its own, and with none
		if other == "q" {
			require.NoError(t, os.Mkdir(filepath.Join(all, other), 0o755))
			if runtime.GOOS != "windows" {
				require.NoError(t, os.Symlink("../p/scans/1.png", filepath.Join(all, other, "link.png")))
			}
		}
		s.ok(t, 200, "POST", "/indices", object{"name": other}, nil)
		for i, image := range []string{
			"scans/1.png", "p/scans/1.png", "../p/scans/1.png", "./../p/scans/1.png", "../loose.png", "loose.png", "link.png",
		} {
			s.ok(t, 202, "POST", "/indices/"+other+"/update", object{
				"documents": list{object{"embeddings": list{list{1, 0}}}},
				"metadata":  list{object{"_id": fmt.Sprint(i), "image": image}},
			}, nil)
			r := s.send(t, "GET", fmt.Sprintf("/indices/%s/image?id=%d", other, i), nil)
			require.Equal(t, 404, r.status, "%s of %s", image, other)
			require.Contains(t, r.body, "IMAGE_NOT_FOUND")
		}
	}

	if runtime.GOOS != "windows" { // unless whoever has the folders lets it share them
		require.NoError(t, os.Symlink("p", filepath.Join(all, "r")))
		require.Equal(t, 200, s.send(t, "GET", "/indices/r/image?id=0", nil).status)
		require.Equal(t, 404, s.send(t, "GET", "/indices/r/image?id=2", nil).status)
	}

	without := startAt(t, s.store, nil, nil)
	require.Contains(t, without.send(t, "GET", "/indices/p/image?id=png", nil).body, "--images")
	require.Contains(t, without.send(t, "GET", "/indices/p/image?id=address", nil).body, "address")
}
