package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/storage/objects"
)

// runLoop looks at the store at every beat, and acts on the maps that are known when it is asked to.
func (c *Cluster) runLoop() {
	ticker := time.NewTicker(c.cfg.Beat)
	defer ticker.Stop()
	for {
		c.actOnMaps()
		select {
		case <-c.ctx.Done():
			return
		case <-ticker.C:
			_ = c.refreshFromStore(c.ctx) // it keeps the error
		case <-c.wake:
		}
	}
}

// refreshFromStore says that this node lives, and looks for living nodes and new maps.
func (c *Cluster) refreshFromStore(ctx context.Context) (err error) {
	ctx, stop := context.WithTimeout(ctx, max(beatsToDie*c.cfg.Beat, time.Second))
	defer stop()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if err == nil {
			c.lastAnswer = time.Now()
		} else if c.storeErr == nil && c.ctx.Err() == nil {
			c.log.Error("the object store does not answer", "error", err)
		}
		c.storeErr = err
	}()
	if c.node != nil {
		c.beatCount++
		c.requests.Add(1)
		made, err := putBeat(ctx, c.cfg.Store, c.node, c.beatCount)
		if err != nil {
			return fmt.Errorf("saying that this node lives: %w", err)
		}
		c.setStoreTime(made)
	}
	c.requests.Add(2)
	beats, err := c.cfg.Store.List(ctx, nodesPrefix, "", 0)
	if err != nil {
		return err
	}
	listed, err := c.cfg.Store.List(ctx, mapsPrefix, "", 0)
	if err != nil {
		return err
	}
	if c.secret == "" && len(beats) > 0 { // of a client that was there before the first node
		secret, err := readSecret(ctx, c.cfg.Store, false)
		if err != nil {
			return err
		}
		c.mu.Lock()
		c.secret = secret
		c.mu.Unlock()
	}
	c.updateNodes(ctx, beats)
	return c.updateMaps(ctx, listed)
}

// setStoreTime notes the time of the store's clock at the last beat. That of other objects does not count: they may
// be of an hour in which the clock was ahead, and garbage would go too early ever after.
func (c *Cluster) setStoreTime(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.storeNow = t
}

func (c *Cluster) storeTime() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.storeNow
}

// notifyWaiters wakes callers of await; c.mu is held.
func (c *Cluster) notifyWaiters() {
	close(c.mapsChanged)
	c.mapsChanged = make(chan struct{})
}

// wakeLoop asks the loop to act on the maps that are known now.
func (c *Cluster) wakeLoop() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// updateNodes takes over which nodes live, and greets those that are new.
func (c *Cluster) updateNodes(ctx context.Context, beats []objects.Entry) {
	now := time.Now()
	err := c.beats.update(now, beats, func(object string) (*Node, error) {
		c.requests.Add(1)
		return readNode(ctx, c.cfg.Store, object)
	})
	if err != nil {
		c.log.Warn("a node that is in the store cannot be read", "error", err)
	}
	living := c.beats.livingNodes(now)
	var twin *Node
	if c.node != nil { // it lives, though the list may not show it
		living = slices.DeleteFunc(living, func(n *Node) bool { return n.Name == c.node.Name })
		living = append(living, c.node)
		slices.SortFunc(living, func(a, b *Node) int { return strings.Compare(a.Name, b.Name) })
		if c.beatCount > 3*beatsToDie { // else it may be a process before this one, which has ended
			twin = c.beats.otherProcess(c.node, now)
		}
	}
	living = reachableNodes(living)
	for _, n := range c.setNodes(living, twin) {
		c.sendAllHints(n)
	}
}

