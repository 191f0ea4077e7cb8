package encode

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode/hub"
	"github.com/plaid-ir/plaid/encode/modeldir"
	"github.com/plaid-ir/plaid/internal/testing/hubtest"
)

// golden are folders of models in the repository.
func golden(name string) string { return filepath.Join("testdata", "golden", name) }

// hubOf serves the folders as models, and has an empty cache.
func hubOf(t *testing.T, names ...string) (*hubtest.Hub, *hub.Hub) {
	server := hubtest.New()
	t.Cleanup(server.Close)
	for _, name := range names {
		_, err := server.AddFolder("org/"+name, "main", golden(name))
		require.NoError(t, err)
	}
	return server, &hub.Hub{Endpoint: server.URL, Cache: t.TempDir(), Attempts: 1}
}

// A model by its name is the one of its folder: fingerprint and vectors. Nothing is asked for twice.
func TestOpenByName(t *testing.T) {
	names := []string{"stanford", "pylate-heads", "sentence-modernbert", "xlmr"}
	server, h := hubOf(t, names...)
	for _, name := range names {
		folder, err := Open(golden(name), nil)
		require.NoError(t, err)
		require.Empty(t, folder.Config().Name)
		for range 2 {
			e, err := Open("org/"+name, &Options{Hub: h})
			require.NoError(t, err)
			c := e.Config()
			require.Regexp(t, `^org/`+name+`@[0-9a-f]{40}$`, c.Name)
			require.Equal(t, folder.Config().Fingerprint, c.Fingerprint)
			require.Equal(t, folder.Config().Warnings, c.Warnings)
			want, err := folder.Query(t.Context(), "a bird sings")
			require.NoError(t, err)
			got, err := e.Query(t.Context(), "a bird sings")
			require.NoError(t, err)
			require.Equal(t, want, got)
			require.NoError(t, e.Close())
			asked := map[string]bool{}
			for _, r := range server.Requests() {
				require.False(t, asked[r.Path], r.Path)
				asked[r.Path] = true
			}
			require.NotContains(t, asked, "/org/"+name+"/resolve/"+c.Name[len(c.Name)-40:]+"/README.md")
		}
		require.Empty(t, server.Requests())
		require.NoError(t, folder.Close())
	}
}

// What a model is, is known before its weights are fetched.
func TestFindModel(t *testing.T) {
	server, h := hubOf(t, "pylate-heads")
	m, err := FindModel(t.Context(), "org/pylate-heads", &Options{Hub: h})
	require.NoError(t, err)
	weights, err := m.WeightFiles(t.Context())
	require.NoError(t, err)
	require.Greater(t, len(weights), 1)
	for _, f := range weights {
		require.False(t, f.Cached)
		info, err := os.Stat(filepath.Join(golden("pylate-heads"), filepath.FromSlash(f.Path)))
		require.NoError(t, err)
		require.Equal(t, info.Size(), f.Bytes)
	}
	for _, r := range server.Requests() {
		require.False(t, r.Store, "no weights yet: %s", r.Path)
	}
	require.NoError(t, m.Fetch(t.Context()))
	weights, err = m.WeightFiles(t.Context())
	require.NoError(t, err)
	for _, f := range weights {
		require.True(t, f.Cached)
	}
	m, err = FindModel(t.Context(), golden("pylate-heads"), nil)
	require.NoError(t, err)
	require.NoError(t, m.Fetch(t.Context()))
	weights, err = m.WeightFiles(t.Context())
	require.NoError(t, err)
	require.Nil(t, weights)
}

// The error of a name that there is not has the one that may have been meant.
func TestNearName(t *testing.T) {
	_, h := hubOf(t, "stanford")
	for name, near := range map[string]string{
		"colbert-ir/colbertv2": "colbert-ir/colbertv2.0", "answerai-colbert-small-v1": "answerdotai/answerai-colbert-small-v1",
	} {
		_, err := FindModel(t.Context(), name, &Options{Hub: h})
		require.ErrorIs(t, err, fs.ErrNotExist)
		require.ErrorContains(t, err, "; did you mean "+near+"?")
	}
	for _, name := range []string{"org/none", "none", "./colbertv2/none"} {
		_, err := FindModel(t.Context(), name, &Options{Hub: h})
		require.ErrorIs(t, err, fs.ErrNotExist)
		require.NotContains(t, err.Error(), "did you mean")
	}
}

