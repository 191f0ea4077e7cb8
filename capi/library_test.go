//go:build cgo

package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
)

// compilers are those of C and of C++; tests that lack one are skipped.
func compiler(t *testing.T, name, variable string) string {
	t.Helper()
	if v := os.Getenv(variable); v != "" {
		name = v
	}
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("there is no %s; %s names another compiler", name, variable)
	}
	return path
}

// does runs a program, which must print nothing.
func does(t *testing.T, env []string, name string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s %s\n%s", name, strings.Join(args, " "), out)
	require.Empty(t, string(out), name)
}

// library builds the library as the wheel has it, into a folder of its own.
func library(t *testing.T) (dir string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the tests in C use fork, mmap and POSIX threads")
	}
	dir = t.TempDir()
	out := filepath.Join(dir, "libplaid_maxsim.so")
	does(t, nil, "go", "build", "-buildmode=c-shared", "-trimpath", "-ldflags", "-s -w", "-o", out, ".")
	return dir
}

// program compiles the tests in C.
func program(t *testing.T, dir string, flags ...string) string {
	t.Helper()
	sources, err := filepath.Glob("testdata/*.c")
	require.NoError(t, err)
	out := filepath.Join(dir, "test")
	flags = append(flags, "-std=c11", "-D_DEFAULT_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-I.", "-o", out)
	flags = append(flags, sources...)
	flags = append(flags, "-L"+dir, "-lplaid_maxsim", "-Wl,-rpath,"+dir, "-lm", "-lpthread", "-ldl")
	does(t, nil, compiler(t, "cc", "CC"), flags...)
	return out
}

// TestC holds the library against plain loops, in a program with the sanitizers of the compiler.
func TestC(t *testing.T) {
	cc, dir := compiler(t, "cc", "CC"), library(t)
	sanitizers := []string{"-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"}
	empty := filepath.Join(dir, "empty.c")
	require.NoError(t, os.WriteFile(empty, []byte("int main(void) { return 0; }\n"), 0o600))
	if exec.Command(cc, append(sanitizers, "-o", filepath.Join(dir, "empty"), empty)...).Run() != nil {
		t.Log("the compiler has no sanitizers: the program runs without them")
		sanitizers = nil
	}
	// Memory of the Go runtime looks like a leak; faults in Go code are for its own handler.
	does(t, []string{"ASAN_OPTIONS=detect_leaks=0:allow_user_segv_handler=1"}, program(t, dir, sanitizers...), rounds())
}

// rounds is how many random problems the program in C makes of the first kind.
func rounds() string {
	if effort.Long() {
		return "10000"
	}
	return "400"
}

// TestDevice holds calls on a GPU against plain loops.
func TestDevice(t *testing.T) {
	test := program(t, library(t))
	out, err := exec.CommandContext(t.Context(), test, rounds(), "device").CombinedOutput()
	if e, ok := errors.AsType[*exec.ExitError](err); ok && e.ExitCode() == 77 {
		t.Skip("there is no GPU")
	}
	require.NoError(t, err, string(out))
}

// TestHeader: the header is C99 and C++ without a warning.
func TestHeader(t *testing.T) {
	source := filepath.Join(t.TempDir(), "header")
	require.NoError(t, os.WriteFile(source, []byte("#include \"plaid_maxsim.h\"\nint main(void) { return 0; }\n"), 0o600))
	strict := []string{"-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only", "-I.", source}
	t.Run("C", func(t *testing.T) {
		does(t, nil, compiler(t, "cc", "CC"), append([]string{"-x", "c", "-std=c99"}, strict...)...)
	})
	t.Run("C++", func(t *testing.T) {
		does(t, nil, compiler(t, "c++", "CXX"), append([]string{"-x", "c++", "-std=c++11"}, strict...)...)
	})
}

// TestExample runs the program of the README.
func TestExample(t *testing.T) {
	cc, dir := compiler(t, "cc", "CC"), library(t)
	page, err := os.ReadFile("README.md")
	require.NoError(t, err)
	block := regexp.MustCompile("(?s)```c\n(.*?)```").FindSubmatch(page)
	require.NotNil(t, block)
	source, program := filepath.Join(dir, "example.c"), filepath.Join(dir, "example")
	require.NoError(t, os.WriteFile(source, block[1], 0o600))
	does(t, nil, cc, "-Wall", "-Wextra", "-Werror", "-I.", "-o", program, source, "-L"+dir, "-lplaid_maxsim",
		"-Wl,-rpath,"+dir)
	out, err := exec.Command(program).CombinedOutput()
	require.NoError(t, err, string(out))
	want := regexp.MustCompile("(?s)prints\n\n```text\n(.*?)```").FindSubmatch(page)
	require.NotNil(t, want)
	require.Equal(t, string(want[1]), string(out))
}
