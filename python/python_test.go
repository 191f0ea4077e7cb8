// Package python_test builds the Python package, installs it, and runs its tests.
package python_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/pyenv"
	"github.com/plaid-ir/plaid/internal/testing/sources"
)

// The wheel for this machine is installed as a user would, and its tests pass: the index
// against exact scores, the blocks of the pages for Python users, and the types.
//
// PLAID_ENCODERS is a Python that has pylate 1.6.0 or sentence-transformers from 6 on:
// then the index is tried with their classes, too.
func TestPython(t *testing.T) {
	if !effort.Long() {
		t.Skip("builds a wheel and installs Python packages")
	}
	if runtime.GOOS != "linux" && runtime.GOOS != "darwin" {
		t.Skip("there is no wheel for this system")
	}
	sources.Watch(t, "..")
	base := pyenv.Python(t, "tests/requirements.txt")
	must := func(environ []string, name string, args ...string) {
		t.Helper()
		out, err := pyenv.Run(environ, name, args...)
		require.NoError(t, err, "%s %s\n%s", name, strings.Join(args, " "), out)
		t.Log(out)
	}
	dist := t.TempDir()
	must(nil, base, "build.py", "--out", dist)
	wheels, err := filepath.Glob(filepath.Join(dist, "*.whl"))
	require.NoError(t, err)
	require.Len(t, wheels, 1)
	python := pyenv.Fresh(t, base)
	must(nil, base, "-m", "pip", "--disable-pip-version-check", "--python", python, "install", "--quiet", "--no-index", "--no-deps", wheels[0])
	must(nil, python, "-m", "mypy", "--python-executable", python, "--cache-dir", t.TempDir())
	must(nil, python, "-m", "pyright", "--pythonpath", python)
	tests := []string{"-W", "error::ResourceWarning", "-m", "unittest", "discover", "--start-directory", "tests", "--top-level-directory", "."}
	must([]string{"PLAID_BINARY=", "PYTHONDONTWRITEBYTECODE=1"}, python, tests...)

	encoders := os.Getenv("PLAID_ENCODERS")
	if encoders == "" {
		t.Log("PLAID_ENCODERS is not set: the classes of PyLate and sentence-transformers are not tried")
		return
	}
	target := t.TempDir()
	must(nil, encoders, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-index", "--no-deps", "--target", target, wheels[0])
	must([]string{"PLAID_BINARY=", "PYTHONPATH=" + target, "PYTHONDONTWRITEBYTECODE=1"}, encoders, "-m", "unittest", "-v", "tests.test_encoders")
}

// A clone is installed by pip where there is Go; where there is none, pip says what to do.
func TestInstall(t *testing.T) {
	if !effort.Long() {
		t.Skip("compiles the program")
	}
	if runtime.GOOS != "linux" && runtime.GOOS != "darwin" {
		t.Skip("there is no wheel for this system")
	}
	sources.Watch(t, "..")
	base := pyenv.Python(t, "tests/requirements.txt")
	target := t.TempDir()
	// The build backend is that of the environment, so that no package index is asked.
	install := []string{"-m", "pip", "--disable-pip-version-check", "install", "--no-index", "--no-build-isolation", "--no-deps", "--no-cache-dir", "--target"}
	out, err := pyenv.Run(nil, base, append(install, target, ".")...)
	require.NoError(t, err, out)
	said, err := pyenv.Run([]string{"PLAID_BINARY=", "PYTHONPATH=" + target, "PYTHONDONTWRITEBYTECODE=1"}, base, "-c",
		"import numpy as np, plaid_ir\nwith plaid_ir.Index(None) as i: print(plaid_ir.__file__, len(i.add_documents(['a'], [np.eye(4)])))")
	require.NoError(t, err, said)
	require.Contains(t, said, filepath.Join(target, "plaid_ir", "__init__.py")+" 1")

	out, err = pyenv.Run([]string{"PATH=" + t.TempDir()}, base, append(install, t.TempDir(), ".")...)
	require.Error(t, err, out)
	require.Contains(t, out, "there is no go on the PATH: install Go (see go.mod for the version), or install a wheel that has the program (pip install plaid-ir)")
}
