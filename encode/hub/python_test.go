package hub_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode/hub"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/hubtest"
	"github.com/plaid-ir/plaid/internal/testing/pyenv"
)

// The caches are those of the package huggingface_hub: what either has fetched the other one uses
// without network, and both wait for the same locks.
func TestPythonsCache(t *testing.T) {
	if !effort.Long() {
		t.Skip("installs a package of Python; PLAID_LONG=1 does")
	}
	python := pyenv.Python(t, "testdata/requirements.txt")
	server, h, commit := start(t)
	ask := func(cache string, env []string, code string) string {
		t.Helper()
		env = append(env, "HF_ENDPOINT="+server.URL, "HF_HUB_CACHE="+cache, "HF_HUB_DISABLE_TELEMETRY=1",
			"HF_HUB_DISABLE_UPDATE_CHECK=1", "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1", "HF_HUB_DISABLE_XET=1", "HF_HUB_DISABLE_PROGRESS_BARS=1")
		out, err := pyenv.Run(env, python, "-c", "from huggingface_hub import *\nname = 'org/model'\n"+code)
		require.NoError(t, err, out)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		return lines[len(lines)-1]
	}

	// From plaid to Python.
	s := open(t, h, model)
	has, err := s.Has(t.Context(), "modules.json")
	require.NoError(t, err)
	require.False(t, has)
	require.NoError(t, s.Get(t.Context(), all()...))
	require.NoError(t, s.RecordRevision())
	server.Requests()
	require.Equal(t, s.Dir(), ask(h.Cache, nil, "print(snapshot_download(name, local_files_only=True))"))
	require.Equal(t, s.Dir(), ask(h.Cache, []string{"HF_HUB_OFFLINE=1"}, "print(snapshot_download(name))"))
	pinned := "print(snapshot_download(name, revision='" + commit + "', local_files_only=True))"
	require.Equal(t, s.Dir(), ask(h.Cache, nil, pinned))
	require.Equal(t, filepath.Join(s.Dir(), "1_Dense", "model.safetensors"),
		ask(h.Cache, nil, "print(hf_hub_download(name, '1_Dense/model.safetensors', local_files_only=True))"))
	require.Equal(t, "True", ask(h.Cache, nil, "print(try_to_load_from_cache(name, 'modules.json') is _CACHED_NO_EXIST)"))
	scan := "i = scan_cache_dir()\nr, = i.repos\nv, = r.revisions\nprint(len(r.revisions), len(v.files), i.warnings)"
	require.Equal(t, "1 7 []", ask(h.Cache, nil, scan))
	for _, r := range server.Requests() {
		require.NotContains(t, r.Path, "/org/model", "the package asks for other things, too")
	}
	// Online it asks, and fetches nothing again.
	require.Equal(t, s.Dir(), ask(h.Cache, nil, "print(snapshot_download(name))"))
	for _, r := range server.Requests() {
		require.False(t, r.Store, r)
	}

	// From Python to plaid.
	for name, code := range map[string]string{
		"snapshot": "print(snapshot_download(name))",
		"files":    "for f in list_repo_files(name): p = hf_hub_download(name, f)\nimport os\nprint('%s')",
	} {
		cache := t.TempDir()
		other := &hub.Hub{Endpoint: server.URL, Cache: cache, Offline: "the test"}
		dir := filepath.Join(cache, "models--org--model", "snapshots", commit)
		require.Equal(t, dir, ask(cache, nil, strings.ReplaceAll(code, "%s", dir)), name)
		s := open(t, other, model)
		require.Equal(t, dir, s.Dir())
		require.NoError(t, s.Get(t.Context(), all()...))
		requireFiles(t, s, all()...)
		has, err := s.Has(t.Context(), "modules.json")
		require.NoError(t, err)
		require.False(t, has)
		guessed, _ := s.AssumedMissing()
		if name == "snapshot" { // which leaves a list
			require.Empty(t, guessed)
		}
	}

	// Python waits while plaid fetches: the lock is the same.
	cache := t.TempDir()
	path := filepath.Join(cache, ".locks", "models--org--model", hubtest.SHA256(weights)+".lock")
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
	held := "import filelock\nl = filelock.FileLock('" + filepath.ToSlash(path) + "')\n" +
		"try:\n  l.acquire(timeout=0.1)\n  print('free')\nexcept filelock.Timeout:\n  print('held')"
	require.Equal(t, "free", ask(cache, nil, held))
	release := lock(t, path)
	require.Equal(t, "held", ask(cache, nil, held))
	release()
	require.Equal(t, "free", ask(cache, nil, held))
}
