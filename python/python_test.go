// Package python_test runs the tests of the Python package, and builds and installs it.
package python_test

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/pyenv"
	"github.com/plaid-ir/plaid/internal/testing/sources"
)

// unittests are arguments of Python that run the tests of the package.
var unittests = []string{
	"-W", "error::ResourceWarning", "-m", "unittest", "discover",
	"--start-directory", "tests", "--top-level-directory", ".",
}

// pip are arguments of Python that install without a package index.
var pip = []string{"-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-index", "--no-deps"}

// The tests of the package pass, which compare the index with exact scores, share it between
// processes and kill its service. The short form runs them on the sources, and needs only numpy.
func TestPackage(t *testing.T) {
	if effort.Long() {
		t.Skip("TestWheel runs these tests, and more, on the wheel")
	}
	skipUnlessUnix(t)
	sources.Watch(t, "..")
	python := pyenv.Python(t, "tests/requirements-brief.txt")
	must(t, fromSources(t), python, unittests...)
}

// The wheel for this machine is installed as a user would, all tests pass, the blocks of the pages
// for Python users run, and the types are sound.
//
// PLAID_ENCODERS is a Python that has pylate 1.6.0 or sentence-transformers from 6 on: then the
// index is tried with their classes, too.
func TestWheel(t *testing.T) {
	skipUnlessLong(t)
	skipUnlessUnix(t)
	sources.Watch(t, "..")
	base := pyenv.Python(t, "tests/requirements.txt")
	dist := t.TempDir()
	must(t, nil, base, "build.py", "--out", dist)
	wheels, err := filepath.Glob(filepath.Join(dist, "*.whl"))
	require.NoError(t, err)
	require.Len(t, wheels, 1)
	python := pyenv.Temporary(t, base)
	must(t, []string{"PIP_PYTHON=" + python}, base, append(pip, wheels[0])...)
	checkLibrary(t, wheels[0], python)
	must(t, nil, python, "-m", "mypy", "--python-executable", python, "--cache-dir", t.TempDir())
	must(t, nil, python, "-m", "pyright", "--pythonpath", python)
	environ := []string{"PLAID_BINARY=", "PYTHONDONTWRITEBYTECODE=1"}
	must(t, environ, python, smoke...) // the program has the version of the package
	must(t, environ, python, unittests...)
	must(t, environ, python, "tests/overhead.py", "--rounds", "1", "--passes", "1")
	must(t, environ, python, "tests/rerank_cost.py", "50x180", "--rounds", "1")

	encoders := os.Getenv("PLAID_ENCODERS")
	if encoders == "" {
		t.Log("PLAID_ENCODERS is not set: the classes of PyLate and sentence-transformers are not tried")
		return
	}
	target := t.TempDir()
	must(t, nil, encoders, append(pip, "--target", target, wheels[0])...)
	must(t, append(environ, "PYTHONPATH="+target), encoders, "-m", "unittest", "-v", "tests.test_encoders")
}

// checkLibrary looks at the library of plaid_ir.torch in a wheel, where this machine has a C compiler: it is loaded by
// a Python that has the wheel, and needs no newer glibc than the tag of the wheel says.
func checkLibrary(t *testing.T, wheel, python string) {
	if _, err := exec.LookPath("cc"); err != nil {
		t.Log("there is no cc: the wheel has no library")
		return
	}
	said := must(t, nil, python, "-c", `import ctypes, glob, os, plaid_ir
path, = glob.glob(os.path.join(os.path.dirname(plaid_ir.__file__), "bin", "libplaid_maxsim.*"))
print(path, ctypes.CDLL(path).plaid_maxsim_version())`)
	path, version, _ := strings.Cut(strings.TrimSpace(said), " ")
	require.Equal(t, "1", version)
	if runtime.GOOS != "linux" {
		return
	}
	var major, minor int
	_, tag, found := strings.Cut(filepath.Base(wheel), "manylinux_")
	require.True(t, found, wheel)
	_, err := fmt.Sscanf(tag, "%d_%d_", &major, &minor)
	require.NoError(t, err, wheel)
	machine := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[runtime.GOARCH]
	checkElf(t, path, machine, 1000*major+minor)
}