// The error of a folder without a model says that it stands before the name of one.
func TestFolderBeforeName(t *testing.T) {
	_, h := hubOf(t, "stanford")
	t.Chdir(t.TempDir())
	require.NoError(t, os.MkdirAll("org/stanford", 0o700))
	_, err := FindModel(t.Context(), "org/stanford", &Options{Hub: h})
	require.ErrorIs(t, err, modeldir.ErrIncomplete)
	require.ErrorContains(t, err, "; a folder goes before the hub's model of that name")
	_, err = FindModel(t.Context(), "./org/stanford", &Options{Hub: h})
	require.ErrorIs(t, err, modeldir.ErrIncomplete)
	require.NotContains(t, err.Error(), "hub")
	require.NoError(t, os.WriteFile("org/stanford/config.json", []byte("{}"), 0o600)) // meant as one
	_, err = FindModel(t.Context(), "org/stanford", &Options{Hub: h})
	require.ErrorIs(t, err, modeldir.ErrIncomplete)
	require.NotContains(t, err.Error(), "hub")
}

// A kind of model that is not computed is found out by its settings alone.
func TestUnreadableByName(t *testing.T) {
	server, h := hubOf(t, "stanford")
	server.Add("org/other", "main", map[string][]byte{
		"config.json":    []byte(`{"model_type": "nosuch", "architectures": ["HF_ColBERT"]}`),
		"tokenizer.json": []byte("{}"), "model.safetensors": make([]byte, 100),
	})
	_, err := Open("org/other", &Options{Hub: h})
	require.ErrorIs(t, err, modeldir.ErrFamily)
	for _, r := range server.Requests() {
		require.False(t, r.Store, "%s: weights of a model that cannot be read", r.Path)
	}
}

// A part of a model in the cache is completed, or without network the error says that it is a part.
func TestPartInCache(t *testing.T) {
	_, h := hubOf(t, "pylate-heads")
	n, _ := hub.Parse("org/pylate-heads")
	s, err := h.Open(t.Context(), n)
	require.NoError(t, err)
	require.NoError(t, s.Get(t.Context(), "config.json", "model.safetensors"))
	require.NoError(t, s.RecordRevision())
	offline := *h
	offline.Offline = "HF_HUB_OFFLINE=1"
	_, err = Open("org/pylate-heads", &Options{Hub: &offline})
	require.ErrorIs(t, err, modeldir.ErrIncomplete)
	require.ErrorIs(t, err, hub.ErrOffline)
	require.ErrorContains(t, err, "the cache has a part of the model: org/pylate-heads: ")
	// What would be read another way without a file of the hub is completed too.
	require.NoError(t, s.Get(t.Context(), "tokenizer.json", "config_sentence_transformers.json"))
	m, err := FindModel(t.Context(), "org/pylate-heads", &Options{Hub: &offline})
	require.NoError(t, err)
	require.Len(t, m.Warnings, 1)
	require.Contains(t, m.Warnings[0], "taken not to have modules.json")
	e, err := Open("org/pylate-heads", &Options{Hub: h})
	require.NoError(t, err)
	require.Len(t, e.Config().Dense, len(m.Dense)+3)
	require.NoError(t, e.Close())
	e, err = Open("org/pylate-heads", &Options{Hub: &offline})
	require.NoError(t, err)
	require.Empty(t, e.Config().Warnings)
	require.NoError(t, e.Close())
}

// A folder goes before a name, and a context ends a download.
func TestNamesAndFolders(t *testing.T) {
	server, h := hubOf(t, "stanford")
	from, err := filepath.Abs(golden("stanford"))
	require.NoError(t, err)
	t.Chdir(t.TempDir())
	require.NoError(t, os.CopyFS(filepath.Join("org", "stanford"), os.DirFS(from)))
	e, err := Open("org/stanford", &Options{Hub: h})
	require.NoError(t, err)
	require.Empty(t, e.Config().Name)
	require.NoError(t, e.Close())
	_, err = Open("./org/none", &Options{Hub: h})
	require.ErrorIs(t, err, os.ErrNotExist)
	var named *hub.Error
	require.False(t, errors.As(err, &named))
	require.Empty(t, server.Requests())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = OpenContext(ctx, "org/other", &Options{Hub: h})
	require.ErrorIs(t, err, context.Canceled)
}
