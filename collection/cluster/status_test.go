package cluster

import (
	"testing"

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
	_, err := a.Declare(t.Context(), "other", collection.Config{})
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
