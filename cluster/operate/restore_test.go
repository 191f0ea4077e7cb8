package operate_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/clustertest"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/search/searchtest"
)

// Restoring waits for all nodes of the map: it says which are away while it waits, and when it
// gives up.
func TestRestoreNamesWhoIsAway(t *testing.T) {
	c := clustertest.New(t, 2)
	c.Collection("wiki", operate.CreateOptions{Replicas: 2}, dim, searchtest.New(6, dim, 6).Docs("d", 20, 4))
	die(t, c, "n1")
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
