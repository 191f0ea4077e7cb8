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
	"time"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/cluster/replica"
)

const (
	// pollEvery is how often a replica looks for entries without a hint.
	pollEvery = 6 * time.Minute
	pollTime  = time.Minute
	// linger is how long a replica stays open that the node is not to have, since the last request for it.
	linger = time.Minute
	// cacheAge is how long the file of such a replica stays.
	cacheAge = 24 * time.Hour
)

// kept is a replica that is open.
type kept struct {
	*replica.Replica
	replicaKey
	holders []*Node   // of the shard; the first one gathers its changes
	poll    time.Time // when the log is looked at next
	asked   time.Time // when the replica was needed last
	users   int       // that need it for long
}

// wanted is a replica that the node is to have.
type wanted struct {
	m       *Map
	g       *replica.Generation
	holders []*Node
}

// wants are the replicas that this node is to have: those that are searched, and those of the next generation
// that are built.
func (c *Cluster) wants() map[replicaKey]wanted {
	all := map[replicaKey]wanted{}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.maps {
		if c.node == nil || m.fault != nil || m.Removed {
			continue
		}
		for _, g := range m.generations() {
			b := c.built[m.ID]
			for s, has := range c.placeOf(m) {
				ready := g == m.Current || b != nil && b.generation == g.Number && b.has[s]
				if ready && slices.Contains(has, c.node) {
					all[replicaKey{shardKey{m.ID, s}, g.Number}] = wanted{m, g, has}
				}
			}
		}
	}
	return all
}

// over reports whether a map says that a replica is of no use any more; ok is false if there is no map to say so.
// c.mu is held.
func (c *Cluster) over(k replicaKey) (over, ok bool) {
	m := c.maps[nameOf(k.id)]
	if m == nil || m.fault != nil {
		return false, false
	}
	return m.Removed || m.ID != k.id || m.generation(k.generation) == nil && k.generation <= m.Last, true
}

// hold opens the replicas that this node is to have, tells them of changes, and closes the others.
func (c *Cluster) hold(now time.Time) {
	all := c.wants()
	for k, w := range all {
		_, err := c.open(w.m, w.g, k.shard)
		if err != nil && !errors.Is(err, errNotHere) && c.ctx.Err() == nil { // else it is opened when it was closed
			c.log.Error("a replica cannot be opened", "collection", w.m.Name, "shard", k.shard, "error", err)
		}
	}
	var moved []*kept
	c.mu.Lock()
	for k, r := range c.replicas {
		w, is := all[k]
		if is {
			r.asked = now
		} else if over, ok := c.over(k); ok && r.users == 0 && now.Sub(r.asked) > min(linger, 20*c.c.Beat) {
			c.retire(r, over)
			continue
		}
		if !slices.Equal(r.holders, w.holders) { // one that has ended may have told no other of its last entry
			r.holders, r.poll = w.holders, now
			moved = append(moved, r)
		}
	}
	due := c.duePolls(now)
	c.mu.Unlock()
	for _, r := range moved {
		r.SetWriter(c.gathers(r))
	}
	for _, r := range due {
		c.aside(fmt.Sprint("polling ", r.replicaKey), func(ctx context.Context) {
			end, err := take(ctx, c.polls)
			if err != nil {
				return
			}
			defer end()
			ctx, stop := context.WithTimeout(ctx, pollTime) // one that is not ready has no need of it
			defer stop()
			if err := r.Poll(ctx); err != nil && ctx.Err() == nil {
				c.log.Debug("a log was not looked at", "shard", fmt.Sprint(r.replicaKey), "error", err)
			}
		})
	}
}

// gathers reports whether this node gathers the changes of a shard.
func (c *Cluster) gathers(r *kept) bool { return len(r.holders) > 0 && c.self(r.holders[0]) }

