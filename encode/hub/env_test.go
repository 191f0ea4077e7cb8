package hub_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode/hub"
)

// variables are those that FromEnv reads.
var variables = []string{
	"HF_ENDPOINT", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME", "HF_TOKEN",
	"HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH",
	"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_DISABLE_SYMLINKS", "HF_HUB_DISABLE_IMPLICIT_TOKEN",
	"HF_HUB_ETAG_TIMEOUT", "HF_HUB_DOWNLOAD_TIMEOUT",
}

// environment sets the variables, those that are not named to nothing, and HOME to a new folder.
func environment(t *testing.T, pairs ...string) (home string) {
	for _, name := range variables {
		t.Setenv(name, "")
	}
	home = t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("USERPROFILE", home)
	for _, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		t.Setenv(name, value)
	}
	return home
}

func TestEnvironment(t *testing.T) {
	home := environment(t)
	h := hub.FromEnv()
	require.Equal(t, filepath.Join(home, ".cache", "huggingface", "hub"), h.Cache)
	require.Equal(t, hub.DefaultEndpoint, h.Endpoint)
	require.Empty(t, h.Token+h.Offline)
	require.False(t, h.NoLinks)

	sep := string(filepath.Separator)
	for _, test := range []struct{ cache, pairs string }{
		{"/x/huggingface/hub", "XDG_CACHE_HOME=/x"},
		{"/x/hub", "HF_HOME=/x XDG_CACHE_HOME=/y"},
		{"/x", "HF_HUB_CACHE=/x HF_HOME=/y HUGGINGFACE_HUB_CACHE=/z"},
		{"/x", "HUGGINGFACE_HUB_CACHE=/x HF_HOME=/y"},
		{"~/x", "HF_HUB_CACHE=~/x"},
		{"~/x/hub", "HF_HOME=~/x"},
		{"/a/x/hub", "PLACE=/a HF_HOME=$PLACE/x"},
		{"/a/x", "PLACE=/a HF_HUB_CACHE=${PLACE}/x"},
		{"/$NOWHERE/x", "HF_HUB_CACHE=/$NOWHERE/x"},
	} {
		home := environment(t, strings.Fields(test.pairs)...)
		want := filepath.FromSlash(strings.Replace(test.cache, "~", home, 1))
		require.Equal(t, want, filepath.FromSlash(strings.ReplaceAll(hub.FromEnv().Cache, "/", sep)), test.pairs)
	}

	environment(t, "HF_ENDPOINT=https://mirror.example/hub/", "HF_HUB_ETAG_TIMEOUT=3",
		"HF_HUB_DOWNLOAD_TIMEOUT=7", "HF_HUB_DISABLE_SYMLINKS=yes")
	h = hub.FromEnv()
	require.Equal(t, "https://mirror.example/hub", h.Endpoint)
	require.Equal(t, []time.Duration{3 * time.Second, 7 * time.Second}, []time.Duration{h.AnswerTimeout, h.ReadTimeout})
	require.True(t, h.NoLinks)

	for pairs, want := range map[string]string{
		"HF_HUB_OFFLINE=1": "HF_HUB_OFFLINE=1", "HF_HUB_OFFLINE=true": "HF_HUB_OFFLINE=true", "HF_HUB_OFFLINE=0": "",
		"TRANSFORMERS_OFFLINE=On":                 "TRANSFORMERS_OFFLINE=On",
		"HF_HUB_OFFLINE=0 TRANSFORMERS_OFFLINE=1": "", "HF_HUB_OFFLINE=maybe": "",
	} {
		environment(t, strings.Fields(pairs)...)
		require.Equal(t, want, hub.FromEnv().Offline, pairs)
	}
}

func TestTokenOfEnvironment(t *testing.T) {
	home := environment(t)
	write := func(path, token string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
		require.NoError(t, os.WriteFile(path, []byte(token), 0o600))
	}
	write(filepath.Join(home, ".cache", "huggingface", "token"), "of-file\r\n")
	write(filepath.Join(home, "elsewhere"), " of-path \n")
	require.Equal(t, "of-file", hub.FromEnv().Token)
	t.Setenv("HF_TOKEN_PATH", filepath.Join(home, "elsewhere"))
	require.Equal(t, "of-path", hub.FromEnv().Token)
	t.Setenv("HUGGING_FACE_HUB_TOKEN", "older")
	require.Equal(t, "older", hub.FromEnv().Token)
	t.Setenv("HF_TOKEN", " own\n")
	require.Equal(t, "own", hub.FromEnv().Token)
	t.Setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")
	require.Empty(t, hub.FromEnv().Token)
}
