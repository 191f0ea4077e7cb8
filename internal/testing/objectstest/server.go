package objectstest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/plaid-ir/plaid/internal/testing/freeports"
)

// gateway is the S3 server that tests run: a separate program, which no module of
// this repository contains.
const gateway = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"

// program returns the path of the S3 server: PLAID_S3_SERVER, or a program that is built from its module. If
// it cannot be built, the test is skipped, or fails if PLAID_REQUIRE_S3 is set.
func program(t testing.TB) string {
	t.Helper()
	if path := os.Getenv("PLAID_S3_SERVER"); path != "" {
		return path
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "install", gateway)
	cmd.Dir = dir // outside of any module
	cmd.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=-mod=mod", "GOWORK=off")
	if text, err := cmd.CombinedOutput(); err != nil {
		missing := t.Skipf
		if os.Getenv("PLAID_REQUIRE_S3") != "" {
			missing = t.Fatalf
		}
		missing("no S3 server: go install %s: %v\n%s", gateway, err, text)
	}
	return filepath.Join(dir, "versitygw")
}

// OpenServer starts an S3 server for the time of a test. Requests to address pass through
// network, which can have faults; requests to direct do not.
func OpenServer(t testing.TB) (network *Faulty, address, direct string) {
	t.Helper()
	dir := t.TempDir()
	for _, folder := range []string{"data/shelf", "sidecar"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const key, secret = "key", "secret-of-a-test"
	t.Setenv("AWS_ACCESS_KEY_ID", key)
	t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
	origin := &url.URL{Scheme: "http", Host: "127.0.0.1:" + freeports.Find(t, 1)[0]}
	server := exec.Command(program(t), "--access", key, "--secret", secret, "--port", origin.Host, "--quiet",
		"posix", "--sidecar", filepath.Join(dir, "sidecar"), filepath.Join(dir, "data"))
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	for {
		r, err := http.Get(origin.String() + "/shelf")
		if err == nil {
			_ = r.Body.Close()
			break
		}
		select {
		case <-t.Context().Done():
			t.Fatal(err)
		case <-time.After(20 * time.Millisecond):
		}
	}
	network = &Faulty{Next: &httputil.ReverseProxy{
		Rewrite:      func(p *httputil.ProxyRequest) { p.SetURL(origin); p.Out.Host = p.In.Host }, // the host is signed
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}}
	proxy := httptest.NewServer(network)
	t.Cleanup(proxy.Close)
	store := func(endpoint string) string {
		return fmt.Sprintf("s3://shelf/some/where?region=us-east-1&endpoint=%s", endpoint)
	}
	return network, store(proxy.URL), store(origin.String())
}
