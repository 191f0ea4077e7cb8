// Package pyenv makes virtual environments of Python for tests.
package pyenv

import (
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
)

// Required is set in CI: tests may not be skipped then for want of Python or of a
// virtual environment, but only because the package index is out of reach.
const Required = "PLAID_REQUIRE_CLIENTS"

// Python is that of a virtual environment with what a file of requirements lists. It is
// made once for each list and kept in the user's cache folder: whoever installs more
// makes an environment of their own ([Fresh]).
func Python(t *testing.T, requirements string) string {
	t.Helper()
	skip := func(format string, args ...any) {
		t.Helper()
		if os.Getenv(Required) != "" {
			t.Fatalf(format, args...)
		}
		t.Skipf(format, args...)
	}
	base, err := exec.LookPath("python3")
	if err != nil {
		skip("python3 is not there")
	}
	list, err := os.ReadFile(requirements)
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
	dir := filepath.Join(cache, "plaid-test-python", hex.EncodeToString(sum[:8]))
	python := filepath.Join(dir, "bin", "python")
	if _, err := os.Stat(filepath.Join(dir, "complete")); err == nil {
		return python
	}
	require.NoError(t, os.MkdirAll(filepath.Dir(dir), 0o777))
	// What is half made has another name, so that two runs do not meet.
	made, err := os.MkdirTemp(filepath.Dir(dir), "making-")
	require.NoError(t, err)
	defer os.RemoveAll(made)
	if out, err := Run(nil, base, "-m", "venv", made); err != nil {
		skip("no virtual environment can be made (python3 -m venv): %v\n%s", err, out)
	}
	if out, err := Run(nil, filepath.Join(made, "bin", "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", requirements); err != nil {
		// A package index that is out of reach is no fault of this program.
		lines := strings.Split(strings.TrimSpace(out), "\n")
		fmt.Fprintf(os.Stderr, "%s skipped: pip cannot install %s: %s\n", t.Name(), requirements, lines[len(lines)-1])
		t.Skipf("pip cannot install %s: %v\n%s", requirements, err, out)
	}
	require.NoError(t, os.WriteFile(filepath.Join(made, "complete"), nil, 0o666))
	if err := os.Rename(made, dir); err != nil {
		if _, err := os.Stat(filepath.Join(dir, "complete")); err != nil {
			to := filepath.Join(t.TempDir(), "venv")
			require.NoError(t, os.Rename(made, to))
			return filepath.Join(to, "bin", "python")
		}
	}
	return python
}

// Fresh is the Python of an environment that goes with the test. It sees what the one
// of base has, and what pip installs there stays there.
func Fresh(t *testing.T, base string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "venv")
	out, err := Run(nil, base, "-m", "venv", "--without-pip", dir)
	require.NoError(t, err, out)
	packages := "import sysconfig; print(sysconfig.get_path('purelib'))"
	from, err := Run(nil, base, "-c", packages)
	require.NoError(t, err, from)
	python := filepath.Join(dir, "bin", "python")
	to, err := Run(nil, python, "-c", packages)
	require.NoError(t, err, to)
	require.NoError(t, os.WriteFile(filepath.Join(strings.TrimSpace(to), "base.pth"), []byte(from), 0o666))
	return python
}

// Run runs a program, for ten minutes at most, and returns what it says. environ is
// added to the environment.
func Run(environ []string, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), environ...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
