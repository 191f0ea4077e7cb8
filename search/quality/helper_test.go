package quality

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

func query(m *searchtest.Maker, tokens int) search.Query {
	return search.Query{Vectors: m.Tokens(tokens)}
}

func find(t testing.TB, s search.Searcher, q search.Query, o search.Options) *search.Result {
	t.Helper()
	res, err := s.Search(t.Context(), q, o)
	require.NoError(t, err)
	return res
}

func ids(hits []search.Hit) []string {
	out := make([]string, len(hits))
	for i, h := range hits {
		out[i] = h.ID
	}
	return out
}

// engine searches an index on so many threads, with the options that are set.
func engine(t testing.TB, ix *index.Index, o search.EngineOptions) *search.Engine {
	t.Helper()
	e, err := search.New(t.Context(), ix, &o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

// collection is the one of most tests; the index of it is built once, and none of them changes it.
var collection struct {
	once sync.Once
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	effort.Rapid(20, 100)
	code := m.Run()
	_ = os.RemoveAll(collection.dir)
	os.Exit(code)
}

func recallCollection(t testing.TB) (*index.Index, []search.Query, []vectors.Document) {
	m := searchtest.New(11, 32, 60)
	docs := m.Docs("d", 400, 12)
	qs := make([]search.Query, 40)
	for i := range qs {
		qs[i] = query(m, 1+i%6)
	}
	path := func() string { return filepath.Join(collection.dir, "recall.plaid") }
	collection.once.Do(func() {
		if collection.dir, collection.err = os.MkdirTemp("", "plaid-quality-"); collection.err == nil {
			_, collection.err = index.Build(context.Background(), path(), searchtest.Source(t, 32, docs), &index.BuildOptions{Centroids: 128, Threads: 1})
		}
	})
	require.NoError(t, collection.err)
	ix, err := index.Open(t.Context(), path(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ix.Close()) })
	return ix, qs, docs
}

func recallIndex(t testing.TB) (*search.Engine, *index.Snapshot, []search.Query, []vectors.Document) {
	ix, qs, docs := recallCollection(t)
	return engine(t, ix, search.EngineOptions{Threads: 2}), searchtest.Snapshot(t, ix), qs, docs
}
