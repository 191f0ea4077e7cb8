//go:build linux && (amd64 || arm64)

package tensor_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/kernels/cuda/tensor"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

func batch(items, rows int, data uint64) tensor.Batch {
	return tensor.Batch{Data: data, Type: maxsim.F16, Dim: 128, Items: items, Rows: items * rows, Stride: rows,
		Longest: rows}
}

// calls are one of scores and one of their gradients. Their addresses mean nothing to the fake driver.
func calls(docs int) (*tensor.ScoreCall, *tensor.GradientCall) {
	q, d := batch(1, 32, 1<<40), batch(docs, 300, 1<<41)
	place := tensor.Place{Stream: 0x7000}
	return &tensor.ScoreCall{Place: place, Q: q, D: d, Scores: 1 << 42, Argmax: 1 << 43},
		&tensor.GradientCall{Place: place, Q: q, D: d, Argmax: 1 << 43, DQ: 1 << 44, DD: 1 << 45, DQType: maxsim.F16,
			DDType: maxsim.F16}
}

// inFakeDriver is set in the process whose driver has no GPU.
const inFakeDriver = "PLAID_TEST_FAKE_DRIVER"

// TestFakeDriver runs the tests of the way to the driver in a process that finds one without a GPU.
func TestFakeDriver(t *testing.T) {
	if os.Getenv(inFakeDriver) != "" {
		t.Run("threads", testThreads)
		t.Run("memory", testMemory)
		return
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler")
	}
	dir := t.TempDir()
	out, err := exec.CommandContext(t.Context(), cc, "-std=c11", "-D_GNU_SOURCE", "-O1", "-shared", "-fPIC", "-o",
		filepath.Join(dir, "libcuda.so.1"), "../internal/driver/testdata/libcuda.c", "-lpthread").CombinedOutput()
	require.NoError(t, err, string(out))
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFakeDriver$", "-test.v")
	cmd.Env = append(os.Environ(), inFakeDriver+"=1", "LD_LIBRARY_PATH="+dir)
	out, err = cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "--- PASS: TestFakeDriver/memory")
}

// Goroutines, which change their threads, call one device, of shapes that are new and of others.
func testThreads(t *testing.T) {
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 200 {
				d, err := tensor.Open(0)
				if err != nil {
					t.Error(err)
					return
				}
				s, g := calls(10 + (i+j)%20)
				if err := errors.Join(d.Score(s), d.Gradients(g)); err != nil {
					t.Error(err)
					return
				}
				if _, err := d.ScoreWorkspace(s); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// A call of a shape that was there before allocates nothing.
func testMemory(t *testing.T) {
	if effort.RaceDetector { // which drops what sync.Pool keeps
		return
	}
	d, err := tensor.Open(0)
	require.NoError(t, err)
	s, g := calls(100)
	short, masked := *s, *s
	short.D.Lengths = 1 << 46
	masked.Q.Mask, masked.Q.MaskStride, masked.D.Mask, masked.D.MaskStride = 1<<46, 32, 1<<46, 300
	for _, c := range []*tensor.ScoreCall{s, &short, &masked} {
		bytes, err := d.ScoreWorkspace(c)
		require.NoError(t, err)
		c.Place.Workspace, c.Place.WorkspaceBytes = 1<<47, bytes
		require.Zero(t, testing.AllocsPerRun(100, func() {
			if err := errors.Join(d.Score(c), d.Gradients(g)); err != nil {
				panic(err)
			}
		}))
	}
}

// BenchmarkHost times what the host needs for a call of a shape that was there before. Without
// a GPU the libcuda.so.1 of TestFakeDriver will do.
func BenchmarkHost(b *testing.B) {
	d, err := tensor.Open(0)
	if errors.Is(err, tensor.ErrNoDriver) {
		b.Skip(err)
	}
	require.NoError(b, err)
	c, _ := calls(100)
	c.Place.Stream = 0
	b.ReportAllocs()
	for b.Loop() {
		if err := d.Score(c); err != nil {
			b.Fatal(err)
		}
	}
}
