package mcp_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/pyenv"
	"github.com/plaid-ir/plaid/server"
	"github.com/plaid-ir/plaid/server/mcp"
)

// validator is the program of the protocol's own validator, which npm fetches into the user's
// cache, as package-lock.json says. The test is skipped where that is not possible.
func validator(t *testing.T) (program string) {
	t.Helper()
	skip := func(format string, args ...any) {
		t.Helper()
		fmt.Fprintf(os.Stderr, "%s skipped: %s\n", t.Name(), fmt.Sprintf(format, args...))
		t.Skipf(format, args...)
	}
	for _, name := range []string{"node", "npm"} {
		if _, err := exec.LookPath(name); err != nil {
			if os.Getenv(pyenv.Required) != "" {
				t.Fatalf("%s is set, and there is no %s", pyenv.Required, name)
			}
			skip("%s is not there", name)
		}
	}
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	lock, err := os.ReadFile("testdata/conformance/package-lock.json")
	require.NoError(t, err)
	sum := sha256.Sum256(lock)
	dir := filepath.Join(cache, "plaid-test", "mcp-conformance-"+hex.EncodeToString(sum[:8]))
	program = filepath.Join("node_modules", "@modelcontextprotocol", "conformance", "dist", "index.js")
	if _, err := os.Stat(filepath.Join(dir, program)); err == nil {
		return filepath.Join(dir, program)
	}
	require.NoError(t, os.MkdirAll(filepath.Dir(dir), 0o777))
	made, err := os.MkdirTemp(filepath.Dir(dir), "making-") // two runs may make it
	require.NoError(t, err)
	defer os.RemoveAll(made)
	for _, name := range []string{"package.json", "package-lock.json"} {
		text, err := os.ReadFile(filepath.Join("testdata", "conformance", name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(made, name), text, 0o666))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "ci", "--silent", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir, cmd.WaitDelay = made, time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		skip("npm cannot fetch the validator: %v\n%s", err, out)
	}
	if err := os.Rename(made, dir); err != nil {
		if _, err := os.Stat(filepath.Join(dir, program)); err != nil {
			dir = filepath.Join(t.TempDir(), "validator")
			require.NoError(t, os.Rename(made, dir))
		}
	}
	return filepath.Join(dir, program)
}

// The protocol's own validator finds that the tools by HTTP are as it says; what they do not
// have is in expected.yml.
func TestConformance(t *testing.T) {
	if !effort.Long() {
		t.Skip("installs packages of Node")
	}
	program := validator(t)
	s := newService(t, true, &server.Options{Hosts: []string{"localhost"}}) // as plaid serve has it
	web := httptest.NewServer(mcp.New(mcp.In(s), "1", nil).Handler(s, nil))
	defer web.Close()
	expected, err := filepath.Abs("testdata/conformance/expected.yml")
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), "node", program, "server", "--url", web.URL, "--expected-failures", expected)
	cmd.Dir = t.TempDir() // it leaves its results there
	cmd.Env = append(os.Environ(), "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	var passed []string
	for _, m := range regexp.MustCompile(`(?m)^✓ ([a-z0-9-]+): [1-9]\d* passed, 0 failed$`).FindAllStringSubmatch(string(out), -1) {
		passed = append(passed, m[1])
	}
	slices.Sort(passed)
	require.Equal(t, []string{"dns-rebinding-protection", "logging-set-level", "ping", "prompts-list", "resources-list", "server-initialize", "tools-list"}, passed, string(out))
}
