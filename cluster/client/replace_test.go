package client_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/clustertest"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/search"
)

// The shards of a node that is gone for long are given to others, once, and come back when
// the collection is rebalanced.
func TestNodeGone(t *testing.T) {
	docs, maker := alive(71, 90)
	c := clustertest.New(t, 4)
	c.Collection("wiki", operate.CreateOptions{Shards: 6, Replicas: 2}, dim, docs[:60])
	f := c.Client(client.Config{Collection: "wiki"})
	_, err := f.Add(c.Ctx, searchtest.Source(t, dim, docs[60:70]), nil)
	require.NoError(t, err)
	version := func() uint64 {
		m, err := topology.NewStore(c.Store, c.Bus.Maps).Newest(c.Ctx, "wiki")
		require.NoError(t, err)
		return m.Version
	}
	now := time.Now()
	replacing := func() *operate.Replacing {
		return &operate.Replacing{After: 10 * time.Minute, Now: func() time.Time { return now }}
	}
	r := replacing()
	nothing := func() {
		t.Helper()
		before := version()
		all, err := c.Op.Replace(c.Ctx, r)
		require.NoError(t, err)
		require.Empty(t, all)
		require.Equal(t, before, version())
	}
	nothing()
	now = now.Add(time.Hour)
	nothing()
	c.Die("n1")
	nothing()
	now = now.Add(9 * time.Minute)
	require.NoError(t, c.Op.Maintain(c.Ctx, "n1", time.Now().Add(time.Hour)))
	nothing()
	require.NoError(t, c.Op.Maintain(c.Ctx, "n1", time.Time{}))
	now = now.Add(10*time.Minute - 1)
	nothing() // it counts from the end of maintenance, though that came before the node was due
	require.NoError(t, c.Op.Maintain(c.Ctx, "n1", time.Now().Add(time.Hour)))
	now = now.Add(time.Hour)
	nothing()
	maintained, err := c.Op.Maintained(c.Ctx)
	require.NoError(t, err)
	require.Contains(t, maintained, "n1")
	require.NoError(t, c.Op.Maintain(c.Ctx, "n1", time.Time{}))
	maintained, err = c.Op.Maintained(c.Ctx)
	require.NoError(t, err)
	require.Empty(t, maintained)
	now = now.Add(10*time.Minute - 1)
	nothing() // it counts anew

	now = now.Add(1)
	cut := replacing() // who is not heard of knows nothing
	cut.Own, cut.After = "n1", 0
	all, err := c.Op.Replace(c.Ctx, cut)
	require.NoError(t, err)
	require.Empty(t, all)
	before := version()
	var mu sync.Mutex
	var placed []operate.Replaced
	var wg sync.WaitGroup
	for range 4 { // nodes that find it out at the same time
		other, err := operate.New(c.Ctx, c.Bus, c.Store, nil)
		require.NoError(t, err)
		t.Cleanup(other.Close)
		// As r has seen it, who has seen n1 go.
		own := replacing()
		now := now
		own.Now = func() time.Time { return now.Add(-own.After) }
		_, err = other.Replace(c.Ctx, own)
		require.NoError(t, err)
		own.Now = func() time.Time { return now }
		wg.Go(func() {
			all, err := other.Replace(c.Ctx, own)
			assert.NoError(t, err)
			mu.Lock()
			defer mu.Unlock()
			placed = append(placed, all...)
		})
	}
	wg.Wait()
	require.Len(t, placed, 1)
	assert.Equal(t, []string{"n1"}, placed[0].Nodes)
	assert.Equal(t, before+1, version())
	nothing()
	settled := func(has bool) {
		t.Helper()
		c.Await(func() bool {
			m, err := c.Op.Watcher().Map("wiki")
			if err != nil {
				return false
			}
			on := false
			for s, nodes := range m.Assigned {
				on = on || slices.Contains(nodes, "n1")
				ready := 0
				for _, r := range c.Op.Watcher().Replicas(m.ID(), m.Current.Number, s) {
					if r.Ready && slices.Contains(nodes, r.Node) {
						ready++
					}
				}
				if ready < 2 {
					return false
				}
			}
			return on == has
		})
	}
	settled(false)
	_, err = f.Add(c.Ctx, searchtest.Source(t, dim, docs[70:]), nil) // both replicas have to have it
	require.NoError(t, err)
	require.Len(t, everything(t, c, f, maker), 90)

	c.Start("n1")
	c.Await(func() bool { return len(c.Op.Nodes()) == 4 })
	now = now.Add(time.Hour)
	nothing() // nobody moves shards without need
	_, err = c.Op.Rebalance(c.Ctx, "wiki")
	require.NoError(t, err)
	settled(true)
	_, err = c.Op.Verify(c.Ctx, "wiki")
	require.NoError(t, err)
	require.Len(t, everything(t, c, f, maker), 90)
}

// With three replicas on three nodes one may die, and changes go on: there is no node to
// place its shards on until one comes. Where most nodes are gone nothing is placed.
func TestNodeGoneOfThree(t *testing.T) {
	docs, _ := documents(72, 60)
	c := clustertest.New(t, 3)
	c.Collection("wiki", operate.CreateOptions{Shards: 2, Replicas: 3}, dim, docs[:40])
	f := c.Client(client.Config{Collection: "wiki"})
	now := time.Now()
	r := &operate.Replacing{After: time.Minute, Now: func() time.Time { now = now.Add(time.Minute); return now }}
	replace := func(want int) {
		t.Helper()
		for range 3 {
			all, err := c.Op.Replace(c.Ctx, r)
			require.NoError(t, err)
			require.Len(t, all, want)
			want = 0
		}
	}
	replace(0)
	c.Die("n2")
	replace(0)
	_, err := f.Add(c.Ctx, searchtest.Source(t, dim, docs[40:50]), nil)
	require.NoError(t, err)
	c.Start("n3")
	c.Await(func() bool { return len(c.Op.Nodes()) == 3 })
	replace(1)
	c.Await(func() bool {
		for s := range 2 {
			ready := 0
			for _, r := range c.Op.Watcher().Replicas(c.ID("wiki"), 1, s) {
				if r.Ready && r.Node != "n2" {
					ready++
				}
			}
			if ready < 3 {
				return false
			}
		}
		return true
	})
	_, err = c.Op.Verify(c.Ctx, "wiki")
	require.NoError(t, err)
	result, err := f.Search(c.Ctx, search.Query{Vectors: docs[0].Tokens}, search.Options{K: 1, Mode: search.Exhaustive})
	require.NoError(t, err)
	assert.EqualValues(t, 50, result.Coverage.Docs)

	c.Start("n2") // no member any more
	c.Await(func() bool { return len(c.Op.Nodes()) == 4 })
	c.Die("n0")
	c.Die("n1")
	replace(0) // two of three
}