// retire closes a replica in the background, since that waits for its readers, and removes its file if the replica is
// of no use any more; c.mu is held. Its folder is not for another replica before that is done.
func (c *Cluster) retire(r *kept, over bool) {
	k := r.replicaKey
	delete(c.replicas, k)
	delete(c.heard, k.shardKey) // no replica finds out whether that is right
	c.ending[k] = true
	c.background.Go(func() {
		end := r.Close
		if over {
			end = r.Remove
		}
		if err := c.guarded("closing a replica", func() error { return end(c.ctx) }); err != nil {
			c.log.Warn("a replica that is not needed any more was not closed", "error", err)
		}
		c.mu.Lock()
		delete(c.ending, k)
		c.mu.Unlock()
		c.poke() // it may be needed again
	})
}

// duePolls are the replicas whose logs are to be looked at now; c.mu is held.
func (c *Cluster) duePolls(now time.Time) (due []*kept) {
	for _, r := range c.replicas {
		if !now.Before(r.poll) {
			r.poll = now.Add(pollEvery*9/10 + rand.N(pollEvery/5)) // a node that starts polls them all at once
			due = append(due, r)
		}
	}
	c.requests.Add(int64(len(due)))
	return due
}

// replica opens the replica of a shard on this node, whether or not this node is a holder.
func (c *Cluster) replica(ctx context.Context, id string, shard int, generation uint64) (*kept, error) {
	c.mu.Lock()
	r := c.replicas[replicaKey{shardKey{id, shard}, generation}]
	if r != nil {
		r.asked = time.Now()
	}
	c.mu.Unlock()
	if r != nil {
		return r, nil
	}
	m, err := c.mapByID(id)
	if err != nil || m.generation(generation) == nil && m.Last < generation {
		if _, err = c.renew(ctx, nameOf(id)); err == nil {
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
func (c *Cluster) open(m *Map, g *replica.Generation, shard int) (*kept, error) {
	k := replicaKey{shardKey{m.ID, shard}, g.Number}
	c.opening.Lock()
	defer c.opening.Unlock()
	c.mu.Lock()
	r, closed, ending := c.replicas[k], c.closed, c.ending[k]
	c.mu.Unlock()
	if closed {
		return nil, collection.ErrClosed
	}
	if r != nil {
		return r, nil
	}
	if ending {
		return nil, fmt.Errorf("%w: shard %d of %s is being closed", errNotHere, shard, m.ID)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, collection.ErrClosed
	}
	if now := c.maps[nameOf(m.ID)]; now != nil && now.fault == nil && now.ID == m.ID {
		m = now // its limit of documents was not told to this replica
	}
	opened, err := replica.Open(&c.rc, m.shard(shard, g))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	r = &kept{Replica: opened, replicaKey: k, asked: now, poll: now.Add(rand.N(pollEvery))}
	if c.node != nil {
		r.holders = c.placeOf(m)[shard]
	}
	c.replicas[k] = r
	r.SetWriter(c.gathers(r))
	return r, nil
}

// borrow is replica for long use: it stays open until done is called.
func (c *Cluster) borrow(ctx context.Context, id string, shard int, generation uint64) (
	r *kept, done func(), err error) {
	if r, err = c.replica(ctx, id, shard, generation); err != nil {
		return nil, nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.replicas[r.replicaKey] != r {
		return nil, nil, fmt.Errorf("%w: shard %d of %s was closed", errNotHere, shard, id)
	}
	r.users++
	return r, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		r.users--
		r.asked = time.Now()
	}, nil
}

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
		c.opening.Lock() // it is not opened meanwhile
		c.mu.Lock()
		over, _ := c.over(k)
		open := c.replicas[k] != nil || c.ending[k]
		c.mu.Unlock()
		if !open && (over || now.Sub(info.ModTime()) >= cacheAge) {
			if err := os.RemoveAll(dir); err != nil {
				c.log.Warn("the file of a replica stays that is not needed any more", "path", dir, "error", err)
			}
			_ = os.Remove(filepath.Dir(dir)) // if it was the last
		}
		c.opening.Unlock()
	}
}

// opened are the chosen replicas, of those that are open here.
func (c *Cluster) opened(chosen func(replicaKey) bool) (all []*kept) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, r := range c.replicas {
		if chosen(k) {
			all = append(all, r)
		}
	}
	return all
}

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
