package beir

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/eval"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

const sample = "../../docs/examples/quickstart/scifact-sample"

func folder(t *testing.T, dir string) Vectors {
	t.Helper()
	in, err := Folder(dir)
	require.NoError(t, err)
	return in
}

func TestRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.plaid")
	steps := map[string]bool{}
	r, err := Run(t.Context(), sample, folder(t, sample+"/vectors"), Options{
		Index: path, Build: index.BuildOptions{Nbits: 4}, Progress: func(p index.Progress) { steps[p.Stage] = true },
	})
	require.NoError(t, err)
	require.Equal(t, []int{46, 24, 0, 0, 100}, []int{r.Docs, r.Queries, r.Unsearched, r.Missing, r.K})
	require.EqualValues(t, 9021, r.Tokens)
	require.True(t, steps["search"])
	require.False(t, r.QueriesAreDocuments())
	require.False(t, r.Reused)
	require.Positive(t, r.Seconds.Build)
	require.Equal(t, 24, r.Stats.Queries)
	require.Len(t, r.Result.Measures, 5)
	require.InDelta(t, 0.8731, r.Result.Means[0], 0.01) // of exact vectors, as the sample says

	// What it did by hand.
	ix, err := index.Open(context.Background(), path, nil)
	require.NoError(t, err)
	defer ix.Close()
	_, queries, err := Files(sample + "/vectors")
	require.NoError(t, err)
	src, err := vectors.Open(context.Background(), queries)
	require.NoError(t, err)
	defer src.Close()
	engine, err := search.New(t.Context(), ix, &search.EngineOptions{Threads: 1})
	require.NoError(t, err)
	defer engine.Close()
	for d, err := range src.Docs(t.Context(), 0, src.Len()) {
		require.NoError(t, err)
		res, err := engine.Search(t.Context(), search.Query{Vectors: d.Tokens}, search.Options{K: 100})
		require.NoError(t, err)
		got := r.Run.Hits(d.ID)
		require.Len(t, got, len(res.Hits))
		for i, h := range res.Hits {
			require.Equal(t, eval.ScoredDocument{Doc: h.ID, Score: float64(h.Score), Rank: i + 1}, got[i])
		}
	}

	again, err := Run(t.Context(), sample, folder(t, sample+"/vectors"), Options{Index: path})
	require.NoError(t, err)
	require.True(t, again.Reused)
	require.Equal(t, r.Result, again.Result)
}

func TestDepth(t *testing.T) {
	m, err := eval.ParseMeasures("R@500", "AP")
	require.NoError(t, err)
	require.Equal(t, 500, searchDepth(&Options{Measures: m}))
	require.Equal(t, 501, searchDepth(&Options{Measures: m, Eval: eval.Options{ExcludeSelf: true}}))
	require.Equal(t, 1000, searchDepth(&Options{Measures: m, Search: search.Options{K: 1000}}))
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	_, _, err := Files(filepath.Join(dir, "nosuch"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, _, err = Files(dir)
	require.ErrorIs(t, err, ErrNoVectors)
	for _, name := range []string{"docs.npz", "queries.safetensors", "querylens.json", "doc_ids.txt", "query_mask.npy"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o666))
	}
	docs, queries, err := Files(dir)
	require.NoError(t, err)
	in := func(name string) string { return filepath.Join(dir, name) }
	require.Equal(t, vectors.Files{Vectors: in("docs.npz"), IDs: in("doc_ids.txt")}, docs)
	require.Equal(t, vectors.Files{Vectors: in("queries.safetensors"), Lengths: in("querylens.json"), Mask: in("query_mask.npy")}, queries)
}

func TestRunErrors(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	t.Setenv("TMP", temp)
	_, err := Run(ctx, sample, folder(t, sample+"/vectors"), Options{})
	require.ErrorIs(t, err, context.Canceled)
	left, err := os.ReadDir(temp)
	require.NoError(t, err)
	require.Empty(t, left, "the temporary folder is left")
	_, err = Folder(sample)
	require.ErrorIs(t, err, ErrNoVectors)
	other := folder(t, sample+"/vectors")
	other.Model = &storage.Model{Name: "other"}
	path := filepath.Join(t.TempDir(), "x.plaid")
	_, err = Run(t.Context(), sample, other, Options{Index: path})
	require.NoError(t, err)
	other.Model = &storage.Model{Name: "another"}
	_, err = Run(t.Context(), sample, other, Options{Index: path})
	require.ErrorIs(t, err, storage.ErrModel)
	_, err = Run(t.Context(), sample, folder(t, sample+"/vectors"), Options{Split: "dev"})
	require.ErrorIs(t, err, os.ErrNotExist)
}
