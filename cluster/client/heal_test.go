package client_test

import (
	"context"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/clustertest"
	"github.com/plaid-ir/plaid/cluster/node"
	"github.com/plaid-ir/plaid/cluster/objects"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/cluster/wire"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/vectors"
)

// cut replaces the log of shard 0 by one with some of its entries, from 1, in another order.
func cut(t *testing.T, c *clustertest.Cluster, entries ...uint64) {
	t.Helper()
	id := c.ID("wiki")
	stream, err := c.Bus.JS.Stream(c.Ctx, bus.LogStream(id, 0))
	require.NoError(t, err)
	var data [][]byte
	for _, n := range entries {
		msg, err := stream.GetMsg(c.Ctx, n)
		require.NoError(t, err)
		data = append(data, msg.Data)
	}
	require.NoError(t, c.Bus.JS.DeleteStream(c.Ctx, bus.LogStream(id, 0)))
	require.NoError(t, c.Bus.MakeLog(c.Ctx, id, 0, 0))
	for _, d := range data {
		_, err := c.Bus.JS.Publish(c.Ctx, bus.LogSubject(id, 0), d)
		require.NoError(t, err)
	}
}

// states waits until so many replicas of shard 0 have a log that is not theirs, and so many
// answer and follow theirs.
func states(c *clustertest.Cluster, lost, following int) {
	c.T.Helper()
	c.Await(func() bool {
		l, f := 0, 0
		for _, r := range c.Op.Watcher().Replicas(c.ID("wiki"), 1, 0) {
			if r.Lost {
				l++
			} else if r.Ready && r.Log == "" {
				f++
			}
		}
		return l == lost && f == following
	})
}

// batchOf is an entry that adds a document.
func batchOf(t *testing.T, d vectors.Document) []byte {
	t.Helper()
	msg, err := (&wire.Batch{ID: wire.NewID(), Op: wire.Add, Dim: dim, Documents: []vectors.Document{d}}).Encode()
	require.NoError(t, err)
	return msg
}

// healing has a time of its own.
func healing(after time.Duration) (*operate.Healing, *time.Time) {
	now := time.Now()
	return &operate.Healing{After: after, Now: func() time.Time { return now }}, &now
}

// A log that was cut, be it that it has grown again, goes on after what the replicas have, if
// these have all that was acknowledged. Nobody has to do anything.
func TestLogCutIsHealed(t *testing.T) {
	for name, entries := range map[string][]uint64{
		"cut": {1, 2, 3}, "grown again": {1, 2, 3, 5, 4, 1, 2}, "grown as long": {1, 2, 3, 5, 4}, "empty": nil,
	} {
		t.Run(name, func(t *testing.T) {
			docs, _ := documents(81, 60)
			c := clustertest.New(t, 2)
			c.Collection("wiki", operate.CreateOptions{Replicas: 2}, dim, docs[:40])
			f := c.Client(client.Config{Collection: "wiki"})
			for i := 40; i < 45; i++ {
				_, err := f.Add(c.Ctx, searchtest.Source(t, dim, docs[i:i+1]), nil)
				require.NoError(t, err)
			}
			h, now := healing(time.Minute)
			all, err := c.Op.HealLogs(c.Ctx, h)
			require.NoError(t, err)
			require.Empty(t, all)
			cut(t, c, entries...)
			states(c, 2, 0)
			for range 2 {
				all, err = c.Op.HealLogs(c.Ctx, h)
				require.NoError(t, err)
				require.Empty(t, all, "it may pass")
				*now = now.Add(time.Minute - 1)
			}
			*now = now.Add(time.Minute)
			all, err = c.Op.HealLogs(c.Ctx, h)
			require.NoError(t, err)
			require.Len(t, all, 1)
			assert.Equal(t, []string{"n0", "n1"}, all[0].Kept)
			assert.Empty(t, all[0].Again)
			states(c, 0, 2)
			require.NoError(t, f.Watcher().Wait(c.Ctx, func() bool { // it may hear of it later
				n := 0
				for _, r := range f.Watcher().Replicas(c.ID("wiki"), 1, 0) {
					if r.Ready && r.Log == "" {
						n++
					}
				}
				return n == 2
			}))
			_, err = f.Add(c.Ctx, searchtest.Source(t, dim, docs[45:50]), nil)
			require.NoError(t, err)
			checks, err := c.Op.Verify(c.Ctx, "wiki")
			require.NoError(t, err)
			assert.EqualValues(t, 50, checks[0].Replicas[0].Documents)
			// A replica that comes begins with an object that has what the log lacks.
			c.Start("n2")
			c.Await(func() bool { return len(c.Op.Nodes()) == 3 })
			_, err = c.Op.Drain(c.Ctx, "wiki", "n0")
			require.ErrorIs(t, err, operate.ErrNodes)
			require.NoError(t, c.Op.Rejoin(c.Ctx, "wiki", "n1"))
			assert.EqualValues(t, 50, verified(c, 2)[1].Documents)
		})
	}
}

