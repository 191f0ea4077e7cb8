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
	// pollInterval is how often a replica looks for entries that no hint has announced.
	pollInterval = 6 * time.Minute
	pollTimeout  = time.Minute
	// lingerTime is how long a replica stays open after its last use if this node is not a holder.
	lingerTime = time.Minute
	// cacheAge is how long the file of such a replica stays.
	cacheAge = 24 * time.Hour
)

// cachedReplica is a replica that is open on this node.
type cachedReplica struct {
	*replica.Replica
	replicaKey
	holders  []*Node   // of the shard; the first one gathers its changes
	nextPoll time.Time // when the log is polled next
	lastUsed time.Time
	users    int // long uses that have not ended
}

// wantedReplica is a replica that this node is a holder of.
type wantedReplica struct {
	m       *Map
	g       *replica.Generation
	holders []*Node
}

// wantedReplicas returns the replicas that this node has to keep open: those of the generations that are searched, and
// those of next generations whose checkpoint exists.
func (c *Cluster) wantedReplicas() map[replicaKey]wantedReplica {
	replicas := map[replicaKey]wantedReplica{}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.maps {
		if c.node == nil || m.readErr != nil || m.Removed {
			continue
		}
		for _, g := range m.generations() {
			b := c.nextBuilds[m.ID]
			for s, holders := range c.placementOf(m) {
				ready := g == m.Current || b != nil && b.generation == g.Number && b.encoded[s]
				if ready && slices.Contains(holders, c.node) {
					replicas[replicaKey{shardKey{m.ID, s}, g.Number}] = wantedReplica{m, g, holders}
				}
			}
		}
	}
	return replicas
}

// isObsolete reports whether a map says that a replica is not needed any more. known is false if the map
// is missing or unreadable. c.mu is held.
func (c *Cluster) isObsolete(k replicaKey) (obsolete, known bool) {
	m := c.maps[nameFromID(k.id)]
	if m == nil || m.readErr != nil {
		return false, false
	}
	return m.Removed || m.ID != k.id || m.generation(k.generation) == nil && k.generation <= m.Last, true
}

// updateReplicas opens the replicas that this node has to keep, closes the others, and polls logs that are due.
func (c *Cluster) updateReplicas(now time.Time) {
	// Open the missing replicas.
	wantedNow := c.wantedReplicas()
	for k, w := range wantedNow {
		_, err := c.openReplica(w.m, w.g, k.shard)
		if err != nil && !errors.Is(err, errNotHere) && c.ctx.Err() == nil { // errNotHere: it is being closed
			c.log.Error("a replica cannot be opened", "collection", w.m.Name, "shard", k.shard, "error", err)
		}
	}
	// Close unneeded replicas, and note the present holders.
	var moved []*cachedReplica
	c.mu.Lock()
	for k, r := range c.replicas {
		w, wanted := wantedNow[k]
		if wanted {
			r.lastUsed = now
		} else if obsolete, known := c.isObsolete(k); known && r.users == 0 &&
			now.Sub(r.lastUsed) > min(lingerTime, 20*c.cfg.Beat) {
			c.closeReplica(r, obsolete)
			continue
		}
		if !slices.Equal(r.holders, w.holders) { // poll: a holder that has died may not have announced its last entry
			r.holders, r.nextPoll = w.holders, now
			moved = append(moved, r)
		}
	}
	due := c.duePolls(now)
	c.mu.Unlock()
	// Tell replicas whether they gather changes, and poll logs.
	for _, r := range moved {
		r.SetWriter(c.isFirstHolder(r))
	}
	for _, r := range due {
		c.startTask(fmt.Sprint("polling ", r.replicaKey), func(ctx context.Context) {
			release, err := acquireSlot(ctx, c.pollSlots)
			if err != nil {
				return
			}
			defer release()
			// A replica that is not ready by then will read the log anyway.
			ctx, stop := context.WithTimeout(ctx, pollTimeout)
			defer stop()
			if err := r.Poll(ctx); err != nil && ctx.Err() == nil {
				c.log.Debug("a log was not polled", "shard", fmt.Sprint(r.replicaKey), "error", err)
			}
		})
	}
}

// isFirstHolder reports whether this node is the first holder of a shard, which gathers its changes.
func (c *Cluster) isFirstHolder(r *cachedReplica) bool {
	return len(r.holders) > 0 && c.isSelf(r.holders[0])
}

// closeReplica closes a replica in the background, because closing waits for its readers. It removes the file of an
// obsolete replica. No other replica uses the folder until that is done. c.mu is held.
func (c *Cluster) closeReplica(r *cachedReplica, obsolete bool) {
	k := r.replicaKey
	delete(c.replicas, k)
	delete(c.hintedEntries, k.shardKey) // without a replica, a wrong hint would never be forgotten
	c.closing[k] = true
	c.background.Go(func() {
		end := r.Close
		if obsolete {
			end = r.Remove
		}
		if err := c.runGuarded("closing a replica", func() error { return end(c.ctx) }); err != nil {
			c.log.Warn("a replica was not closed", "shard", fmt.Sprint(k), "error", err)
		}
		c.mu.Lock()
		delete(c.closing, k)
		c.mu.Unlock()
		c.wakeLoop() // the replica may be needed again
	})
}

