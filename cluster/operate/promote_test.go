package operate_test

import (
	"context"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/clustertest"
	"github.com/plaid-ir/plaid/cluster/objects"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/vectors"
)

func build(t *testing.T, c *clustertest.Cluster, docs []vectors.Document) {
	t.Helper()
	_, err := c.Op.Build(c.Ctx, "wiki", searchtest.Source(t, dim, docs), operate.BuildOptions{Train: clustertest.Train, Dir: t.TempDir()})
	require.NoError(t, err)
}

// A generation is searched when as many replicas answer as acknowledge a change: one node of
// three may be away. It follows when it comes back. The same goes for a training.
func TestPromoteWithEnough(t *testing.T) {
	docs := searchtest.New(1, dim, 6).Docs("d", 40, 4)
	c := clustertest.New(t, 3)
	c.Collection("wiki", operate.CreateOptions{Shards: 2, Replicas: 3}, dim, docs)
	c.Die("n2")
	build(t, c, docs)
	m, err := c.Op.Promote(c.Ctx, "wiki")
	require.NoError(t, err)
	require.EqualValues(t, 2, m.Current.Number)
	m, err = c.Op.Retrain(c.Ctx, m.ID(), operate.BuildOptions{Dir: t.TempDir()}, func(int64) (index.BuildOptions, error) { return clustertest.Train, nil })
	require.NoError(t, err)
	require.EqualValues(t, 3, m.Current.Number)
	c.Start("n2")
	c.Ready("n2")
	_, err = c.Op.Verify(c.Ctx, "wiki")
	require.NoError(t, err)
	require.Len(t, c.Op.Watcher().Replicas(m.ID(), 3, 0), 3)
}

// A promotion that waits follows the map: a node that is gone is not waited for any more when
// its shards are given to another one. While it waits it says for whom.
func TestPromotionFollowsTheMap(t *testing.T) {
	docs := searchtest.New(2, dim, 6).Docs("d", 40, 4)
	c := clustertest.New(t, 3)
	_, err := c.Op.Create(c.Ctx, "wiki", operate.CreateOptions{Shards: 2, Replicas: 2})
	require.NoError(t, err)
	build(t, c, docs)
	m, err := c.Op.Watcher().Map("wiki")
	require.NoError(t, err)
	gone := m.Assigned[0][0]
	c.Die(gone)
	said := make(chan string, 100)
	c.Op.Waiting = func(what string) { said <- what }
	done := make(chan error, 1)
	go func() { _, err := c.Op.Promote(c.Ctx, "wiki"); done <- err }()
	select {
	case what := <-said:
		require.Contains(t, what, "shard 0 of generation 1 of wiki has 1 of 2 replicas: "+gone+" is away")
	case err := <-done:
		require.Fail(t, "it does not wait", "%v", err)
	}
	now := time.Now()
	r := operate.Replacing{After: time.Minute, Now: func() time.Time { return now }}
	_, err = c.Op.Replace(c.Ctx, &r)
	require.NoError(t, err)
	now = now.Add(time.Minute)
	all, err := c.Op.Replace(c.Ctx, &r)
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.NoError(t, <-done)
	_, err = c.Op.Verify(c.Ctx, "wiki")
	require.NoError(t, err)
}

// stuck is an object store that gives shards to no node but those that came first.
type stuck struct {
	objects.Store
	left atomic.Int32
}

func (s *stuck) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	if strings.HasPrefix(name, "shards/") && s.left.Add(-1) < 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.Store.Get(ctx, name)
}

// A node that is there and comes to no end is waited for, and then not.
func TestPromotionWaitsForTheRest(t *testing.T) {
	if !effort.Long() {
		t.Skip("on a busy machine, two nodes may not come to an end within three seconds")
	}
	docs := searchtest.New(3, dim, 6).Docs("d", 40, 4)
	folder, err := objects.OpenFolder(t.TempDir())
	require.NoError(t, err)
	store := &stuck{Store: folder}
	store.left.Store(2)
	c := clustertest.NewOver(t, 3, store)
	_, err = c.Op.Create(c.Ctx, "wiki", operate.CreateOptions{Replicas: 3})
	require.NoError(t, err)
	build(t, c, docs)
	within, stop := context.WithTimeout(c.Ctx, 3*time.Second)
	defer stop()
	_, err = c.Op.Promote(within, "wiki")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "has 2 of 3 replicas")
	c.Op.SetRest(time.Millisecond)
	m, err := c.Op.Promote(c.Ctx, "wiki")
	require.NoError(t, err)
	require.EqualValues(t, 1, m.Current.Number)
}
