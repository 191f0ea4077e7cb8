package cluster

import (
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
	_ collection.Set      = (*Cluster)(nil)
	_ collection.Readier  = (*Cluster)(nil)
	_ collection.Panicker = (*Cluster)(nil)
	_ collection.Restorer = (*Cluster)(nil)
	_ collection.Spread   = (*Cluster)(nil)
)

// Place implements [collection.Set].
func (c *Cluster) Place() string { return c.c.Place }

// Names implements [collection.Set]: those of collections that cannot be read are among them.
func (c *Cluster) Names() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := maps.Clone(c.maps)
	maps.DeleteFunc(all, func(_ string, m *Map) bool { return m.Removed })
	return slices.Sorted(maps.Keys(all))
}

// Get implements [collection.Set].
func (c *Cluster) Get(name string) (collection.Collection, error) {
	ctx, stop := context.WithTimeout(c.ctx, 10*time.Second)
	defer stop()
	m, err := c.mapOf(ctx, name)
	if errors.Is(err, collection.ErrDamaged) {
		return &shards{c: c, name: name}, nil // which says why
	}
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.known[m.ID]
	if of == nil {
		of = &shards{c: c, name: name, id: m.ID}
		c.known[m.ID] = of
	}
	return of, nil
}

// CreateOptions of a collection. What is 0 is as [Config] says.
type CreateOptions struct{ Shards, Replicas int }

// Declare implements [collection.Set].
func (c *Cluster) Declare(ctx context.Context, name string, cfg collection.Config) (collection.Collection, error) {
	return c.Create(ctx, name, cfg, CreateOptions{})
}

func checkSpread(shards, replicas int) error {
	if shards < 1 || shards > MaxShards || replicas < 1 || replicas > MaxReplicas {
		return fmt.Errorf("%w: %d shards with %d replicas; 1 to %d, and 1 to %d are possible",
			collection.ErrConfig, shards, replicas, MaxShards, MaxReplicas)
	}
	return nil
}

// checkMost refuses a number of documents that leaves shards none.
func checkMost(most *uint64, shards int) error {
	if most != nil && *most < uint64(shards) {
		return fmt.Errorf("%w: max_documents is %d; a collection of %d shards keeps at least one document in each",
			collection.ErrConfig, *most, shards)
	}
	return nil
}

// Create is Declare with a number of shards, which does not change, and of replicas.
func (c *Cluster) Create(ctx context.Context, name string, cfg collection.Config, o CreateOptions) (
	collection.Collection, error) {
	if o.Shards == 0 {
		o.Shards = c.c.Shards
	}
	if o.Replicas == 0 {
		o.Replicas = c.c.Replicas
	}
	cfg, err := cfg.Completed()
	err = errors.Join(err, collection.CheckName(name), checkSpread(o.Shards, o.Replicas), checkMost(cfg.MaxDocuments, o.Shards))
	if err != nil {
		return nil, err
	}
	exists := fmt.Errorf("%w: %q", collection.ErrExists, name)
	for {
		m := &Map{Name: name, ID: name + "." + newToken(), Version: 1, Config: cfg, Shards: o.Shards, Replicas: o.Replicas}
		before, err := newestMap(ctx, c.c.Store, name)
		switch {
		case err == nil && !before.Removed:
			c.learn(before)
			return nil, exists
		case unreadable(err):
			return nil, exists
		case err == nil: // numbers go on, so that nobody takes one for another
			m.Version, m.Last, m.Gone = before.Version+1, before.Last, before.Gone
		case !errors.Is(err, collection.ErrUnknown):
			return nil, err
		default:
			c.mu.Lock()
			known := c.maps[name]
			c.mu.Unlock()
			if known != nil && !known.Removed {
				return nil, fmt.Errorf("%w, and the store has lost its map", exists)
			}
		}
		if err := putMap(ctx, c.c.Store, m); errors.Is(err, errTaken) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("declaring %q: %w", name, err)
		}
		c.tell(m)() // who asks another node finds it there
		return c.Get(name)
	}
}

// Drop implements [collection.Set]. First the map says that the collection is removed, then the logs of its shards
// are sealed: when it returns, no node acknowledges a change of it, whatever it has heard. The objects are
// deleted when the grace is over.
func (c *Cluster) Drop(ctx context.Context, name string) (existed bool, err error) {
	if err := collection.CheckName(name); err != nil {
		return false, err
	}
	m, err := c.update(ctx, name, func(m *Map) error {
		began := m.Current != nil
		*m = Map{
			Name: m.Name, ID: m.ID, Removed: true, Config: m.Config, Shards: m.Shards, Replicas: m.Replicas, Last: m.Last,
			Gone: append(m.Gone, Gone{ID: m.ID}),
		}
		if began { // else no node has had a place for changes
			m.Gone[len(m.Gone)-1].Shards = m.Shards
		}
		return nil
	})
	if existed = err == nil; existed {
		c.tell(m)()
	} else if errors.Is(err, collection.ErrUnknown) { // perhaps one that was interrupted
		m, err = newestMap(ctx, c.c.Store, name)
	}
	if errors.Is(err, collection.ErrUnknown) {
		return false, nil
	}
	if err != nil {
		return existed, err
	}
	for try := range putTries { // the store may have refused one request of many
		if err = c.seal(ctx, m); err == nil || ctx.Err() != nil {
			break
		}
		time.Sleep(10 * time.Millisecond << try)
	}
	if err != nil {
		return true, fmt.Errorf("%q is removed, but nodes that have not heard of that may take changes yet: %w", name, err)
	}
	return existed, nil
}

