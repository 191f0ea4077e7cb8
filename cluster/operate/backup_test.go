package operate_test

import (
	"context"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/clustertest"
	"github.com/plaid-ir/plaid/cluster/objects"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
)

// meddling is an object store that does something before the first shard is read.
type meddling struct {
	objects.Store
	mu    sync.Mutex
	first func()
}

func (s *meddling) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	if strings.HasPrefix(name, "shards/") {
		s.mu.Lock()
		first := s.first
		s.first = nil
		s.mu.Unlock()
		if first != nil {
			first()
		}
	}
	return s.Store.Get(ctx, name)
}

// A checkpoint beside a backup gives the map other objects, and those that the backup was about
// to read may be removed: it begins again with the map as it is then. It changes no map itself,
// and leaves no object.
func TestBackupBesideCheckpointAndTidy(t *testing.T) {
	docs := searchtest.New(4, dim, 6).Docs("d", 44, 4)
	folder, err := objects.OpenFolder(t.TempDir())
	require.NoError(t, err)
	store := &meddling{Store: folder}
	c := clustertest.NewOver(t, 2, store)
	c.Collection("wiki", operate.CreateOptions{Shards: 2, Replicas: 2}, dim, docs[:40])
	f := c.Client(client.Config{Collection: "wiki"})
	store.first = func() {
		for i := 40; i < 44; i++ {
			_, err := f.Add(c.Ctx, searchtest.Source(t, dim, docs[i:i+1]), nil)
			require.NoError(t, err)
		}
		_, err := c.Op.Checkpoint(c.Ctx, "wiki")
		require.NoError(t, err)
		report, err := c.Op.Tidy(c.Ctx, time.Nanosecond)
		require.NoError(t, err)
		require.Positive(t, report.Objects)
	}
	path := filepath.Join(t.TempDir(), "backup.plaid")
	_, err = c.Op.Backup(c.Ctx, c.ID("wiki"), path, t.TempDir())
	require.NoError(t, err)
	require.Nil(t, store.first)
	require.Equal(t, 44, searchtest.Snapshot(t, searchtest.Open(t, path)).Len())

	_, err = f.Delete(c.Ctx, []string{docs[0].ID, docs[1].ID, docs[2].ID, docs[3].ID}, nil)
	require.NoError(t, err)
	newest := func() *topology.Map {
		m, err := topology.NewStore(c.Store, c.Bus.Maps).Newest(c.Ctx, "wiki")
		require.NoError(t, err)
		return m
	}
	before := newest().Version
	_, err = c.Op.Backup(c.Ctx, c.ID("wiki"), filepath.Join(t.TempDir(), "again.plaid"), t.TempDir())
	require.NoError(t, err)
	require.Equal(t, before, newest().Version)
	shards, err := c.Store.List(c.Ctx, "shards/")
	require.NoError(t, err)
	require.Len(t, shards, 2)
}

// A round of checkpoints makes one version of the map, however many shards get objects.
func TestCheckpointsMakeOneVersion(t *testing.T) {
	docs := searchtest.New(5, dim, 6).Docs("d", 60, 4)
	c := clustertest.New(t, 2)
	c.Collection("wiki", operate.CreateOptions{Shards: 5, Replicas: 2}, dim, docs[:20])
	f := c.Client(client.Config{Collection: "wiki"})
	_, err := f.Add(c.Ctx, searchtest.Source(t, dim, docs[20:]), nil)
	require.NoError(t, err)
	before, err := c.Op.Watcher().Map("wiki")
	require.NoError(t, err)
	m, err := c.Op.Checkpoint(c.Ctx, "wiki")
	require.NoError(t, err)
	require.Equal(t, before.Version+1, m.Version)
	for s, shard := range m.Current.Shards {
		require.Greater(t, shard.Applied, before.Current.Shards[s].Applied)
	}
}

// A log that has lost its end looks as if the object of the shard had all of it. A backup has every
// change that was acknowledged, or there is none, also before the replicas have noticed.
func TestNoBackupOfALogThatLostItsEnd(t *testing.T) {
	docs := searchtest.New(6, dim, 6).Docs("d", 24, 4)
	c := clustertest.New(t, 2)
	c.Collection("wiki", operate.CreateOptions{Replicas: 2}, dim, docs[:20])
	f := c.Client(client.Config{Collection: "wiki"})
	for i := 20; i < 24; i++ {
		_, err := f.Add(c.Ctx, searchtest.Source(t, dim, docs[i:i+1]), nil)
		require.NoError(t, err)
		if i == 21 {
			_, err := c.Op.Checkpoint(c.Ctx, "wiki")
			require.NoError(t, err)
		}
	}
	id := c.ID("wiki")
	c.Await(func() bool {
		rs := c.Op.Watcher().Replicas(id, 1, 0)
		return len(rs) == 2 && rs[0].Applied == 4 && rs[1].Applied == 4
	})
	require.NoError(t, c.Bus.JS.DeleteStream(c.Ctx, bus.LogStream(id, 0)))
	require.NoError(t, c.Bus.MakeLog(c.Ctx, id, 0, 2))
	_, err := c.Op.Backup(c.Ctx, id, filepath.Join(t.TempDir(), "backup.plaid"), t.TempDir())
	require.ErrorIs(t, err, operate.ErrDiffer)
}
