package hub_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode/hub"
	"github.com/plaid-ir/plaid/internal/testing/hubtest"
)

// A status that may pass is asked again, one that does not is an error at once.
func TestStatuses(t *testing.T) {
	server, h, _ := start(t)
	left := 2
	server.SetFault(func(w http.ResponseWriter, r *http.Request) bool {
		if left--; left >= 0 {
			hubtest.Refuse(w, http.StatusServiceUnavailable, "", "busy")
		}
		return left >= 0
	})
	require.NoError(t, open(t, h, model).Get(t.Context(), "config.json"))
	left = 1000
	h.Cache = t.TempDir()
	_, err := find(t.Context(), h, model)
	require.ErrorIs(t, err, hub.ErrStatus)
	require.ErrorContains(t, err, "503 Service Unavailable: busy")
	require.Equal(t, 1000-3, left)
	server.SetFault(func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusTeapot)
		left--
		return true
	})
	_, err = find(t.Context(), h, model)
	require.ErrorIs(t, err, hub.ErrStatus)
	require.Equal(t, 1000-4, left)
}

// Errors name what is missing, and a cure.
func TestRefused(t *testing.T) {
	server, h, _ := start(t)
	server.Add("org/gated", "main", content())
	server.Gate("org/gated", "right")
	for _, test := range []struct {
		name, token string
		kind        error
		says        []string
	}{
		{"org/none", "", hub.ErrRepository, []string{
			"org/none: the hub has no such model", "no folder org/none", server.URL, "HF_TOKEN has to be set",
		}},
		{"org/none", "x", hub.ErrRepository, []string{"or a private one that the token may not read"}},
		{"org/model@none", "", hub.ErrRevision, []string{"none is neither branch, tag nor commit of org/model"}},
		{"org/gated", "", hub.ErrGated, []string{"accept the terms at " + server.URL + "/org/gated", "HF_TOKEN"}},
		{"org/gated", "wrong", hub.ErrGated, []string{"the account of the token has to accept the terms"}},
	} {
		h.Token = test.token
		_, err := find(t.Context(), h, test.name)
		require.ErrorIs(t, err, test.kind, test.name)
		var he *hub.Error
		require.ErrorAs(t, err, &he)
		require.Equal(t, test.name, he.Name.String())
		for _, s := range test.says {
			require.ErrorContains(t, err, s)
		}
		require.NotContains(t, err.Error(), "wrong", "a token is not for errors")
		require.Equal(t, test.kind != hub.ErrGated, errors.Is(err, fs.ErrNotExist))
	}
	h.Token = ""
	// Anybody may read the list of a gated model, as a rule, and its files may not be read.
	server.SetFault(func(w http.ResponseWriter, r *http.Request) bool {
		gated := strings.Contains(r.URL.Path, "/resolve/")
		if gated {
			hubtest.Refuse(w, http.StatusUnauthorized, "GatedRepo", "Access to model org/model is restricted.")
		}
		return gated
	})
	err := open(t, h, model).Get(t.Context(), "config.json")
	require.ErrorIs(t, err, hub.ErrGated)
	require.ErrorContains(t, err, "org/model: config.json: the model is gated: 401 Unauthorized: "+
		"Access to model org/model is restricted. (accept the terms at ")
	server.SetFault(nil)
	require.ErrorIs(t, open(t, h, model).Get(t.Context(), "none.json"), hub.ErrFile)
	// A commit that neither the model nor the cache has.
	_, err = open(t, h, model+"@"+strings.Repeat("0", 40)).Has(t.Context(), "config.json")
	require.ErrorIs(t, err, hub.ErrRevision)
	server.SetFault(func(w http.ResponseWriter, _ *http.Request) bool {
		hubtest.Refuse(w, http.StatusUnauthorized, "", "Invalid credentials in Authorization header")
		return true
	})
	_, err = find(t.Context(), h, "org/gated")
	require.ErrorIs(t, err, hub.ErrToken)
}

