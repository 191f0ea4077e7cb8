package client_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

// A shard without a replica is an error that names it, or, where that is allowed, a
// result that says how many documents it lacks.
func TestPartial(t *testing.T) {
	docs, maker := documents(3, 90)
	c := clustertest.New(t, 3)
	c.Collection("wiki", operate.CreateOptions{Shards: 3}, dim, docs)
	m, err := c.Op.Watcher().Map("wiki")
	require.NoError(t, err)
	strict := c.Client(client.Config{Collection: "wiki"})
	lax := c.Client(client.Config{Collection: "wiki", AllowPartial: true})
	gone := m.Assigned[1][0]
	c.Stop(gone)
	q := search.Query{Vectors: maker.Tokens(3)}
	_, err = strict.Search(c.Ctx, q, search.Options{K: 100})
	var partial *client.PartialError
	require.ErrorAs(t, err, &partial)
	require.ErrorIs(t, err, client.ErrPartial)
	assert.NotEmpty(t, partial.Coverage.Missing)
	r, err := lax.Search(c.Ctx, q, search.Options{K: 100, Mode: search.Exhaustive})
	require.NoError(t, err)
	assert.False(t, r.Coverage.Complete())
	assert.EqualValues(t, 90, r.Coverage.Of)
	lost := int64(0)
	for _, x := range r.Coverage.Missing {
		assert.Contains(t, m.Assigned[x.Part], gone)
		assert.Contains(t, x.Reason, gone)
		lost += x.Docs
	}
	assert.Equal(t, r.Coverage.Of-r.Coverage.Docs, lost)
	for _, h := range r.Hits {
		assert.NotContains(t, m.Assigned[m.ShardOf(h.ID)], gone)
	}
	// A filter that needs none of what is missing is answered in full.
	for _, d := range docs {
		if s := m.ShardOf(d.ID); m.Assigned[s][0] != gone {
			r, err = strict.Search(c.Ctx, q, search.Options{Filter: search.Only(d.ID)})
			require.NoError(t, err)
			assert.True(t, r.Coverage.Complete())
			break
		}
	}
	_, err = strict.Delete(c.Ctx, []string{docs[0].ID}, nil)
	if m.Assigned[m.ShardOf(docs[0].ID)][0] != gone {
		assert.NoError(t, err)
	}
}

// With a second replica nobody notices that a node is gone.
func TestReplica(t *testing.T) {
	docs, maker := documents(4, 60)
	c := clustertest.New(t, 3)
	c.Collection("wiki", operate.CreateOptions{Shards: 4, Replicas: 2, Acks: 1}, dim, docs)
	f := c.Client(client.Config{Collection: "wiki"})
	for i := range 30 {
		if i == 10 {
			c.Stop("n1")
		}
		r, err := f.Search(c.Ctx, search.Query{Vectors: maker.Tokens(3)}, search.Options{K: 100, Mode: search.Exhaustive})
		require.NoError(t, err)
		require.True(t, r.Coverage.Complete())
	}
}

