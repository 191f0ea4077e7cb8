//go:build !noonnxruntime && (linux || darwin) && (amd64 || arm64)

package onnxruntime

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/encode/engine"
)

// needLibrary skips a test where there is no library.
func needLibrary(t testing.TB) {
	t.Helper()
	if os.Getenv(EnvLibrary) == "" {
		t.Skipf("%s does not name the library onnxruntime", EnvLibrary)
	}
}

func openGraph(t testing.TB, name string, o Options) *Model {
	t.Helper()
	m, err := Open(filepath.Join("testdata", name+".onnx"), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

// vector is what the graphs of make.py give for an id.
func vector(id int32, attended int) []float32 {
	i := float64(id)
	x := []float64{i + 1 + float64(attended), math.Mod(i*i, 7), 1, -i}
	length := 0.0
	for _, v := range x {
		length += v * v
	}
	out := make([]float32, len(x))
	for j, v := range x {
		out[j] = float32(v / math.Sqrt(length))
	}
	return out
}

func expected(b engine.Batch) (want []float32) {
	for i := range b.Texts() {
		for _, id := range b.IDs[b.Offsets[i]:b.Offsets[i+1]] {
			want = append(want, vector(id, b.AttendedLength(i))...)
		}
	}
	return want
}

// TestBatches: whatever the lengths, the order and the size of batches, each id
// gets its own vector, and padding is attended to by none.
func TestBatches(t *testing.T) {
	needLibrary(t)
	for _, k := range []struct {
		graph string
		most  int // ids of a text
		off   float64
	}{{"plain", 40, 1e-6}, {"types32half", 40, 1e-3}, {"fixed", 8, 1e-6}, {"long", 40, 1e-6}, {"two", 40, 1e-6}} {
		t.Run(k.graph, func(t *testing.T) {
			models := []*Model{openGraph(t, k.graph, Options{}), openGraph(t, k.graph, Options{})}
			models[1].batch = 30
			require.Equal(t, 4, models[0].Dim())
			rapid.Check(t, func(t *rapid.T) {
				b := engine.Batch{Offsets: []int{0}}
				for range rapid.IntRange(0, 12).Draw(t, "texts") {
					ids := rapid.SliceOfN(rapid.Int32Range(0, 9), 0, k.most).Draw(t, "ids")
					b.IDs = append(b.IDs, ids...)
					b.Offsets = append(b.Offsets, len(b.IDs))
					b.Attended = append(b.Attended, rapid.IntRange(min(1, len(ids)), len(ids)).Draw(t, "attended"))
				}
				for _, m := range models {
					dst := make([]float32, 4*len(b.IDs))
					require.NoError(t, m.Encode(t.Context(), dst, b))
					require.InDeltaSlice(t, expected(b), append(dst, 0)[:len(dst)], k.off)
				}
			})
		})
	}
}

func TestConcurrentUseAndClose(t *testing.T) {
	needLibrary(t)
	m, err := Open(filepath.Join("testdata", "plain.onnx"), Options{})
	require.NoError(t, err)
	b := engine.Batch{IDs: []int32{1, 2, 3, 4, 5}, Offsets: []int{0, 2, 2, 5}}
	var wg sync.WaitGroup
	for range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 50 {
				dst := make([]float32, 20)
				if err := m.Encode(context.Background(), dst, b); err != nil {
					if err != ErrClosed {
						t.Error(err)
					}
					return
				}
				if !slices.Equal(dst[:2], dst[:2]) || math.Abs(float64(dst[0]-vector(1, 2)[0])) > 1e-6 {
					t.Error(dst)
				}
			}
		}()
	}
	require.NoError(t, m.Close())
	wg.Wait()
	require.NoError(t, m.Close())
	require.ErrorIs(t, m.Encode(t.Context(), make([]float32, 20), b), ErrClosed)
}

func TestCancelled(t *testing.T) {
	needLibrary(t)
	m := openGraph(t, "plain", Options{})
	m.batch = 1
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b := engine.Batch{IDs: []int32{1}, Offsets: []int{0, 1}}
	require.ErrorIs(t, m.Encode(ctx, make([]float32, 4), b), context.Canceled)
	// A batch under way is ended too.
	ids := make([]int32, 200000)
	ctx, cancel = context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		b := engine.Batch{IDs: ids, Offsets: make([]int, len(ids)+1)}
		for i := range b.Offsets {
			b.Offsets[i] = i
		}
		done <- m.Encode(ctx, make([]float32, 4*len(ids)), b)
	}()
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}

