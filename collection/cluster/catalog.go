package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/cluster/replica"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/internal/parallel"
)

var (
	_ collection.Catalog           = (*Cluster)(nil)
	_ collection.ReadinessReporter = (*Cluster)(nil)
	_ collection.PanicCounter      = (*Cluster)(nil)
	_ collection.Restorer          = (*Cluster)(nil)
	_ collection.Distributed       = (*Cluster)(nil)
)

// Location implements [collection.Catalog]: the address of the store.
func (c *Cluster) Location() string { return c.cfg.StoreAddress }

// Names implements [collection.Catalog]. It includes collections whose maps cannot be read.
func (c *Cluster) Names() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	existing := maps.Clone(c.maps)
	maps.DeleteFunc(existing, func(_ string, m *Map) bool { return m.Removed })
	return slices.Sorted(maps.Keys(existing))
}

// Get implements [collection.Catalog].
func (c *Cluster) Get(name string) (collection.Collection, error) {
	ctx, stop := context.WithTimeout(c.ctx, 10*time.Second)
	defer stop()
	m, err := c.findMap(ctx, name)
	if unreadable(err) {
		return &shardedCollection{c: c, name: name}, nil // its Err returns the reason
	}
	if err != nil {
		return nil, err
	}
	return &shardedCollection{c: c, name: name, id: m.ID}, nil
}

// CreateOptions are the options of a new collection. 0 means the value of the [Config].
type CreateOptions struct{ Shards, Replicas int }

// Create implements [collection.Catalog].
func (c *Cluster) Create(ctx context.Context, name string, cfg collection.Config) (collection.Collection, error) {
	return c.CreateSharded(ctx, name, cfg, CreateOptions{})
}

// checkSpread returns an error if a number of shards or replicas is out of range.
func checkSpread(shards, replicas int) error {
	if shards < 1 || shards > MaxShards || replicas < 1 || replicas > MaxReplicas {
		return fmt.Errorf("%w: %d shards with %d replicas; 1 to %d, and 1 to %d are possible",
			collection.ErrConfig, shards, replicas, MaxShards, MaxReplicas)
	}
	return nil
}

// checkMaxDocuments refuses a limit of documents that is lower than the number of shards.
func checkMaxDocuments(maxDocuments *uint64, shards int) error {
	if maxDocuments != nil && *maxDocuments < uint64(shards) {
		return fmt.Errorf("%w: max_documents is %d; a collection of %d shards keeps at least one document in each",
			collection.ErrConfig, *maxDocuments, shards)
	}
	return nil
}

// CreateSharded is Create with a number of shards, which cannot be changed later, and a number of replicas.
func (c *Cluster) CreateSharded(ctx context.Context, name string, cfg collection.Config,
	o CreateOptions) (collection.Collection, error) {
	o.Shards, o.Replicas = cmp.Or(o.Shards, c.cfg.Shards), cmp.Or(o.Replicas, c.cfg.Replicas)
	cfg, err := cfg.Completed()
	err = errors.Join(err, collection.CheckName(name), checkSpread(o.Shards, o.Replicas),
		checkMaxDocuments(cfg.MaxDocuments, o.Shards))
	if err != nil {
		return nil, err
	}
	exists := fmt.Errorf("%w: %q", collection.ErrExists, name)
	for {
		m := &Map{
			Name:     name,
			ID:       name + "." + newToken(),
			Version:  1,
			Config:   cfg,
			Shards:   o.Shards,
			Replicas: o.Replicas,
		}
		before, err := newestMap(ctx, c.cfg.Store, name)
		switch lastKnown := c.knownMap(name); {
		case unreadable(err):
			return nil, exists
		case errors.Is(err, collection.ErrUnknown):
			if lastKnown != nil && !lastKnown.Removed {
				return nil, fmt.Errorf("%w, and the store has lost its map", exists)
			}
		case err != nil:
			return nil, err
		case !before.Removed:
			_ = c.adoptMap(name, before, nil)
			return nil, exists
		default: // versions and generation numbers continue, so that each is used once
			m.Version, m.Last, m.Retired = before.Version+1, before.Last, before.Retired
		}
		if err := putMap(ctx, c.cfg.Store, m); errors.Is(err, errTaken) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("declaring %q: %w", name, err)
		}
		c.announceMap(m)() // wait, so that other nodes know the collection
		return c.Get(name)
	}
}