// Replicas that differ after a log was cut: those count that have all that was acknowledged,
// and where nobody has for sure nothing is done.
func TestLogCutAndReplicasDiffer(t *testing.T) {
	for name, c := range map[string]struct {
		replicas, acks int
		late           string // a node that was away when entries 4 and 5 came, and follows the log that was cut
		away           bool   // late is, when the log is healed
		log            []uint64
		kept, again    []string
		documents      int
	}{
		"two of three": {3, 2, "n2", false, []uint64{1, 2, 3, 2, 1}, []string{"n0", "n1"}, []string{"n2"}, 45},
		// Who comes back later must not go on with what it has.
		"two of three, one away":                         {3, 2, "n2", true, []uint64{1, 2, 3, 2, 1}, []string{"n0", "n1"}, []string{}, 45},
		"two of three, one away, the log has grown more": {3, 2, "n2", true, []uint64{1, 2, 3, 2, 1, 3}, []string{"n0", "n1"}, []string{}, 45},
		// Both must have what is acknowledged: what one of them has alone is not.
		"two, both acknowledge": {2, 2, "n1", false, []uint64{1, 2, 3, 2, 1}, []string{"n1"}, []string{"n0"}, 43},
		"two, one acknowledges": {2, 1, "n1", false, []uint64{1, 2, 3, 2, 1}, nil, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			docs, _ := documents(82, 60)
			want, c := c, clustertest.New(t, c.replicas)
			c.Collection("wiki", operate.CreateOptions{Replicas: want.replicas, Acks: want.acks}, dim, docs[:40])
			f := c.Client(client.Config{Collection: "wiki"})
			add := func(i int) error {
				_, err := f.Add(c.Ctx, searchtest.Source(t, dim, docs[i:i+1]), nil)
				return err
			}
			for i := 40; i < 43; i++ {
				require.NoError(t, add(i))
			}
			c.Await(func() bool {
				for _, r := range c.Op.Watcher().Replicas(c.ID("wiki"), 1, 0) {
					if r.Applied < 3 {
						return false
					}
				}
				return true
			})
			c.Stop(want.late)
			for i := 43; i < 45; i++ {
				msg := batchOf(t, docs[i])
				_, err := c.Bus.JS.Publish(c.Ctx, bus.LogSubject(c.ID("wiki"), 0), msg, jetstream.WithMsgID(docs[i].ID))
				require.NoError(t, err)
			}
			c.Await(func() bool {
				n := 0
				for _, r := range c.Op.Watcher().Replicas(c.ID("wiki"), 1, 0) {
					if r.Applied == 5 {
						n++
					}
				}
				return n == want.replicas-1
			})
			cut(t, c, want.log...) // of which those that come again are refused
			states(c, want.replicas-1, 1)
			c.Start(want.late)
			states(c, want.replicas-1, 1)
			c.Await(func() bool {
				for _, r := range c.Op.Watcher().Replicas(c.ID("wiki"), 1, 0) {
					if r.Node == want.late && r.Applied == uint64(len(want.log)) {
						return true
					}
				}
				return false
			})
			if want.away {
				c.Stop(want.late)
			}
			h, _ := healing(0)
			all, err := c.Op.HealLogs(c.Ctx, h)
			if want.kept == nil {
				require.ErrorIs(t, err, operate.ErrDiffer)
				require.Empty(t, all)
				states(c, want.replicas-1, 1)
				return
			}
			require.NoError(t, err)
			require.Len(t, all, 1)
			assert.Equal(t, want.kept, all[0].Kept)
			assert.Equal(t, want.again, all[0].Again)
			if want.away {
				c.Start(want.late)
				c.Ready(want.late)
			}
			states(c, 0, want.replicas)
			assert.EqualValues(t, want.documents, verified(c, want.replicas)[0].Documents)
			require.NoError(t, f.Watcher().Wait(c.Ctx, func() bool { return add(50) == nil }))
		})
	}
}

// Replicas that have come to differ without a word are found, and made again.
func TestReplicasThatDiffer(t *testing.T) {
	for name, replicas := range map[string]int{"the majority is right": 3, "the log is right": 2} {
		t.Run(name, func(t *testing.T) {
			docs, _ := documents(83, 60)
			c := clustertest.New(t, replicas)
			c.Collection("wiki", operate.CreateOptions{Replicas: replicas, Shards: 2}, dim, docs[:40])
			f := c.Client(client.Config{Collection: "wiki"})
			_, err := f.Add(c.Ctx, searchtest.Source(t, dim, docs[40:]), nil)
			require.NoError(t, err)
			for n := range c.Nodes {
				c.Ready(n)
			}
			look := func() (compared int, all []operate.Healed) {
				found, err := c.Op.Compare(c.Ctx, "")
				require.NoError(t, err)
				require.Empty(t, found.Passed)
				return found.Shards, found.Unlike
			}
			compared, all := look()
			require.Equal(t, 2, compared)
			require.Empty(t, all)
			m, err := c.Op.Watcher().Map("wiki")
			require.NoError(t, err)
			shard := m.ShardOf(docs[7].ID)
			c.Lose("n0", "wiki", docs[7].ID)
			_, err = c.Op.Verify(c.Ctx, "wiki")
			require.ErrorIs(t, err, operate.ErrDiffer)
			_, all = look()
			require.Len(t, all, 1)
			assert.Equal(t, shard, all[0].Shard)
			assert.Equal(t, 1, all[0].Parts)
			assert.Equal(t, 1, all[0].Unlike)
			assert.Contains(t, all[0].Again, "n0")
			if replicas == 3 {
				assert.Len(t, all[0].Again, 1)
			}
			_, all = look()
			assert.Empty(t, all)
			checks, err := c.Op.Verify(c.Ctx, "wiki")
			require.NoError(t, err)
			assert.EqualValues(t, 60, checks[0].Replicas[0].Documents+checks[1].Replicas[0].Documents)
			c.Await(func() bool {
				for _, l := range c.Op.Watcher().Leases() {
					if l.Node == "n0" {
						return l.Counts.Rebuilds == 1
					}
				}
				return false
			})
		})
	}
}

