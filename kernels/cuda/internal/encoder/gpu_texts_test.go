package encoder

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/internal/testing/realdata"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
)

// encoders are the folders of the models that are there: that of the quickstart,
// colbert-mini beside the checkout, and what PLAID_GPU_MODELS names, folders with colons
// between them.
func encoders(t testing.TB) map[string]string {
	all := map[string]string{"colbert-nano": filepath.Join("..", "..", "..", "..", "docs", "examples", "quickstart", "colbert-nano")}
	if names := os.Getenv("PLAID_GPU_MODELS"); names != "" {
		for _, dir := range filepath.SplitList(names) {
			all[filepath.Base(dir)] = dir
		}
		return all
	}
	all["colbert-mini"] = realdata.Mini(t)
	return all
}

// realTexts are documents and queries of a collection in BEIR's layout: the sample of the
// quickstart, or what PLAID_GPU_TEXTS names.
func realTexts(t testing.TB) (docs []encode.Text, queries []string) {
	dir := os.Getenv("PLAID_GPU_TEXTS")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "..", "docs", "examples", "quickstart", "scifact-sample")
	}
	for text, err := range encode.JSONL(t.Context(), filepath.Join(dir, "corpus.jsonl")) {
		require.NoError(t, err)
		docs = append(docs, text)
	}
	for text, err := range encode.JSONL(t.Context(), filepath.Join(dir, "queries.jsonl")) {
		require.NoError(t, err)
		queries = append(queries, text.Text)
	}
	return docs[:min(len(docs), 600)], queries[:min(len(queries), 300)]
}

// vectorsOf are those of all documents, then of all queries.
func vectorsOf(t testing.TB, e *encode.Encoder, docs []encode.Text, queries []string) (all [][]float32) {
	for d, err := range e.Documents(t.Context(), encode.Texts(docs...)) {
		require.NoError(t, err)
		all = append(all, slices.Clone(d.Tokens))
	}
	found, err := e.Queries(t.Context(), queries)
	require.NoError(t, err)
	for _, q := range found {
		all = append(all, q.Vectors)
	}
	return all
}

// From real texts to vectors, real models on the GPU agree with the processor's float32 to
// a cosine of .9999, but for one vector in a thousand, and give the same bits one by one.
func TestGPUEncodesAsTheProcessor(t *testing.T) {
	d := encoding{dev: runtimetest.OpenGPU(t)}
	docs, queries := realTexts(t)
	for name, dir := range encoders(t) {
		exact, err := encode.Open(dir, nil)
		require.NoError(t, err)
		half, err := encode.OpenContext(context.Background(), dir, &encode.Options{OpenedDevice: d})
		require.NoError(t, err)
		want, got := vectorsOf(t, exact, docs, queries), vectorsOf(t, half, docs, queries)
		require.Len(t, got, len(want))
		var cosines []float64
		mean := 0.0
		for i := range want {
			require.Len(t, got[i], len(want[i]))
			for j := 0; j < len(want[i]); j += exact.Dim() {
				s := 0.0
				for k := range exact.Dim() {
					s += float64(want[i][j+k]) * float64(got[i][j+k])
				}
				cosines, mean = append(cosines, s), mean+s
			}
		}
		slices.Sort(cosines)
		at := cosines[len(cosines)/1000]
		t.Logf("%s: %d vectors of %d texts: 1 − cosine mean %.2g, .1 %% quantile %.2g, most %.2g", name, len(cosines), len(want),
			1-mean/float64(len(cosines)), 1-at, 1-cosines[0])
		require.Greater(t, at, 0.9999, name)
		for i := 0; i < len(docs); i += max(len(docs)/25, 1) {
			require.Equal(t, got[i], vectorsOf(t, half, docs[i:i+1], nil)[0], "%s, document %d alone", name, i)
		}
		for i := 0; i < len(queries); i += max(len(queries)/25, 1) {
			for range 3 { // at last as a graph
				q, err := half.Query(t.Context(), queries[i])
				require.NoError(t, err)
				require.Equal(t, got[len(docs)+i], q.Vectors, "%s, query %d alone", name, i)
			}
		}
		require.NoError(t, half.Close())
		require.NoError(t, exact.Close())
	}
}
