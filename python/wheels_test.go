package python_test

import (
	"archive/tar"
	"compress/gzip"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/pyenv"
	"github.com/plaid-ir/plaid/internal/testing/sources"
)

// smoke are arguments of Python for the first minutes with a package that is installed.
var smoke = []string{"-W", "error", "-X", "dev", "tests/smoke.py", "../docs/examples/quickstart/colbert-nano"}

// maxSdist bounds the sources of the package and of Go: most of it is device code.
const maxSdist = 16 << 20

// An sdist has the Go sources that wheels are compiled from, and no others; pip installs it in a folder outside the
// repository, and says what is missing where there is no Go.
func TestSdist(t *testing.T) {
	skipUnlessLong(t)
	skipUnlessUnix(t)
	sources.Watch(t, "..")
	base := pyenv.Python(t, "tests/requirements.txt")
	dist := t.TempDir()
	must(t, nil, base, "build.py", "--out", dist, "sdist")
	sdist := filepath.Join(dist, "plaid_ir-"+packageVersion(t)+".tar.gz")
	info, err := os.Stat(sdist)
	require.NoError(t, err)
	require.Less(t, info.Size(), int64(maxSdist))
	names := listed(t, sdist)
	for _, name := range []string{
		"build.py", "hatch_build.py", "pyproject.toml", "LICENSE", "README.md", "src/plaid_ir/__init__.py",
		"src/plaid_ir/py.typed",
		"go/go.mod", "go/go.sum", "go/cmd/plaid/main.go", "go/capi/go.mod", "go/capi/go.sum", "go/capi/plaid_maxsim.h",
	} {
		require.Contains(t, names, name)
	}
	for _, name := range names {
		require.NotRegexp(t, `_test\.go$|^go/(docs|eval/peers|python)/|/testdata/|^tests/|/bin/`, name)
	}

	install := append(pip, "--no-build-isolation", "--no-cache-dir", sdist)
	python := pyenv.Temporary(t, base)
	must(t, []string{"PIP_PYTHON=" + python}, base, install...)
	require.Contains(t, must(t, []string{"PLAID_BINARY="}, python, smoke...), packageVersion(t))

	out, err := pyenv.Run([]string{"PATH=" + t.TempDir(), "PIP_PYTHON=" + pyenv.Temporary(t, base)}, base, install...)
	require.Error(t, err, out)
	require.Contains(t, out, "there is no go on the PATH: install Go 1.")
	require.NotContains(t, out, "Traceback")
}

// An editable install compiles the program to where the package looks for it; without it, the error names the command.
func TestEditable(t *testing.T) {
	skipUnlessLong(t)
	skipUnlessUnix(t)
	sources.Watch(t, "..")
	base := pyenv.Python(t, "tests/requirements.txt")
	// The sources of an sdist: the clone that runs the test is left as it is.
	dist := t.TempDir()
	must(t, nil, base, "build.py", "--out", dist, "sdist")
	name := "plaid_ir-" + packageVersion(t)
	out, err := exec.Command("tar", "-xzf", filepath.Join(dist, name+".tar.gz"), "-C", dist).CombinedOutput()
	require.NoError(t, err, "%s", out)
	python := pyenv.Temporary(t, base)
	install := append(pip, "--no-build-isolation", "--no-cache-dir", "-e", filepath.Join(dist, name))

	must(t, []string{"PIP_PYTHON=" + python, "PLAID_BINARY=" + os.Args[0]}, base, install...)
	said, err := pyenv.Run([]string{"PLAID_BINARY="}, python, "-c", "import plaid_ir; plaid_ir.Index(None)")
	require.Error(t, err)
	command := regexp.MustCompile(`compile it with Go: (.*) --in-place, or`).FindStringSubmatch(said)
	require.NotEmpty(t, command, said)
	require.Equal(t, python+" "+filepath.Join(dist, name, "build.py"), command[1])

	must(t, []string{"PIP_PYTHON=" + python, "PLAID_BINARY="}, base, install...)
	must(t, []string{"PLAID_BINARY="}, python, smoke...)
	require.NoError(t, os.RemoveAll(filepath.Join(dist, name, "src", "plaid_ir", "bin")))
	must(t, nil, python, filepath.Join(dist, name, "build.py"), "--in-place")
	must(t, []string{"PLAID_BINARY="}, python, smoke...)
}

