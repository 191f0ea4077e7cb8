package cluster

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/plaid-ir/plaid/collection/cluster/replica"
)

// hintRequest says that logs have entries.
type hintRequest struct {
	Hints []hint `json:"hints"`
}

type hint struct {
	ID    string `json:"id"`
	Shard int    `json:"shard"`
	Entry uint64 `json:"entry"`
}

// emptyAnswer is the answer to hints and news.
type emptyAnswer struct{}

// doHint takes hints to the replicas that are open here. One that is opened later reads the log anyway.
func (c *Cluster) doHint(_ context.Context, in *hintRequest) (*emptyAnswer, error) {
	for _, h := range in.Hints {
		k := shardKey{h.ID, h.Shard}
		var open []*cachedReplica
		c.mu.Lock()
		for key, r := range c.replicas {
			if key.shardKey == k {
				open, c.hintedEntries[k] = append(open, r), max(c.hintedEntries[k], h.Entry)
			}
		}
		c.mu.Unlock()
		for _, r := range open {
			r.Hint(h.Entry)
		}
	}
	return &emptyAnswer{}, nil
}

// forgetHints forgets the hints of a shard whose log does not have the entry: reads would wait for it in vain.
func (c *Cluster) forgetHints(s replica.Shard) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.hintedEntries, shardKey{s.Collection, s.Number})
}

// expectedEntry is the entry that a read of a shard has to include: the newest that this process has seen or heard of.
func (c *Cluster) expectedEntry(id string, shard int) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := shardKey{id, shard}
	return max(c.seenEntries[k], c.hintedEntries[k])
}

// raiseEntries takes over the higher numbers of more.
func raiseEntries(entries, more map[shardKey]uint64) {
	for k, entry := range more {
		entries[k] = max(entries[k], entry)
	}
}

// announceEntry tells the nodes that have a shard of an entry, this one too, which may have another generation of it
// open. It does not wait. Entries that come while a node is told are told next, together.
func (c *Cluster) announceEntry(s replica.Shard, entry uint64) {
	m, err := c.mapByID(s.Collection)
	if err != nil || s.Number >= m.Shards {
		return
	}
	k := shardKey{s.Collection, s.Number}
	holders := c.holders(m, s.Number)
	c.mu.Lock()
	c.seenEntries[k] = max(c.seenEntries[k], entry)
	for _, n := range holders {
		if c.pendingHints[n.Started] == nil {
			c.pendingHints[n.Started] = map[shardKey]uint64{}
		}
		c.pendingHints[n.Started][k] = max(c.pendingHints[n.Started][k], entry)
	}
	c.mu.Unlock()
	for _, n := range holders {
		c.sendHints(n)
	}
}

// sendAllHints tells a node that was not known before of all entries that are known here: it may have read logs before
// they were put, and was not told of them.
func (c *Cluster) sendAllHints(n *Node) {
	c.mu.Lock()
	known := maps.Clone(c.seenEntries)
	raiseEntries(known, c.hintedEntries)
	raiseEntries(known, c.pendingHints[n.Started])
	c.pendingHints[n.Started] = known
	c.mu.Unlock()
	c.sendHints(n)
}

// sendHints tells a node of the entries that wait for it, until it has heard of all or does not live any more.
func (c *Cluster) sendHints(n *Node) {
	c.startTask("hints to "+n.Started, func(ctx context.Context) {
		for ctx.Err() == nil {
			c.mu.Lock()
			waiting := c.pendingHints[n.Started]
			delete(c.pendingHints, n.Started)
			if len(waiting) == 0 {
				delete(c.runningTasks, "hints to "+n.Started) // in one with the look, so that none stays
				c.mu.Unlock()
				return
			}
			c.mu.Unlock()
			var list []hint
			for k, entry := range waiting {
				list = append(list, hint{k.id, k.shard, entry})
			}
			for chunk := range slices.Chunk(list, 10_000) {
				callCtx, stop := context.WithTimeout(ctx, max(c.cfg.Beat, time.Second))
				err := c.callNode(callCtx, n, "hint", &hintRequest{chunk}, &emptyAnswer{})
				if stop(); err != nil {
					c.keepHints(n, waiting)
					select {
					case <-time.After(c.cfg.Beat):
					case <-ctx.Done():
					}
					break
				}
			}
		}
	})
}

// keepHints keeps hints that a node has not heard, as long as it lives.
func (c *Cluster) keepHints(n *Node, hints map[shardKey]uint64) {
	if !c.isProcessAlive(n.Started) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	raiseEntries(hints, c.pendingHints[n.Started])
	c.pendingHints[n.Started] = hints
}
