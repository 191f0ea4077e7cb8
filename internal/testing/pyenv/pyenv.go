// Package pyenv creates virtual environments of Python for tests.
package pyenv

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Required names the variable that CI sets: then a test fails without Python or a
// virtual environment, and is only skipped if the package index cannot be reached.
const Required = "PLAID_REQUIRE_CLIENTS"

// stepTimeout limits the time of each step of creating an environment. It is well below the timeout of go
// test, so that a package index that does not answer skips a test instead of failing it.
const stepTimeout = 4 * time.Minute

// Python returns the Python of a virtual environment with the packages of a requirements file, in
// the versions of constraints.txt in the same folder, so that new versions of packages
// do not affect tests. The environment is created once for each list, in the user's cache
// folder. Tests that install other packages use [Temporary].
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
		skip("python3 is missing")
	}
	list, err := os.ReadFile(requirements)
	require.NoError(t, err)
	constraints := filepath.Join(filepath.Dir(requirements), "constraints.txt")
	versions, err := os.ReadFile(constraints)
	require.NoError(t, err)
	version, err := exec.Command(base, "-c", "import sys; print(sys.version)").Output()
	if err != nil {
		skip("python3 does not run: %v", err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	sum := sha256.Sum256(slices.Concat(list, versions, version))
	dir := filepath.Join(cache, "plaid-test-python", hex.EncodeToString(sum[:8]))
	python := filepath.Join(dir, "bin", "python")
	if _, err := os.Stat(filepath.Join(dir, "complete")); err == nil {
		return python
	}
	require.NoError(t, os.MkdirAll(filepath.Dir(dir), 0o777))
	// Create it under a temporary name, so that concurrent runs do not conflict.
	tempDir, err := os.MkdirTemp(filepath.Dir(dir), "making-")
	require.NoError(t, err)
	defer os.RemoveAll(tempDir)
	if out, err := run(stepTimeout, nil, base, "-m", "venv", tempDir); err != nil {
		skip("no virtual environment can be made (python3 -m venv): %v\n%s", err, out)
	}
	pip := []string{
		"-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1", "--timeout", "30",
		"-r", requirements, "-c", constraints,
	}
	if out, err := run(stepTimeout, nil, filepath.Join(tempDir, "bin", "python"), pip...); err != nil {
		// A package index that cannot be reached is not an error of this program.
		lines := strings.Split(strings.TrimSpace(out), "\n")
		fmt.Fprintf(os.Stderr, "%s skipped: pip cannot install %s: %s\n", t.Name(), requirements, lines[len(lines)-1])
		t.Skipf("pip cannot install %s: %v\n%s", requirements, err, out)
	}
	require.NoError(t, os.WriteFile(filepath.Join(tempDir, "complete"), nil, 0o666))
	if err := os.Rename(tempDir, dir); err != nil {
		if _, err := os.Stat(filepath.Join(dir, "complete")); err != nil {
			to := filepath.Join(t.TempDir(), "venv")
			require.NoError(t, os.Rename(tempDir, to))
			return filepath.Join(to, "bin", "python")
		}
	}
	return python
}

// Temporary returns the Python of a new environment that is removed after the test. It includes the packages of
// base's environment, which it does not change.
func Temporary(t *testing.T, base string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "venv")
	out, err := Run(nil, base, "-m", "venv", "--without-pip", dir)
	require.NoError(t, err, out)
	packages := "import sysconfig; print(sysconfig.get_path('purelib'))"
	basePackages, err := Run(nil, base, "-c", packages)
	require.NoError(t, err, basePackages)
	python := filepath.Join(dir, "bin", "python")
	ownPackages, err := Run(nil, python, "-c", packages)
	require.NoError(t, err, ownPackages)
	link := filepath.Join(strings.TrimSpace(ownPackages), "base.pth")
	require.NoError(t, os.WriteFile(link, []byte(basePackages), 0o666))
	return python
}

// Run runs a program for at most ten minutes, and returns its output. environ is
// added to the environment.
func Run(environ []string, name string, args ...string) (string, error) {
	return run(10*time.Minute, environ, name, args...)
}

// run is Run with a time limit.
func run(limit time.Duration, environ []string, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = 10 * time.Second // processes that it started may hold its output open
	cmd.Env = append(os.Environ(), environ...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
