package index

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/vectors"
	"github.com/plaid-ir/plaid/vectors/pool"
)

// pooledDocs is what an index should hold of documents.
func pooledDocs(docs []vectors.Document, dim, n int) []vectors.Document {
	var p pool.Pooler
	var out []vectors.Document
	for _, d := range docs {
		x := append([]float32(nil), d.Tokens...)
		codec.Normalize(x, dim)
		d.Tokens = p.Pool(nil, x, dim, n)
		out = append(out, d)
	}
	return out
}

func TestPool(t *testing.T) {
	const dim = 16
	docs := corpus(90, 30, dim, 5)
	for _, n := range []int{2, 3} {
		want := pooledDocs(docs, dim, n)
		var digest string
		for _, threads := range []int{1, 3} {
			path := newPath(t)
			r := build(t, path, dim, docs[:60], &BuildOptions{Pool: n, Threads: threads, Centroids: 20})
			tokens := 0
			for _, d := range want[:60] {
				tokens += len(d.Tokens) / dim
			}
			require.EqualValues(t, tokens, r.Tokens)
			requireFile(t, path, want[:60])

			ix := writing(t, path)
			added, err := ix.Add(context.Background(), fromDocs(t, dim, docs[60:]), &AddOptions{Threads: threads})
			require.NoError(t, err)
			require.Equal(t, 30, added.Docs)
			s, err := ix.Snapshot()
			require.NoError(t, err)
			require.Equal(t, n, s.Header().Build.Pool)
			requireIndex(t, s, want)
			require.NoError(t, s.Close())
			require.NoError(t, ix.Compact(context.Background(), nil))
			require.NoError(t, ix.Close())
			requireFile(t, path, want)
			if digest == "" {
				digest = digestOf(t, path)
			}
			require.Equal(t, digest, digestOf(t, path), "the number of threads changes the index")
		}
	}
}

func TestPoolErrors(t *testing.T) {
	const dim = 4
	docs := corpus(20, 8, dim, 5)
	_, err := Build(context.Background(), newPath(t), fromDocs(t, dim, docs), &BuildOptions{Pool: -1})
	require.ErrorIs(t, err, ErrOption)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	src, err := pooled(t.Context(), &pooledSource{Source: fromDocs(t, dim, docs), pooling: pooling{n: 2}, threads: 2, normalize: true, memory: 1 << 25})
	require.NoError(t, err)
	for _, err := range src.Docs(ctx, 0, len(docs)) {
		require.ErrorIs(t, err, context.Canceled)
	}
}