// Of several orders about one replica each is carried out or refused, and what is served is
// the file that is there.
func TestRejoinTwiceAtOnce(t *testing.T) {
	docs, _ := documents(84, 40)
	c := clustertest.New(t, 2)
	c.Collection("wiki", operate.CreateOptions{Replicas: 2}, dim, docs)
	order := node.Order{Do: "rejoin", Collection: c.ID("wiki"), Generation: 1}
	for range 5 {
		var wg sync.WaitGroup
		var done atomic.Int64
		for range 4 {
			wg.Go(func() {
				if _, err := node.Send(c.Ctx, c.Bus.Conn, "n0", order); err == nil {
					done.Add(1)
				}
			})
		}
		wg.Wait()
		require.Positive(t, done.Load())
		require.FileExists(t, filepath.Join(c.Dir, "n0", c.ID("wiki"), "g1", "s0000.plaid"))
	}
	c.Ready("n0")
	_, err := c.Op.Verify(c.Ctx, "wiki")
	require.NoError(t, err)
}

// full is an object store that takes no shards for a while.
type full struct {
	objects.Store
	fails atomic.Bool
}

func (f *full) Put(ctx context.Context, name string, r io.Reader, size int64) error {
	if f.fails.Load() && strings.HasPrefix(name, "shards/") {
		return errFails
	}
	return f.Store.Put(ctx, name, r, size)
}

// verified are the replicas of shard 0 once so many answer and are alike: one that is told to
// begin again may have been ready until then.
func verified(c *clustertest.Cluster, replicas int) []operate.ReplicaCheck {
	c.T.Helper()
	var checks []operate.Check
	c.Await(func() (done bool) {
		var err error
		checks, err = c.Op.Verify(c.Ctx, "wiki")
		return err == nil && len(checks[0].Replicas) == replicas
	})
	return checks[0].Replicas
}

// Healing that was interrupted, here as the object store takes nothing, is finished by the
// next one: no replica is left behind.
func TestHealingInterrupted(t *testing.T) {
	folder, err := objects.OpenFolder(t.TempDir())
	require.NoError(t, err)
	store := &full{Store: folder}
	docs, _ := documents(85, 60)
	c := clustertest.NewOver(t, 3, store)
	c.Collection("wiki", operate.CreateOptions{Replicas: 3, Acks: 2}, dim, docs[:40])
	applied := func(sequence uint64, replicas int) {
		t.Helper()
		c.Await(func() bool {
			n := 0
			for _, r := range c.Op.Watcher().Replicas(c.ID("wiki"), 1, 0) {
				if r.Applied == sequence {
					n++
				}
			}
			return n == replicas
		})
	}
	publish := func(i int) {
		t.Helper()
		_, err := c.Bus.JS.Publish(c.Ctx, bus.LogSubject(c.ID("wiki"), 0), batchOf(t, docs[i]))
		require.NoError(t, err)
	}
	for i := 40; i < 43; i++ {
		publish(i)
	}
	applied(3, 3)
	c.Stop("n2")
	publish(43)
	publish(44)
	applied(5, 2)
	cut(t, c, 1, 2, 3, 2, 1)
	states(c, 2, 1)
	c.Start("n2")
	applied(5, 3)
	h, _ := healing(0)
	store.fails.Store(true)
	_, err = c.Op.HealLogs(c.Ctx, h)
	require.ErrorContains(t, err, errFails.Error())
	stream, err := c.Bus.JS.Stream(c.Ctx, bus.LogStream(c.ID("wiki"), 0))
	require.NoError(t, err)
	_, err = stream.GetMsg(c.Ctx, 5)
	require.NoError(t, err, "n2 could neither go on nor begin again, and nobody would try once more")
	store.fails.Store(false)
	require.NoError(t, c.Op.Watcher().Wait(c.Ctx, func() bool {
		_, err = c.Op.HealLogs(c.Ctx, h)
		ready := 0
		for _, r := range c.Op.Watcher().Replicas(c.ID("wiki"), 1, 0) {
			if r.State() == "ready" {
				ready++
			}
		}
		return err == nil && ready == 3
	}))
	assert.EqualValues(t, 45, verified(c, 3)[0].Documents)
}
