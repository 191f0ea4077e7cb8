package hub_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode/hub"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/hubtest"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
)

func TestMain(m *testing.M) {
	effort.Rapid(20, 100)
	testenv.Children["fetch"] = fetchAsChild
	testenv.Main(m)
}

const model = "org/model"

// weights are larger than what is read at once.
var weights = bytes.Repeat([]byte("0123456789abcdef"), 200_000)

func content() map[string][]byte {
	return map[string][]byte{
		"config.json": []byte(`{"model_type": "bert"}`), "tokenizer.json": []byte(`{}`),
		"1_Dense/config.json": []byte(`{"in": 1}`),
		"model.safetensors":   weights, "1_Dense/model.safetensors": []byte("head"),
		"README.md": []byte("# model\n"), "empty.json": {},
	}
}

// start is a hub with a model, and a client with an empty cache.
func start(t *testing.T) (server *hubtest.Hub, h *hub.Hub, commit string) {
	server = hubtest.New()
	t.Cleanup(server.Close)
	commit = server.Add(model, "main", content())
	return server, client(t, server), commit
}

func client(t *testing.T, server *hubtest.Hub) *hub.Hub {
	cache := filepath.Join(t.TempDir(), "cache")
	return &hub.Hub{Endpoint: server.URL, Cache: cache, Backoff: time.Millisecond, Attempts: 3}
}

func open(t *testing.T, h *hub.Hub, name string) *hub.Snapshot {
	t.Helper()
	s, err := find(t.Context(), h, name)
	require.NoError(t, err)
	return s
}

func find(ctx context.Context, h *hub.Hub, name string) (*hub.Snapshot, error) {
	n, ok := hub.Parse(name)
	if !ok {
		return nil, fmt.Errorf("%q is no name", name)
	}
	return h.Open(ctx, n)
}

func all() []string {
	var names []string
	for name := range content() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func requireFiles(t *testing.T, s *hub.Snapshot, names ...string) {
	t.Helper()
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join(s.Dir(), filepath.FromSlash(name)))
		require.NoError(t, err)
		require.True(t, bytes.Equal(content()[name], b), name)
	}
}

func TestNames(t *testing.T) {
	for _, s := range []string{
		"org/name", "a/b", "Org-1/na.me_2", "org/name@main", "org/name@refs/pr/4", "org/name@v1.0",
		"org/name@" + strings.Repeat("a", 40),
	} {
		n, ok := hub.Parse(s)
		require.True(t, ok, s)
		require.Equal(t, s, n.String())
	}
	for _, s := range []string{
		"", "name", "a/b/c", "./a/b", "./a", "../a", "/a/b", "a/", "/a", "a//b", "a/.b", "-a/b", "a--b/c",
		"a/b..c", "a/b.git", "a/b@", "a/b@../c", "a/b@/c",
		"a/b@c//d", "a/b@c d", "a/b@c\\d", "a/b@c/", "a b/c", "a/b.", `a\b`, "C:/b", "http://a/b"} {
		_, ok := hub.Parse(s)
		require.False(t, ok, s)
	}
	t.Chdir(t.TempDir())
	_, ok := hub.ParseUnlessPath(model)
	require.True(t, ok)
	require.NoError(t, os.MkdirAll(model, 0o777))
	_, ok = hub.ParseUnlessPath(model)
	require.False(t, ok, "a folder goes before a name")
}

// The layout is that of huggingface_hub, and the second time nothing is asked.
func TestFetch(t *testing.T) {
	server, h, commit := start(t)
	var told []hub.Progress
	h.Progress = func(p hub.Progress) { told = append(told, p) }
	s := open(t, h, model)
	require.Equal(t, commit, s.Commit)
	has, err := s.Has(t.Context(), "modules.json")
	require.NoError(t, err)
	require.False(t, has)
	require.NoError(t, s.Get(t.Context(), all()...))
	require.NoError(t, s.RecordRevision())
	requireFiles(t, s, all()...)

	place := filepath.Join(h.Cache, "models--org--model")
	require.Equal(t, filepath.Join(place, "snapshots", commit), s.Dir())
	link, err := os.Readlink(filepath.Join(s.Dir(), "1_Dense", "model.safetensors"))
	require.NoError(t, err)
	require.Equal(t, "../../../blobs/"+hubtest.SHA256([]byte("head")), filepath.ToSlash(link))
	link, err = os.Readlink(filepath.Join(s.Dir(), "config.json"))
	require.NoError(t, err)
	require.Equal(t, "../../blobs/"+hubtest.SHA1(content()["config.json"]), filepath.ToSlash(link))
	ref, err := os.ReadFile(filepath.Join(place, "refs", "main"))
	require.NoError(t, err)
	require.Equal(t, commit, string(ref))
	require.FileExists(t, filepath.Join(place, ".no_exist", commit, "modules.json"))
	require.FileExists(t, filepath.Join(h.Cache, ".locks", "models--org--model", hubtest.SHA256(weights)+".lock"))

	total := int64(0)
	for _, b := range content() {
		total += int64(len(b))
	}
	last := told[len(told)-1]
	require.Equal(t, hub.Progress{Model: model + "@" + commit, File: last.File, Done: total, Total: total}, last)
	require.True(t, slices.IsSortedFunc(told, func(a, b hub.Progress) int { return int(a.Done - b.Done) }))
	for _, r := range server.Requests() {
		require.Empty(t, r.Token)
	}

	again := open(t, h, model)
	for _, name := range all() {
		has, err := again.Has(t.Context(), name)
		require.NoError(t, err)
		require.True(t, has)
	}
	has, err = again.Has(t.Context(), "modules.json")
	require.NoError(t, err)
	require.False(t, has)
	require.NoError(t, again.Get(t.Context(), all()...))
	require.Empty(t, server.Requests())
	pinned := open(t, h, again.Pinned().String())
	require.NoError(t, pinned.Get(t.Context(), all()...))
	require.Empty(t, server.Requests())
}