// The wheels for Linux are for the systems that their tags name, and work: those for x86-64 in each Python that is
// here, the program for arm64 under qemu. zig compiles the library.
func TestWheels(t *testing.T) {
	if os.Getenv("PLAID_WHEELS_CHECK") == "" {
		t.Skip("PLAID_WHEELS_CHECK is not set")
	}
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("the wheels are tried on Linux on x86-64")
	}
	sources.Watch(t, "..")
	base := pyenv.Python(t, "tests/requirements.txt")
	zig := pyenv.Python(t, "tests/requirements-zig.txt") + " -m ziglang cc -target "
	compilers := []string{
		"PLAID_CC_LINUX_AMD64=" + zig + "x86_64-linux-gnu.2.17",
		"PLAID_CC_LINUX_ARM64=" + zig + "aarch64-linux-gnu.2.17",
	}
	dist := t.TempDir()
	build := func(target, tag string) string {
		must(t, compilers, base, "build.py", "--out", dist, target)
		return filepath.Join(dist, "plaid_ir-"+packageVersion(t)+"-py3-none-"+tag+".whl")
	}
	glibc := build("linux-amd64", "manylinux_2_17_x86_64")
	musl := build("linux-amd64-static", "musllinux_1_1_x86_64")
	arm := build("linux-arm64-static", "manylinux_2_17_aarch64.musllinux_1_1_aarch64")

	t.Run("glibc", func(t *testing.T) {
		bin := unpackWheel(t, base, glibc, "manylinux_2_17_x86_64")
		checkElf(t, filepath.Join(bin, "plaid"), elf.EM_X86_64, 2017)
		checkElf(t, filepath.Join(bin, "libplaid_maxsim.so"), elf.EM_X86_64, 2017)
		pythons := installed(t)
		require.NotEmpty(t, pythons)
		for _, version := range pythons {
			t.Run(path.Base(version), func(t *testing.T) { tryWheel(t, version, glibc) })
		}
	})
	t.Run("musl", func(t *testing.T) {
		bin := unpackWheel(t, base, musl, "musllinux_1_1_x86_64")
		require.NoFileExists(t, filepath.Join(bin, "libplaid_maxsim.so"))
		checkElf(t, filepath.Join(bin, "plaid"), elf.EM_X86_64, 0)
		must(t, []string{"PLAID_BINARY=", "PYTHONPATH=" + filepath.Dir(filepath.Dir(bin))}, base, smoke...)
	})
	t.Run("arm64", func(t *testing.T) {
		bin := unpackWheel(t, base, arm, "manylinux_2_17_aarch64")
		checkElf(t, filepath.Join(bin, "plaid"), elf.EM_AARCH64, 0)
		checkElf(t, filepath.Join(bin, "libplaid_maxsim.so"), elf.EM_AARCH64, 2017)
		qemu, err := exec.LookPath("qemu-aarch64")
		if err != nil {
			t.Skip("qemu-aarch64 is not there: the program for arm64 is not run")
		}
		program := filepath.Join(t.TempDir(), "plaid")
		script := fmt.Sprintf("#!/bin/sh\nexec '%s' '%s' \"$@\"\n", qemu, filepath.Join(bin, "plaid"))
		require.NoError(t, os.WriteFile(program, []byte(script), 0o777))
		must(t, []string{"PLAID_BINARY=" + program, "PYTHONPATH=" + filepath.Dir(filepath.Dir(bin))}, base, smoke...)
	})
}

// packageVersion is that of the package.
func packageVersion(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("src/plaid_ir/_version.py")
	require.NoError(t, err)
	found := regexp.MustCompile(`"(.*)"`).FindSubmatch(text)
	require.NotNil(t, found)
	return string(found[1])
}