// Remove implements [collection.Catalog]. First the map says that the collection is removed, and then the logs of its
// shards are sealed. When Remove returns, no node acknowledges a change of it, even if the node does not know of the
// removal yet (I10: a removal is a fence). The objects are deleted after the grace.
func (c *Cluster) Remove(ctx context.Context, name string) (existed bool, err error) {
	if err := collection.CheckName(name); err != nil {
		return false, err
	}
	m, err := c.changeMap(ctx, name, func(m *Map) error { m.remove(); return nil })
	if existed = err == nil; existed {
		c.announceMap(m)()
	} else if errors.Is(err, collection.ErrUnknown) { // an earlier removal may have been interrupted
		m, err = newestMap(ctx, c.cfg.Store, name)
	}
	if errors.Is(err, collection.ErrUnknown) {
		return false, nil
	}
	if err != nil {
		return existed, err
	}
	err = retryStore(ctx, func() error { return c.sealLogs(ctx, m) }) // one of many requests may fail by chance
	if err != nil {
		return true, fmt.Errorf("%q is removed, but nodes that do not know of it yet may still take changes: %w",
			name, err)
	}
	return existed, nil
}

// sealedAtOnce is how many logs are sealed concurrently.
const sealedAtOnce = 64

// sealLogs seals the logs of removed collections in a map, and notes in the map that they are sealed.
func (c *Cluster) sealLogs(ctx context.Context, m *Map) error {
	sealed := map[string]bool{}
	for _, g := range m.Retired {
		if g.Shards == 0 {
			continue
		}
		seal := func(shard int) error { return replica.Seal(ctx, &c.replicaConfig, g.ID, shard) }
		if err := parallel.Do(ctx, g.Shards, sealedAtOnce, seal); err != nil {
			return err
		}
		sealed[g.ID] = true
	}
	if len(sealed) == 0 {
		return nil
	}
	m, err := updateMapOrRemoved(ctx, c.cfg.Store, m.Name, func(m *Map) error {
		err := errUnchanged
		for i := range m.Retired {
			if g := &m.Retired[i]; g.Shards > 0 && sealed[g.ID] {
				g.Shards, err = 0, nil
			}
		}
		return err
	})
	if err == nil {
		err = c.adoptMap(m.Name, m, nil)
	}
	return err
}

// finishRemovals seals the logs of removals that were interrupted, some time after they were first seen.
func (c *Cluster) finishRemovals(now time.Time) {
	c.mu.Lock()
	var due []*Map
	for _, m := range c.maps {
		unsealed := slices.ContainsFunc(m.Retired, func(g Retired) bool { return g.Shards > 0 })
		if first, seen := c.unsealed[m.Name]; !unsealed || m.readErr != nil {
			delete(c.unsealed, m.Name)
		} else if !seen {
			c.unsealed[m.Name] = now
		} else if now.Sub(first) > beatsToDie*c.cfg.Beat && coordinator(c.nodes, m.ID) == c.node {
			due = append(due, m)
		}
	}
	c.mu.Unlock()
	for _, m := range due {
		c.startTask("sealing "+m.ID, func(ctx context.Context) {
			if err := c.sealLogs(ctx, m); err != nil && ctx.Err() == nil {
				c.log.Warn("the logs of a collection that was removed are not sealed yet",
					"collection", m.Name, "error", err)
			}
		})
	}
}

