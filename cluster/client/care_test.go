package client_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/clustertest"
	"github.com/plaid-ir/plaid/cluster/node"
	"github.com/plaid-ir/plaid/cluster/objects"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
)

// slow is a store that gives shards late.
type slow struct {
	objects.Store
	armed atomic.Bool
}

func (s *slow) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	if s.armed.Load() && strings.HasPrefix(name, "shards/") {
		time.Sleep(500 * time.Millisecond)
	}
	return s.Store.Get(ctx, name)
}

// Rejoining is over when the new replica answers, not while the lease still speaks of the
// one before, and not where another order has come first: its replica is left alone.
func TestRejoinWaits(t *testing.T) {
	docs, _ := documents(61, 30)
	inner, err := objects.OpenFolder(t.TempDir())
	require.NoError(t, err)
	store := &slow{Store: inner}
	c := clustertest.NewOver(t, 1, store)
	c.Collection("wiki", operate.CreateOptions{}, dim, docs)
	path := filepath.Join(c.Dir, "n0", c.ID("wiki"), "g1", "s0000.plaid")
	require.FileExists(t, path)
	store.armed.Store(true)
	var wg sync.WaitGroup
	var done atomic.Int32
	for range 3 {
		wg.Go(func() {
			if c.Op.Rejoin(c.Ctx, "wiki", "n0") == nil {
				done.Add(1)
				_, err := os.Stat(path)
				assert.NoError(t, err, "it does not answer yet")
			}
		})
	}
	wg.Wait()
	assert.Positive(t, done.Load())
	c.Ready("n0")
	_, err = c.Op.Verify(c.Ctx, "wiki")
	require.NoError(t, err)
}

// Several operators may want an object of a replica at a time: each gets one that is what
// it is told.
func TestCheckpointsAtATime(t *testing.T) {
	docs, _ := documents(62, 40)
	c := clustertest.New(t, 1)
	c.Collection("wiki", operate.CreateOptions{}, dim, docs[:20])
	f := c.Client(client.Config{Collection: "wiki"})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 4 {
				r, err := node.Send(c.Ctx, c.Bus.Conn, "n0", node.Order{Do: "checkpoint", Collection: c.ID("wiki"), Generation: 1})
				if !assert.NoError(t, err) {
					return
				}
				file := filepath.Join(t.TempDir(), "shard.plaid")
				if !assert.NoError(t, objects.Fetch(c.Ctx, c.Store, r.Shard.Object, file)) {
					return
				}
				got, err := node.Examine(c.Ctx, file, 0)
				if assert.NoError(t, err) {
					assert.Equal(t, r.Shard.Digest, got.Digest)
					assert.Equal(t, r.Shard.Applied, got.Applied)
				}
			}
		})
	}
	for i := range docs[20:] {
		_, err := f.Add(c.Ctx, searchtest.Source(t, dim, docs[20+i:21+i]), nil)
		require.NoError(t, err)
	}
	wg.Wait()
}