// A branch is the commit that it was when it was fetched, until somebody asks for the newest.
func TestBranches(t *testing.T) {
	server, h, first := start(t)
	s := open(t, h, model)
	require.NoError(t, s.Get(t.Context(), "config.json"))
	require.NoError(t, s.RecordRevision())
	changed := content()
	changed["config.json"] = []byte(`{"changed": true}`)
	second := server.Add(model, "main", changed)
	server.Add(model, "refs/pr/4", map[string][]byte{"config.json": []byte(`{"pr": 4}`)})
	require.Equal(t, first, open(t, h, model).Commit)
	newest := *h
	newest.Refresh = true
	s = open(t, &newest, model)
	require.Equal(t, second, s.Commit)
	require.Equal(t, first, open(t, h, model).Commit, "not before its files are there")
	require.NoError(t, s.Get(t.Context(), all()...))
	require.NoError(t, s.RecordRevision())
	require.Equal(t, second, open(t, h, model).Commit)
	require.Equal(t, first, open(t, &newest, model+"@"+first).Commit)
	pr := open(t, h, model+"@refs/pr/4")
	require.NoError(t, pr.Get(t.Context(), "config.json"))
	require.NoError(t, pr.RecordRevision())
	require.Equal(t, pr.Commit, open(t, h, model+"@refs/pr/4").Commit)
	// What two commits have in common is fetched once.
	gets := 0
	for _, r := range server.Requests() {
		if r.Method == http.MethodGet && r.Store && strings.HasSuffix(r.Path, hubtest.SHA256(weights)) {
			gets++
		}
	}
	require.Equal(t, 1, gets)
}

// The token goes to the hub alone.
func TestTokenStays(t *testing.T) {
	server, h, _ := start(t)
	h.Token = "secret"
	server.Gate(model, "secret")
	require.NoError(t, open(t, h, model).Get(t.Context(), all()...))
	hosts := map[bool]int{}
	for _, r := range server.Requests() {
		hosts[r.Store]++
		if r.Store {
			require.Empty(t, r.Token, r.Path)
		} else {
			require.Equal(t, "secret", r.Token, r.Path)
		}
	}
	require.Equal(t, 2, hosts[true])
	// Nor does it come back by way of another host.
	server.SetFault(func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case strings.Contains(r.URL.Path, "/resolve/"):
			http.Redirect(w, r, server.Store+"/there", http.StatusFound)
		case r.URL.Path == "/there":
			http.Redirect(w, r, server.URL+"/back", http.StatusTemporaryRedirect)
		default:
			return false
		}
		return true
	})
	h.Cache = t.TempDir()
	require.ErrorIs(t, open(t, h, model).Get(t.Context(), "config.json"), hub.ErrFile)
	last := server.Requests()
	require.Equal(t, hubtest.Request{Method: "GET", Path: "/back"}, last[len(last)-1])
}

// cut answers requests for the weights with the first bytes of what is asked for, times times.
func cut(server *hubtest.Hub, keep int64, times int) {
	left := int64(times)
	server.SetFault(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, hubtest.SHA256(weights)) || atomic.AddInt64(&left, -1) < 0 {
			return false
		}
		begin := int64(0)
		if s := r.Header.Get("Range"); s != "" {
			_, _ = fmt.Sscanf(s, "bytes=%d-", &begin)
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", begin, len(weights)-1, len(weights)))
		}
		w.Header().Set("Content-Length", fmt.Sprint(int64(len(weights))-begin))
		if begin > 0 {
			w.WriteHeader(http.StatusPartialContent)
		}
		_, _ = w.Write(weights[begin:min(begin+keep, int64(len(weights)))])
		panic(http.ErrAbortHandler)
	})
}

