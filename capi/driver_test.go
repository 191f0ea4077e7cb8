//go:build cgo && linux && (amd64 || arm64) && !nocuda

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// withDriver builds the library, a driver without a GPU, and the program that calls it.
func withDriver(t *testing.T) *exec.Cmd {
	cc, dir := compiler(t, "cc", "CC"), library(t)
	strict := []string{"-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-g"}
	does(t, nil, cc, append(strict, "-shared", "-fPIC", "-o", filepath.Join(dir, "libcuda.so.1"),
		filepath.FromSlash("../kernels/cuda/internal/driver/testdata/libcuda.c"), "-lpthread")...)
	out := filepath.Join(dir, "calls")
	does(t, nil, cc, append(strict, "-I.", "-o", out, "testdata/driver/calls.c", "-L"+dir, "-lplaid_maxsim", "-lpthread",
		"-ldl")...)
	cmd := exec.CommandContext(t.Context(), out)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir)
	return cmd
}

// TestDriver: calls on a GPU use the driver as they should: launches, errors, contexts of threads.
func TestDriver(t *testing.T) {
	cmd := withDriver(t)
	if testing.Verbose() {
		cmd.Args = append(cmd.Args, "time")
	}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	if len(out) > 0 {
		t.Logf("a call, without what the driver does:\n%s", out)
	}
}
