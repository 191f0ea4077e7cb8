package daemon_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cmd/plaid/daemon"
	"github.com/plaid-ir/plaid/server"
)

// statusOf sends a GET with headers, and returns the status.
func statusOf(t *testing.T, url string, headers ...string) int {
	t.Helper()
	r, err := http.NewRequest("GET", url, nil)
	require.NoError(t, err)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
		if name == "Host" {
			r.Host = value
		}
	}
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	return answer.StatusCode
}

// A variable for tokens that is empty is a mistake, and no permission for everybody.
func TestEmptyTokens(t *testing.T) {
	for _, text := range []string{"", " ", "\n", "# none"} {
		environ := []string{"PLAID_SERVE_TOKENS=" + text}
		c, err := config(t, environ)
		require.NoError(t, err)
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		require.ErrorIs(t, daemon.Run(ctx, c, io.Discard, environ, nil), server.ErrTokens, "%q", text)
		stop()
	}
}

// Whoever only reaches this machine by a name that points to it may not use a service
// without tokens.
func TestHostsWithoutTokens(t *testing.T) {
	for _, listen := range []string{"127.0.0.1:0", "0.0.0.0:0"} { // the second as in a container
		address, _, _ := run(t, nil, "--listen", listen)
		_, port, err := net.SplitHostPort(address)
		require.NoError(t, err)
		at := "http://127.0.0.1:" + port
		for path, status := range map[string]int{"/indices": 200, "/metrics": 200, "/ui": 200, "/livez": 200, "/mcp": 405} {
			require.Equal(t, 403, statusOf(t, at+path, "Host: evil.example"), "%s at %s", path, listen)
			require.Equal(t, status, statusOf(t, at+path, "Host: localhost:8080"), "%s at %s", path, listen)
			require.Equal(t, status, statusOf(t, at+path), "%s at %s", path, listen)
		}
	}
	named, _, _ := run(t, nil, "--hosts", "plaid.example,*.plaid.example")
	require.Equal(t, 200, statusOf(t, "http://"+named+"/indices", "Host: plaid.example"))
	require.Equal(t, 403, statusOf(t, "http://"+named+"/indices", "Host: evil.example"))
	trusted, _, _ := run(t, []string{"PLAID_SERVE_TOKENS=e read envi-envi-envi-envi"})
	require.Equal(t, 200, statusOf(t, "http://"+trusted+"/indices", "Host: evil.example", "Authorization: Bearer envi-envi-envi-envi"))
	_, err := config(t, nil, "--hosts", "http://x")
	require.Error(t, err)
}

// A signal has tokens and certificates read again, though their files look as they did.
func TestReload(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "tokens")
	cert, key := writeCertificate(t, dir, 1)
	was := time.Now().Add(-time.Hour)
	write := func(secret string, serial int64) {
		require.NoError(t, os.WriteFile(path, []byte("a read "+secret), 0o600))
		writeCertificate(t, dir, serial)
		for _, file := range []string{path, cert, key} {
			require.NoError(t, os.Chtimes(file, was, was))
		}
	}
	write("first-first-first", 1)
	reload := make(chan os.Signal)
	c, err := config(t, nil, "--tokens-file", path, "--tls-cert", cert, "--tls-key", key)
	require.NoError(t, err)
	c.Reload = reload
	address, stop := start(t, c, io.Discard, nil)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	status := func(secret string) int {
		r, err := http.NewRequest("GET", "https://"+address+"/indices", nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+secret)
		answer, err := client.Do(r)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		return answer.StatusCode
	}
	require.Equal(t, 200, status("first-first-first"))
	write("other-other-other", 2)
	reload <- syscall.SIGHUP
	reload <- syscall.SIGHUP // the first one is done
	require.Equal(t, 401, status("first-first-first"))
	require.Equal(t, 200, status("other-other-other"))
	require.EqualValues(t, 2, serial(t, address))
	client.CloseIdleConnections()
	require.NoError(t, stop())
}

// A log as JSON has times as numbers of milliseconds, and says so.
func TestLogTimes(t *testing.T) {
	var b bytes.Buffer
	daemon.Logger(&b, "json", "info").Info("request", "took", 1500*time.Microsecond)
	require.Contains(t, b.String(), `"took_ms":1.5`)
	b.Reset()
	daemon.Logger(&b, "text", "info").Info("request", "took", 1500*time.Microsecond)
	require.Contains(t, b.String(), "took=1.5ms")
}

// A service is asked where its settings say that it is.
func TestReady(t *testing.T) {
	status := http.StatusOK
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/below/readyz" {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		w.WriteHeader(status)
		fmt.Fprint(w, "because")
	})
	plain, secure := httptest.NewServer(handler), httptest.NewTLSServer(handler)
	defer plain.Close()
	defer secure.Close()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	on := &http.Server{Handler: handler}
	go func() { _ = on.Serve(l) }()
	defer on.Close()
	_, port, err := net.SplitHostPort(strings.TrimPrefix(plain.URL, "http://"))
	require.NoError(t, err)
	for _, c := range []daemon.Config{
		{Listen: strings.TrimPrefix(plain.URL, "http://")},
		{Listen: ":" + port}, {Listen: "0.0.0.0:" + port},
		{Listen: strings.TrimPrefix(secure.URL, "https://"), TLSCert: "x"},
		{Listen: "unix:" + socket},
	} {
		c.BasePath = "/below"
		status = http.StatusOK
		require.NoError(t, daemon.Ready(t.Context(), &c), c.Listen)
		status = http.StatusServiceUnavailable
		require.ErrorContains(t, daemon.Ready(t.Context(), &c), "not ready: 503 Service Unavailable: because")
		ended, end := context.WithCancel(t.Context())
		end()
		require.ErrorIs(t, daemon.Ready(ended, &c), context.Canceled)
	}
	require.ErrorIs(t, daemon.Ready(t.Context(), &daemon.Config{Listen: "nowhere"}), daemon.ErrConfig)
}
