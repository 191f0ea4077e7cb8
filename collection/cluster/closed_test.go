package cluster

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/cluster/replica"
	"github.com/plaid-ir/plaid/internal/testing/objectstest/memory"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage"
)

// A shard whose file is closed under a search, or is found to be damaged, is searched on another node.
func TestSearchElsewhere(t *testing.T) {
	for _, why := range []error{search.ErrClosed, storage.ErrClosed, storage.ErrCorrupt, collection.ErrClosed,
		replica.ErrFailed} {
		s := &shardedCollection{name: "wiki", id: "wiki.0000000000000000", c: testNode(t, memory.New(), "a", nil)}
		m := &Map{ID: s.id, Name: s.name, Shards: 1, Replicas: 2, Current: &replica.Generation{Number: 1}}
		f := &fanOut[answerHead, describeRequest, *answerHead]{
			shards: s, m: m, missing: map[int]error{}, stop: func() { t.Error("the search is given up") },
		}
		f.noteRefusal(&Node{Name: "a"}, []int{0},
			newFailure(&search.QueryError{Err: fmt.Errorf("searching: %w", why)}).toError())
		require.NoError(t, f.refusal)
		require.ErrorIs(t, f.missing[0], why)
	}
}

// A Close that does not wait for the end of the loop reads no field that the loop writes.
func TestCloseLeavesBeatsToLoop(t *testing.T) {
	c := startNodes(t, 1, 1, nil)[0]
	c.cancel()
	c.background.Wait()
	before := &Node{Name: c.node.Name, Started: "before", Since: c.node.Since.Add(-time.Hour)}
	_, err := putBeat(t.Context(), c.cfg.Store, before, 0)
	require.NoError(t, err)
	c.beats.byObject[before.object()] = &nodeBeat{node: before}
	block := make(chan struct{})
	c.background.Go(func() { <-block }) // in the place of the loop
	defer close(block)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	require.NoError(t, c.Close(ctx))
	_, err = readNode(t.Context(), c.cfg.Store, before.object())
	require.NoError(t, err)
}
