package cluster

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/plaid-ir/plaid/collection/cluster/replica"
)

// Hints tell nodes about new entries of logs, so that they need not poll. They may get lost or be wrong: replicas poll
// now and then, and forget a hint whose entry does not appear.

// hintRequest tells a node that logs have entries.
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

// doHint passes hints to the replicas that are open here. A replica that is opened later reads the log anyway.
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
			r.NoteEntry(h.Entry)
		}
	}
	return &emptyAnswer{}, nil
}

// forgetHints forgets the hints of a shard whose log does not have the entry: otherwise reads would wait for it.
func (c *Cluster) forgetHints(s replica.Shard) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.hintedEntries, shardKey{s.Collection, s.Number})
}

// expectedEntry returns the entry that a read of a shard must include: the newest that this process has seen or was
// told about.
func (c *Cluster) expectedEntry(id string, shard int) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := shardKey{id, shard}
	return max(c.seenEntries[k], c.hintedEntries[k])
}

// raiseEntries sets entries to the higher numbers in more.
func raiseEntries(entries, more map[shardKey]uint64) {
	for k, entry := range more {
		entries[k] = max(entries[k], entry)
	}
}

// announceEntry tells the holders of a shard about a new entry. This node is among them, since it may have another
// generation of the shard open. It does not wait. Entries that come while a node is being told are sent next, together.
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

// sendAllHints tells a newly found node about all entries that are known here: it may have read logs before they were
// put, and was not among the nodes that were told.
func (c *Cluster) sendAllHints(n *Node) {
	c.mu.Lock()
	entries := maps.Clone(c.seenEntries)
	raiseEntries(entries, c.hintedEntries)
	raiseEntries(entries, c.pendingHints[n.Started])
	c.pendingHints[n.Started] = entries
	c.mu.Unlock()
	c.sendHints(n)
}

// sendHints sends a node the entries that are waiting for it, until all are sent or the node has died.
func (c *Cluster) sendHints(n *Node) {
	c.startTask("hints to "+n.Started, func(ctx context.Context) {
		for ctx.Err() == nil {
			c.mu.Lock()
			waiting := c.pendingHints[n.Started]
			delete(c.pendingHints, n.Started)
			if len(waiting) == 0 {
				delete(c.runningTasks, "hints to "+n.Started) // under the lock, so that later hints start a new task
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
					c.requeueHints(n, waiting)
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

// requeueHints queues hints again that a node has not received, as long as the node lives.
func (c *Cluster) requeueHints(n *Node, hints map[shardKey]uint64) {
	if !c.isProcessAlive(n.Started) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	raiseEntries(hints, c.pendingHints[n.Started])
	c.pendingHints[n.Started] = hints
}
