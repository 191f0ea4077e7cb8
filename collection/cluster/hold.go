package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/cluster/replica"
)

const (
	// pollEvery is how often a replica looks for entries that no hint was given of.
	pollEvery = 6 * time.Minute
	pollTime  = time.Minute
	// linger is how long a replica that the node is not to have stays open since it was asked for last.
	linger = time.Minute
)

// keeping is what the node knows of a replica that it has open.
type keeping struct {
	first string    // the node that gathers the changes of the shard
	poll  time.Time // when the log is looked at next
	asked time.Time // when the replica was needed last
	most  *uint64
	users int // that need it for long
}

// wanted is a replica that the node is to have.
type wanted struct {
	m     *Map
	g     *replica.Generation
	first string
}

// wants are the replicas that this node is to have: of what is searched, and of what will be and is built.
// Those of collections that cannot be read stay as they are: of these it is not told.
func (c *Cluster) wants() map[replicaKey]wanted {
	all := map[replicaKey]wanted{}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.maps {
		if c.node == nil || m.fault != nil || m.Removed || m.Current == nil && m.Next == nil {
			continue
		}
		for s, has := range c.placeOf(m) {
			if !slices.Contains(has, c.node) {
				continue
			}
			if m.Current != nil {
				all[replicaKey{shardKey{m.ID, s}, m.Current.Number}] = wanted{m, m.Current, has[0].Name}
			}
			if b := c.built[m.ID]; m.Next != nil && b != nil && b.generation == m.Next.Number && b.has[s] {
				all[replicaKey{shardKey{m.ID, s}, m.Next.Number}] = wanted{m, m.Next, has[0].Name}
			}
		}
	}
	return all
}

// over reports whether a map says that a replica is of no use any more; c.mu is held.
func (c *Cluster) over(k replicaKey) (over, untouched bool) {
	m := c.maps[nameOf(k.id)]
	if m == nil || m.fault != nil {
		return false, true
	}
	return m.Removed || m.ID != k.id || m.generation(k.generation) == nil && k.generation <= m.Last, false
}

// hold opens the replicas that this node is to have, tells them what has changed, and closes those that it is
// not to have.
func (c *Cluster) hold(now time.Time) {
	all := c.wants()
	for k, w := range all {
		if _, err := c.open(w.m, w.g, k.shard); err != nil && c.ctx.Err() == nil {
			c.log.Error("a replica cannot be opened", "collection", w.m.Name, "shard", k.shard, "error", err)
		}
	}
	type act struct {
		r      *replica.Replica
		remove bool
	}
	var tell []func()
	var end []act
	c.mu.Lock()
	for k, r := range c.replicas {
		have := c.kept[k]
		w, is := all[k]
		if !is {
			w.first = ""
			if over, untouched := c.over(k); !untouched && have.users == 0 && now.Sub(have.asked) > min(linger, 20*c.c.Beat) {
				delete(c.replicas, k)
				delete(c.kept, k)
				end = append(end, act{r, over})
				continue
			}
		} else {
			have.asked = now
		}
		if have.first != w.first {
			have.first = w.first
			have.poll = now
			writes := c.node != nil && w.first == c.node.Name
			tell = append(tell, func() { r.SetWriter(writes) })
		}
	}
	due := c.duePolls(now)
	c.mu.Unlock()
	for _, do := range tell {
		do()
	}
	for k, r := range due {
		c.aside(fmt.Sprint("polling ", k), func(ctx context.Context) {
			c.polls <- struct{}{}
			defer func() { <-c.polls }()
			ctx, stop := context.WithTimeout(ctx, pollTime) // one that is not ready has no need of it
			defer stop()
			if err := r.Poll(ctx); err != nil && ctx.Err() == nil {
				c.log.Debug("a log was not looked at", "shard", fmt.Sprint(k), "error", err)
			}
		})
	}
	for _, a := range end {
		do := a.r.Close
		if a.remove {
			do = a.r.Remove
		}
		if err := do(c.ctx); err != nil {
			c.log.Warn("a replica that is not needed any more was not closed", "error", err)
		}
	}
}

func same(a, b *uint64) bool { return a == b || a != nil && b != nil && *a == *b }

// duePolls are the replicas whose logs are to be looked at now; c.mu is held.
func (c *Cluster) duePolls(now time.Time) map[replicaKey]*replica.Replica {
	due := map[replicaKey]*replica.Replica{}
	for k, have := range c.kept {
		if !now.Before(have.poll) {
			have.poll = now.Add(pollEvery*9/10 + rand.N(pollEvery/5)) // a node that starts polls them all at once
			due[k] = c.replicas[k]
		}
	}
	c.requests.Add(int64(len(due)))
	return due
}

