package cuda_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/kernels"
	_ "github.com/plaid-ir/plaid/kernels/cuda"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

// Additions of one document merge segments, which cuts chunks anew, and a file that
// is followed is another index under the same name.
// What the device finds is what the processor finds all along.
func TestGPUKeepsUp(t *testing.T) {
	ctx := context.Background()
	d, _, err := kernels.OpenDevice(ctx, "cuda:0")
	runtimetest.NeedGPU(t, err)
	defer d.Close()
	const dim = 32
	rng := rand.New(rand.NewPCG(1, 2))
	document := func(i int) vectors.Document {
		doc := vectors.Document{ID: fmt.Sprint("d", i), Tokens: make([]float32, dim*(1+i%7))}
		for j := range doc.Tokens {
			doc.Tokens[j] = float32(rng.NormFloat64())
		}
		return doc
	}
	var docs []vectors.Document
	for i := range 60 {
		docs = append(docs, document(i))
	}
	source := func(docs []vectors.Document) vectors.Source {
		s, err := vectors.FromDocuments(dim, docs)
		require.NoError(t, err)
		return s
	}
	path := filepath.Join(t.TempDir(), "x.plaid")
	_, err = index.Build(ctx, path, source(docs), nil)
	require.NoError(t, err)
	ix, err := index.Open(ctx, path, &index.Options{Write: true})
	require.NoError(t, err)
	defer ix.Close()
	_, err = ix.BackupTo(ctx, path+".copy", nil)
	require.NoError(t, err)
	follower, err := index.Open(ctx, path+".copy", nil)
	require.NoError(t, err)
	defer follower.Close()
	cpu, err := search.New(ctx, ix, nil)
	require.NoError(t, err)
	defer cpu.Close()
	var engines []*search.Engine
	for _, x := range []*index.Index{ix, follower} {
		e, err := search.New(ctx, x, &search.EngineOptions{Device: d})
		require.NoError(t, err)
		defer e.Close()
		engines = append(engines, e)
	}
	for i := 60; i < 90; i++ {
		doc := document(i)
		_, err := ix.Add(ctx, source([]vectors.Document{doc}), nil)
		require.NoError(t, err)
		if i%10 == 5 {
			_, _, err := ix.Delete(ctx, []string{docs[i-60].ID})
			require.NoError(t, err)
			require.NoError(t, ix.Compact(ctx, nil))
		}
		_, err = ix.BackupTo(ctx, path+".copy", nil)
		require.NoError(t, err)
		_, err = follower.Refresh(ctx)
		require.NoError(t, err)
		q := search.Query{Vectors: doc.Tokens}
		want, err := cpu.Search(ctx, q, search.Options{Mode: search.Exhaustive, K: 5})
		require.NoError(t, err)
		require.Equal(t, doc.ID, want.Hits[0].ID)
		for n, e := range engines {
			got, err := e.Search(ctx, q, search.Options{Mode: search.Exhaustive, K: 5})
			require.NoError(t, err)
			require.Equal(t, doc.ID, got.Hits[0].ID, "engine %d after %d additions", n, i-59)
		}
	}
}
