package command

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/clustertest"
	"github.com/plaid-ir/plaid/cluster/node"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/search/searchtest"
)

// A log is healed also while replicas are compared, however long a node takes to tell what
// it has.
func TestHealsWhileReplicasAreCompared(t *testing.T) {
	c := clustertest.New(t, 1)
	docs := searchtest.New(1, 16, 12).Docs("d", 20, 4)
	c.Collection("lost", operate.CreateOptions{}, 16, docs)
	c.Collection("slow", operate.CreateOptions{}, 16, docs)
	// The other replica of slow is on a node that takes orders and never answers.
	asked := make(chan struct{}, 1000)
	_, err := c.Connect("n1").Subscribe(bus.AdminSubject("n1"), func(*nats.Msg) { asked <- struct{}{} })
	require.NoError(t, err)
	lease, err := json.Marshal(topology.Lease{
		Node: "n1", Started: "x", Protocol: topology.Protocol, Shards: []topology.Serving{{Collection: c.ID("slow"), Generation: 1, Ready: true}},
	})
	require.NoError(t, err)
	_, err = c.Bus.Nodes.Put(c.Ctx, "n1", lease)
	require.NoError(t, err)
	_, err = topology.NewStore(c.Store, c.Bus.Maps).Update(c.Ctx, c.ID("slow"), func(m *topology.Map) error {
		m.Join(topology.Member{Name: "n1"})
		m.Replicas = 2
		m.Assign()
		return nil
	})
	require.NoError(t, err)
	c.Await(func() bool {
		m, err := c.Op.Watcher().Map("slow")
		return err == nil && slices.Contains(m.Assigned[0], "n1") && len(c.Op.Nodes()) == 2
	})

	ctx, stop := context.WithCancel(c.Ctx)
	var done sync.WaitGroup
	defer done.Wait()
	defer stop()
	r := &running{c: node.Config{Logger: slog.New(slog.DiscardHandler)}, lease: 3 * time.Second, healAfter: time.Nanosecond, compare: time.Millisecond}
	done.Go(func() { r.heal(ctx, c.Bus, c.Op) })
	select {
	case <-asked:
	case <-c.Ctx.Done():
		require.Fail(t, "nothing is compared")
	}
	lost := func(is bool) func() bool {
		return func() bool {
			return slices.ContainsFunc(c.Op.Watcher().Replicas(c.ID("lost"), 1, 0), func(r topology.Replica) bool { return r.Lost == is })
		}
	}
	stream := bus.LogStream(c.ID("lost"), 0)
	f := c.Client(client.Config{Collection: "lost"})
	_, err = f.Add(c.Ctx, searchtest.Source(t, 16, searchtest.New(2, 16, 12).Docs("e", 1, 4)), nil)
	require.NoError(t, err)
	require.NoError(t, c.Bus.JS.DeleteStream(c.Ctx, stream))
	require.NoError(t, c.Bus.MakeLog(c.Ctx, c.ID("lost"), 0, 0))
	c.Await(lost(true))
	c.Await(lost(false))
}
