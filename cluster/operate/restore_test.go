package operate_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/clustertest"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
)

// Restoring waits for all nodes of the map: it says which are away while it waits, and when it
// gives up.
func TestRestoreNamesWhoIsAway(t *testing.T) {
	c := clustertest.New(t, 2)
	c.Collection("wiki", operate.CreateOptions{Replicas: 2}, dim, searchtest.New(6, dim, 6).Docs("d", 20, 4))
	c.Die("n1")
	require.NoError(t, c.Bus.JS.DeleteStream(c.Ctx, bus.LogStream(c.ID("wiki"), 0)))
	said := make(chan string, 10)
	c.Op.Waiting = func(what string) { said <- what }
	ctx, stop := context.WithCancel(c.Ctx)
	defer stop()
	done := make(chan error, 1)
	go func() { _, err := c.Op.Restore(ctx, "wiki"); done <- err }()
	select {
	case what := <-said:
		require.Contains(t, what, "node n1 is away")
	case err := <-done:
		require.Fail(t, "it does not wait", "%v", err)
	}
	stop()
	err := <-done
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "restoring shard 0 of wiki takes all of its nodes: node n1 is away")
	c.Start("n1")
	within, end := context.WithTimeout(c.Ctx, time.Minute)
	defer end()
	_, err = c.Op.Restore(within, "wiki")
	require.NoError(t, err)
}

// A replica that lacked changes when the log was lost gets them when it is restored: the log begins
// after them, so it begins again with an object of a replica that has them.
func TestRestoreBringsReplicasThatWereBehind(t *testing.T) {
	for name, o := range map[string]operate.CreateOptions{"of three": {Replicas: 3}, "of two": {Replicas: 2, Acks: 1}, "interrupted": {Replicas: 2, Acks: 1}} {
		t.Run(name, func(t *testing.T) {
			docs := searchtest.New(7, dim, 6).Docs("d", 24, 4)
			c := clustertest.New(t, o.Replicas)
			c.Collection("wiki", o, dim, docs[:20])
			f := c.Client(client.Config{Collection: "wiki"})
			c.Die("n1")
			_, err := f.Add(c.Ctx, searchtest.Source(t, dim, docs[20:]), nil)
			require.NoError(t, err)
			require.NoError(t, c.Bus.JS.DeleteStream(c.Ctx, bus.LogStream(c.ID("wiki"), 0)))
			if name == "interrupted" { // another restore, which died
				require.NoError(t, c.Bus.MakeLog(c.Ctx, c.ID("wiki"), 0, 1))
			}
			c.Start("n1")
			_, err = c.Op.Restore(c.Ctx, "wiki")
			require.NoError(t, err)
			c.Ready("n1")
			checks, err := c.Op.Verify(c.Ctx, "wiki")
			require.NoError(t, err)
			require.Len(t, checks[0].Replicas, o.Replicas)
			for _, r := range checks[0].Replicas {
				require.EqualValues(t, 24, r.Documents, r.Node)
			}
			_, err = f.Delete(c.Ctx, []string{docs[0].ID}, nil)
			require.NoError(t, err)
		})
	}
}

// What is in no log any more, and in no object, gets into one: a node that loses its disk could not
// begin again.
func TestRestoredLogIsWorthACheckpoint(t *testing.T) {
	docs := searchtest.New(8, dim, 6).Docs("d", 22, 4)
	c := clustertest.New(t, 3)
	c.Collection("wiki", operate.CreateOptions{Replicas: 3}, dim, docs[:20])
	f := c.Client(client.Config{Collection: "wiki"})
	id := c.ID("wiki")
	for i := range 2 {
		_, err := f.Add(c.Ctx, searchtest.Source(t, dim, docs[20+i:21+i]), nil)
		require.NoError(t, err)
	}
	c.Await(func() bool {
		rs := c.Op.Watcher().Replicas(id, 1, 0)
		return len(rs) == 3 && !slices.ContainsFunc(rs, func(r topology.Replica) bool { return r.Applied != 2 })
	})
	require.NoError(t, c.Bus.JS.DeleteStream(c.Ctx, bus.LogStream(id, 0)))
	m, err := c.Op.Restore(c.Ctx, "wiki")
	require.NoError(t, err)
	require.Zero(t, m.Current.Shards[0].Applied, "no replica was behind")
	for name := range c.Nodes {
		c.Ready(name)
	}
	c.Await(func() bool {
		return !slices.ContainsFunc(c.Op.Watcher().Replicas(id, 1, 0), func(r topology.Replica) bool { return r.Log != "" })
	})
	made, err := c.Op.CheckpointLong(c.Ctx, "")
	for ; errors.Is(err, operate.ErrState) && c.Ctx.Err() == nil; made, err = c.Op.CheckpointLong(c.Ctx, "") {
		time.Sleep(20 * time.Millisecond) // a replica has just heard that the log it followed was deleted
	}
	require.NoError(t, err)
	require.Equal(t, 1, made)
	c.Stop("n2")
	require.NoError(t, os.RemoveAll(filepath.Join(c.Dir, "n2")))
	c.Start("n2")
	c.Ready("n2")
	_, err = c.Op.Verify(c.Ctx, "wiki")
	require.NoError(t, err)
}