// listed are the names of files in an archive without its one folder.
func listed(t *testing.T, archive string) (names []string) {
	t.Helper()
	f, err := os.Open(archive)
	require.NoError(t, err)
	defer f.Close()
	plain, err := gzip.NewReader(f)
	require.NoError(t, err)
	for r := tar.NewReader(plain); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		require.NoError(t, err)
		_, name, _ := strings.Cut(h.Name, "/")
		names = append(names, name)
	}
}

// unpackWheel has pip unpack a wheel for a platform, and returns the folder with its program.
func unpackWheel(t *testing.T, base, wheel, platform string) string {
	t.Helper()
	target := t.TempDir()
	must(t, nil, base, append(pip, "--target", target, "--platform", platform, "--only-binary=:all:", wheel)...)
	return filepath.Join(target, "plaid_ir", "bin")
}

// checkElf holds that a file is for a machine, and names no symbol of a newer glibc than 1000·major + minor; 0: it is
// linked statically.
func checkElf(t *testing.T, file string, machine elf.Machine, newest int) {
	t.Helper()
	f, err := elf.Open(file)
	require.NoError(t, err)
	defer f.Close()
	require.Equal(t, machine, f.Machine, file)
	dynamic := slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_DYNAMIC })
	require.Equal(t, newest > 0, dynamic, "%s is linked dynamically: %v", file, dynamic)
	if !dynamic {
		return
	}
	symbols, err := f.ImportedSymbols()
	require.NoError(t, err)
	require.NotEmpty(t, symbols)
	for _, s := range symbols {
		var major, minor int
		if n, _ := fmt.Sscanf(s.Version, "GLIBC_%d.%d", &major, &minor); n == 2 {
			require.LessOrEqual(t, 1000*major+minor, newest, "%s of %s, in %s", s.Name, s.Version, file)
		}
	}
}

// installed are the Pythons from 3.10 on that are here: on the PATH, or of pyenv.
func installed(t *testing.T) (found []string) {
	t.Helper()
	root := os.Getenv("PYENV_ROOT")
	if root == "" {
		home, err := os.UserHomeDir()
		require.NoError(t, err)
		root = filepath.Join(home, ".pyenv")
	}
	for minor := 10; minor < 20; minor++ {
		name := fmt.Sprintf("python3.%d", minor)
		candidates, err := filepath.Glob(filepath.Join(root, "versions", fmt.Sprintf("3.%d.*", minor), "bin", name))
		require.NoError(t, err)
		for _, c := range append([]string{name}, candidates...) {
			if exec.Command(c, "-m", "venv", "-h").Run() == nil {
				found = append(found, c)
				break
			}
		}
	}
	t.Log(found)
	return found
}

// tryWheel installs a wheel into a new environment of a Python, with NumPy from the package index, and uses it.
func tryWheel(t *testing.T, version, wheel string) {
	dir := filepath.Join(t.TempDir(), "venv")
	must(t, nil, version, "-m", "venv", dir)
	python := filepath.Join(dir, "bin", "python")
	fetched := []string{
		"-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--retries", "1", "--timeout", "30", "numpy",
	}
	if out, err := pyenv.Run(nil, python, fetched...); err != nil {
		t.Skipf("pip cannot install NumPy: %v\n%s", err, out)
	}
	must(t, nil, python, append(pip, wheel)...)
	require.Contains(t, must(t, []string{"PLAID_BINARY="}, python, smoke...), packageVersion(t))
	said := must(t, nil, filepath.Join(dir, "bin", "plaid"), "version")
	require.Contains(t, said, "plaid v"+packageVersion(t)+"\n")
	must(t, nil, python, "-c", `import ctypes, os, plaid_ir
library = ctypes.CDLL(os.path.join(os.path.dirname(plaid_ir.__file__), "bin", "libplaid_maxsim.so"))
assert library.plaid_maxsim_version() == 1`)
}