// A clone is installed by pip where there is Go; where there is none, pip says what to do.
func TestInstall(t *testing.T) {
	skipUnlessLong(t)
	skipUnlessUnix(t)
	sources.Watch(t, "..")
	base := pyenv.Python(t, "tests/requirements.txt")
	// The build backend is that of the environment, so that no package index is asked.
	clone := append(pip, "--no-build-isolation", "--no-cache-dir", "--target")
	target := t.TempDir()
	must(t, nil, base, append(clone, target, ".")...)
	said := must(t, []string{"PLAID_BINARY=", "PYTHONPATH=" + target, "PYTHONDONTWRITEBYTECODE=1"}, base, "-c",
		`import numpy as np, plaid_ir
with plaid_ir.Index(None) as i: print(plaid_ir.__file__, len(i.add_documents(['a'], [np.eye(4)])))`)
	require.Contains(t, said, filepath.Join(target, "plaid_ir", "__init__.py")+" 1")

	out, err := pyenv.Run([]string{"PATH=" + t.TempDir()}, base, append(clone, t.TempDir(), ".")...)
	require.Error(t, err, out)
	require.Contains(t, out, "there is no go on the PATH: install Go 1.")
}

// Nothing is on the package index yet, so that no page and no message may say that pip installs plaid-ir by its name.
func TestNotPublished(t *testing.T) {
	pages, err := filepath.Glob("../docs/*.md")
	require.NoError(t, err)
	more, err := filepath.Glob("src/plaid_ir/*.py")
	require.NoError(t, err)
	pages = append(append(pages, "../README.md", "README.md", "../capi/README.md", "../CHANGELOG.md"), more...)
	require.Greater(t, len(pages), 40)
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		require.NotRegexp(t, `(pip|uv|pipx)( \w+)* (-\S+ )*["']?plaid[-_]ir\b`, string(text), page)
	}
}

// The adapters to frameworks pass the tests that these have for all adapters, and type checks; the
// blocks of docs/frameworks.md run.
func TestFrameworks(t *testing.T) {
	skipUnlessLong(t)
	sources.Watch(t, "..")
	python := pyenv.Python(t, "tests/frameworks/requirements.txt")
	environ := append(fromSources(t), "NUMBA_DISABLE_JIT=1") // ranx compiles for minutes otherwise
	must(t, environ, python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/frameworks")
	checker := pyenv.Python(t, "tests/requirements.txt")
	must(t, nil, checker, "-m", "pyright", "-p", "tests/frameworks/pyright.json", "--pythonpath", python)
}

// fromSources is an environment in which Python imports the sources, and these run a program that
// is compiled for the test.
func fromSources(t *testing.T) []string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "plaid")
	out, err := exec.Command("go", "build", "-ldflags", "-s -w", "-o", binary, "../cmd/plaid").CombinedOutput()
	require.NoError(t, err, string(out))
	return []string{"PLAID_BINARY=" + binary, "PYTHONPATH=src", "PYTHONDONTWRITEBYTECODE=1"}
}

// must runs a program and returns what it says.
func must(t *testing.T, environ []string, name string, args ...string) string {
	t.Helper()
	out, err := pyenv.Run(environ, name, args...)
	require.NoError(t, err, "%s %s\n%s", name, strings.Join(args, " "), out)
	t.Log(out)
	return out
}

func skipUnlessLong(t *testing.T) {
	t.Helper()
	if !effort.Long() {
		t.Skip("the long form (PLAID_LONG=1): it builds and installs Python packages")
	}
}

func skipUnlessUnix(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" && runtime.GOOS != "darwin" {
		t.Skip("the tests need fork and Unix sockets")
	}
}
