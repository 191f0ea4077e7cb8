package server_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/server"
	"github.com/plaid-ir/plaid/server/store"
)

// requireClients is set in CI: the test may not be skipped then for want of Python or
// of a virtual environment, but only because the registry is out of reach.
const requireClients = "PLAID_REQUIRE_CLIENTS"

// The clients that exist use the service as they are published: next-plaid-client
// (both classes and the command line) and langchain-plaid. A validator of OpenAPI
// reads the description.
func TestRealClients(t *testing.T) {
	if testing.Short() {
		t.Skip("installs Python packages")
	}
	python := clientsEnvironment(t)
	plain := start(t, nil, nil)
	texts := start(t, words{}, nil)
	loading := start(t, nil, &server.Options{EncoderLater: true})
	limited := start(t, nil, &server.Options{Limits: server.Limits{Rate: .001, Burst: 5}})
	tokens := start(t, nil, &server.Options{Tokens: server.Tokens{server.NewToken("reader", server.Read, "read-read-read-read")}})

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	args := []string{
		"testdata/clients/clients.py", "--plain", plain.URL, "--texts", texts.URL, "--loading", loading.URL, "--damaged", damaged(t).URL,
		"--limited", limited.URL, "--tokens", tokens.URL, "--tmp", t.TempDir(), "--keywords",
	}
	cmd := exec.CommandContext(ctx, python, args...)
	cmd.Env = append(os.Environ(), "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1", "LANGSMITH_TRACING=false")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Logf("%s", out)
}

// damaged is a service one index of which cannot be opened.
func damaged(t *testing.T) *service {
	dir := t.TempDir()
	st, err := store.Open(context.Background(), dir, nil)
	require.NoError(t, err)
	c, err := st.Declare(context.Background(), "damaged", store.Config{})
	require.NoError(t, err)
	_, err = c.Update(context.Background(), []store.Document{{Vectors: flat("a b"), Dim: wordDim}}, store.UpdateOptions{})
	require.NoError(t, err)
	require.NoError(t, st.Close(context.Background()))
	files, err := filepath.Glob(filepath.Join(dir, "damaged", "*.plaid"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		require.NoError(t, os.WriteFile(f, bytes.Repeat([]byte("no index"), 4096), 0o666))
	}
	return startAt(t, openStoreAt(t, dir, nil), nil, nil)
}

// clientsEnvironment makes a virtual environment with the clients, once for each list
// of requirements, in the user's cache folder, and returns its Python.
func clientsEnvironment(t *testing.T) string {
	must := os.Getenv(requireClients) != ""
	skip := func(format string, args ...any) {
		t.Helper()
		if must {
			t.Fatalf(format, args...)
		}
		t.Skipf(format, args...)
	}
	base, err := exec.LookPath("python3")
	if err != nil {
		skip("python3 is not there")
	}
	list, err := os.ReadFile("testdata/clients/requirements.txt")
	require.NoError(t, err)
	version, err := exec.Command(base, "-c", "import sys; print(sys.version)").Output()
	if err != nil {
		skip("python3 does not run: %v", err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	sum := sha256.Sum256(append(list, version...))
	dir := filepath.Join(cache, "plaid-test-clients", hex.EncodeToString(sum[:8]))
	python := filepath.Join(dir, "bin", "python")
	if _, err := os.Stat(filepath.Join(dir, "complete")); err == nil {
		return python
	}
	require.NoError(t, os.MkdirAll(filepath.Dir(dir), 0o777))
	// What is half made has another name, so that two runs do not meet.
	made, err := os.MkdirTemp(filepath.Dir(dir), "making-")
	require.NoError(t, err)
	defer os.RemoveAll(made)
	run := func(name string, args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
		return string(out), err
	}
	if out, err := run(base, "-m", "venv", made); err != nil {
		skip("no virtual environment can be made (python3 -m venv): %v\n%s", err, out)
	}
	if out, err := run(filepath.Join(made, "bin", "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", "testdata/clients/requirements.txt"); err != nil {
		// A registry that is out of reach is no fault of this program.
		fmt.Fprintf(os.Stderr, "TestRealClients skipped: pip cannot install the clients: %s\n", lastLine(out))
		t.Skipf("pip cannot install the clients: %v\n%s", err, out)
	}
	require.NoError(t, os.WriteFile(filepath.Join(made, "complete"), nil, 0o666))
	if err := os.Rename(made, dir); err != nil {
		if _, err := os.Stat(filepath.Join(dir, "complete")); err != nil {
			return filepath.Join(keep(t, made), "bin", "python")
		}
	}
	return python
}

// keep moves a folder to where it lives as long as the test.
func keep(t *testing.T, dir string) string {
	to := filepath.Join(t.TempDir(), "clients")
	require.NoError(t, os.Rename(dir, to))
	return to
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}
