package daemon_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cmd/plaid/daemon"
)

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