func TestErrors(t *testing.T) {
	needLibrary(t)
	m := openGraph(t, "plain", Options{})
	dst := make([]float32, 8)
	for name, b := range map[string]engine.Batch{
		"no offsets": {IDs: []int32{1, 2}}, "end": {IDs: []int32{1, 2}, Offsets: []int{0, 1}},
		"backwards": {IDs: []int32{1, 2}, Offsets: []int{0, 3, 2}},
		"attended":  {IDs: []int32{1, 2}, Offsets: []int{0, 2}, Attended: []int{3}},
		"none":      {IDs: []int32{1, 2}, Offsets: []int{0, 2}, Attended: []int{0}},
		"room":      {IDs: []int32{1, 2, 3}, Offsets: []int{0, 3}},
	} {
		require.ErrorIs(t, m.Encode(t.Context(), dst, b), engine.ErrBatch, name)
	}
	// What the library says about a batch is in the error, and nothing is lost.
	err := m.Encode(t.Context(), dst, engine.Batch{IDs: []int32{1, 99}, Offsets: []int{0, 2}})
	require.ErrorContains(t, err, "99")
	require.NoError(t, m.Encode(t.Context(), dst, engine.Batch{IDs: []int32{1, 9}, Offsets: []int{0, 2}}))
	fixed := openGraph(t, "fixed", Options{})
	err = fixed.Encode(t.Context(), make([]float32, 36), engine.Batch{IDs: make([]int32, 9), Offsets: []int{0, 9}})
	require.ErrorIs(t, err, engine.ErrBatch)

	dir := t.TempDir()
	whole, err := os.ReadFile(filepath.Join("testdata", "plain.onnx"))
	require.NoError(t, err)
	for name, text := range map[string]string{"empty": "", "text": "no graph", "short": string(whole[:len(whole)/2])} {
		path := filepath.Join(dir, name+".onnx")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := Open(path, Options{})
		require.ErrorIs(t, err, ErrGraph, name)
	}
	for name, want := range map[string]string{
		"ambiguous": "want one output", "extra": "pixels", "sentence": "want one output of float32 or float16 [texts, ids, dimensions]",
	} {
		_, err := Open(filepath.Join("testdata", name+".onnx"), Options{})
		require.ErrorIs(t, err, ErrGraph, name)
		require.ErrorContains(t, err, want)
	}
	_, err = Open("testdata/none.onnx", Options{})
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestLibraries: each fault of a library has its error, with the path.
func TestLibraries(t *testing.T) {
	graph := filepath.Join("testdata", "plain.onnx")
	t.Run("none named", func(t *testing.T) {
		t.Setenv(EnvLibrary, "")
		_, err := Open(graph, Options{})
		require.ErrorIs(t, err, engine.ErrLibrary)
		require.ErrorContains(t, err, EnvLibrary)
	})
	dir := t.TempDir()
	text := filepath.Join(dir, "libonnxruntime.so")
	require.NoError(t, os.WriteFile(text, []byte("text"), 0o600))
	for _, path := range []string{text, dir, filepath.Join(dir, "missing"), "libc.so.6"} {
		_, err := Open(graph, Options{Library: path})
		var le *engine.LibraryError
		require.ErrorAs(t, err, &le, path)
		require.ErrorIs(t, err, engine.ErrLibrary)
		require.True(t, strings.HasSuffix(le.Path, path), le.Path)
		require.Equal(t, "1.12 or later", le.Wanted)
	}
	// Another library, where the system has one at a usual place.
	others, err := filepath.Glob("/lib/*-linux-gnu/libm.so.6")
	require.NoError(t, err)
	for _, path := range others {
		_, err := Open(graph, Options{Library: path})
		require.ErrorIs(t, err, engine.ErrLibrary)
		require.ErrorContains(t, err, "OrtGetApiBase")
	}
	for version, want := range map[string]bool{
		"1.31.1": true, "1.12.0": true, "1.12": true, "1.11.1": false, "2.0.0": false, "": false, "1": false, "1.x.2": false, "x": false,
	} {
		require.Equal(t, want, versionSupported(version), version)
	}
}