// While generations follow each other, every answer is of one, and changes that were
// made meanwhile are in the next one.
func TestGenerations(t *testing.T) {
	_, maker := documents(5, 0)
	docs := func(generation int) []vectors.Document {
		var list []vectors.Document
		for i := range 40 {
			list = append(list, vectors.Document{ID: fmt.Sprint("d", i), Tokens: maker.Tokens(4), Payload: fmt.Append(nil, generation)})
		}
		return list
	}
	c := clustertest.New(t, 2)
	c.Collection("wiki", operate.CreateOptions{Shards: 3, Replicas: 2}, dim, docs(1))
	f := c.Client(client.Config{Collection: "wiki"})
	ctx, stop := context.WithCancel(c.Ctx)
	var wg sync.WaitGroup
	query := search.Query{Vectors: maker.Tokens(3)}
	seen := make([]map[string]bool, 2)
	for i := range seen {
		seen[i] = map[string]bool{}
		wg.Go(func() {
			for ctx.Err() == nil {
				r, err := f.Search(ctx, query, search.Options{K: 100, Mode: search.Exhaustive, Payload: true})
				if ctx.Err() != nil {
					return
				}
				if !assert.NoError(t, err) {
					return
				}
				kinds := map[string]int{}
				for _, h := range r.Hits {
					if h.ID[0] == 'd' {
						kinds[string(h.Payload)]++
					}
				}
				assert.Len(t, kinds, 1, "generations are mixed: %v", kinds)
				for kind, n := range kinds {
					assert.Equal(t, 40, n)
					seen[i][kind] = true
				}
			}
		})
	}
	for g := 2; g <= 4; g++ {
		next := docs(g)
		_, err := c.Op.Build(c.Ctx, "wiki", searchtest.Source(t, dim, next), operate.BuildOptions{Train: clustertest.Train, Dir: t.TempDir()})
		require.NoError(t, err)
		// This is after the input was read, and before the generation is searched.
		extra := []vectors.Document{{ID: fmt.Sprint("extra", g), Tokens: maker.Tokens(3)}}
		_, err = f.Add(c.Ctx, searchtest.Source(t, dim, extra), nil)
		require.NoError(t, err)
		_, err = c.Op.Promote(c.Ctx, "wiki")
		require.NoError(t, err)
		require.NoError(t, f.Watcher().Wait(c.Ctx, func() bool { m, err := f.Watcher().Map("wiki"); return err == nil && m.Current.Number == uint64(g) }))
		r, err := f.Search(c.Ctx, query, search.Options{Filter: search.Only(extra[0].ID)})
		require.NoError(t, err)
		assert.Len(t, r.Hits, 1)
	}
	stop()
	wg.Wait()
	// What is over is taken away.
	for _, n := range []string{"n0", "n1"} {
		for g := 1; g <= 3; g++ {
			dir := filepath.Join(c.Dir, n, c.ID("wiki"), fmt.Sprint("g", g))
			require.Eventually(t, func() bool { _, err := os.Stat(dir); return os.IsNotExist(err) }, clustertest.Patience, 20*time.Millisecond)
		}
	}
	_, err := c.Op.Verify(c.Ctx, "wiki")
	require.NoError(t, err)
}

// A node with a full queue says so at once.
func TestBusy(t *testing.T) {
	docs, maker := documents(6, 60)
	c := clustertest.New(t, 0)
	c.Start("n0", func(c *node.Config) { c.Queue, c.Workers = 1, 1 })
	c.Await(func() bool { return len(c.Op.Nodes()) == 1 })
	c.Collection("wiki", operate.CreateOptions{}, dim, docs)
	f := c.Client(client.Config{Collection: "wiki"})
	q := search.Query{Vectors: maker.Tokens(200)}
	errs := make([]error, 64)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { _, errs[i] = f.Search(c.Ctx, q, search.Options{Mode: search.Exhaustive}) })
	}
	wg.Wait()
	busy := 0
	for _, err := range errs {
		var partial *client.PartialError
		if errors.As(err, &partial) {
			assert.Contains(t, partial.Coverage.Missing[0].Reason, "busy")
			busy++
		} else {
			assert.NoError(t, err)
		}
	}
	t.Logf("%d of %d were told that the node is busy", busy, len(errs))
	assert.Less(t, busy, len(errs))
}

