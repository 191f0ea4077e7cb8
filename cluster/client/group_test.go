package client_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/clustertest"
	"github.com/plaid-ir/plaid/cluster/node"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/cluster/wire"
	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/vectors"
)

// put publishes an entry of some batches to the log of shard 0.
func put(t *testing.T, c *clustertest.Cluster, reply string, batches ...*wire.Batch) {
	t.Helper()
	var msgs [][]byte
	for _, b := range batches {
		b.ID, b.Reply = wire.NewID(), reply
		msg, err := b.Encode()
		require.NoError(t, err)
		msgs = append(msgs, msg)
	}
	_, err := c.Bus.JS.Publish(c.Ctx, bus.LogSubject(c.ID("wiki"), 0), wire.EncodeGroup(msgs))
	require.NoError(t, err)
}

// Each batch of a group is carried out or refused by itself, and a replica that carries out
// many entries at once comes to the same as one that did each when it came.
func TestGroups(t *testing.T) {
	docs, _ := documents(61, 60)
	c := clustertest.New(t, 2)
	c.Collection("wiki", operate.CreateOptions{Replicas: 2, Acks: 1}, dim, docs[:20])
	sub, err := c.Connect("asker").SubscribeSync("answers")
	require.NoError(t, err)
	require.NoError(t, sub.SetPendingLimits(-1, -1))
	c.Stop("n1")
	batch := func(op wire.Op, docs ...vectors.Document) *wire.Batch {
		return &wire.Batch{Op: op, Dim: dim, Documents: docs}
	}
	deletion := func(ids ...string) *wire.Batch {
		b := &wire.Batch{Op: wire.Delete}
		for _, id := range ids {
			b.Documents = append(b.Documents, vectors.Document{ID: id})
		}
		return b
	}
	choice := &wire.Batch{Op: wire.Set, Choice: []byte(`{"where":{"where":"n > 30"},"set":{"late":true}}`)}
	strange := batch(wire.Add, docs[45])
	strange.Dim, strange.Documents[0].Tokens = dim/2, docs[45].Tokens[:dim/2]
	type want struct {
		kind                              string
		added, replaced, deleted, missing int
		first                             uint32
	}
	var wants []want
	for _, entry := range []struct {
		batches []*wire.Batch
		want    []want
	}{
		{[]*wire.Batch{batch(wire.Add, docs[20], docs[21])}, []want{{"", 2, 0, 0, 0, 20}}},
		{[]*wire.Batch{
			batch(wire.Add, docs[22]), batch(wire.Add, docs[23], docs[3]), deletion(docs[4].ID, "nobody"), batch(wire.Put, docs[5], docs[24]), strange,
		}, []want{{"", 1, 0, 0, 0, 22}, {"duplicate", 0, 0, 0, 0, 0}, {"", 0, 0, 1, 1, 0}, {"", 2, 1, 0, 0, 23}, {"bad", 0, 0, 0, 0, 0}}},
		{[]*wire.Batch{deletion(docs[22].ID), deletion(docs[6].ID)}, []want{{"", 0, 0, 1, 0, 0}, {"", 0, 0, 1, 0, 0}}}, // of one that is added just before
		{[]*wire.Batch{batch(wire.Add, docs[22]), batch(wire.Add, docs[31])}, []want{{"", 1, 0, 0, 0, 25}, {"", 1, 0, 0, 0, 26}}},
		{[]*wire.Batch{choice}, []want{{}}},
		{[]*wire.Batch{batch(wire.Add, docs[32]), batch(wire.Put, docs[32])}, []want{{kind: "bad"}, {kind: "bad"}}}, // whose order would count
		{[]*wire.Batch{batch(wire.Add, docs[33]), choice}, []want{{kind: "bad"}, {kind: "bad"}}},
		{[]*wire.Batch{batch(wire.Add, docs[34])}, []want{{"", 1, 0, 0, 0, 27}}},
		{[]*wire.Batch{batch(wire.Add)}, []want{{}}},
	} {
		put(t, c, "answers", entry.batches...)
		wants = append(wants, entry.want...)
	}
	const entries = 9
	answers := func(of string) (acks []node.Ack) {
		for len(acks) < len(wants) {
			msg, err := sub.NextMsgWithContext(c.Ctx)
			require.NoError(t, err)
			var some []node.Ack
			if msg.Data[0] != '[' {
				msg.Data = slices.Concat([]byte("["), msg.Data, []byte("]"))
			}
			require.NoError(t, json.Unmarshal(msg.Data, &some))
			acks = append(acks, some...)
		}
		for i, a := range acks {
			assert.Equal(t, of, a.Node)
			got := want{a.Kind, a.Added, a.Replaced, a.Deleted, len(a.Missing), a.First}
			assert.Equal(t, wants[i], got, "%s: batch %d: %+v", of, i, a)
			assert.Equal(t, a.Kind != "", a.Refused != "")
		}
		return acks
	}
	live := answers("n0")
	assert.Equal(t, 1, live[10].Updated, "%+v", live)
	c.Start("n1")
	late := answers("n1")
	for i := range late {
		late[i].Node, late[i].Refused = "n0", live[i].Refused // which names the file
	}
	assert.Equal(t, live, late)
	c.Await(func() bool {
		replicas := c.Op.Watcher().Replicas(c.ID("wiki"), 1, 0)
		for _, r := range replicas {
			if r.Applied < entries {
				return false
			}
		}
		return len(replicas) == 2 // a busy node is told of late
	})
	checks, err := c.Op.Verify(c.Ctx, "wiki")
	require.NoError(t, err)
	require.Len(t, checks[0].Replicas, 2)
	assert.EqualValues(t, 20+2+1+1-2+1-1+1+1, checks[0].Replicas[0].Documents)
}

