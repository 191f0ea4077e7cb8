package client_test

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/clustertest"
	"github.com/plaid-ir/plaid/cluster/node"
	"github.com/plaid-ir/plaid/cluster/objects"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/vectors"
)

// lacking is a cluster of so many nodes with a collection of one shard on all of them, of which
// the replica of one node lacks a document without a word.
func lacking(t *testing.T, nodes int, name string) (c *clustertest.Cluster, f *client.Client, docs []vectors.Document) {
	t.Helper()
	docs, _ = documents(88, 60)
	c = clustertest.New(t, nodes)
	c.Collection("wiki", operate.CreateOptions{Replicas: nodes}, dim, docs[:40])
	f = c.Client(client.Config{Collection: "wiki"})
	_, err := f.Add(c.Ctx, searchtest.Source(t, dim, docs[40:]), nil)
	require.NoError(t, err)
	caughtUp(c)
	c.Lose(name, "wiki", docs[7].ID)
	caughtUp(c)
	return c, f, docs
}

// caughtUp waits until all replicas of shard 0 are at the same entry.
func caughtUp(c *clustertest.Cluster) {
	c.T.Helper()
	c.Await(func() bool {
		rs := c.Op.Watcher().Replicas(c.ID("wiki"), 1, 0)
		for _, r := range rs {
			if !r.Ready || r.Log != "" || r.Applied != rs[0].Applied {
				return false
			}
		}
		return len(rs) == len(c.Nodes)
	})
}

// inObject are the documents of the object of shard 0 that the map names.
func inObject(t *testing.T, c *clustertest.Cluster) (m *topology.Map, docs int) {
	t.Helper()
	m, err := topology.NewStore(c.Store, c.Bus.Maps).Newest(c.Ctx, "wiki")
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "object.plaid")
	require.NoError(t, objects.Fetch(c.Ctx, c.Store, m.Current.Shards[0].Object, path))
	return m, searchtest.Snapshot(t, searchtest.Open(t, path)).Len()
}

// What one replica has lost without a word is not what new replicas begin with: an object is
// made only of what most replicas have.
func TestCheckpointOfReplicasThatDiffer(t *testing.T) {
	for name, nodes := range map[string]int{"nobody has a majority": 2, "two of three are right": 3} {
		t.Run(name, func(t *testing.T) {
			c, _, _ := lacking(t, nodes, "n0")
			before, _ := inObject(t, c)
			_, err := c.Op.Checkpoint(c.Ctx, "wiki")
			m, docs := inObject(t, c)
			if nodes == 2 {
				require.ErrorIs(t, err, operate.ErrDiffer)
				require.Equal(t, before.Version, m.Version)
				_, err = c.Op.CheckpointLong(c.Ctx, "")
				require.ErrorIs(t, err, operate.ErrDiffer)
				require.ErrorIs(t, c.Op.Rejoin(c.Ctx, "wiki", "nobody"), operate.ErrNodes)
			} else {
				require.NoError(t, err)
				require.Equal(t, 60, docs)
			}
			shards, err := c.Store.List(c.Ctx, "shards/")
			require.NoError(t, err)
			require.Len(t, shards, nodes-1, "what was made of the wrong replica is gone")
			found, err := c.Op.Compare(c.Ctx, "")
			require.NoError(t, err)
			require.Len(t, found.Unlike, 1)
			require.Equal(t, 1, found.Unlike[0].Unlike)
			for _, r := range verified(c, nodes) {
				assert.EqualValues(t, 60, r.Documents, r.Node)
			}
		})
	}
}

// An object that was made of one of two replicas, and compared with nothing, as programs of
// before made them, does not decide between the two: an operator does.
func TestObjectOfOneReplicaDecidesNothing(t *testing.T) {
	c, _, _ := lacking(t, 2, "n1")
	r, err := node.Send(c.Ctx, c.Bus.Conn, "n1", node.Order{Do: "checkpoint", Collection: c.ID("wiki"), Generation: 1})
	require.NoError(t, err)
	m, err := topology.NewStore(c.Store, c.Bus.Maps).Update(c.Ctx, c.ID("wiki"), func(m *topology.Map) error {
		m.Current.Shards[0] = r.Shard
		return nil
	})
	require.NoError(t, err)
	c.Await(func() bool { now, err := c.Op.Watcher().Map("wiki"); return err == nil && now.Version == m.Version })
	documents := func() (all [2]uint64) {
		checks, err := c.Op.Verify(c.Ctx, "wiki")
		require.ErrorIs(t, err, operate.ErrDiffer)
		for i, r := range checks[0].Replicas {
			all[i] = r.Documents
		}
		return all
	}
	require.Equal(t, [2]uint64{60, 59}, documents())
	found, err := c.Op.Compare(c.Ctx, "")
	require.ErrorIs(t, err, operate.ErrDiffer)
	require.Len(t, found.Unlike, 1)
	require.Empty(t, found.Unlike[0].Again)
	require.Equal(t, [2]uint64{60, 59}, documents(), "nothing is made again")

	_, err = c.Op.Trust(c.Ctx, "wiki", "nobody")
	require.ErrorIs(t, err, operate.ErrNodes)
	_, err = c.Op.Trust(c.Ctx, "wiki", "n0")
	require.NoError(t, err)
	require.NoError(t, c.Op.Rejoin(c.Ctx, "wiki", "n1"))
	for _, r := range verified(c, 2) {
		assert.EqualValues(t, 60, r.Documents, r.Node)
	}
}