// An address that is none is an error that names it and the variable, and is not tried again.
func TestEndpointIsNone(t *testing.T) {
	_, h, _ := start(t)
	h.Attempts, h.Backoff = 2, time.Hour
	for _, endpoint := range []string{"hub.example", "127.0.0.1:80", "ftp://hub.example", "http://", "/a/folder", "http://a b"} {
		h.Endpoint = endpoint
		_, err := find(t.Context(), h, model)
		require.ErrorIs(t, err, hub.ErrEndpoint, endpoint)
		require.ErrorContains(t, err, endpoint)
		require.ErrorContains(t, err, "HF_ENDPOINT")
	}
}

// Where the newest commit is asked for and there is no network, the error does not say that the cache lacks the model.
func TestNewestOffline(t *testing.T) {
	server, h, commit := start(t)
	s := open(t, h, model)
	require.NoError(t, s.Get(t.Context(), all()...))
	require.NoError(t, s.RecordRevision())
	h.Refresh = true
	check := func(kind error) {
		t.Helper()
		_, err := find(t.Context(), h, model)
		require.ErrorIs(t, err, kind)
		require.NotErrorIs(t, err, fs.ErrNotExist)
		require.NotContains(t, err.Error(), "lacks")
		require.ErrorContains(t, err, "the newest commit is asked for, and "+kind.Error())
		require.ErrorContains(t, err, "the cache has commit "+commit)
	}
	h.Offline = "HF_HUB_OFFLINE=1"
	check(hub.ErrOffline)
	h.Offline = ""
	server.Close()
	check(hub.ErrUnreachable)
}

// Answers that are none of a hub's are not taken for one.
func TestStrangeAnswers(t *testing.T) {
	server, h, commit := start(t)
	answer := func(s string) {
		server.SetFault(func(w http.ResponseWriter, _ *http.Request) bool { _, _ = io.WriteString(w, s); return true })
	}
	upper := `{"sha": "` + strings.ToUpper(commit) + `x"}`
	for _, s := range []string{"", "<html>", "[]", "{}", `{"sha": "../../x"}`, upper} {
		answer(s)
		_, err := find(t.Context(), h, model)
		require.ErrorIs(t, err, hub.ErrAnswer, s)
	}
	answer(`{"sha": "` + commit + `", "siblings": [{"rfilename": "` + strings.Repeat("x", 17<<20) + `"}]}`)
	_, err := find(t.Context(), h, model)
	require.ErrorIs(t, err, hub.ErrTooLarge)
	// Paths that lead out of the folder are not files of the model.
	answer(`{"sha": "` + commit + `", "siblings": [
		{"rfilename": "../../x", "size": 1, "blobId": "` + commit + `"}, {"rfilename": "/x"}, {"rfilename": "a\\b"},
		{"rfilename": "huge.json", "size": 1000000000, "blobId": "` + commit + `"}]}`)
	s := open(t, h, model)
	for _, name := range []string{"../../x", "/x", `a\b`} {
		require.ErrorIs(t, s.Get(t.Context(), name), hub.ErrFile, name)
	}
	require.ErrorIs(t, s.Get(t.Context(), "huge.json"), hub.ErrTooLarge)
}

// Without network the cache does, or the error says how to fill it.
func TestOffline(t *testing.T) {
	server, h, commit := start(t)
	offline := *h
	offline.Offline = "HF_HUB_OFFLINE=1"
	_, err := find(t.Context(), &offline, model)
	require.ErrorIs(t, err, hub.ErrOffline)
	require.ErrorIs(t, err, fs.ErrNotExist)
	for _, s := range []string{
		"HF_HUB_OFFLINE=1", "looked in " + h.Cache, "hf download org/model fetches it", "models--org--model",
	} {
		require.ErrorContains(t, err, s)
	}
	_, err = find(t.Context(), &offline, model+"@v1")
	require.ErrorContains(t, err, "hf download org/model --revision v1 fetches it")

	s := open(t, h, model)
	require.NoError(t, s.Get(t.Context(), "config.json"))
	require.NoError(t, s.RecordRevision())
	server.Close()
	unreachable := *h
	for _, none := range []*hub.Hub{&offline, &unreachable} {
		s := open(t, none, model)
		require.Equal(t, commit, s.Commit)
		require.NoError(t, s.Get(t.Context(), "config.json"))
		has, err := s.Has(t.Context(), "modules.json")
		require.NoError(t, err)
		require.False(t, has)
		guessed, why := s.AssumedMissing()
		require.Equal(t, []string{"modules.json"}, guessed)
		kind := map[bool]error{true: hub.ErrOffline, false: hub.ErrUnreachable}[none.Offline != ""]
		require.ErrorIs(t, why, kind)
		require.ErrorIs(t, s.Get(t.Context(), "model.safetensors"), kind)
	}
	_, err = find(t.Context(), &unreachable, "org/other")
	require.ErrorIs(t, err, hub.ErrUnreachable)
	require.ErrorContains(t, err, "hf download org/other fetches it")
}