// sealing is how many logs are sealed at a time.
const sealing = 64

// seal ends the logs of collections that a map says were removed.
func (c *Cluster) seal(ctx context.Context, m *Map) error {
	sealed := map[string]bool{}
	for _, g := range m.Gone {
		if g.Shards == 0 {
			continue
		}
		err := parallel.Do(ctx, g.Shards, sealing, func(shard int) error { return replica.Seal(ctx, &c.rc, g.ID, shard) })
		if err != nil {
			return err
		}
		sealed[g.ID] = true
	}
	if len(sealed) == 0 {
		return nil
	}
	m, err := updateAny(ctx, c.c.Store, m.Name, func(m *Map) error {
		err := errSame
		for i := range m.Gone {
			if g := &m.Gone[i]; g.Shards > 0 && sealed[g.ID] {
				g.Shards, err = 0, nil
			}
		}
		return err
	})
	if err == nil {
		c.learn(m)
	}
	return err
}

// sealDue seals what a process has left that was interrupted, some time after it was seen first.
func (c *Cluster) sealDue(now time.Time) {
	c.mu.Lock()
	var due []*Map
	for _, m := range c.maps {
		open := slices.ContainsFunc(m.Gone, func(g Gone) bool { return g.Shards > 0 })
		if first, seen := c.unsealed[m.Name]; !open || m.fault != nil {
			delete(c.unsealed, m.Name)
		} else if !seen {
			c.unsealed[m.Name] = now
		} else if now.Sub(first) > beatsToDie*c.c.Beat && coordinator(c.nodes, m.ID) == c.node {
			due = append(due, m)
		}
	}
	c.mu.Unlock()
	for _, m := range due {
		c.aside("sealing "+m.ID, func(ctx context.Context) {
			if err := c.seal(ctx, m); err != nil && ctx.Err() == nil {
				c.log.Warn("the logs of a collection that was removed are not sealed yet", "collection", m.Name, "error", err)
			}
		})
	}
}

// SetReplicas changes how many nodes have each shard of a collection.
func (c *Cluster) SetReplicas(ctx context.Context, name string, replicas int) error {
	if err := checkSpread(1, replicas); err != nil {
		return err
	}
	_, err := c.update(ctx, name, func(m *Map) error {
		if m.Replicas == replicas {
			return errSame
		}
		m.Replicas = replicas
		return nil
	})
	return err
}

// Ready implements [collection.Readier]: it is why nothing is heard of the store. Searches go on with what is
// here.
func (c *Cluster) Ready() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	silent := time.Since(c.answered)
	switch {
	case c.closed:
		return collection.ErrClosed
	case silent < beatsToDie*c.c.Beat || c.trouble == nil && silent < 3*beatsToDie*c.c.Beat:
		return nil
	case c.trouble == nil:
		return fmt.Errorf("the store %s has not answered for %v", c.c.Place, silent.Round(time.Second))
	}
	return fmt.Errorf("the store %s has not answered for %v: %w", c.c.Place, silent.Round(time.Second), c.trouble)
}

// Panics implements [collection.Panicker].
func (c *Cluster) Panics() uint64 { return c.panics.Load() }

// Restore implements [collection.Restorer].
func (c *Cluster) Restore(ctx context.Context, name string, in io.Reader) error {
	return c.fill(ctx, name, func(path string) error {
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
	err = c.fill(ctx, name, func(path string) (err error) {
		r, err = index.Import(ctx, dir, path, &index.ImportOptions{
			Threads: c.c.Index.Threads, Memory: c.c.Index.Memory, Backend: c.c.Index.Backend, Logger: c.log,
		})
		return err
	})
	return r, err
}

// fill gives a collection that has no documents those of an index file, which write makes. It is declared if
// it is not there, and goes again if filling it failed, unless somebody has put something into it meanwhile.
func (c *Cluster) fill(ctx context.Context, name string, write func(path string) error) (err error) {
	free := func(m *Map) error {
		if m.Current != nil {
			return fmt.Errorf("%w: %q has documents", collection.ErrExists, name)
		}
		return nil
	}
	m, err := c.mapOf(ctx, name)
	declared := errors.Is(err, collection.ErrUnknown)
	if err == nil {
		err = free(m)
	}
	if err != nil && !declared {
		return err
	}
	dir, remove, err := c.scratch()
	if err != nil {
		return err
	}
	defer remove()
	path := filepath.Join(dir, "whole.plaid")
	if err := write(path); err != nil {
		return err
	}
	ix, err := openWhole(ctx, path, c.log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ix.Close()) }()
	if declared {
		of, err := c.Declare(ctx, name, collection.Config{})
		if err != nil {
			return err
		}
		if m, err = c.mapOf(ctx, of.Name()); err != nil {
			return err
		}
	}
	b := &bulk{store: c.c.Store, id: m.ID, name: name, free: free, growth: c.c.Index.Growth, log: c.log}
	if err = b.begin(ctx); err == nil {
		m, err = b.finish(ctx, ix, dir)
	}
	if err == nil {
		c.tell(m)() // who asks another node finds it there
		return nil
	}
	b.release(context.WithoutCancel(ctx))
	if declared {
		_, derr := c.updateID(context.WithoutCancel(ctx), b.id, func(m *Map) error {
			if m.Current != nil {
				return errSame
			}
			m.Removed, m.Gone = true, append(m.Gone, Gone{ID: m.ID})
			m.Building, m.Retired = nil, nil
			return nil
		})
		if derr != nil {
			c.log.Warn("a collection that was declared to be filled stays", "collection", name, "error", derr)
		}
	}
	return err
}
