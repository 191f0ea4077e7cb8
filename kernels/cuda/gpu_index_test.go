package cuda_test

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/realdata"
	"github.com/plaid-ir/plaid/kernels"
	_ "github.com/plaid-ir/plaid/kernels/cuda"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

// cranfield opens Cranfield's vectors: from the data beside the checkout, or
// decoded from an index that PLAID_CRANFIELD names, with the queries beside it.
func cranfield(t testing.TB) (docs, queries vectors.Source) {
	if path := os.Getenv("PLAID_CRANFIELD"); path != "" {
		dir := filepath.Dir(path)
		return decoded(t, path), open(t, vectors.Files{Vectors: filepath.Join(dir, "queries.npy"), Lengths: filepath.Join(dir, "querylens.npy")})
	}
	dir := realdata.Path(t, "data", "cranfield", "vectors")
	return open(t, vectors.Files{Vectors: filepath.Join(dir, "docs.npy"), Lengths: filepath.Join(dir, "doclens.npy")}),
		open(t, vectors.Files{Vectors: filepath.Join(dir, "queries.npy")})
}

func open(t testing.TB, f vectors.Files) vectors.Source {
	s, err := vectors.Open(context.Background(), f)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func decoded(t testing.TB, path string) vectors.Source {
	ix, err := index.Open(context.Background(), path, nil)
	require.NoError(t, err)
	defer ix.Close()
	snap, err := ix.Snapshot()
	require.NoError(t, err)
	defer snap.Close()
	var docs []vectors.Document
	for i := range snap.State().Docs {
		if !snap.Live(i) {
			continue
		}
		v, err := snap.Vectors(i)
		require.NoError(t, err)
		docs = append(docs, vectors.Document{ID: snap.ID(i), Tokens: v})
	}
	src, err := vectors.FromDocuments(snap.Dim(), docs)
	require.NoError(t, err)
	return src
}

// The GPU builds and ranks the whole of Cranfield as the processor does.
func TestGPUCranfield(t *testing.T) {
	ctx := context.Background()
	d, _, err := kernels.OpenDevice(ctx, "cuda:0")
	runtimetest.NeedGPU(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	docs, queries := cranfield(t)
	path := filepath.Join(t.TempDir(), "cpu.plaid")
	_, err = index.Build(ctx, path, docs, nil)
	require.NoError(t, err)
	onGPU := filepath.Join(t.TempDir(), "gpu.plaid")
	_, err = index.Build(ctx, onGPU, docs, &index.BuildOptions{Device: d})
	require.NoError(t, err)
	for _, p := range []string{path, onGPU} {
		ix, err := index.Open(ctx, p, nil)
		require.NoError(t, err)
		defer ix.Close()
		cpu, err := search.New(ctx, ix, nil)
		require.NoError(t, err)
		gpu, err := search.New(ctx, ix, &search.EngineOptions{Device: d})
		require.NoError(t, err)
		var qs []search.Query
		for q, err := range queries.Docs(ctx, 0, queries.Len()) {
			require.NoError(t, err)
			qs = append(qs, search.Query{Vectors: append([]float32(nil), q.Tokens...)})
		}
		o := search.Options{K: 100, Mode: search.Exhaustive}
		want, err := cpu.SearchBatch(ctx, qs, o)
		require.NoError(t, err)
		got, err := gpu.SearchBatch(ctx, qs, o)
		require.NoError(t, err)
		var stats search.Stats
		swaps := 0
		for i := range want {
			require.Len(t, got[i].Hits, len(want[i].Hits))
			for j, h := range want[i].Hits {
				require.InDelta(t, h.Score, got[i].Hits[j].Score, 1e-4, "query %d, place %d", i, j)
				if h.ID != got[i].Hits[j].ID {
					swaps++
					require.Less(t, math.Abs(float64(h.Score-got[i].Hits[j].Score)), 1e-4)
				}
			}
			stats.Add(got[i].Stats)
		}
		t.Logf("%d of %d places differ, all within rounding; %+v", swaps, len(want)*100, *stats.Device)
		require.NoError(t, gpu.Close())
	}
}