// SetReplicas changes how many replicas each shard of a collection should have.
func (c *Cluster) SetReplicas(ctx context.Context, name string, replicas int) error {
	if err := checkSpread(1, replicas); err != nil {
		return err
	}
	_, err := c.changeMap(ctx, name, changeIf(func(m *Map) bool { return m.Replicas != replicas }, func(m *Map) {
		m.Replicas = replicas
	}))
	return err
}

// Ready implements [collection.ReadinessReporter]. The error says why the store does not answer. Searches go on
// meanwhile with the replicas of this node and the others. A store that refuses requests is reported after
// beatsToDie beats, and one that is merely slow after three times as long.
func (c *Cluster) Ready() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	silent := time.Since(c.lastAnswer)
	switch {
	case c.closed:
		return collection.ErrClosed
	case silent < beatsToDie*c.cfg.Beat || c.storeErr == nil && silent < 3*beatsToDie*c.cfg.Beat:
		return nil
	}
	err := fmt.Errorf("the store %s has not answered for %v", c.cfg.StoreAddress, silent.Round(time.Second))
	if c.storeErr != nil {
		err = fmt.Errorf("%w: %w", err, c.storeErr)
	}
	return err
}

// Panics implements [collection.PanicCounter].
func (c *Cluster) Panics() uint64 { return c.panics.Load() }

// Restore implements [collection.Restorer].
func (c *Cluster) Restore(ctx context.Context, name string, in io.Reader) error {
	return c.fillCollection(ctx, name, func(path string) error {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, files.UntilDone(ctx, in))
		return errors.Join(err, f.Close())
	})
}

// Import implements [collection.Restorer].
func (c *Cluster) Import(ctx context.Context, name, dir string) (r *index.ImportReport, err error) {
	err = c.fillCollection(ctx, name, func(path string) (err error) {
		r, err = index.Import(ctx, dir, path, &index.ImportOptions{
			Threads: c.cfg.Index.Threads, Memory: c.cfg.Index.Memory, Backend: c.cfg.Index.Backend, Logger: c.log,
		})
		return err
	})
	return r, err
}

// fillCollection fills a collection without documents from the index file that write creates. The collection is
// declared if it does not exist. If filling fails it is removed again, unless it has got other documents meanwhile.
func (c *Cluster) fillCollection(ctx context.Context, name string, write func(path string) error) error {
	m, err := c.findMap(ctx, name)
	declared := errors.Is(err, collection.ErrUnknown)
	if err == nil && m.Current != nil {
		err = fmt.Errorf("%w: %q has documents", collection.ErrExists, name)
	}
	if err != nil && !declared {
		return err
	}
	// Write and check the file.
	dir, remove, err := c.createScratch()
	if err != nil {
		return err
	}
	defer remove()
	path := filepath.Join(dir, "whole.plaid")
	if err := write(path); err != nil {
		return err
	}
	if err := verifyFile(ctx, path, c.log); err != nil {
		return err
	}
	// Publish it.
	if declared {
		if _, err := c.Create(ctx, name, collection.Config{}); err != nil {
			return err
		}
		if m, err = c.findMap(ctx, name); err != nil {
			return err
		}
	}
	b := &bulkBuild{
		store:       c.cfg.Store,
		id:          m.ID,
		mustBeEmpty: true,
		growth:      c.cfg.Index.Growth,
		log:         c.log,
	}
	if m, err = b.publishFile(ctx, path, func() error { return nil }); err == nil {
		c.announceMap(m)() // wait, so that all nodes find the documents
		return nil
	}
	// Remove the collection again.
	if declared {
		empty := func(m *Map) bool { return m.Current == nil }
		_, rerr := c.changeMapByID(context.WithoutCancel(ctx), b.id, changeIf(empty, (*Map).remove))
		if rerr != nil {
			c.log.Warn("a collection that was declared to be filled was not removed", "collection", name, "error", rerr)
		}
	}
	return err
}