// replica opens the replica of a shard on this node, whether or not this node is a holder.
func (c *Cluster) replica(ctx context.Context, id string, shard int, generation uint64) (*replica.Replica, error) {
	k := replicaKey{shardKey{id, shard}, generation}
	c.mu.Lock()
	r := c.replicas[k]
	if r != nil {
		c.kept[k].asked = time.Now()
	}
	c.mu.Unlock()
	if r != nil {
		return r, nil
	}
	m, err := c.mapByID(id)
	if err != nil || m.generation(generation) == nil && m.Last < generation {
		if m, err = c.renew(ctx, nameOf(id)); err == nil {
			m, err = c.mapByID(id)
		}
	}
	if err != nil {
		return nil, err
	}
	g := m.generation(generation)
	if g == nil || shard < 0 || shard >= m.Shards {
		return nil, fmt.Errorf("%w: shard %d of generation %d of %s is asked for", errGeneration, shard, generation, id)
	}
	return c.open(m, g, shard)
}

// open opens a replica, or finds the one that is open.
func (c *Cluster) open(m *Map, g *replica.Generation, shard int) (*replica.Replica, error) {
	k := replicaKey{shardKey{m.ID, shard}, g.Number}
	there := func() (*replica.Replica, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.closed {
			return nil, collection.ErrClosed
		}
		return c.replicas[k], nil
	}
	if r, err := there(); r != nil || err != nil {
		return r, err
	}
	c.opening.Lock()
	defer c.opening.Unlock()
	if r, err := there(); r != nil || err != nil {
		return r, err
	}
	r, err := replica.Open(&c.rc, m.shard(shard, g))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	have := &keeping{asked: now, poll: now.Add(rand.N(pollEvery)), most: m.most(shard)}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, errors.Join(collection.ErrClosed, r.Close(context.WithoutCancel(c.ctx)))
	}
	if c.node != nil {
		have.first = c.placeOf(m)[shard][0].Name
	}
	c.replicas[k], c.kept[k] = r, have
	c.mu.Unlock()
	r.SetWriter(c.node != nil && have.first == c.node.Name)
	return r, nil
}

// borrow is replica for long use: it stays open until done is called.
func (c *Cluster) borrow(ctx context.Context, id string, shard int, generation uint64) (
	r *replica.Replica, done func(), err error) {
	if r, err = c.replica(ctx, id, shard, generation); err != nil {
		return nil, nil, err
	}
	k := replicaKey{shardKey{id, shard}, generation}
	c.mu.Lock()
	defer c.mu.Unlock()
	have := c.kept[k]
	if have == nil {
		return nil, nil, fmt.Errorf("%w: shard %d of %s was closed", errNotHere, shard, id)
	}
	have.users++
	return r, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		have.users--
		have.asked = time.Now()
	}, nil
}

// cacheAge is how long the file of a replica stays that the node is not to have.
const cacheAge = 24 * time.Hour

// sweepCache removes files of replicas that are not open, and that a map says are of no use, or that have not been
// used for a day.
func (c *Cluster) sweepCache(now time.Time) {
	dirs, _ := filepath.Glob(filepath.Join(c.c.Dir, "*", "*"))
	for _, dir := range dirs {
		k := replicaKey{shardKey: shardKey{id: filepath.Base(filepath.Dir(dir))}}
		if n, err := fmt.Sscanf(filepath.Base(dir), "%04d-%08d", &k.shard, &k.generation); n != 2 || err != nil {
			continue
		}
		info, err := os.Stat(dir)
		if err != nil {
			continue
		}
		func() {
			c.opening.Lock() // it is not opened meanwhile
			defer c.opening.Unlock()
			c.mu.Lock()
			over, _ := c.over(k)
			open := c.replicas[k] != nil
			c.mu.Unlock()
			if open || !over && now.Sub(info.ModTime()) < cacheAge {
				return
			}
			err := os.RemoveAll(dir)
			_ = os.Remove(filepath.Dir(dir)) // if it was the last
			if err != nil {
				c.log.Warn("the file of a replica stays that is not needed any more", "path", dir, "error", err)
			}
		}()
	}
}

// nameOf is the name of the collection of an identity.
func nameOf(id string) string { return id[:max(strings.LastIndexByte(id, '.'), 0)] }

// readable are the newest maps of collections that are there and can be read, by name.
func (c *Cluster) readable() []*Map {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*Map
	for _, name := range slices.Sorted(maps.Keys(c.maps)) {
		if m := c.maps[name]; m.fault == nil && !m.Removed {
			all = append(all, m)
		}
	}
	return all
}
