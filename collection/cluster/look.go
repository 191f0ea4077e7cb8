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

// loop looks at the store at every beat, and acts on the maps that are known when it is asked to.
func (c *Cluster) loop() {
	ticker := time.NewTicker(c.c.Beat)
	defer ticker.Stop()
	for {
		c.act()
		select {
		case <-c.ctx.Done():
			return
		case <-ticker.C:
			_ = c.lookOnce(c.ctx) // it keeps the error
		case <-c.look:
		}
	}
}

// lookOnce says that this node lives, and looks for living nodes and new maps.
func (c *Cluster) lookOnce(ctx context.Context) (err error) {
	ctx, stop := context.WithTimeout(ctx, max(beatsToDie*c.c.Beat, time.Second))
	defer stop()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if err == nil {
			c.answered = time.Now()
		} else if c.trouble == nil && c.ctx.Err() == nil {
			c.log.Error("the object store does not answer", "error", err)
		}
		c.trouble = err
	}()
	if c.node != nil {
		c.beat++
		c.requests.Add(1)
		made, err := beat(ctx, c.c.Store, c.node, c.beat)
		if err != nil {
			return fmt.Errorf("saying that this node lives: %w", err)
		}
		c.noteTime(made)
	}
	c.requests.Add(2)
	beats, err := c.c.Store.List(ctx, nodesPrefix, "", 0)
	if err != nil {
		return err
	}
	listed, err := c.c.Store.List(ctx, mapsPrefix, "", 0)
	if err != nil {
		return err
	}
	if c.secret == "" && len(beats) > 0 { // of a client that was there before the first node
		secret, err := secretOf(ctx, c.c.Store, false)
		if err != nil {
			return err
		}
		c.mu.Lock()
		c.secret = secret
		c.mu.Unlock()
	}
	c.sawNodes(ctx, beats)
	return c.sawMaps(ctx, listed)
}

// noteTime notes the time of the store's clock at the last beat. That of other objects does not count: they may
// be of an hour in which the clock was ahead, and garbage would go too early ever after.
func (c *Cluster) noteTime(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = t
}

func (c *Cluster) storeTime() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// changed wakes callers of await; c.mu is held.
func (c *Cluster) changed() {
	close(c.news)
	c.news = make(chan struct{})
}

// poke asks the loop to act on the maps that are known now.
func (c *Cluster) poke() {
	select {
	case c.look <- struct{}{}:
	default:
	}
}

// sawNodes takes over which nodes live, and greets those that are new.
func (c *Cluster) sawNodes(ctx context.Context, beats []objects.Entry) {
	now := time.Now()
	err := c.lives.look(now, beats, func(object string) (*Node, error) {
		c.requests.Add(1)
		return readNode(ctx, c.c.Store, object)
	})
	if err != nil {
		c.log.Warn("a node that is in the store cannot be read", "error", err)
	}
	living := c.lives.living(now)
	var twin *Node
	if c.node != nil { // it lives, though the list may not show it
		living = slices.DeleteFunc(living, func(n *Node) bool { return n.Name == c.node.Name })
		living = append(living, c.node)
		slices.SortFunc(living, func(a, b *Node) int { return strings.Compare(a.Name, b.Name) })
		if c.beat > 3*beatsToDie { // else it may be a process before this one, which has ended
			twin = c.lives.twin(c.node, now)
		}
	}
	living = withinReach(living)
	for _, n := range c.takeNodes(living, twin) {
		c.greet(n)
	}
}

// takeNodes takes over the living nodes, and the one that has the name of this node. It returns those to greet.
func (c *Cluster) takeNodes(living []*Node, twin *Node) (joined []*Node) {
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
	clear(c.placed)
	c.front.peers.keep(living)
	c.changed()
	if c.node == nil {
		return nil
	}
	if !slices.Contains(living, c.node) && (before == nil || slices.Contains(before, c.node)) {
		c.log.Warn("no other machine reaches this node, so it has no shards, and asks the others: "+
			"listen elsewhere, or set advertise", "address", c.node.Address)
	}
	return slices.DeleteFunc(slices.Clone(living), func(n *Node) bool {
		return c.self(n) || slices.ContainsFunc(before, func(o *Node) bool { return o.Started == n.Started })
	})
}