// Without a home folder there is no cache, and none is made of that name.
func TestNoHome(t *testing.T) {
	_, h, _ := start(t)
	t.Chdir(t.TempDir())
	h.Cache = filepath.Join("~", ".cache", "huggingface", "hub")
	s := open(t, h, model)
	has, err := s.Has(t.Context(), "modules.json")
	require.NoError(t, err)
	require.False(t, has)
	require.ErrorContains(t, s.Get(t.Context(), "config.json"), "HF_HOME names another one")
	require.NoDirExists(t, "~")
}

// A hub that says nothing is not waited for without end.
func TestStalled(t *testing.T) {
	server, h, _ := start(t)
	h.AnswerTimeout, h.ReadTimeout, h.Attempts = 20*time.Millisecond, 20*time.Millisecond, 2
	wait := make(chan struct{})
	server.SetFault(func(_ http.ResponseWriter, r *http.Request) bool { <-wait; return true })
	_, err := find(t.Context(), h, model)
	require.ErrorIs(t, err, hub.ErrUnreachable)
	require.ErrorContains(t, err, "no answer in time")
	close(wait)
	server.SetFault(nil)
	h.AnswerTimeout = time.Minute
	s := open(t, h, model)
	wait = make(chan struct{})
	defer close(wait)
	server.SetFault(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, hubtest.SHA256(weights)) {
			return false
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(weights)))
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-wait
		return true
	})
	err = s.Get(t.Context(), "model.safetensors")
	require.ErrorIs(t, err, hub.ErrUnreachable)
	require.ErrorContains(t, err, "no answer in time")
}

// A context that ends ends a download, which another continues.
func TestCancelled(t *testing.T) {
	server, h, _ := start(t)
	s := open(t, h, model)
	ctx, cancel := context.WithCancel(t.Context())
	h.Progress = func(p hub.Progress) {
		if p.Done > 0 {
			cancel()
		}
	}
	wait := make(chan struct{})
	server.SetFault(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, hubtest.SHA256(weights)) && r.Header.Get("Range") == "" {
			w.Header().Set("Content-Length", fmt.Sprint(len(weights)))
			_, _ = w.Write(weights[:1_000_000])
			w.(http.Flusher).Flush()
			<-wait
			return true
		}
		return false
	})
	require.ErrorIs(t, s.Get(ctx, "model.safetensors"), context.Canceled)
	close(wait)
	server.Requests()
	require.NoError(t, s.Get(t.Context(), "model.safetensors"))
	requireFiles(t, s, "model.safetensors")
	last := server.Requests()
	require.True(t, strings.HasPrefix(last[len(last)-1].Range, "bytes="))
	_, err := find(ctx, h, "org/other")
	require.ErrorIs(t, err, context.Canceled)
}

// A body that is too long, as of a page in the place of a file, leaves nothing that the next attempt would continue.
func TestLongerOnce(t *testing.T) {
	server, h, _ := start(t)
	left := 1
	server.SetFault(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, hubtest.SHA256(weights)) || left == 0 {
			return false
		}
		left--
		_, _ = fmt.Fprint(w, strings.Repeat("<", len(weights)-100))
		w.(http.Flusher).Flush()
		_, _ = fmt.Fprint(w, strings.Repeat(">", 5<<20))
		return true
	})
	s := open(t, h, model)
	require.NoError(t, s.Get(t.Context(), "model.safetensors"))
	requireFiles(t, s, "model.safetensors")
}