// A log that has lost entries, or is gone, takes no changes until an operator has it go
// on after what the replicas have. Searches go on.
func TestLostLog(t *testing.T) {
	docs, maker := documents(7, 60)
	c := clustertest.New(t, 2)
	c.Collection("wiki", operate.CreateOptions{Shards: 1, Replicas: 2}, dim, docs[:40])
	f := c.Client(client.Config{Collection: "wiki"})
	add := func(i int) error {
		_, err := f.Add(c.Ctx, searchtest.Source(t, dim, docs[i:i+1]), nil)
		return err
	}
	for i := 40; i < 45; i++ {
		require.NoError(t, add(i))
	}
	// JetStream comes back with fewer entries than it had acknowledged.
	name := bus.LogStream(c.ID("wiki"), 0)
	require.NoError(t, c.Bus.JS.DeleteStream(c.Ctx, name))
	require.NoError(t, c.Bus.MakeLog(c.Ctx, c.ID("wiki"), 0, 0))
	_, err := c.Bus.JS.Publish(c.Ctx, bus.LogSubject(c.ID("wiki"), 0), []byte("a lost tail is written anew"))
	require.NoError(t, err)
	said := func() bool {
		rs := c.Op.Watcher().Replicas(c.ID("wiki"), 1, 0)
		return len(rs) == 2 && rs[0].Lost && rs[1].Lost
	}
	c.Await(said)
	require.NoError(t, f.Watcher().Wait(c.Ctx, func() bool { rs := f.Watcher().Replicas(c.ID("wiki"), 1, 0); return rs[0].Lost && rs[1].Lost }))
	assert.ErrorIs(t, add(45), client.ErrQuorum)
	r, err := f.Search(c.Ctx, search.Query{Vectors: maker.Tokens(2)}, search.Options{K: 100, Mode: search.Exhaustive})
	require.NoError(t, err)
	assert.True(t, r.Coverage.Complete())
	assert.EqualValues(t, 45, r.Coverage.Docs)
	_, err = c.Op.Restore(c.Ctx, "wiki")
	require.NoError(t, err)
	require.NoError(t, f.Watcher().Wait(c.Ctx, func() bool { rs := f.Watcher().Replicas(c.ID("wiki"), 1, 0); return rs[0].Log == "" && rs[1].Log == "" }))
	require.NoError(t, add(45))
	_, err = c.Op.Verify(c.Ctx, "wiki")
	require.NoError(t, err)
}

// A node that has lost its disk restores itself, from the object store and the log, also
// after the log was cut off.
func TestLostDisk(t *testing.T) {
	docs, _ := documents(8, 80)
	c := clustertest.New(t, 3)
	c.Collection("wiki", operate.CreateOptions{Shards: 2, Replicas: 3}, dim, docs[:40])
	f := c.Client(client.Config{Collection: "wiki"})
	for round := range 2 {
		_, err := f.Add(c.Ctx, searchtest.Source(t, dim, docs[40+20*round:60+20*round]), nil)
		require.NoError(t, err)
		if round == 1 {
			_, err := c.Op.Checkpoint(c.Ctx, "wiki")
			require.NoError(t, err)
			for s := range 2 {
				stream, err := c.Bus.JS.Stream(c.Ctx, bus.LogStream(c.ID("wiki"), s))
				require.NoError(t, err)
				t.Logf("log %d: %+v", s, stream.CachedInfo().State)
			}
		}
		c.Stop("n1")
		require.NoError(t, os.RemoveAll(filepath.Join(c.Dir, "n1")))
		c.Start("n1")
		c.Ready("n1")
		checks, err := c.Op.Verify(c.Ctx, "wiki")
		require.NoError(t, err)
		for _, s := range checks {
			assert.Len(t, s.Replicas, 3)
		}
	}
	// A file that is damaged is put aside and restored.
	c.Stop("n2")
	file := filepath.Join(c.Dir, "n2", c.ID("wiki"), "g1", "s0000.plaid")
	require.NoError(t, os.WriteFile(file, make([]byte, 1<<16), 0o644))
	c.Start("n2")
	c.Ready("n2")
	_, err := c.Op.Verify(c.Ctx, "wiki")
	require.NoError(t, err)
}

