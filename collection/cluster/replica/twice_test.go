package replica_test

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/cluster/replica"
	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/storage/objects"
)

// paused is a store whose puts of entries wait while it is held.
type paused struct {
	objects.Store
	held         atomic.Bool
	begun, going chan struct{}
}

func (p *paused) Put(ctx context.Context, name string, r io.Reader, size int64) (time.Time, error) {
	if strings.Contains(name, "/log/") && p.held.CompareAndSwap(true, false) {
		close(p.begun)
		<-p.going
	}
	return p.Store.Put(ctx, name, r, size)
}

// A change that waits at one node, and was sent to another one meanwhile, is not done a second time when
// the first one goes on: it would undo what came after it.
func TestNotDoneTwice(t *testing.T) {
	folder, err := objects.OpenFolder(t.TempDir())
	require.NoError(t, err)
	p := &paused{Store: folder, begun: make(chan struct{}), going: make(chan struct{})}
	open := func(s objects.Store) *replica.Replica {
		r, err := replica.Open(&replica.Config{Store: s, Dir: t.TempDir(), Index: store.Options{Threads: 1}, Logger: slog.New(slog.DiscardHandler)}, replica.Shard{
			Collection: "notes.x1", Generation: replica.Generation{Number: 1, Dim: 2, Nbits: 8, Stage: collection.StageFlat, Begun: true},
		})
		require.NoError(t, err)
		t.Cleanup(func() { _ = r.Close(context.Background()) })
		return r
	}
	ctx, first, other := t.Context(), open(p), open(folder)
	add := func(r *replica.Replica, b replica.Batch, id string) error {
		_, _, err := r.Update(ctx, b, []collection.Document{{ID: id, Dim: 2, Vectors: []float32{1, 0}}}, collection.UpdateOptions{Replace: true})
		return err
	}
	require.NoError(t, add(first, replica.Batch{}, "a"))
	p.held.Store(true)
	ended := make(chan error, 2)
	go func() { ended <- add(first, replica.Batch{ID: "one"}, "one") }()
	<-p.begun
	go func() { ended <- add(first, replica.Batch{ID: "two"}, "two") }()
	for { // until it waits behind the one that is held
		st, err := first.Stats(ctx)
		require.NoError(t, err)
		if st.Queue.Requests == 2 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	for _, id := range []string{"one", "two"} {
		require.NoError(t, add(other, replica.Batch{ID: id, Sent: true, After: 1}, id))
	}
	n, last, err := other.Delete(ctx, replica.Batch{}, collection.Selection{IDs: []string{"one", "two"}})
	require.NoError(t, err)
	require.Equal(t, 2, n.Documents)
	close(p.going)
	for range 2 {
		require.NoError(t, <-ended, "it was done, by another")
	}
	// One that comes late, and does not say that it was sent elsewhere.
	require.NoError(t, add(first, replica.Batch{ID: "two", After: 1}, "two"))
	for _, r := range []*replica.Replica{first, other} {
		v, entry, err := r.View(ctx, last)
		require.NoError(t, err)
		require.Equal(t, last, entry, "nothing came after the deletion")
		require.EqualValues(t, 1, v.Snapshot().Documents())
		require.NoError(t, v.Close())
	}
}
