package cluster

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
)

// A node whose replicas are searched for long while their collection is removed goes on to say that it lives.
func TestBeatsWhileReplicasClose(t *testing.T) {
	nodes := startNodes(t, 2, 4, nil)
	declared(t, nodes[0], testDocs(0, 40, 8)...)
	open := func() []*cachedReplica { return nodes[0].openReplicas(func(replicaKey) bool { return true }) }
	for _, r := range open() {
		v, _, err := r.Snapshot(t.Context(), 0)
		require.NoError(t, err)
		defer func() { _ = v.Close() }()
	}
	_, err := nodes[1].Remove(t.Context(), "wiki")
	require.NoError(t, err)
	await(t, "the replicas are closed", func() bool { return len(open()) == 0 })
	for began := time.Now(); time.Since(began) < 12*testBeat; time.Sleep(testBeat / 2) {
		require.True(t, nodes[1].isProcessAlive(nodes[0].node.Started), "after %v", time.Since(began))
	}
}

// The first vectors of a collection do not wait for the training of another one.
func TestDimensionDuringTraining(t *testing.T) {
	c := startNodes(t, 1, 2, nil)[0]
	wiki := declared(t, c, collection.DocumentInput{ID: "w", Metadata: []byte(`{"n":1}`)})
	c.heavySlot <- struct{}{}
	defer func() { <-c.heavySlot }()
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	_, err := wiki.Update(ctx, testDocs(0, 10, 16), collection.UpdateOptions{})
	require.NoError(t, err)
}
