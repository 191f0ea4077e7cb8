package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/storage/objects"
)

// loop looks at the store at every beat, or when it is asked to.
func (c *Cluster) loop() {
	ticker := time.NewTicker(c.c.Beat)
	defer ticker.Stop()
	for {
		c.after()
		select {
		case <-c.ctx.Done():
			return
		case <-ticker.C:
			_ = c.lookOnce(c.ctx) // it is noted
		case <-c.look: // a map has changed here, or elsewhere
		}
	}
}

// lookOnce says that this node lives, and looks which others do, and for new maps.
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
	for _, e := range slices.Concat(beats, listed) {
		c.noteTime(e.Made)
	}
	c.sawNodes(ctx, beats)
	return c.sawMaps(ctx, listed)
}

// noteTime notes a time of the store's clock that is over.
func (c *Cluster) noteTime(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.After(c.now) {
		c.now = t
	}
}

func (c *Cluster) storeTime() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// changed wakes whoever waits for news; c.mu is held.
func (c *Cluster) changed() {
	close(c.news)
	c.news = make(chan struct{})
}

// poke asks the loop to act on what is known now.
func (c *Cluster) poke() {
	select {
	case c.look <- struct{}{}:
	default:
	}
}

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
	if c.node != nil { // it does, whatever others have noticed of it
		living = slices.DeleteFunc(living, func(n *Node) bool { return n.Name == c.node.Name })
		living = append(living, c.node)
		slices.SortFunc(living, func(a, b *Node) int { return strings.Compare(a.Name, b.Name) })
		for object, l := range c.lives.beats {
			is := l.node != nil && l.node.Name == c.node.Name && l.node.Started != c.node.Started
			if is && c.lives.alive(l, now) && c.beat > 3*beatsToDie {
				c.log.Error("another process has the name of this node: names have to differ",
					"name", c.node.Name, "its_object", object, "its_address", l.node.Address)
			}
		}
	}
	living = withinReach(living)
	c.mu.Lock()
	var joined []*Node
	if !slices.Equal(c.nodes, living) {
		if c.node != nil && !slices.Contains(living, c.node) && (c.nodes == nil || slices.Contains(c.nodes, c.node)) {
			c.log.Warn("no other machine reaches this node, so it has no shards, and asks the others: listen elsewhere, or set advertise",
				"address", c.node.Address)
		}
		for _, n := range living {
			if !c.self(n) && !slices.ContainsFunc(c.nodes, func(o *Node) bool { return o.Started == n.Started }) {
				joined = append(joined, n)
			}
		}
		c.nodes = living
		c.changed()
	}
	c.mu.Unlock()
	if c.node == nil {
		return
	}
	for _, n := range joined {
		c.greet(n)
	}
}