// sawMaps reads the maps that are newer than the known ones. A known map that is not listed stays: that it is
// missing says nothing.
func (c *Cluster) sawMaps(ctx context.Context, listed []objects.Entry) error {
	newest := map[string]uint64{}
	for _, e := range listed {
		if name, version, ok := mapVersion(e.Name); ok {
			newest[name] = max(newest[name], version)
		}
	}
	var errs []error
	for name, version := range newest {
		if m := c.lastMap(name); m != nil && m.Version >= version {
			continue
		}
		c.requests.Add(1)
		m, err := readMap(ctx, c.c.Store, name, version)
		if err = c.learn(name, m, err); !errors.Is(err, objects.ErrNotFound) { // else there is a newer one
			errs = append(errs, err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, m := range c.maps {
		if newest[name] > 0 || m.Removed {
			delete(c.lost, name)
		} else if !c.lost[name] {
			c.lost[name] = true
			c.log.Error("the store has no map of a collection any more: nothing of it is changed", "collection", name)
		}
	}
	return errors.Join(errs...)
}

// learn takes over a map that was read. If err says that the map cannot be understood, the collection is not touched
// until there is a newer one. learn returns other errors of the read.
func (c *Cluster) learn(name string, m *Map, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.maps[name]
	switch {
	case unreadable(err):
		if m = (&Map{Name: name, fault: err}); before != nil {
			if m.Version = before.Version; before.fault != nil {
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
		c.forget(before.ID)
	}
	c.maps[name] = m
	for k, r := range c.replicas {
		if k.id == m.ID {
			r.SetMost(m.most(r.shard))
		}
	}
	delete(c.missed, name)
	c.changed()
	c.poke()
	return nil
}

// forget drops the state of a collection that was removed; c.mu is held.
func (c *Cluster) forget(id string) {
	delete(c.built, id)
	maps.DeleteFunc(c.placed, func(p placement, _ [][]*Node) bool { return p.id == id })
	for _, numbers := range []map[shardKey]uint64{c.seen, c.heard, c.front.documents} {
		maps.DeleteFunc(numbers, func(k shardKey, _ uint64) bool { return k.id == id })
	}
	maps.DeleteFunc(c.times, func(what string, _ time.Time) bool { return strings.HasSuffix(what, " "+id) })
}

// await waits until the newest map that is known here is as it should be.
func (c *Cluster) await(ctx context.Context, id string, is func(*Map) (bool, error)) (*Map, error) {
	for {
		c.mu.Lock()
		news := c.news
		c.mu.Unlock()
		m, err := c.mapByID(id)
		if err != nil {
			return nil, err
		}
		if ok, err := is(m); ok || err != nil {
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

// lastMap returns the newest map that is known here, also of a collection that is gone; nil means that none is.
func (c *Cluster) lastMap(name string) *Map {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.maps[name]
}

// mapByID is the newest map that is known of a collection. The error is [collection.ErrUnknown], or
// [collection.ErrDamaged].
func (c *Cluster) mapByID(id string) (*Map, error) {
	m := c.lastMap(nameOf(id))
	if m != nil && m.fault != nil {
		return nil, m.fault
	}
	if m == nil || m.Removed || m.ID != id {
		return nil, unknown(id)
	}
	return m, nil
}

// mapOf is the newest map of a collection, read from the store if none is known here. The error is
// [collection.ErrUnknown], or [collection.ErrDamaged] if this program does not understand the map.
func (c *Cluster) mapOf(ctx context.Context, name string) (*Map, error) {
	c.mu.Lock()
	m, closed := c.maps[name], c.closed
	missed := time.Since(c.missed[name]) < c.c.Beat
	c.mu.Unlock()
	switch {
	case closed:
		return nil, collection.ErrClosed
	case m != nil && m.fault != nil:
		return nil, m.fault
	case m != nil && !m.Removed:
		return m, nil
	case missed || collection.CheckName(name) != nil:
		return nil, unknown(name)
	}
	return c.renew(ctx, name)
}

// renew is mapOf that always looks into the store.
func (c *Cluster) renew(ctx context.Context, name string) (*Map, error) {
	m, err := newestMap(ctx, c.c.Store, name)
	if err := c.learn(name, m, err); err != nil && !errors.Is(err, collection.ErrUnknown) {
		return nil, err
	}
	lost := err != nil // which says nothing
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.maps[name]; lost && known != nil && !known.Removed {
		return known, known.fault
	}
	if m != nil && !m.Removed {
		return m, nil
	}
	if len(c.missed) > 4096 {
		clear(c.missed)
	}
	c.missed[name] = time.Now()
	return nil, unknown(name)
}

// update changes the map of a collection, and tells the other nodes.
func (c *Cluster) update(ctx context.Context, name string, change func(*Map) error) (*Map, error) {
	m, err := updateMap(ctx, c.c.Store, name, change)
	if err == nil {
		c.tell(m)
	}
	return m, err
}

// updateID is update of the collection of an identity.
func (c *Cluster) updateID(ctx context.Context, id string, change func(*Map) error) (*Map, error) {
	return c.update(ctx, nameOf(id), onlyOf(id, change))
}

// tell takes over a map that this process has put, and tells the other nodes of it. wait waits until they know,
// a beat at most.
func (c *Cluster) tell(m *Map) (wait func()) {
	_ = c.learn(m.Name, m, nil)
	c.poke()
	told := make(chan struct{})
	began := c.aside("telling "+newToken(), func(ctx context.Context) {
		defer close(told)
		c.eachNode(ctx, c.c.Beat, func(ctx context.Context, n *Node) {
			if !c.self(n) {
				_ = c.call(ctx, n, "news", &newsAsk{m.Name, m.Version}, &nothing{}) // else it looks by itself
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