// Many writers at a time share entries, and each hears of its own change, no other.
func TestWritersTogether(t *testing.T) {
	docs, _ := documents(62, 200)
	c := clustertest.New(t, 3)
	c.Collection("wiki", operate.CreateOptions{Replicas: 3}, dim, docs[:40])
	f := c.Client(client.Config{Collection: "wiki"})
	var wg sync.WaitGroup
	var mu sync.Mutex
	placed := map[uint32]string{}
	begin := make(chan struct{})
	for i, d := range docs {
		wg.Go(func() {
			<-begin
			r, err := f.Add(c.Ctx, searchtest.Source(t, dim, []vectors.Document{d}), &client.WriteOptions{Placed: func(id string, _ int, ordinal uint32) {
				mu.Lock()
				defer mu.Unlock()
				assert.Equal(t, d.ID, id)
				placed[ordinal] = id
			}})
			if i < 40 {
				assert.ErrorIs(t, err, index.ErrDuplicateID)
				assert.ErrorContains(t, err, fmt.Sprintf("%q", d.ID))
			} else if assert.NoError(t, err) {
				assert.Equal(t, 1, r.Added)
			}
		})
	}
	close(begin)
	wg.Wait()
	require.Len(t, placed, 160)
	for found, err := range f.Documents(c.Ctx, collection.Selection{IDs: idsOf(docs[40:])}, collection.ReadOptions{}) {
		require.NoError(t, err)
		assert.Equal(t, found.ID, placed[found.Ordinal])
	}
	stream, err := c.Bus.JS.Stream(c.Ctx, bus.LogStream(c.ID("wiki"), 0))
	require.NoError(t, err)
	assert.Less(t, stream.CachedInfo().State.LastSeq, uint64(len(docs)), "each change has an entry of its own")
	_, err = c.Op.Verify(c.Ctx, "wiki")
	require.NoError(t, err)
}

// pause silences the consumers of the log of shard 0, as servers that lose each other do, and
// returns how many there are.
func pause(t *testing.T, c *clustertest.Cluster) (n int) {
	t.Helper()
	stream, err := c.Bus.JS.Stream(c.Ctx, bus.LogStream(c.ID("wiki"), 0))
	require.NoError(t, err)
	list := stream.ListConsumers(c.Ctx)
	for info := range list.Info() {
		_, err := stream.PauseConsumer(c.Ctx, info.Name, time.Now().Add(time.Hour))
		require.NoError(t, err)
		n++
	}
	require.NoError(t, list.Err())
	return n
}

// A replica to which no entries come any more, without a word, notices it: when it is asked
// for one that others have not either, and when others are ahead.
func TestEntriesThatDoNotCome(t *testing.T) {
	docs, _ := documents(63, 50)
	c := clustertest.New(t, 2)
	c.Collection("wiki", operate.CreateOptions{Replicas: 2}, dim, docs[:40])
	f := c.Client(client.Config{Collection: "wiki"})
	add := func(i int) {
		_, err := f.Add(c.Ctx, searchtest.Source(t, dim, docs[i:i+1]), nil)
		require.NoError(t, err)
	}
	add(40)
	require.Equal(t, 2, pause(t, c))
	add(41)
	put(t, c, "", &wire.Batch{Op: wire.Add, Dim: dim, Documents: docs[42:43]}) // nobody waits for it
	applied := func(sequence uint64, replicas int) func() bool {
		return func() bool {
			n := 0
			for _, r := range c.Op.Watcher().Replicas(c.ID("wiki"), 1, 0) {
				if r.Applied >= sequence {
					n++
				}
			}
			return n >= replicas
		}
	}
	c.Await(applied(3, 2))
	pause(t, c)
	put(t, c, "", &wire.Batch{Op: wire.Add, Dim: dim, Documents: docs[43:44]})
	c.Await(applied(4, 2)) // each replica looks when it has its turn
}
