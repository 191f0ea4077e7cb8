package nearest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/floats"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/resident"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/resident/residenttest"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
	"github.com/plaid-ir/plaid/vectors"
)

// left is a source whose vectors lie on a device.
type left struct {
	vectors.Source
	v    *resident.Vectors
	read int // documents with their tokens
	stop int // Bare fails there
}

var errStop = errors.New("stopped")

func (s *left) Vectors() kernels.ResidentVectors {
	if s.v == nil {
		return nil
	}
	return s.v
}

func (s *left) DropVectors() {
	if s.v != nil {
		s.v.Release()
		s.v = nil
	}
}

func (s *left) Close() error { s.DropVectors(); return s.Source.Close() }

func (s *left) Docs(ctx context.Context, from, to int) iter.Seq2[vectors.Document, error] {
	return func(yield func(vectors.Document, error) bool) {
		for d, err := range s.Source.Docs(ctx, from, to) {
			s.read++
			if !yield(d, err) {
				return
			}
		}
	}
}

func (s *left) DocsWithoutTokens(ctx context.Context, from, to int) iter.Seq2[vectors.Document, error] {
	return func(yield func(vectors.Document, error) bool) {
		i := from
		for d, err := range s.Source.Docs(ctx, from, to) {
			if s.stop > 0 && i >= s.stop {
				yield(d, errStop)
				return
			}
			d.Tokens = nil
			if i++; !yield(d, err) {
				return
			}
		}
	}
}

// halfDocs draws documents, some of them empty or of one token, with tokens that are zero or equal to others, all
// of which have halves.
func halfDocs(rng *rand.Rand, dim, docs, length int, scale float32) []vectors.Document {
	topics := kerneltest.UnitVectors(rng, 30, dim)
	var all []vectors.Document
	for i := range docs {
		n := 0
		switch rng.IntN(6) {
		case 0:
		case 1:
			n = 1
		default:
			n = rng.IntN(2 * length)
		}
		tokens := kerneltest.UnitVectors(rng, n, dim)
		for j := 0; j < len(tokens); j += dim {
			for k, v := range topics[rng.IntN(30)*dim:][:dim] {
				tokens[j+k] = kernels.F16ToF32(kernels.F16FromF32(scale * (0.5*tokens[j+k] + v)))
			}
			if rng.IntN(20) == 0 {
				clear(tokens[j : j+dim])
			}
			if rng.IntN(10) == 0 && j > 0 {
				copy(tokens[j:j+dim], tokens[:dim])
			}
		}
		d := vectors.Document{ID: fmt.Sprint("d", i), Tokens: tokens}
		if rng.IntN(3) > 0 {
			d.Payload = fmt.Appendf(nil, `{"n":%d}`, i)
		}
		all = append(all, d)
	}
	return all
}

// leaveOn leaves the tokens of documents on a device.
func leaveOn(t *testing.T, d *runtime.Device, dim int, docs []vectors.Document) *left {
	src, err := vectors.FromDocuments(dim, docs)
	require.NoError(t, err)
	var x []float32
	for _, d := range docs {
		x = append(x, d.Tokens...)
	}
	halves := make([]byte, 2*len(x))
	require.True(t, floats.EncodeFloat16(halves, x))
	v, err := resident.New(ctx, d, dim)
	require.NoError(t, err)
	require.NoError(t, residenttest.WriteHalves(ctx, d, v, 0, halves))
	return &left{Source: src, v: v}
}

func contentsOf(t *testing.T, path string) *index.Contents {
	ix, err := index.Open(ctx, path, nil)
	require.NoError(t, err)
	defer ix.Close()
	snap, err := ix.Snapshot()
	require.NoError(t, err)
	defer snap.Close()
	require.NoError(t, snap.Verify(ctx))
	c, err := snap.Contents(ctx, 1)
	require.NoError(t, err)
	return c
}

// Whatever the options, vectors that lie on a device give the index that the processor builds of them.
func TestResidentIndexOfAnyOptions(t *testing.T) {
	f := runtimetest.Fake(fakeKernels())
	f.Memory = 40 << 20
	d := runtimetest.OpenFake(t, f)
	rng := rand.New(rand.NewPCG(1, 1))
	pick := func(from ...int) int { return from[rng.IntN(len(from))] }
	for i := range effort.Cases(12, 100) {
		dim, scale := pick(1, 3, 7, 16, 33, 64, 100, 128, 130, 257), []float32{1, 1, .01, 30}[rng.IntN(4)]
		docs := halfDocs(rng, dim, 1+rng.IntN(80), 8, scale)
		o := index.BuildOptions{
			Nbits: pick(0, 1, 2, 4, 8), Centroids: pick(0, 1, 5, 100000), SampleDocs: pick(0, 0, 1, 9), Iterations: rng.IntN(3),
			Seed: rng.Uint64(), NoDimScales: rng.IntN(2) == 0, NoCentroidScales: rng.IntN(2) == 0, Pool: pick(0, 0, 0, 2),
			Unnormalized: rng.IntN(2) == 0, Memory: 32 << 20,
		}
		src := leaveOn(t, d, dim, docs)
		dir := t.TempDir()
		report, err := index.Build(ctx, filepath.Join(dir, "a"), src.Source, &o)
		own := o
		own.Device = building{dev: d}
		got, gotErr := index.Build(ctx, filepath.Join(dir, "b"), src, &own)
		if err != nil {
			require.EqualError(t, gotErr, err.Error())
		} else {
			require.NoError(t, gotErr)
			want := contentsOf(t, filepath.Join(dir, "a"))
			require.Equal(t, want, contentsOf(t, filepath.Join(dir, "b")), "%d: %d, %+v", i, dim, o)
			report.Seconds, got.Seconds = struct{ Sample, Train, Encode float64 }{}, struct{ Sample, Train, Encode float64 }{}
			require.InDelta(t, report.RMSE, got.RMSE, 1e-9)
			got.RMSE = report.RMSE
			require.Equal(t, report, got)
			require.Equal(t, o.Pool == 0, src.read == 0)
		}
		require.NoError(t, src.Close())
		require.Zero(t, d.Live().Allocations)
	}
}

