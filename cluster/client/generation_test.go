package client_test

import (
	"encoding/json"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/clustertest"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/cluster/wire"
	"github.com/plaid-ir/plaid/search"
)

// A node has nothing to say of a generation that it does not have, nor of one that is over.
func TestWrongGeneration(t *testing.T) {
	docs, maker := documents(12, 40)
	c := clustertest.New(t, 1)
	c.Collection("wiki", operate.CreateOptions{}, dim, docs[:20])
	c.Build("wiki", dim, docs)
	c.Await(func() bool { return len(c.Op.Watcher().Replicas(c.ID("wiki"), 1, 0)) == 0 }) // it is taken away
	ask := func(generation uint64) *wire.Answer {
		q := wire.Query{
			ID: wire.NewID(), Collection: c.ID("wiki"), Generation: generation, Dim: dim, Vectors: maker.Tokens(2), K: 50, Mode: search.Exhaustive,
			Left: clustertest.Patience, Shards: []wire.ShardAt{{Shard: 0}},
		}
		text, err := q.Encode()
		require.NoError(t, err)
		msg, err := c.Bus.Conn.RequestWithContext(c.Ctx, bus.QuerySubject("n0"), text)
		require.NoError(t, err)
		a, err := wire.DecodeAnswer(msg.Data)
		require.NoError(t, err)
		assert.Equal(t, q.ID, a.ID)
		return a
	}
	for _, generation := range []uint64{1, 3} {
		a := ask(generation)
		assert.Equal(t, wire.WrongGeneration, a.Status)
		assert.Empty(t, a.Hits)
	}
	a := ask(2)
	assert.Equal(t, wire.OK, a.Status)
	assert.EqualValues(t, 40, a.Shards[0].Documents)
}

// Answers of another generation, to another query, or of damaged bytes do not count: the
// shard is asked for elsewhere, and where nobody else has it, it is missing.
func TestAnswersThatDoNotCount(t *testing.T) {
	docs, maker := documents(13, 40)
	for name, answer := range map[string]func(q *wire.Query) *wire.Answer{
		"it has another generation": func(q *wire.Query) *wire.Answer {
			return &wire.Answer{ID: q.ID, Generation: q.Generation, Status: wire.WrongGeneration, Text: "not here"}
		},
		"of another generation": func(q *wire.Query) *wire.Answer {
			return &wire.Answer{ID: q.ID, Generation: q.Generation + 1, Status: wire.OK, Shards: []wire.ShardState{{Shard: 0, Documents: 1}}}
		},
		"to another query": func(q *wire.Query) *wire.Answer {
			return &wire.Answer{ID: wire.NewID(), Generation: q.Generation, Status: wire.OK, Shards: []wire.ShardState{{Shard: 0, Documents: 1}}}
		},
		"damaged": func(*wire.Query) *wire.Answer { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			c := clustertest.New(t, 1)
			c.Collection("wiki", operate.CreateOptions{}, dim, docs)
			f := c.Client(client.Config{Collection: "wiki"})
			var asked atomic.Int64
			conn := c.Connect("false")
			_, err := conn.Subscribe(bus.QuerySubject("false"), func(msg *nats.Msg) {
				asked.Add(1)
				q, err := wire.DecodeQuery(msg.Data)
				if !assert.NoError(t, err) {
					return
				}
				text := []byte("PLR1 and nothing that makes sense")
				if a := answer(q); a != nil {
					text, err = a.Encode()
					assert.NoError(t, err)
				}
				assert.NoError(t, msg.Respond(text))
			})
			require.NoError(t, err)
			require.NoError(t, conn.Flush())
			lease, err := json.Marshal(topology.Lease{Node: "false", Shards: []topology.Serving{{Collection: c.ID("wiki"), Generation: 1, Shard: 0, Ready: true}}})
			require.NoError(t, err)
			_, err = c.Bus.Nodes.Put(c.Ctx, "false", lease)
			require.NoError(t, err)
			two := func() bool { return len(f.Watcher().Replicas(c.ID("wiki"), 1, 0)) == 2 }
			require.NoError(t, f.Watcher().Wait(c.Ctx, two))
			for asked.Load() < 3 {
				r, err := f.Search(c.Ctx, search.Query{Vectors: maker.Tokens(3)}, search.Options{K: 100, Mode: search.Exhaustive})
				require.NoError(t, err)
				require.True(t, r.Coverage.Complete())
				require.EqualValues(t, 40, r.Coverage.Docs)
			}
			require.NoError(t, c.Nodes["n0"].Drain(c.Ctx))
			require.NoError(t, f.Watcher().Wait(c.Ctx, func() bool { return len(f.Watcher().Replicas(c.ID("wiki"), 1, 0)) == 1 }))
			_, err = f.Search(c.Ctx, search.Query{Vectors: maker.Tokens(3)}, search.Options{})
			require.ErrorIs(t, err, client.ErrPartial)
			require.ErrorContains(t, err, "node false")
		})
	}
}
