package client_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/clustertest"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/cluster/wire"
	"github.com/plaid-ir/plaid/search"
)

// A node with a share of the documents does a share of the work: it looks for as many of the
// best as it may have, and scores fewer documents for that than if all the best were to be its
// own. Results are those of one index all the same.
func TestNodesShareTheWork(t *testing.T) {
	docs, maker := documents(91, 2000)
	c := clustertest.New(t, 2)
	c.Collection("one", operate.CreateOptions{}, dim, docs)
	c.Collection("wiki", operate.CreateOptions{Shards: 4}, dim, docs)
	ask := func(name string, q wire.Query, of ...int) *wire.Answer {
		m, err := c.Op.Watcher().Map(name)
		require.NoError(t, err)
		q.ID, q.Collection, q.Generation, q.Dim, q.Left = wire.NewID(), m.ID(), 1, dim, clustertest.Patience
		for _, s := range of {
			q.Shards = append(q.Shards, wire.ShardAt{Shard: s})
		}
		text, err := q.Encode()
		require.NoError(t, err)
		msg, err := c.Bus.Conn.RequestWithContext(c.Ctx, bus.QuerySubject(m.Assigned[of[0]][0]), text)
		require.NoError(t, err)
		a, err := wire.DecodeAnswer(msg.Data)
		require.NoError(t, err)
		require.Equal(t, wire.OK, a.Status, a.Text)
		return a
	}
	q := wire.Query{Vectors: maker.Tokens(8), K: 100}
	whole, keep := ask("wiki", q, 0), search.Keep(100, .25)
	require.Len(t, whole.Hits, 100)
	q.Keep = keep
	share := ask("wiki", q, 0)
	require.Len(t, share.Hits, keep)
	assert.True(t, share.More)
	assert.Less(t, share.Stats.ExactDocs, whole.Stats.ExactDocs)
	q.K, q.Keep = 1, 1 // it cannot hide anything
	assert.False(t, ask("wiki", q, 0).More)
	q.K, q.Keep = 3000, 2500 // nor if it has fewer
	assert.False(t, ask("wiki", q, 0).More)

	one, wiki := c.Client(client.Config{Collection: "one"}), c.Client(client.Config{Collection: "wiki"})
	for i := range 20 {
		for _, k := range []int{1, 7, 100, 3000} {
			o := search.Options{K: k, Mode: search.Exhaustive}
			q := search.Query{Vectors: maker.Tokens(1 + i)}
			want, err := one.Search(c.Ctx, q, o)
			require.NoError(t, err)
			got, err := wiki.Search(c.Ctx, q, o)
			require.NoError(t, err)
			require.Len(t, got.Hits, len(want.Hits))
			for j := range want.Hits {
				require.Equal(t, want.Hits[j].Score, got.Hits[j].Score, "k %d, hit %d", k, j)
			}
		}
	}
}

// Pages of a cluster are those of one index: each document once, and in its place.
func TestPages(t *testing.T) {
	docs, maker := documents(92, 300)
	for i := range 30 { // of one score
		docs[10*i].Tokens = docs[0].Tokens
	}
	c := clustertest.New(t, 2)
	c.Collection("wiki", operate.CreateOptions{Shards: 3}, dim, docs)
	f, one := c.Client(client.Config{Collection: "wiki"}), single(t, c, docs)
	for name, o := range map[string]search.Options{
		"exhaustive": {Mode: search.Exhaustive}, "pruned": {Payload: true}, "group": {Group: search.GroupBest, Passages: 2},
		"feedback": {Feedback: &search.Feedback{Docs: 2}}, "blocks": {Block: 3},
	} {
		t.Run(name, func(t *testing.T) {
			q := search.Query{Vectors: maker.Tokens(5)}
			const k = 70
			var paged []search.Hit
			seen := map[string]bool{}
			for page := range 6 {
				o := o
				o.K, o.Offset = k, page*k
				r, err := f.Search(c.Ctx, q, o)
				require.NoError(t, err)
				require.Equal(t, []int{k, page * k}, []int{r.K, r.Offset})
				for _, h := range r.Hits {
					require.False(t, seen[h.ID], "%s comes twice", h.ID)
					seen[h.ID] = true
					require.Equal(t, o.Payload, h.Payload != nil)
				}
				paged = append(paged, r.Hits...)
			}
			o := o
			o.K, o.Mode = 300, search.Exhaustive
			want, err := one.Search(c.Ctx, q, o)
			require.NoError(t, err)
			require.Greater(t, len(want.Hits), 200)
			require.Equal(t, len(want.Hits), len(paged))
			for i, h := range want.Hits {
				if name == "exhaustive" {
					require.Equal(t, h.Score, paged[i].Score)
				}
				require.True(t, seen[h.ID])
			}
			if o.Feedback != nil { // which takes the first of documents that score the same
				want, err = f.Search(c.Ctx, q, o)
				require.NoError(t, err)
			}
			o.MinScore = new(float64(want.Hits[123].Score))
			least, err := f.Search(c.Ctx, q, o)
			require.NoError(t, err)
			require.GreaterOrEqual(t, len(least.Hits), 124)
			for i, h := range least.Hits {
				require.Equal(t, want.Hits[i].Score, h.Score)
				require.GreaterOrEqual(t, float64(h.Score), *o.MinScore)
			}
		})
	}
	_, err := f.Search(c.Ctx, search.Query{Vectors: maker.Tokens(2)}, search.Options{Offset: -1})
	require.ErrorIs(t, err, search.ErrOption)
}
