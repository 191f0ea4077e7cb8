package cluster

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/plaid-ir/plaid/collection/cluster/replica"
)

// hintAsk says that logs have entries.
type hintAsk struct {
	Hints []hint `json:"hints"`
}

type hint struct {
	ID    string `json:"id"`
	Shard int    `json:"shard"`
	Entry uint64 `json:"entry"`
}

// nothing is the answer to hints and news.
type nothing struct{}

// doHint takes hints to the replicas that are open here. One that is opened later reads the log anyway.
func (c *Cluster) doHint(_ context.Context, in *hintAsk) (*nothing, error) {
	for _, h := range in.Hints {
		k := shardKey{h.ID, h.Shard}
		var open []*kept
		c.mu.Lock()
		for key, r := range c.replicas {
			if key.shardKey == k {
				open, c.heard[k] = append(open, r), max(c.heard[k], h.Entry)
			}
		}
		c.mu.Unlock()
		for _, r := range open {
			r.Hint(h.Entry)
		}
	}
	return &nothing{}, nil
}

// misled forgets the hints of a shard whose log does not have the entry: reads would wait for it in vain.
func (c *Cluster) misled(s replica.Shard) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.heard, shardKey{s.Collection, s.Number})
}

// expected is the entry that a read of a shard has to include: the newest that this process has seen or heard of.
func (c *Cluster) expected(id string, shard int) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := shardKey{id, shard}
	return max(c.seen[k], c.heard[k])
}

// raise takes over the higher numbers of more.
func raise(entries, more map[shardKey]uint64) {
	for k, entry := range more {
		entries[k] = max(entries[k], entry)
	}
}

// appended tells the nodes that have a shard of an entry, this one too, which may have another generation of it
// open. It does not wait. Entries that come while a node is told are told next, together.
func (c *Cluster) appended(s replica.Shard, entry uint64) {
	m, err := c.mapByID(s.Collection)
	if err != nil || s.Number >= m.Shards {
		return
	}
	k := shardKey{s.Collection, s.Number}
	holders := c.holders(m, s.Number)
	c.mu.Lock()
	c.seen[k] = max(c.seen[k], entry)
	for _, n := range holders {
		if c.hints[n.Started] == nil {
			c.hints[n.Started] = map[shardKey]uint64{}
		}
		c.hints[n.Started][k] = max(c.hints[n.Started][k], entry)
	}
	c.mu.Unlock()
	for _, n := range holders {
		c.tellHints(n)
	}
}

// greet tells a node that was not known before of all entries that are known here: it may have read logs before
// they were put, and was not told of them.
func (c *Cluster) greet(n *Node) {
	c.mu.Lock()
	known := maps.Clone(c.seen)
	raise(known, c.heard)
	raise(known, c.hints[n.Started])
	c.hints[n.Started] = known
	c.mu.Unlock()
	c.tellHints(n)
}

// tellHints tells a node of the entries that wait for it, until it has heard of all or does not live any more.
func (c *Cluster) tellHints(n *Node) {
	c.aside("hints to "+n.Started, func(ctx context.Context) {
		for ctx.Err() == nil {
			c.mu.Lock()
			waiting := c.hints[n.Started]
			delete(c.hints, n.Started)
			if len(waiting) == 0 {
				delete(c.busy, "hints to "+n.Started) // in one with the look, so that none stays
				c.mu.Unlock()
				return
			}
			c.mu.Unlock()
			var all []hint
			for k, entry := range waiting {
				all = append(all, hint{k.id, k.shard, entry})
			}
			for some := range slices.Chunk(all, 10_000) {
				patient, stop := context.WithTimeout(ctx, max(c.c.Beat, time.Second))
				err := c.call(patient, n, "hint", &hintAsk{some}, &nothing{})
				if stop(); err != nil {
					c.hintAgain(n, waiting)
					select {
					case <-time.After(c.c.Beat):
					case <-ctx.Done():
					}
					break
				}
			}
		}
	})
}

// hintAgain keeps hints that a node has not heard, as long as it lives.
func (c *Cluster) hintAgain(n *Node, hints map[shardKey]uint64) {
	if !c.runs(n.Started) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	raise(hints, c.hints[n.Started])
	c.hints[n.Started] = hints
}
