package cluster

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/internal/testing/objectstest/memory"
)

// Fewer nodes than replicas are no fault, and are noted while it is so.
func TestFewNodesAreNoFault(t *testing.T) {
	s := memory.New()
	change := func(c *Config) { c.Shards, c.Replicas = 3, 2 }
	a := testNode(t, s, "a", change)
	require.Empty(t, a.Status(t.Context()).Notes, "without collections")
	declared(t, a)
	is := a.Status(t.Context())
	require.Empty(t, is.Faults)
	require.Equal(t, []string{"one node: every shard has one replica of 2 wanted"}, is.Notes)
	_, err := a.Create(t.Context(), "other", collection.Config{})
	require.NoError(t, err)
	require.Len(t, a.Status(t.Context()).Notes, 1, "once for all")
	require.NoError(t, a.SetReplicas(t.Context(), "other", 3))
	require.Equal(t, []string{"one node: every shard of other has one replica of 3 wanted",
		"one node: every shard of wiki has one replica of 2 wanted"},
		a.Status(t.Context()).Notes)
	testNode(t, s, "b", change)
	await(t, "the second node is seen", func() bool { return len(a.Status(t.Context()).Nodes) == 2 })
	require.Equal(t, []string{"2 nodes: every shard of other has 2 replicas of 3 wanted"}, a.Status(t.Context()).Notes)
}

// Status says that two processes have one name, and that nodes run different versions.
func TestStatusOfNodesThatDiffer(t *testing.T) {
	s := memory.New()
	hasty := func(c *Config) { c.Beat = 30 * time.Millisecond }
	a, twin := testNode(t, s, "a", hasty), testNode(t, s, "a", hasty)
	client, err := Open(t.Context(), Config{Store: s, Dir: t.TempDir(), Beat: 30 * time.Millisecond})
	require.NoError(t, err)
	defer func() { require.NoError(t, client.Close(context.WithoutCancel(t.Context()))) }()
	says := func(c, other *Cluster) func() bool {
		return func() bool {
			return slices.ContainsFunc(c.Status(t.Context()).Faults, func(fault string) bool {
				return strings.HasSuffix(fault, "another process, at "+other.node.Address+", has the same name: give each node its own name")
			})
		}
	}
	await(t, "the first process knows the second", says(a, twin))
	await(t, "the second process knows the first", says(twin, a))
	await(t, "a client is told", says(client, a))
	require.NoError(t, twin.Close(t.Context()))
	await(t, "it has ended", func() bool { is := a.Status(t.Context()); return len(is.Faults) == 0 && len(is.Notes) == 0 })

	newer := &Node{Name: "b", Address: "http://127.0.0.1:1", Started: "now", Version: "v99"}
	var is *Status
	count := uint64(0)
	await(t, "the third node is seen", func() bool {
		count++
		_, err = putBeat(t.Context(), s, newer, count)
		require.NoError(t, err)
		is = a.Status(t.Context())
		return len(is.Nodes) == 2
	})
	require.Equal(t, []string{"nodes run different versions and may not understand each other: " +
		a.node.Version + " on a; v99 on b"}, is.Notes)
	require.Regexp(t, `^node b does not answer at http://127.0.0.1:1: dial [^/]* refused$`, is.Faults[0])
}
