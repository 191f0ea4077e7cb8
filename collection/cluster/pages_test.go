package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/vectors"
	"github.com/plaid-ir/plaid/vectors/pool"
)

// A page that an index cannot take is refused before it comes into a log, which no replica could follow any more, and
// so that the other documents of the group are stored.
func TestPagesThatDoNotFit(t *testing.T) {
	c := startNodes(t, 1, 1, nil)[0]
	wiki := declared(t, c, testDocs(0, 20, 16)...)
	page := func(i, tokens int, grid string) []collection.DocumentInput {
		docs := testDocs(i, 1, 16)
		docs[0].Vectors = docs[0].Vectors[:16*tokens]
		docs[0].Metadata = fmt.Appendf(nil, `{"image": "a.png", "grid": %s}`, grid)
		return docs
	}
	entries := func() int {
		log, err := c.cfg.Store.List(t.Context(), dataPrefix(wiki.(*shardedCollection).id)+"log/", "", 0)
		require.NoError(t, err)
		return len(log)
	}
	refused := func(docs []collection.DocumentInput) {
		t.Helper()
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
		defer stop()
		before := entries()
		_, err := wiki.Update(ctx, docs, collection.UpdateOptions{})
		var at *collection.DocumentError
		require.ErrorAs(t, err, &at)
		require.True(t, errors.Is(err, vectors.ErrShape) || errors.Is(err, vectors.ErrFormat), err)
		require.Equal(t, before, entries())
	}
	refused(page(100, 2, `[9, 9]`))
	refused(page(100, 2, `"bad"`))
	refused(page(100, 2, `[0, -1]`))
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			docs := page(200+i, 2, []string{`[1, 2]`, `[2, 2]`}[i%2])
			_, err := wiki.Update(t.Context(), docs, collection.UpdateOptions{})
			if i%2 == 0 && err != nil || i%2 == 1 && !errors.Is(err, vectors.ErrShape) {
				t.Errorf("document %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 40, numbersOf(t, wiki).Documents)

	// All documents of an index whose tokens were pooled by tiles are pages.
	var pages []collection.DocumentInput
	for i := range 50 {
		pages = append(pages, page(300+i, 2, `[1, 2]`)...)
	}
	o := BuildOptions{Train: index.BuildOptions{Pool: 4, PoolBy: pool.Tiles}}
	_, err := Build(t.Context(), c.cfg.Store, "wiki", o, sourceOf(t, pages))
	require.NoError(t, err)
	await(t, "what was built is searched", func() bool { return numbersOf(t, wiki).Documents == 50 })
	refused(testDocs(400, 1, 16))
	refused(page(400, 1, `[1, 2]`))
	add(t, wiki, page(400, 2, `[1, 2]`))
	require.EqualValues(t, 51, numbersOf(t, wiki).Documents)
}