// A body that breaks off is continued where it stopped, however often, as long as something comes.
func TestCutBodies(t *testing.T) {
	server, h, _ := start(t)
	cut(server, 300_000, 8)
	s := open(t, h, model)
	require.NoError(t, s.Get(t.Context(), "model.safetensors"))
	requireFiles(t, s, "model.safetensors")
	var ranges []string
	for _, r := range server.Requests() {
		if r.Store {
			ranges = append(ranges, r.Range)
		}
	}
	require.Len(t, ranges, 9)
	require.Equal(t, []string{"", "bytes=300000-", "bytes=600000-"}, ranges[:3])

	// Where nothing comes any more, an end comes.
	h.Cache = t.TempDir()
	cut(server, 0, 1000)
	s = open(t, h, model)
	err := s.Get(t.Context(), "model.safetensors")
	require.ErrorIs(t, err, hub.ErrUnreachable)
	require.NoFileExists(t, filepath.Join(s.Dir(), "model.safetensors"))
	n := 0
	for _, r := range server.Requests() {
		if r.Store {
			n++
		}
	}
	require.LessOrEqual(t, n, 2*h.Attempts, "package http asks again of its own accord, too")
}

// What an earlier process has left is continued, by another one too; what is wrong in it is found.
func TestResume(t *testing.T) {
	server, h, _ := start(t)
	blob := filepath.Join(h.Cache, "models--org--model", "blobs", hubtest.SHA256(weights))
	for _, test := range []struct {
		name   string
		left   []byte
		ranges []string
	}{
		{"half", weights[:1_000_000], []string{"bytes=1000000-"}},
		{"all", weights, nil},
		{"wrong", bytes.Repeat([]byte("x"), 1000), []string{"bytes=1000-", ""}},
		{"too long", append(bytes.Clone(weights), 1), []string{""}},
	} {
		require.NoError(t, os.RemoveAll(h.Cache))
		require.NoError(t, os.MkdirAll(filepath.Dir(blob), 0o777))
		require.NoError(t, os.WriteFile(blob+".incomplete", test.left, 0o666))
		s := open(t, h, model)
		require.NoError(t, s.Get(t.Context(), "model.safetensors"), test.name)
		requireFiles(t, s, "model.safetensors")
		require.NoFileExists(t, blob+".incomplete")
		var ranges []string
		for _, r := range server.Requests() {
			if r.Store {
				ranges = append(ranges, r.Range)
			}
		}
		require.Equal(t, test.ranges, ranges, test.name)
	}
	// A server that does not know ranges sends all of it.
	require.NoError(t, os.RemoveAll(h.Cache))
	require.NoError(t, os.MkdirAll(filepath.Dir(blob), 0o777))
	require.NoError(t, os.WriteFile(blob+".incomplete", weights[:1000], 0o666))
	server.SetFault(func(w http.ResponseWriter, r *http.Request) bool {
		r.Header.Del("Range")
		return false
	})
	s := open(t, h, model)
	require.NoError(t, s.Get(t.Context(), "model.safetensors"))
	requireFiles(t, s, "model.safetensors")
}

// Bytes that are not those that the hub says never come into a snapshot.
func TestDamaged(t *testing.T) {
	for name, wrong := range map[string]func(b []byte) []byte{
		"changed": func(b []byte) []byte { b = bytes.Clone(b); b[len(b)/2] ^= 1; return b },
		"longer":  func(b []byte) []byte { return append(bytes.Clone(b), '!') },
	} {
		for _, file := range []string{"config.json", "model.safetensors"} {
			server, h, _ := start(t)
			server.SetFault(func(w http.ResponseWriter, r *http.Request) bool {
				of := strings.HasSuffix(r.URL.Path, "/"+file) || strings.HasSuffix(r.URL.Path, hubtest.SHA256(weights))
				if r.Method != http.MethodGet || !of {
					return false
				}
				if file == "model.safetensors" && strings.Contains(r.URL.Path, "/resolve/") {
					return false
				}
				_, _ = w.Write(wrong(content()[file]))
				return true
			})
			s := open(t, h, model)
			err := s.Get(t.Context(), file)
			require.ErrorIs(t, err, hub.ErrDamaged, "%s %s", name, file)
			require.ErrorContains(t, err, model+": "+file+": ")
			require.NoFileExists(t, filepath.Join(s.Dir(), file))
			server.SetFault(nil)
			require.NoError(t, s.Get(t.Context(), file), "%s %s", name, file)
			requireFiles(t, s, file)
		}
	}
}