// A log goes on after what the generation that is searched has, as its replicas acknowledge
// changes. One that is built beside it and has an entry more is given up.
func TestRestoreBesideABuild(t *testing.T) {
	docs := searchtest.New(9, dim, 6).Docs("d", 22, 4)
	c := clustertest.New(t, 1)
	c.Collection("wiki", operate.CreateOptions{}, dim, docs[:20])
	f := c.Client(client.Config{Collection: "wiki"})
	build(t, c, docs[:20])
	_, err := f.Add(c.Ctx, searchtest.Source(t, dim, docs[20:21]), nil)
	require.NoError(t, err)
	id := c.ID("wiki")
	applied := func(generation uint64) uint64 {
		for _, r := range c.Op.Watcher().Replicas(id, generation, 0) {
			if r.Ready && r.Log == "" {
				return r.Applied
			}
		}
		return 0
	}
	c.Await(func() bool { return applied(1) == 1 && applied(2) == 1 })
	c.Stop("n0")
	ix, err := index.Open(c.Ctx, filepath.Join(c.Dir, "n0", id, "g2", "s0000.plaid"), &index.Options{Write: true})
	require.NoError(t, err)
	require.NoError(t, ix.Entry(2).Skip(c.Ctx))
	require.NoError(t, ix.Close())
	require.NoError(t, c.Bus.JS.DeleteStream(c.Ctx, bus.LogStream(id, 0)))
	n := c.Start("n0")
	c.Await(func() bool {
		return slices.ContainsFunc(c.Op.Watcher().Leases(), func(l *topology.Lease) bool { return l.Started == n.Life() })
	})
	m, err := c.Op.Restore(c.Ctx, "wiki")
	require.NoError(t, err)
	require.Nil(t, m.Next)
	c.Await(func() bool { return applied(1) == 1 })
	_, err = f.Add(c.Ctx, searchtest.Source(t, dim, docs[21:]), nil)
	require.NoError(t, err)
	c.Build("wiki", dim, docs)
	checks, err := c.Op.Verify(c.Ctx, "wiki")
	require.NoError(t, err)
	require.EqualValues(t, 22, checks[0].Replicas[0].Documents)
}

// A build that has all that the log had goes on.
func TestRestoreKeepsABuild(t *testing.T) {
	docs := searchtest.New(10, dim, 6).Docs("d", 21, 4)
	c := clustertest.New(t, 1)
	c.Collection("wiki", operate.CreateOptions{}, dim, docs[:20])
	build(t, c, docs[:20])
	_, err := c.Client(client.Config{Collection: "wiki"}).Add(c.Ctx, searchtest.Source(t, dim, docs[20:]), nil)
	require.NoError(t, err)
	id := c.ID("wiki")
	c.Await(func() bool {
		rs := c.Op.Watcher().Replicas(id, 2, 0)
		return len(rs) == 1 && rs[0].Applied == 1 && c.Op.Watcher().Replicas(id, 1, 0)[0].Applied == 1
	})
	require.NoError(t, c.Bus.JS.DeleteStream(c.Ctx, bus.LogStream(id, 0)))
	_, err = c.Op.Restore(c.Ctx, "wiki")
	require.NoError(t, err)
	m, err := c.Op.Promote(c.Ctx, "wiki")
	require.NoError(t, err)
	require.EqualValues(t, 2, m.Current.Number)
	checks, err := c.Op.Verify(c.Ctx, "wiki")
	require.NoError(t, err)
	require.EqualValues(t, 21, checks[0].Replicas[0].Documents)
}