// All that NATS has is lost; maps come from the object store, logs go on after what
// replicas have.
func TestLostNATS(t *testing.T) {
	docs, _ := documents(9, 60)
	c := clustertest.New(t, 2)
	c.Collection("wiki", operate.CreateOptions{Shards: 2, Replicas: 2}, dim, docs[:40])
	f := c.Client(client.Config{Collection: "wiki"})
	_, err := f.Add(c.Ctx, searchtest.Source(t, dim, docs[40:50]), nil)
	require.NoError(t, err)
	before, err := f.Applied()
	require.NoError(t, err)
	for _, n := range []string{"n0", "n1"} {
		c.Stop(n)
	}
	for name := range c.Bus.JS.StreamNames(c.Ctx).Name() {
		require.NoError(t, c.Bus.JS.DeleteStream(c.Ctx, name))
	}
	c.Bus, err = bus.Setup(c.Ctx, c.Connect("new"), 1, time.Minute)
	require.NoError(t, err)
	c.Op, err = operate.New(c.Ctx, c.Bus, c.Store, nil)
	require.NoError(t, err)
	defer c.Op.Close()
	c.Start("n0")
	c.Start("n1")
	_, err = c.Op.Restore(c.Ctx, "wiki")
	require.NoError(t, err)
	g := c.Client(client.Config{Collection: "wiki"})
	require.NoError(t, g.Watcher().Wait(c.Ctx, func() bool {
		for s := range 2 {
			rs := g.Watcher().Replicas(c.ID("wiki"), 1, s)
			if len(rs) != 2 || !rs[0].Ready || !rs[1].Ready || rs[0].Log != "" || rs[1].Log != "" {
				return false
			}
		}
		return true
	}))
	after, err := g.Applied()
	require.NoError(t, err)
	assert.Equal(t, before, after)
	_, err = g.Add(c.Ctx, searchtest.Source(t, dim, docs[50:]), nil)
	require.NoError(t, err)
	d, err := g.Describe(c.Ctx)
	require.NoError(t, err)
	assert.LessOrEqual(t, d.Docs, int64(60))
	r, err := g.Search(c.Ctx, search.Query{Vectors: make([]float32, dim)}, search.Options{K: 100, Mode: search.Exhaustive})
	require.NoError(t, err)
	assert.EqualValues(t, 60, r.Coverage.Docs)
}

// A node is given up, another one comes: nobody who searches notices.
func TestMoves(t *testing.T) {
	docs, maker := documents(10, 60)
	c := clustertest.New(t, 2)
	c.Collection("wiki", operate.CreateOptions{Shards: 4}, dim, docs)
	f := c.Client(client.Config{Collection: "wiki"})
	ctx, stop := context.WithCancel(c.Ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			r, err := f.Search(ctx, search.Query{Vectors: maker.Tokens(3)}, search.Options{K: 5})
			if ctx.Err() == nil && assert.NoError(t, err) {
				assert.True(t, r.Coverage.Complete())
			}
		}
	})
	c.Start("n2")
	c.Await(func() bool { return len(c.Op.Nodes()) == 3 })
	m, err := c.Op.Rebalance(c.Ctx, "wiki")
	require.NoError(t, err)
	assert.Len(t, m.Members, 3)
	m, err = c.Op.Drain(c.Ctx, "wiki", "n0")
	require.NoError(t, err)
	for _, nodes := range m.Assigned {
		assert.NotContains(t, nodes, "n0")
	}
	for _, l := range c.Op.Watcher().Leases() { // others have what it had, and it may be stopped
		assert.False(t, l.Node == "n0" && len(l.Shards) > 0, "%+v", l)
	}
	require.NoError(t, c.Nodes["n0"].Drain(c.Ctx))
	delete(c.Nodes, "n0")
	stop()
	wg.Wait()
	_, err = c.Op.Drain(c.Ctx, "wiki", "n1")
	require.NoError(t, err)
	_, err = c.Op.Drain(c.Ctx, "wiki", "n2")
	assert.ErrorIs(t, err, operate.ErrNodes)
}