// An object that was compared when it was made does decide, at once, whichever of two replicas
// has lost something.
func TestObjectThatWasComparedDecides(t *testing.T) {
	for _, name := range []string{"n0", "n1"} {
		t.Run(name, func(t *testing.T) {
			docs, _ := documents(89, 60)
			c := clustertest.New(t, 2)
			c.Collection("wiki", operate.CreateOptions{Replicas: 2}, dim, docs[:40])
			f := c.Client(client.Config{Collection: "wiki"})
			_, err := f.Add(c.Ctx, searchtest.Source(t, dim, docs[40:50]), nil)
			require.NoError(t, err)
			caughtUp(c)
			m, err := c.Op.Checkpoint(c.Ctx, "wiki")
			require.NoError(t, err)
			require.True(t, node.Compared(m.Current.Shards[0].Object))
			_, err = f.Add(c.Ctx, searchtest.Source(t, dim, docs[50:]), nil)
			require.NoError(t, err)
			caughtUp(c)
			c.Lose(name, "wiki", docs[55].ID)
			caughtUp(c)
			found, err := c.Op.Compare(c.Ctx, "")
			require.NoError(t, err)
			require.Len(t, found.Unlike, 1)
			require.Contains(t, found.Unlike[0].Again, name)
			for _, r := range verified(c, 2) {
				assert.EqualValues(t, 60, r.Documents, r.Node)
			}
		})
	}
}

// Replicas that change all the time are compared, read and made objects of at one entry of
// their log.
func TestComparedUnderChanges(t *testing.T) {
	docs, maker := documents(90, 40)
	c := clustertest.New(t, 2)
	c.Collection("wiki", operate.CreateOptions{Replicas: 2}, dim, docs)
	f := c.Client(client.Config{Collection: "wiki"})
	var writers sync.WaitGroup
	done := make(chan struct{})
	more := maker.Docs("more", 20000, 4)
	for w := range 4 {
		writers.Go(func() {
			for i := w; i < len(more); i += 4 {
				select {
				case <-done:
					return
				default:
				}
				_, err := f.Add(c.Ctx, searchtest.Source(t, dim, more[i:i+1]), nil)
				if !assert.NoError(t, err) {
					return
				}
			}
		})
	}
	defer writers.Wait()
	defer close(done)
	c.Await(func() bool {
		rs := c.Op.Watcher().Replicas(c.ID("wiki"), 1, 0)
		return len(rs) == 2 && rs[0].Applied > 3
	})
	for i := range 3 {
		found, err := c.Op.Compare(c.Ctx, "")
		require.NoError(t, err)
		require.Equal(t, 1, found.Shards, "%d: %v", i, found.Passed)
		require.Empty(t, found.Passed)
		require.Empty(t, found.Unlike)
		checks, err := c.Op.Verify(c.Ctx, "wiki")
		require.NoError(t, err)
		require.Len(t, checks[0].Replicas, 2)
		m, err := c.Op.Checkpoint(c.Ctx, "wiki")
		require.NoError(t, err)
		require.True(t, node.Compared(m.Current.Shards[0].Object))
	}
}

// A shard that cannot be compared is passed over, and says why.
func TestNotCompared(t *testing.T) {
	docs, _ := documents(91, 40)
	c := clustertest.New(t, 2)
	c.Collection("wiki", operate.CreateOptions{Shards: 2, Replicas: 2, Acks: 1}, dim, docs)
	c.Collection("alone", operate.CreateOptions{}, dim, docs)
	c.Die("n1")
	found, err := c.Op.Compare(c.Ctx, "")
	require.NoError(t, err)
	require.Zero(t, found.Shards)
	require.Len(t, found.Passed, 2)
	for s, p := range found.Passed {
		require.Equal(t, fmt.Sprint("wiki ", s), fmt.Sprint(p.Collection, " ", p.Shard))
		require.Contains(t, p.Why, "n1")
	}
	// Nor is an object made of what cannot be compared.
	f := c.Client(client.Config{Collection: "wiki"})
	_, err = f.Delete(c.Ctx, []string{docs[0].ID, docs[1].ID, docs[2].ID, docs[3].ID}, nil)
	require.NoError(t, err)
	_, err = c.Op.Checkpoint(c.Ctx, "wiki")
	require.ErrorIs(t, err, operate.ErrState)
	require.ErrorContains(t, err, "n1")
}

// A replica begins again with the object of the map that the one who orders it means, also where
// its node has not seen that map yet.
func TestRejoinWaitsForTheMap(t *testing.T) {
	c, _, _ := lacking(t, 2, "n1")
	made, err := node.Send(c.Ctx, c.Bus.Conn, "n1", node.Order{Do: "checkpoint", Collection: c.ID("wiki"), Generation: 1})
	require.NoError(t, err)
	m, err := c.Op.Watcher().Map("wiki")
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() {
		_, err := node.Send(c.Ctx, c.Bus.Conn, "n0", node.Order{Do: "rejoin", Collection: m.ID(), Generation: 1, Version: m.Version + 1})
		done <- err
	}()
	require.Never(t, func() bool { return len(done) > 0 }, 300*time.Millisecond, 50*time.Millisecond)
	_, err = topology.NewStore(c.Store, c.Bus.Maps).Update(c.Ctx, m.ID(), func(m *topology.Map) error {
		m.Current.Shards[0] = made.Shard
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, <-done)
	for _, r := range verified(c, 2) {
		assert.EqualValues(t, 59, r.Documents, r.Node)
	}
}