// duePolls returns the replicas whose logs are due for polling, and sets their next poll. c.mu is held.
func (c *Cluster) duePolls(now time.Time) (due []*cachedReplica) {
	for _, r := range c.replicas {
		if !now.Before(r.nextPoll) {
			r.nextPoll = now.Add(pollInterval*9/10 + rand.N(pollInterval/5)) // spread over time
			due = append(due, r)
		}
	}
	c.requests.Add(int64(len(due)))
	return due
}

// ensureReplica returns the replica of a shard on this node, and opens it if necessary, even if this node is not a
// holder.
func (c *Cluster) ensureReplica(ctx context.Context, id string, shard int, generation uint64) (*cachedReplica, error) {
	c.mu.Lock()
	r := c.replicas[replicaKey{shardKey{id, shard}, generation}]
	if r != nil {
		r.lastUsed = time.Now()
	}
	c.mu.Unlock()
	if r != nil {
		return r, nil
	}
	m, err := c.mapByID(id)
	if err != nil || m.generation(generation) == nil && m.Last < generation {
		if _, err = c.rereadMap(ctx, nameFromID(id)); err == nil {
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
	return c.openReplica(m, g, shard)
}

// openReplica opens a replica, unless it is open.
func (c *Cluster) openReplica(m *Map, g *replica.Generation, shard int) (*cachedReplica, error) {
	k := replicaKey{shardKey{m.ID, shard}, g.Number}
	c.openMutex.Lock()
	defer c.openMutex.Unlock()
	c.mu.Lock()
	r, closed, closing := c.replicas[k], c.closed, c.closing[k]
	c.mu.Unlock()
	if closed {
		return nil, collection.ErrClosed
	}
	if r != nil {
		return r, nil
	}
	if closing {
		return nil, fmt.Errorf("%w: shard %d of %s is being closed", errNotHere, shard, m.ID)
	}
	// The state may have changed meanwhile.
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, collection.ErrClosed
	}
	if now := c.maps[nameFromID(m.ID)]; now != nil && now.readErr == nil && now.ID == m.ID {
		m = now // its limit of documents may be newer
	}
	opened, err := replica.Open(&c.replicaConfig, m.replicaShard(shard, g))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	r = &cachedReplica{Replica: opened, replicaKey: k, lastUsed: now, nextPoll: now.Add(rand.N(pollInterval))}
	if c.node != nil {
		r.holders = c.placementOf(m)[shard]
	}
	c.replicas[k] = r
	r.SetWriter(c.isFirstHolder(r))
	return r, nil
}

// acquireReplica is ensureReplica for a long use: the replica stays open until release is called.
func (c *Cluster) acquireReplica(ctx context.Context, id string, shard int,
	generation uint64) (r *cachedReplica, release func(), err error) {
	if r, err = c.ensureReplica(ctx, id, shard, generation); err != nil {
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
		r.lastUsed = time.Now()
	}, nil
}

// removeStaleCaches removes the files of closed replicas that are obsolete, or have not been used for cacheAge.
func (c *Cluster) removeStaleCaches(now time.Time) {
	dirs, _ := filepath.Glob(filepath.Join(c.cfg.Dir, "*", "*"))
	for _, dir := range dirs {
		k := replicaKey{shardKey: shardKey{id: filepath.Base(filepath.Dir(dir))}}
		if n, err := fmt.Sscanf(filepath.Base(dir), "%04d-%08d", &k.shard, &k.generation); n != 2 || err != nil {
			continue
		}
		info, err := os.Stat(dir)
		if err != nil {
			continue
		}
		c.openMutex.Lock() // so that the replica is not opened meanwhile
		c.mu.Lock()
		obsolete, _ := c.isObsolete(k)
		open := c.replicas[k] != nil || c.closing[k]
		c.mu.Unlock()
		if !open && (obsolete || now.Sub(info.ModTime()) >= cacheAge) {
			if err := os.RemoveAll(dir); err != nil {
				c.log.Warn("the file of an unneeded replica was not removed", "path", dir, "error", err)
			}
			_ = os.Remove(filepath.Dir(dir)) // works if it is empty
		}
		c.openMutex.Unlock()
	}
}

// openReplicas returns the open replicas for whose keys isSelected returns true.
func (c *Cluster) openReplicas(isSelected func(replicaKey) bool) (selected []*cachedReplica) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, r := range c.replicas {
		if isSelected(k) {
			selected = append(selected, r)
		}
	}
	return selected
}

// readableMaps returns the newest maps of collections that exist and whose maps can be read, by name.
func (c *Cluster) readableMaps() []*Map {
	c.mu.Lock()
	defer c.mu.Unlock()
	var readable []*Map
	for _, name := range slices.Sorted(maps.Keys(c.maps)) {
		if m := c.maps[name]; m.readErr == nil && !m.Removed {
			readable = append(readable, m)
		}
	}
	return readable
}
