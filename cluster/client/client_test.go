package client_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/clustertest"
	"github.com/plaid-ir/plaid/cluster/objects"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

const dim = 16

func documents(seed uint64, n int) ([]vectors.Document, *searchtest.Maker) {
	m := searchtest.New(seed, dim, 12)
	docs := m.Docs("d", n, 12)
	for i := range docs {
		docs[i].Payload = fmt.Appendf(nil, `{"n":%d}`, i)
	}
	return docs, m
}

// codecOf is the codec of the collection.
func codecOf(t *testing.T, c *clustertest.Cluster) *index.Snapshot {
	t.Helper()
	m, err := c.Op.Watcher().Map("wiki")
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "codec.plaid")
	require.NoError(t, objects.Fetch(c.Ctx, c.Store, m.Current.Codec, file))
	return searchtest.Snapshot(t, searchtest.Open(t, file))
}

// single is one index with the codec of the collection.
func single(t *testing.T, c *clustertest.Cluster, docs []vectors.Document) *search.Engine {
	t.Helper()
	all := searchtest.Build(t, dim, docs, &index.BuildOptions{Like: codecOf(t, c)})
	e, err := search.New(c.Ctx, all, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// What a cluster answers is what one index with all documents answers.
func TestSearch(t *testing.T) {
	docs, maker := documents(1, 300)
	c := clustertest.New(t, 3)
	c.Collection("wiki", operate.CreateOptions{Shards: 5, Replicas: 2}, dim, docs)
	f := c.Client(client.Config{Collection: "wiki"})
	one := single(t, c, docs)
	for i := range 40 {
		q := search.Query{Vectors: maker.Tokens(6), Dim: dim}
		o := search.Options{K: 1 + i%3*20, Mode: search.Exhaustive, Payload: i%2 == 0}
		if i%5 == 4 {
			o.Filter = &search.Filter{IDs: []string{"d1", "d2", "d100", "nothing"}, AllowMissing: true}
		}
		if i%7 == 6 {
			e, err := condition.Parse("n < ?")
			require.NoError(t, err)
			w, err := e.Bind(50)
			require.NoError(t, err)
			q.Filter = &search.Filter{Where: w}
		}
		want, err := one.Search(c.Ctx, q, o)
		require.NoError(t, err)
		got, err := f.Search(c.Ctx, q, o)
		require.NoError(t, err)
		assert.True(t, got.Coverage.Complete())
		require.Len(t, got.Hits, len(want.Hits))
		for j, h := range got.Hits {
			// Among equal scores the order is that of shards.
			assert.Equal(t, want.Hits[j].Score, h.Score, "query %d, rank %d", i, j)
		}
		assert.Equal(t, scores(want), scores(got))
	}
	d, err := f.Describe(c.Ctx)
	require.NoError(t, err)
	assert.EqualValues(t, 300, d.Docs)
	assert.Equal(t, dim, d.Dim)

	// Masks, weights and candidates.
	q := search.Query{Vectors: maker.Tokens(4), Dim: dim, Mask: []bool{true, false, true, true}, Weights: []float32{1, 2, 3, 0.5}}
	o := search.Options{K: 3, Mode: search.Candidates, Candidates: []string{"d7", "d8", "d90", "d200", "nothing"}, AllowMissing: true}
	want, err := one.Search(c.Ctx, q, o)
	require.NoError(t, err)
	got, err := f.Search(c.Ctx, q, o)
	require.NoError(t, err)
	for i, h := range want.Hits {
		assert.Equal(t, h.ID, got.Hits[i].ID)
		assert.Equal(t, h.Score, got.Hits[i].Score)
	}
	o.AllowMissing = false
	_, err = f.Search(c.Ctx, q, o)
	assert.ErrorIs(t, err, search.ErrUnknownID)
	// Two filters of ids, and one of them with a condition.
	e, err := condition.Parse("n < 100")
	require.NoError(t, err)
	w, err := e.Bind()
	require.NoError(t, err)
	r, err := f.Search(c.Ctx, search.Query{Vectors: maker.Tokens(2), Filter: search.Only("d7", "d8", "d150", "d160")},
		search.Options{Mode: search.Exhaustive, Filter: &search.Filter{IDs: []string{"d8", "d150", "d20"}, Where: w}})
	require.NoError(t, err)
	for _, h := range r.Hits {
		assert.Equal(t, "d8", h.ID)
	}
	r, err = f.Search(c.Ctx, search.Query{Vectors: maker.Tokens(2)}, search.Options{Filter: &search.Filter{}})
	require.NoError(t, err)
	assert.Empty(t, r.Hits)

	_, err = f.Search(c.Ctx, search.Query{Vectors: []float32{1, 2, 3}}, search.Options{})
	assert.ErrorIs(t, err, search.ErrQuery)
	_, err = f.Search(c.Ctx, search.Query{Vectors: maker.Tokens(1)}, search.Options{Filter: search.Only("nothing")})
	assert.ErrorIs(t, err, search.ErrUnknownID)
	none, err := condition.Parse("nowhere = 1")
	require.NoError(t, err)
	bound, err := none.Bind()
	require.NoError(t, err)
	_, err = f.Search(c.Ctx, search.Query{Vectors: maker.Tokens(1)}, search.Options{Filter: search.Where(bound)})
	assert.ErrorIs(t, err, condition.ErrUnknownField)
	batch, err := f.SearchBatch(c.Ctx, []search.Query{{Vectors: maker.Tokens(2)}, {Vectors: maker.Tokens(3)}}, search.Options{K: 3})
	require.NoError(t, err)
	assert.Len(t, batch, 2)
	var bad *search.QueryError
	_, err = f.SearchBatch(c.Ctx, []search.Query{{Vectors: maker.Tokens(2)}, {}}, search.Options{K: 3})
	if assert.ErrorAs(t, err, &bad) {
		assert.Equal(t, 1, bad.Index)
	}
	require.NoError(t, f.Close())
	_, err = f.Search(c.Ctx, search.Query{Vectors: maker.Tokens(2)}, search.Options{})
	assert.ErrorIs(t, err, search.ErrClosed)
}

func scores(r *search.Result) map[string]float32 {
	s := map[string]float32{}
	last := float32(0)
	if len(r.Hits) > 0 {
		last = r.Hits[len(r.Hits)-1].Score
	}
	for _, h := range r.Hits {
		if h.Score > last { // which of those at the end are in is a matter of their order
			s[h.ID] = h.Score
		}
	}
	return s
}

func TestChanges(t *testing.T) {
	docs, maker := documents(2, 120)
	c := clustertest.New(t, 3)
	c.Collection("wiki", operate.CreateOptions{Shards: 3, Replicas: 2, Acks: 2}, dim, docs[:100])
	f := c.Client(client.Config{Collection: "wiki", BatchBytes: 2000})
	find := func(id string) *search.Result {
		r, err := f.Search(c.Ctx, search.Query{Vectors: maker.Tokens(3)}, search.Options{Filter: search.Only(id), K: 1})
		if errors.Is(err, search.ErrUnknownID) {
			return nil
		}
		require.NoError(t, err)
		return r
	}
	r, err := f.Add(c.Ctx, searchtest.Source(t, dim, docs[100:]), nil)
	require.NoError(t, err)
	assert.Equal(t, 20, r.Added)
	assert.NotNil(t, find(docs[110].ID))
	_, err = f.Add(c.Ctx, searchtest.Source(t, dim, docs[:1]), nil)
	assert.ErrorIs(t, err, index.ErrDuplicateID)
	assert.ErrorIs(t, err, client.ErrRefused)
	r, err = f.Add(c.Ctx, searchtest.Source(t, dim, docs[:10]), &client.WriteOptions{Replace: true})
	require.NoError(t, err)
	assert.Equal(t, 10, r.Replaced)
	r, err = f.Delete(c.Ctx, []string{docs[3].ID, docs[3].ID, "nothing"}, nil)
	require.NoError(t, err)
	assert.Equal(t, 1, r.Deleted)
	assert.Equal(t, []string{"nothing"}, r.Missing)
	assert.Nil(t, find(docs[3].ID))

	// A condition that does not hold.
	before, err := f.Applied()
	require.NoError(t, err)
	_, err = f.Delete(c.Ctx, []string{docs[4].ID}, &client.WriteOptions{If: before})
	require.NoError(t, err)
	_, err = f.Add(c.Ctx, searchtest.Source(t, dim, docs[4:5]), &client.WriteOptions{If: before})
	assert.ErrorIs(t, err, client.ErrConflict)

	checks, err := c.Op.Verify(c.Ctx, "wiki")
	require.NoError(t, err)
	total := uint64(0)
	for _, s := range checks {
		assert.Len(t, s.Replicas, 2)
		total += s.Replicas[0].Documents
	}
	assert.EqualValues(t, 118, total)

	// A node comes back after changes.
	c.Stop("n0")
	ctx, stop := context.WithTimeout(c.Ctx, clustertest.Patience)
	defer stop()
	m, err := c.Op.Watcher().Map("wiki")
	require.NoError(t, err)
	for s, nodes := range m.Assigned {
		for _, n := range nodes {
			if n == "n0" {
				t.Logf("n0 has shard %d", s)
			}
		}
	}
	c.Start("n0")
	c.Ready("n0")
	_, err = f.Delete(ctx, []string{docs[5].ID}, nil)
	require.NoError(t, err)
	_, err = c.Op.Verify(ctx, "wiki")
	require.NoError(t, err)
}
