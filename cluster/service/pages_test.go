package service_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/clustertest"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/cluster/wire"
	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
)

// Payloads that do not fit into one message come in several.
func TestLargePayloads(t *testing.T) {
	c := clustertest.New(t, 1)
	maker := searchtest.New(4, dim, 12)
	docs := maker.Docs("d", 16, 4)
	for i := range docs {
		docs[i].Tokens, docs[i].Payload = maker.Tokens(2), fmt.Appendf(nil, `{"n":%d,"long":%q}`, i, strings.Repeat("x", 600<<10))
	}
	c.Collection("wiki", operate.CreateOptions{Shards: 2}, dim, docs)
	f := serve(t, c, client.Config{})
	var s searched
	f.do(200, "POST", "/indices/wiki/search", object{"queries": list{object{"embeddings": [][]float32{maker.Tokens(1)}}}, "params": object{"mode": "exhaustive", "top_k": 16}}, &s)
	require.Len(t, s.Results[0].Metadata, 16)
	for _, m := range s.Results[0].Metadata {
		require.Len(t, m["long"], 600<<10)
	}
}

// Long lists come in pages, in order and each document once.
func TestPages(t *testing.T) {
	c := clustertest.New(t, 1)
	maker := searchtest.New(3, dim, 12)
	docs := maker.Docs("d", 150, 4)
	for i := range docs {
		docs[i].Payload = fmt.Appendf(nil, `{"n":%d,"long":%q}`, i, strings.Repeat("x", 4000))
	}
	c.Collection("wiki", operate.CreateOptions{Shards: 2}, dim, docs)
	_, err := c.Client(client.Config{Collection: "wiki"}).Delete(c.Ctx, []string{"d3", "d70"}, nil)
	require.NoError(t, err)
	f := c.Client(client.Config{Collection: "wiki", Deadline: clustertest.Patience})
	read := func(s collection.Selection, o collection.ReadOptions) (ids []string) {
		t.Helper()
		for d, err := range f.Documents(c.Ctx, s, o) {
			require.NoError(t, err)
			ids = append(ids, d.ID)
		}
		return ids
	}
	one, err := condition.Parse("n >= 0")
	require.NoError(t, err)
	where, err := one.Bind()
	require.NoError(t, err)
	for len(read(collection.Selection{}, collection.ReadOptions{})) != 148 { // this client is told of no change
		require.NoError(t, c.Ctx.Err())
	}
	all := read(collection.Selection{}, collection.ReadOptions{Metadata: true, Vectors: true})
	require.Len(t, all, 148)
	require.Equal(t, all, read(collection.Selection{Where: where}, collection.ReadOptions{Metadata: true}))
	require.Equal(t, all[:40], read(collection.Selection{Where: where}, collection.ReadOptions{Metadata: true, Limit: 40}))
	names := slices.Clone(all)
	slices.Reverse(names)
	require.Equal(t, names, read(collection.Selection{IDs: names}, collection.ReadOptions{Metadata: true}))
	var numbers []uint64
	for d, err := range f.Documents(c.Ctx, collection.Selection{}, collection.ReadOptions{}) {
		require.NoError(t, err)
		numbers = append(numbers, d.Number())
	}
	slices.Reverse(numbers)
	require.Equal(t, names, read(collection.Selection{Numbers: numbers}, collection.ReadOptions{}))

	// A node answers whatever it is asked, in pages as small as may be.
	conn := c.Connect("asker")
	ask := func(msg []byte) (found wire.Found) {
		t.Helper()
		reply, err := conn.RequestWithContext(c.Ctx, bus.LookSubject("n0"), msg)
		require.NoError(t, err)
		require.NoError(t, wire.ReadJSON(reply.Data, &found))
		return found
	}
	look := func(l wire.Look) wire.Found {
		t.Helper()
		l.Collection, l.Generation, l.Left = c.ID("wiki"), 1, time.Minute
		msg, err := json.Marshal(l)
		require.NoError(t, err)
		return ask(msg)
	}
	var paged []string
	for from, more := uint32(0), true; more; {
		page := look(wire.Look{All: true, Payload: true, Bytes: 10000, From: from})
		require.LessOrEqual(t, len(page.Documents), 3)
		for _, d := range page.Documents {
			paged = append(paged, d.ID)
		}
		from, more = page.Next, page.More
	}
	require.Equal(t, all[:len(paged)], paged)
	require.Equal(t, wire.Refused, ask([]byte("{")).Status)
	require.Equal(t, wire.Refused, look(wire.Look{Filter: []byte(`{"ids":["a"]}`)}).Status)
	require.Equal(t, wire.WrongGeneration, look(wire.Look{Shard: 9}).Status)
	require.Equal(t, wire.Behind, look(wire.Look{Applied: 99}).Status)
	require.Empty(t, look(wire.Look{IDs: []string{"d1"}, From: 5}).Documents)
	require.Empty(t, look(wire.Look{Ordinals: []uint32{1 << 31}, From: 0}).Documents)
	require.Empty(t, look(wire.Look{All: true, From: 1 << 31}).Documents)
}
