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

// runLoop refreshes the state from the store at every beat, and acts on the known maps then and when it is woken.
func (c *Cluster) runLoop() {
	ticker := time.NewTicker(c.cfg.Beat)
	defer ticker.Stop()
	for {
		c.actOnMaps()
		select {
		case <-c.ctx.Done():
			return
		case <-ticker.C:
			_ = c.refreshFromStore(c.ctx) // the error is kept in c.storeErr
		case <-c.wake:
		}
	}
}

// refreshFromStore says in the store that this node is alive, and looks for living nodes and new maps.
func (c *Cluster) refreshFromStore(ctx context.Context) (err error) {
	ctx, stop := context.WithTimeout(ctx, max(beatsToDie*c.cfg.Beat, time.Second))
	defer stop()
	// Note whether the store has answered.
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
	// Say that this node is alive.
	if c.node != nil {
		c.beatCount++
		c.requests.Add(1)
		made, err := putBeat(ctx, c.cfg.Store, c.node, c.beatCount)
		if err != nil {
			return fmt.Errorf("writing the beat of this node: %w", err)
		}
		c.setStoreTime(made)
	}
	// List nodes and maps.
	c.requests.Add(2)
	beats, err := c.cfg.Store.List(ctx, nodesPrefix, "", 0)
	if err != nil {
		return err
	}
	listed, err := c.cfg.Store.List(ctx, mapsPrefix, "", 0)
	if err != nil {
		return err
	}
	if c.secret == "" && len(beats) > 0 { // this client was there before the first node
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

// setStoreTime notes the time of the last beat, by the clock of the store. The times of other objects are not used: if
// the clock was ahead when they were put, garbage would be deleted too early from then on.
func (c *Cluster) setStoreTime(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.storeNow = t
}

// storeTime returns the time of the last beat, by the clock of the store.
func (c *Cluster) storeTime() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.storeNow
}

// notifyWaiters wakes callers of waitForMap; c.mu is held.
func (c *Cluster) notifyWaiters() {
	close(c.mapsChanged)
	c.mapsChanged = make(chan struct{})
}

// wakeLoop makes the loop act on the known maps now.
func (c *Cluster) wakeLoop() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// updateNodes determines which nodes are alive, and sends hints to new ones.
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
	if c.node != nil { // this node is alive, even if the list does not show it yet
		living = slices.DeleteFunc(living, func(n *Node) bool { return n.Name == c.node.Name })
		living = append(living, c.node)
		slices.SortFunc(living, func(a, b *Node) int { return strings.Compare(a.Name, b.Name) })
		if c.beatCount > 3*beatsToDie { // otherwise it may be an earlier process of this node, which has ended
			twin = c.beats.otherProcess(c.node, now)
		}
	}
	living = reachableNodes(living)
	for _, n := range c.setNodes(living, twin) {
		c.sendAllHints(n)
	}
}

// setNodes sets the living nodes, and the other process with the name of this node. It returns nodes that are new.
func (c *Cluster) setNodes(living []*Node, twin *Node) (joined []*Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if twin != nil && c.twin != twin {
		c.log.Error("another process has the name of this node: give each node its own name",
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
		c.log.Warn("other machines cannot reach this node, so it gets no shards and asks the other nodes: "+
			"listen on another address, or set advertise", "address", c.node.Address)
	}
	return slices.DeleteFunc(slices.Clone(living), func(n *Node) bool {
		return c.isSelf(n) || slices.ContainsFunc(before, func(o *Node) bool { return o.Started == n.Started })
	})
}

// updateMaps reads the maps that are newer than the known ones. A known map that is not listed stays, since a missing
// object proves nothing (I8).
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
		if err = c.adoptMap(name, m, err); !errors.Is(err, objects.ErrNotFound) { // not found: a newer one exists
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
			c.log.Error("the store has lost the map of a collection: nothing of the collection is changed",
				"collection", name)
		}
	}
	return errors.Join(errs...)
}

// adoptMap adopts a map that was read, if it is newer than the known one. If err says that the map is unreadable, the
// collection is left alone until a newer map comes. Other errors of the read are returned.
func (c *Cluster) adoptMap(name string, m *Map, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.maps[name]
	switch {
	case unreadable(err):
		m = &Map{Name: name, readErr: err}
		if before != nil {
			m.Version = before.Version
		}
		if before != nil && before.readErr != nil { // it was logged then
			return nil
		}
		c.log.Error("the map of a collection cannot be read: the collection is left alone",
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
	maps.DeleteFunc(c.lastDone, func(work string, _ time.Time) bool { return strings.HasSuffix(work, " "+id) })
}

// waitForMap waits until the newest known map of a collection satisfies a condition. An error of the condition ends
// the wait.
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

// knownMap returns the newest known map, also of a removed collection, nil if none is known.
func (c *Cluster) knownMap(name string) *Map {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.maps[name]
}

// mapByID returns the newest known map of the collection with an id. The error is [collection.ErrUnknown], or
// [collection.ErrDamaged] if the map cannot be read.
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

// findMap returns the newest map of a collection. It reads the store if no map is known. The error is
// [collection.ErrUnknown], or [collection.ErrDamaged] if the map cannot be read.
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

// rereadMap is findMap, except that it always reads the store.
func (c *Cluster) rereadMap(ctx context.Context, name string) (*Map, error) {
	m, err := newestMap(ctx, c.cfg.Store, name)
	if err := c.adoptMap(name, m, err); err != nil && !errors.Is(err, collection.ErrUnknown) {
		return nil, err
	}
	lost := err != nil // a missing map proves nothing: the known one stays
	c.mu.Lock()
	defer c.mu.Unlock()
	if before := c.maps[name]; lost && before != nil && !before.Removed {
		return before, before.readErr
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

// changeMap changes the map of a collection, and announces it to the other nodes.
func (c *Cluster) changeMap(ctx context.Context, name string, change func(*Map) error) (*Map, error) {
	m, err := updateMap(ctx, c.cfg.Store, name, change)
	if err == nil {
		c.announceMap(m)
	}
	return m, err
}

// changeMapByID is changeMap for the collection with an id.
func (c *Cluster) changeMapByID(ctx context.Context, id string, change func(*Map) error) (*Map, error) {
	return c.changeMap(ctx, nameFromID(id), forCollection(id, change))
}

// announceMap adopts a map that this process has put, and announces it to the other nodes. wait waits until they know
// it, at most one beat.
func (c *Cluster) announceMap(m *Map) (wait func()) {
	_ = c.adoptMap(m.Name, m, nil)
	c.wakeLoop()
	announced := make(chan struct{})
	began := c.startTask("telling "+newToken(), func(ctx context.Context) {
		defer close(announced)
		c.eachNode(ctx, c.cfg.Beat, func(ctx context.Context, n *Node) {
			if !c.isSelf(n) {
				// A node that does not answer finds the map at its next beat.
				_ = c.callNode(ctx, n, "news", &newsRequest{m.Name, m.Version}, &emptyAnswer{})
			}
		})
	})
	if !began {
		close(announced)
	}
	return func() { <-announced }
}

// eachNode calls ask for all living nodes concurrently, and waits for all calls.
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