// setNodes takes over the living nodes, and the one that has the name of this node. It returns those to greet.
func (c *Cluster) setNodes(living []*Node, twin *Node) (joined []*Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if twin != nil && c.twin != twin {
		c.log.Error("another process has the name of this node: names have to differ",
			"name", twin.Name, "its_object", twin.object(), "its_address", twin.Address)
	}
	c.twin = twin
	before := c.nodes
	if slices.Equal(before, living) {
		return nil
	}
	c.nodes = living
	clear(c.placements)
	c.front.peers.forgetOthers(living)
	c.notifyWaiters()
	if c.node == nil {
		return nil
	}
	if !slices.Contains(living, c.node) && (before == nil || slices.Contains(before, c.node)) {
		c.log.Warn("no other machine reaches this node, so it has no shards, and asks the others: "+
			"listen elsewhere, or set advertise", "address", c.node.Address)
	}
	return slices.DeleteFunc(slices.Clone(living), func(n *Node) bool {
		return c.isSelf(n) || slices.ContainsFunc(before, func(o *Node) bool { return o.Started == n.Started })
	})
}

// updateMaps reads the maps that are newer than the known ones. A known map that is not listed stays: that it is
// missing says nothing.
func (c *Cluster) updateMaps(ctx context.Context, listed []objects.Entry) error {
	newest := map[string]uint64{}
	for _, e := range listed {
		if name, version, ok := parseVersionObject(e.Name); ok {
			newest[name] = max(newest[name], version)
		}
	}
	var errs []error
	for name, version := range newest {
		if m := c.knownMap(name); m != nil && m.Version >= version {
			continue
		}
		c.requests.Add(1)
		m, err := readMap(ctx, c.cfg.Store, name, version)
		if err = c.adoptMap(name, m, err); !errors.Is(err, objects.ErrNotFound) { // else there is a newer one
			errs = append(errs, err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, m := range c.maps {
		if newest[name] > 0 || m.Removed {
			delete(c.lostMaps, name)
		} else if !c.lostMaps[name] {
			c.lostMaps[name] = true
			c.log.Error("the store has no map of a collection any more: nothing of it is changed", "collection", name)
		}
	}
	return errors.Join(errs...)
}

// adoptMap takes over a map that was read. If err says that the map cannot be understood, the collection is not touched
// until there is a newer one. learn returns other errors of the read.
func (c *Cluster) adoptMap(name string, m *Map, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.maps[name]
	switch {
	case unreadable(err):
		if m = (&Map{Name: name, readErr: err}); before != nil {
			if m.Version = before.Version; before.readErr != nil {
				return nil
			}
		}
		c.log.Error("the map of a collection cannot be read: nothing of it is touched",
			"collection", name, "error", err)
	case err != nil:
		return err
	case before != nil && before.Version >= m.Version:
		return nil
	case before != nil && (m.Removed || m.ID != before.ID):
		c.forgetCollection(before.ID)
	}
	c.maps[name] = m
	for k, r := range c.replicas {
		if k.id == m.ID {
			r.SetMaxDocuments(m.maxDocumentsOf(r.shard))
		}
	}
	delete(c.missedNames, name)
	c.notifyWaiters()
	c.wakeLoop()
	return nil
}

// forgetCollection drops the state of a collection that was removed; c.mu is held.
func (c *Cluster) forgetCollection(id string) {
	delete(c.nextBuilds, id)
	maps.DeleteFunc(c.placements, func(p placementKey, _ [][]*Node) bool { return p.id == id })
	for _, numbers := range []map[shardKey]uint64{c.seenEntries, c.hintedEntries, c.front.documents} {
		maps.DeleteFunc(numbers, func(k shardKey, _ uint64) bool { return k.id == id })
	}
	maps.DeleteFunc(c.lastDone, func(what string, _ time.Time) bool { return strings.HasSuffix(what, " "+id) })
}

// waitForMap waits until the newest map that is known here is as it should be.
func (c *Cluster) waitForMap(ctx context.Context, id string, condition func(*Map) (bool, error)) (*Map, error) {
	for {
		c.mu.Lock()
		news := c.mapsChanged
		c.mu.Unlock()
		m, err := c.mapByID(id)
		if err != nil {
			return nil, err
		}
		if ok, err := condition(m); ok || err != nil {
			return m, err
		}
		select {
		case <-news:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-c.ctx.Done():
			return nil, collection.ErrClosed
		}
	}
}

// knownMap returns the newest map that is known here, also of a collection that is gone; nil means that none is.
func (c *Cluster) knownMap(name string) *Map {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.maps[name]
}

// mapByID is the newest map that is known of a collection. The error is [collection.ErrUnknown], or
// [collection.ErrDamaged].
func (c *Cluster) mapByID(id string) (*Map, error) {
	m := c.knownMap(nameFromID(id))
	if m != nil && m.readErr != nil {
		return nil, m.readErr
	}
	if m == nil || m.Removed || m.ID != id {
		return nil, unknownError(id)
	}
	return m, nil
}

// findMap is the newest map of a collection, read from the store if none is known here. The error is
// [collection.ErrUnknown], or [collection.ErrDamaged] if this program does not understand the map.
func (c *Cluster) findMap(ctx context.Context, name string) (*Map, error) {
	c.mu.Lock()
	m, closed := c.maps[name], c.closed
	missed := time.Since(c.missedNames[name]) < c.cfg.Beat
	c.mu.Unlock()
	switch {
	case closed:
		return nil, collection.ErrClosed
	case m != nil && m.readErr != nil:
		return nil, m.readErr
	case m != nil && !m.Removed:
		return m, nil
	case missed || collection.CheckName(name) != nil:
		return nil, unknownError(name)
	}
	return c.rereadMap(ctx, name)
}

// rereadMap is mapOf that always looks into the store.
func (c *Cluster) rereadMap(ctx context.Context, name string) (*Map, error) {
	m, err := newestMap(ctx, c.cfg.Store, name)
	if err := c.adoptMap(name, m, err); err != nil && !errors.Is(err, collection.ErrUnknown) {
		return nil, err
	}
	lost := err != nil // which says nothing
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.maps[name]; lost && known != nil && !known.Removed {
		return known, known.readErr
	}
	if m != nil && !m.Removed {
		return m, nil
	}
	if len(c.missedNames) > 4096 {
		clear(c.missedNames)
	}
	c.missedNames[name] = time.Now()
	return nil, unknownError(name)
}

// changeMap changes the map of a collection, and tells the other nodes.
func (c *Cluster) changeMap(ctx context.Context, name string, change func(*Map) error) (*Map, error) {
	m, err := updateMap(ctx, c.cfg.Store, name, change)
	if err == nil {
		c.announceMap(m)
	}
	return m, err
}

// changeMapByID is update of the collection of an identity.
func (c *Cluster) changeMapByID(ctx context.Context, id string, change func(*Map) error) (*Map, error) {
	return c.changeMap(ctx, nameFromID(id), forCollection(id, change))
}

// announceMap takes over a map that this process has put, and tells the other nodes of it. wait waits until they know,
// a beat at most.
func (c *Cluster) announceMap(m *Map) (wait func()) {
	_ = c.adoptMap(m.Name, m, nil)
	c.wakeLoop()
	told := make(chan struct{})
	began := c.startTask("telling "+newToken(), func(ctx context.Context) {
		defer close(told)
		c.eachNode(ctx, c.cfg.Beat, func(ctx context.Context, n *Node) {
			if !c.isSelf(n) {
				_ = c.callNode(ctx, n, "news", &newsRequest{m.Name, m.Version}, &emptyAnswer{}) // else it looks by itself
			}
		})
	})
	if !began {
		close(told)
	}
	return func() { <-told }
}

// eachNode asks all living nodes at once, and waits.
func (c *Cluster) eachNode(ctx context.Context, patience time.Duration, ask func(ctx context.Context, n *Node)) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	c.mu.Lock()
	nodes := c.nodes
	c.mu.Unlock()
	var wg sync.WaitGroup
	for _, n := range nodes {
		wg.Go(func() { ask(ctx, n) })
	}
	wg.Wait()
}
