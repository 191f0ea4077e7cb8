package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/cluster"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/clustertest"
	"github.com/plaid-ir/plaid/internal/testing/collectiontest"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/objectstest"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/storage/objects"
)

// inTurn is the collections of a cluster: each change goes through the next node, and is read there when all
// replicas have it.
type inTurn struct {
	collection.Catalog
	nodes []*clustertest.Node
	last  *atomic.Int64
}

func (s *inTurn) now() collection.Catalog  { return s.nodes[int(s.last.Load())%len(s.nodes)].Cluster }
func (s *inTurn) next() collection.Catalog { s.last.Add(1); return s.now() }
func (s *inTurn) Names() []string          { return s.now().Names() }

func (s *inTurn) Get(name string) (collection.Collection, error) {
	if _, err := s.now().Get(name); err != nil {
		return nil, err
	}
	return &oneInTurn{s, name}, nil
}

func (s *inTurn) Create(ctx context.Context, name string, c collection.Config) (collection.Collection, error) {
	if _, err := s.next().Create(ctx, name, c); err != nil {
		return nil, err
	}
	return &oneInTurn{s, name}, nil
}

func (s *inTurn) Remove(ctx context.Context, name string) (bool, error) {
	return s.next().Remove(ctx, name)
}

func (s *inTurn) Restore(ctx context.Context, name string, in io.Reader) error {
	return s.next().(collection.Restorer).Restore(ctx, name, in)
}

func (s *inTurn) Import(ctx context.Context, name, dir string) (*index.ImportReport, error) {
	return s.next().(collection.Restorer).Import(ctx, name, dir)
}

type oneInTurn struct {
	s    *inTurn
	name string
}

// of is the collection at a node, which may have to read its map from the store.
func (c *oneInTurn) of(set collection.Catalog) collection.Collection {
	one, err := set.Get(c.name)
	if err != nil {
		panic(fmt.Sprintf("%s is not known at another node: %v", c.name, err))
	}
	return one
}

func (c *oneInTurn) now() collection.Collection  { return c.of(c.s.now()) }
func (c *oneInTurn) next() collection.Collection { return c.of(c.s.next()) }

func (c *oneInTurn) Name() string              { return c.name }
func (c *oneInTurn) Err() error                { return c.now().Err() }
func (c *oneInTurn) Config() collection.Config { return c.now().Config() }

func (c *oneInTurn) SetMaxDocuments(ctx context.Context, most *uint64) (collection.Config, error) {
	return c.next().SetMaxDocuments(ctx, most)
}

func (c *oneInTurn) Stats(ctx context.Context) (collection.Stats, error) {
	c.settle(ctx)
	return c.now().Stats(ctx)
}

func (c *oneInTurn) Snapshot(ctx context.Context) (collection.Snapshot, error) {
	c.settle(ctx)
	return c.now().Snapshot(ctx)
}

// settle waits until no replica is behind: changes of other shards were made through other nodes.
func (c *oneInTurn) settle(ctx context.Context) {
	for range 1000 {
		behind := false
		for _, of := range c.s.nodes[0].Status(ctx).Collections {
			for _, shard := range of.Shards {
				behind = behind ||
					slices.ContainsFunc(shard.Replicas, func(r cluster.ReplicaStatus) bool { return r.Behind > 0 })
			}
		}
		if !behind {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func (c *oneInTurn) Update(ctx context.Context, docs []collection.DocumentInput,
	o collection.UpdateOptions) (collection.Receipt, error) {
	return c.next().Update(ctx, docs, o)
}

func (c *oneInTurn) Delete(ctx context.Context, chosen collection.Selection) (index.Affected, error) {
	return c.next().Delete(ctx, chosen)
}

func (c *oneInTurn) UpdateMetadata(ctx context.Context, chosen collection.Selection,
	set map[string]json.RawMessage) (index.Affected, error) {
	return c.next().UpdateMetadata(ctx, chosen, set)
}

func (c *oneInTurn) Backup(ctx context.Context, out io.Writer) (*index.BackupReport, error) {
	return c.now().(collection.Backuper).Backup(ctx, out)
}

func (c *oneInTurn) Retrain(ctx context.Context) (*index.RetrainReport, error) {
	return c.next().(collection.Retrainer).Retrain(ctx)
}

// Verify may find that the store does not answer, which says nothing of the collection.
func (c *oneInTurn) Verify(ctx context.Context) (err error) {
	for range 50 {
		if err = c.now().(collection.Verifier).Verify(ctx); err == nil || errors.Is(err, storage.ErrCorrupt) {
			break
		}
	}
	return err
}

// stores are the kinds of stores that a cluster is tested over, the S3 services among them with
// the faults of networks.
func stores(t *testing.T) map[string]func(*testing.T) objects.Store {
	open := func(t *testing.T, address string) objects.Store {
		s, err := objects.Open(address)
		require.NoError(t, err)
		return s
	}
	kinds := map[string]func(*testing.T) objects.Store{
		"folder": func(t *testing.T) objects.Store { return open(t, t.TempDir()) },
		"bucket": func(t *testing.T) objects.Store {
			bucket, address := objectstest.Open(t)
			chance := objectstest.NewChance(*seed, .02)
			bucket.Before, bucket.After = chance.Before, chance.After
			return open(t, address)
		},
	}
	if effort.Long() {
		kinds["server"] = func(t *testing.T) objects.Store {
			network, address, _ := objectstest.OpenServer(t)
			chance := objectstest.NewChance(*seed, .02)
			network.Before, network.After = chance.Before, chance.After
			return open(t, address)
		}
	}
	return kinds
}

// The collections of a cluster are as those of a folder, whatever store they are in, through whichever node they
// are asked.
func TestConformance(t *testing.T) {
	for kind, open := range stores(t) {
		for _, n := range []struct{ nodes, shards int }{{1, 1}, {1, 3}, {3, 1}, {3, 3}} {
			if (effort.Brief() || n.nodes == 1) && kind != "folder" {
				continue
			}
			t.Run(fmt.Sprintf("%s, %d nodes, %d shards", kind, n.nodes, n.shards), func(t *testing.T) {
				if kind == "folder" { // the others set the environment
					t.Parallel()
				}
				c := clustertest.New(t,
					clustertest.Options{Nodes: n.nodes, Store: open(t), Change: shards(n.shards, 2)})
				var nodes []*clustertest.Node
				for i := range n.nodes {
					nodes = append(nodes, c.Node(fmt.Sprint("n", i)))
				}
				collectiontest.RunShards(t, &inTurn{nodes[0].Cluster, nodes, new(atomic.Int64)}, n.shards)
			})
		}
	}
}