// What workers build is what one process builds.
func TestBuild(t *testing.T) {
	docs, _ := documents(11, 200)
	c := clustertest.New(t, 2)
	_, err := c.Op.Create(c.Ctx, "wiki", operate.CreateOptions{Shards: 6})
	require.NoError(t, err)
	c.Build("wiki", dim, docs)
	m, err := c.Op.Watcher().Map("wiki")
	require.NoError(t, err)
	for s := range m.Shards() {
		var mine []vectors.Document
		for _, d := range docs {
			if m.ShardOf(d.ID) == s {
				mine = append(mine, d)
			}
		}
		snap := searchtest.Snapshot(t, searchtest.Build(t, dim, mine, &index.BuildOptions{Like: codecOf(t, c)}))
		digest, _, err := snap.Inspect(c.Ctx)
		require.NoError(t, err)
		assert.Equal(t, m.Current.Shards[s].Digest, digest, "shard %d", s)
		assert.EqualValues(t, len(mine), m.Current.Shards[s].Documents)
	}
	inputs, err := c.Store.List(c.Ctx, "inputs/")
	require.NoError(t, err)
	assert.Empty(t, inputs)
	_, err = c.Op.Promote(c.Ctx, "wiki")
	assert.ErrorIs(t, err, operate.ErrState)
	_, err = c.Op.Promote(c.Ctx, "other")
	assert.ErrorIs(t, err, topology.ErrNoCollection)
}

// A log that has lost its end and has grown again, past what the replicas have, is not
// followed: its entries are others. Searches go on, changes are refused, and a node that
// is told to begins again with the log.
func TestLogGrownAgain(t *testing.T) {
	docs, maker := documents(21, 60)
	c := clustertest.New(t, 2)
	c.Collection("wiki", operate.CreateOptions{Shards: 1, Replicas: 2}, dim, docs[:40])
	f := c.Client(client.Config{Collection: "wiki"})
	for i := 40; i < 45; i++ {
		_, err := f.Add(c.Ctx, searchtest.Source(t, dim, docs[i:i+1]), nil)
		require.NoError(t, err)
	}
	id := c.ID("wiki")
	stream, err := c.Bus.JS.Stream(c.Ctx, bus.LogStream(id, 0))
	require.NoError(t, err)
	var entries [][]byte
	for i := range uint64(5) {
		msg, err := stream.GetMsg(c.Ctx, i+1)
		require.NoError(t, err)
		entries = append(entries, msg.Data)
	}
	c.Stop("n0")
	c.Stop("n1")
	require.NoError(t, c.Bus.JS.DeleteStream(c.Ctx, bus.LogStream(id, 0)))
	require.NoError(t, c.Bus.MakeLog(c.Ctx, id, 0, 0))
	for _, entry := range []int{0, 1, 2, 4, 3, 0, 1} { // 4 and 5 change places: 5 is another one
		_, err := c.Bus.JS.Publish(c.Ctx, bus.LogSubject(id, 0), entries[entry])
		require.NoError(t, err)
	}
	c.Start("n0")
	c.Start("n1")
	state := func(lost, ready int) func() bool {
		return func() bool {
			for _, r := range c.Op.Watcher().Replicas(id, 1, 0) {
				if r.Lost {
					lost--
				} else if r.Ready {
					ready--
				}
			}
			return lost == 0 && ready == 0
		}
	}
	c.Await(func() bool { return state(2, 0)() })
	require.NoError(t, f.Watcher().Wait(c.Ctx, func() bool { // it may hear of them later
		n := 0
		for _, r := range f.Watcher().Replicas(id, 1, 0) {
			if r.Lost && r.Ready {
				n++
			}
		}
		return n == 2
	}))
	r, err := f.Search(c.Ctx, search.Query{Vectors: maker.Tokens(2)}, search.Options{K: 100, Mode: search.Exhaustive})
	require.NoError(t, err)
	assert.EqualValues(t, 45, r.Coverage.Docs)
	_, err = c.Op.Restore(c.Ctx, "wiki")
	require.ErrorIs(t, err, operate.ErrDiffer)
	require.NoError(t, c.Op.Rejoin(c.Ctx, "wiki", "n0"))
	c.Await(func() bool { return state(1, 1)() })
	require.NoError(t, c.Op.Rejoin(c.Ctx, "wiki", "n1"))
	c.Await(func() bool { return state(0, 2)() })
	checks, err := c.Op.Verify(c.Ctx, "wiki")
	require.NoError(t, err)
	assert.EqualValues(t, 45, checks[0].Replicas[0].Documents)
	require.ErrorIs(t, c.Op.Rejoin(c.Ctx, "wiki", "n7"), operate.ErrNodes)
}