// sawMaps reads the maps that are newer than those that are known. A map that is known and not listed any
// more says nothing: it stays.
func (c *Cluster) sawMaps(ctx context.Context, listed []objects.Entry) error {
	newest := map[string]uint64{}
	for _, e := range listed {
		if name, version, ok := mapVersion(e.Name); ok {
			newest[name] = max(newest[name], version)
		}
	}
	var errs []error
	for name, version := range newest {
		c.mu.Lock()
		m := c.maps[name]
		c.mu.Unlock()
		if m != nil && m.Version >= version {
			continue
		}
		c.requests.Add(1)
		if err := c.readVersion(ctx, name, version); err != nil {
			errs = append(errs, err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, m := range c.maps {
		if lost := newest[name] == 0 && !m.Removed; !lost {
			delete(c.lost, name)
		} else if !c.lost[name] {
			c.lost[name] = true
			c.log.Error("the store has no map of a collection any more: nothing of it is changed", "collection", name)
		}
	}
	return errors.Join(errs...)
}

// readVersion takes over a version of a map.
func (c *Cluster) readVersion(ctx context.Context, name string, version uint64) error {
	m, err := readMap(ctx, c.c.Store, name, version)
	switch {
	case err == nil:
		c.learn(m)
	case unreadable(err):
		c.note(name, err)
	case !errors.Is(err, objects.ErrNotFound): // else it was superseded long ago
		return err
	}
	return nil
}

// unreadable reports whether a map is there that this program cannot read, or must not.
func unreadable(err error) bool {
	return errors.Is(err, ErrNewer) || errors.Is(err, storage.ErrCorrupt)
}

// note takes over that the map of a collection cannot be read: nothing of the collection is touched until
// a newer one can be.
func (c *Cluster) note(name string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	version := uint64(0)
	if before := c.maps[name]; before != nil {
		if version = before.Version; before.fault != nil {
			return
		}
	}
	c.log.Error("the map of a collection cannot be read: nothing of it is touched", "collection", name, "error", err)
	c.maps[name] = &Map{Name: name, Version: version, fault: fmt.Errorf("%w: %w", collection.ErrDamaged, err)}
	c.changed()
}

// learn takes over a map, unless a newer one is known.
func (c *Cluster) learn(m *Map) {
	c.mu.Lock()
	before := c.maps[m.Name]
	if before != nil && before.Version >= m.Version {
		c.mu.Unlock()
		return
	}
	if before != nil && (m.Removed || m.ID != before.ID) {
		c.forget(before.ID)
	}
	c.maps[m.Name] = m
	delete(c.missed, m.Name)
	var tell []func()
	for k, r := range c.replicas {
		if most := m.most(k.shard); k.id == m.ID && !same(c.kept[k].most, most) {
			c.kept[k].most = most
			tell = append(tell, func() { r.SetMost(most) })
		}
	}
	c.changed()
	c.poke()
	c.mu.Unlock()
	for _, do := range tell {
		do()
	}
}

// forget drops what is known of a collection that was removed; c.mu is held.
func (c *Cluster) forget(id string) {
	delete(c.known, id)
	delete(c.placed, id)
	delete(c.built, id)
	delete(c.tidied, id)
	delete(c.resting, id)
	for k := range c.seen {
		if k.id == id {
			delete(c.seen, k)
		}
	}
	for k := range c.front.documents {
		if k.id == id {
			delete(c.front.documents, k)
		}
	}
}

// await waits until a map, the newest one that is known here, is as it should be.
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

// lastMap is the newest map that is known here, whatever it says; nil: none.
func (c *Cluster) lastMap(name string) *Map {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.maps[name]
}

// mapByID is the newest map that is known of a collection. The error is [collection.ErrUnknown].
func (c *Cluster) mapByID(id string) (*Map, error) {
	m := c.lastMap(nameOf(id))
	switch {
	case m == nil || m.fault == nil && (m.Removed || m.ID != id):
		return nil, fmt.Errorf("%w: %q", collection.ErrUnknown, id)
	case m.fault != nil:
		return nil, m.fault
	}
	return m, nil
}

// mapOf is the newest map of a collection, read from the store if none is known here. The error is
// [collection.ErrUnknown], or [collection.ErrDamaged] of a collection that this program does not understand.
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
		return nil, fmt.Errorf("%w: %q", collection.ErrUnknown, name)
	}
	return c.renew(ctx, name)
}

// renew is mapOf with a look into the store, whatever is known here.
func (c *Cluster) renew(ctx context.Context, name string) (*Map, error) {
	m, err := newestMap(ctx, c.c.Store, name)
	switch {
	case unreadable(err):
		c.note(name, err)
		return nil, fmt.Errorf("%w: %w", collection.ErrDamaged, err)
	case err == nil:
		c.learn(m)
		if !m.Removed {
			return m, nil
		}
	case !errors.Is(err, collection.ErrUnknown):
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.maps[name]; m == nil && known != nil && !known.Removed { // lost, which says nothing
		return known, known.fault
	}
	if len(c.missed) > 4096 {
		clear(c.missed)
	}
	c.missed[name] = time.Now()
	return nil, fmt.Errorf("%w: %q", collection.ErrUnknown, name)
}

// update changes the map of a collection, and tells the other nodes.
func (c *Cluster) update(ctx context.Context, name string, change func(*Map) error) (*Map, error) {
	m, err := updateMap(ctx, c.c.Store, name, change)
	if unreadable(err) {
		err = fmt.Errorf("%w: %w", collection.ErrDamaged, err)
	}
	if err != nil {
		return nil, err
	}
	c.tell(m)
	return m, nil
}

// updateID is update of the collection of an identity; another one of the name is [collection.ErrUnknown].
func (c *Cluster) updateID(ctx context.Context, id string, change func(*Map) error) (*Map, error) {
	name := nameOf(id)
	return c.update(ctx, name, func(m *Map) error {
		if m.ID != id {
			return fmt.Errorf("%w: %q", collection.ErrUnknown, id)
		}
		return change(m)
	})
}

// tell takes over a map that this process has put, and tells the other nodes of it; wait waits until they know,
// a beat at most.
func (c *Cluster) tell(m *Map) (wait func()) {
	c.learn(m)
	c.mu.Lock()
	nodes := c.nodes
	c.mu.Unlock()
	var wg sync.WaitGroup
	for _, n := range nodes {
		if c.self(n) {
			c.poke()
			continue
		}
		wg.Add(1)
		began := c.aside(fmt.Sprint("telling ", n.Name, " ", m.ID, m.Version, newToken()), func(ctx context.Context) {
			defer wg.Done()
			ctx, stop := context.WithTimeout(ctx, c.c.Beat)
			defer stop()
			_ = c.call(ctx, n, "news", &newsAsk{m.Name, m.Version}, &newsAnswer{}) // else it looks by itself
		})
		if !began {
			wg.Done()
		}
	}
	return wg.Wait
}