// Wherever there is no room beside the vectors, a build goes on without them, and the index is the same.
func TestIndexWithoutRoomBesideVectors(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 1))
	const dim = 16
	docs := halfDocs(rng, dim, 60, 8, 1)
	given, _ := sample(rng, dim, 2, 9, 40)
	for _, q := range []*codec.Quantizer{nil, given} {
		var want *index.Contents
		for n, hit := 0, true; hit; n++ {
			f := runtimetest.Fake(fakeKernels())
			f.Memory = 24 << 20
			d := runtimetest.OpenFake(t, f)
			src := leaveOn(t, d, dim, docs)
			calls := 0
			hit = n == 0
			f.Fail = func(op string) driver.Result {
				if op != "cuMemAlloc" || src.v == nil {
					return driver.Success
				}
				if calls++; calls != n {
					return driver.Success
				}
				hit = true
				return driver.OutOfMemory
			}
			path := filepath.Join(t.TempDir(), "x.plaid")
			_, err := index.Build(ctx, path, src, &index.BuildOptions{Device: building{dev: d}, Codec: q, Memory: 32 << 20})
			f.Fail = nil
			require.NoError(t, err, "allocation %d", n)
			got := contentsOf(t, path)
			if n == 0 {
				want = got
			}
			require.Equal(t, want, got, "allocation %d", n)
			require.Equal(t, n > 0 && hit, src.read > 0)
			require.NoError(t, src.Close())
			require.Zero(t, d.Live().Allocations)
		}
	}
}

// A device that is lost, or a context that ends, in any call of a build leaves nothing.
func TestResidentBuildEndsAnywhere(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 1))
	const dim = 16
	docs := halfDocs(rng, dim, 30, 8, 1)
	for _, result := range []driver.Result{driver.IllegalAddress, driver.Success} {
		for n, step := 1, effort.Cases(5, 1); ; n += step {
			f := runtimetest.Fake(fakeKernels())
			f.Memory = 24 << 20
			d := runtimetest.OpenFake(t, f)
			src := leaveOn(t, d, dim, docs)
			canceled, cancel := context.WithCancel(ctx)
			calls, hit := 0, false
			f.Fail = func(op string) driver.Result {
				if op == "cuMemFree" || op == "cuMemFreeHost" || op == "cuEventDestroy" {
					return driver.Success
				}
				if calls++; calls != n {
					return driver.Success
				}
				hit = true
				if result == driver.Success {
					cancel()
				}
				return result
			}
			dir := t.TempDir()
			o := &index.BuildOptions{Device: building{dev: d}, Centroids: 9, Memory: 32 << 20}
			_, err := index.Build(canceled, filepath.Join(dir, "x.plaid"), src, o)
			cancel()
			f.Fail = nil
			if err != nil {
				require.True(t, errors.Is(err, context.Canceled) || errors.Is(err, driver.ErrDeviceLost), "call %d: %v", n, err)
				require.True(t, hit)
				left, err := os.ReadDir(dir)
				require.NoError(t, err)
				require.Empty(t, left, "call %d", n)
			} else {
				contentsOf(t, filepath.Join(dir, "x.plaid"))
			}
			require.NoError(t, src.Close())
			require.NoError(t, d.Close())
			if !hit {
				require.Greater(t, n, 100)
				break
			}
		}
	}
}

// A build that was interrupted goes on with vectors on a device, or without them, and makes the same index.
func TestResidentBuildResumes(t *testing.T) {
	effort.SkipBrief(t, "it takes documents for several chunks")
	rng := rand.New(rand.NewPCG(5, 3))
	const dim = 256
	docs := halfDocs(rng, dim, 700, 100, 1)
	for i := range docs {
		if i%5 == 0 {
			docs[i].Payload = append([]byte(`{"t":"`), append(bytes.Repeat([]byte("x"), 100000), `"}`...)...)
		}
	}
	f := runtimetest.Fake(fakeKernels())
	f.Memory = 200 << 20
	d := runtimetest.OpenFake(t, f)
	o := &index.BuildOptions{
		Device: building{dev: d}, Nbits: 8, Centroids: 2, SampleDocs: 3, Memory: 32 << 20, Input: "x", Resume: true,
	}
	src := leaveOn(t, d, dim, docs)
	dir := t.TempDir()
	_, err := index.Build(ctx, filepath.Join(dir, "a"), src, o)
	require.NoError(t, err)
	require.Zero(t, src.read)
	want := contentsOf(t, filepath.Join(dir, "a"))
	for _, stop := range []int{400, 690}[:effort.Cases(1, 2)] {
		src := leaveOn(t, d, dim, docs)
		src.stop = stop
		path := filepath.Join(dir, "b")
		_, err := index.Build(ctx, path, src, o)
		require.ErrorIs(t, err, errStop)
		require.NoError(t, src.Close())
		again := leaveOn(t, d, dim, docs)
		if stop == 400 {
			again.DropVectors()
		}
		r, err := index.Build(ctx, path, again, o)
		require.NoError(t, err)
		require.Greater(t, r.Resumed, 200)
		require.Equal(t, want, contentsOf(t, path))
		require.NoError(t, again.Close())
		require.NoError(t, os.Remove(path))
	}
}
