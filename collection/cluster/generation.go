package cluster

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/cluster/journal"
	"github.com/plaid-ir/plaid/collection/cluster/replica"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage/objects"
)

// A generation is one codec and all shards encoded with it. A collection begins with a generation that needs no
// training. When it has grown, the next generation is made in these steps:
//
//  1. The coordinator of the collection trains a codec (Map.Training), and enters it in the map as Map.Next.
//  2. The first holder of each shard encodes the shard and puts it as a checkpoint of the generation.
//  3. When the store lists all these checkpoints and the replicas are open, the coordinator promotes the generation.

const (
	encodeTries = 3         // attempts of a node to encode a shard for the next generation
	waitBeats   = 20        // beats that a generation waits for open replicas, and that postponed work waits
	maxSample   = 256 << 20 // largest sample of a shard, in bytes
	sampleRows  = 64        // tokens of each pseudo document that a training gets
)

// nextBuild is the progress of a collection's next generation, as this node knows it.
type nextBuild struct {
	generation    uint64
	encoded       map[int]bool // shards with a checkpoint
	completeSince time.Time    // when all shards had one; zero before that
	tries         int          // failed attempts of this node to encode a shard
}

// beginGeneration makes the first generation of a collection, or one with a dimension after one without. dim is 0 for
// documents without vectors. It waits until the generation is searched.
func (c *Cluster) beginGeneration(ctx context.Context, m *Map, dim int, o collection.UpdateOptions) (*Map, error) {
	if err := o.Model.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", collection.ErrConfig, err)
	}
	m, err := c.changeMapByID(ctx, m.ID, func(m *Map) error {
		g := &replica.Generation{Number: m.Last + 1, Dim: dim, Nbits: 8, Stage: collection.StageFlat, Model: o.Model}
		switch {
		case m.Current == nil:
			g.Begun = true
			m.Current = g
		case m.Current.Dim != 0 || dim == 0 || m.Next != nil:
			return errUnchanged
		default:
			if m.Current.Model != nil {
				g.Model = m.Current.Model
			}
			g.Base = m.Current.Base
			m.Next, m.For, m.Failed = g, "", nil
		}
		m.Last++
		return nil
	})
	if err == nil {
		c.announceMap(m)() // wait, so that other nodes know that the collection has documents
	}
	if err != nil || dim == 0 || m.Current.Dim != 0 {
		return m, err
	}
	return c.waitForMap(ctx, m.ID, func(m *Map) (bool, error) {
		if m.Failed != nil && m.Next == nil {
			return false, m.Failed.Cause.toError()
		}
		return m.Current.Dim != 0 || m.Next == nil, nil // no Next: it had no dimension, and the caller tries again
	})
}

// actOnMaps starts the work that the known maps ask for, in the background.
func (c *Cluster) actOnMaps() {
	now := time.Now()
	c.updateReplicas(now)
	if c.node == nil {
		return
	}
	var growing []*Map
	requested := false
	for _, m := range c.readableMaps() {
		switch {
		case m.Next != nil:
			c.startTask("the next generation of "+m.ID, func(ctx context.Context) { c.advanceGeneration(ctx, m) })
		case m.Current == nil || !c.isCoordinator(m):
		case m.Training != nil && !c.isProcessAlive(m.Training.By):
			c.startTask("training "+m.ID, func(ctx context.Context) { c.releaseTraining(ctx, m) })
		case m.Wanted != "" || m.Current.Stage != collection.StageFinal:
			growing, requested = append(growing, m), requested || m.Wanted != ""
		}
	}
	if len(growing) > 0 && (c.claimIfDue("growth", 3*c.cfg.Beat) || requested) {
		c.startTask("growth", func(ctx context.Context) { c.trainGrown(ctx, growing) })
	}
	if c.claimIfDue("cache", time.Hour) {
		c.startTask("cache", func(context.Context) { c.removeStaleCaches(now) })
	}
	c.finishRemovals(now)
	c.startTask("garbage", c.garbageCollect)
}

// claimIfDue reports whether periodic work is due, and if so notes that it is done now.
func (c *Cluster) claimIfDue(work string, every time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.lastDone[work]) < every {
		return false
	}
	c.lastDone[work] = time.Now()
	return true
}

// postponeWork postpones work on the generations of a collection that failed because others did not answer.
func (c *Cluster) postponeWork(id string) { c.claimIfDue("postponed "+id, 0) }

// isPostponed reports whether work on the generations of a collection is postponed.
func (c *Cluster) isPostponed(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.lastDone["postponed "+id]) < waitBeats*c.cfg.Beat
}

// advanceGeneration checks the progress of a collection's next generation, encodes this node's shards of it, and
// promotes it when it is complete and this node is the coordinator.
func (c *Cluster) advanceGeneration(ctx context.Context, m *Map) {
	checkpoints, err := listCheckpoints(ctx, c.cfg.Store, m)
	if err != nil {
		return // the next beat tries again
	}
	// Find the shards that have a checkpoint of the generation.
	encoded := map[int]bool{}
	for s, files := range checkpoints {
		if slices.ContainsFunc(files, func(p journal.Checkpoint) bool { return p.Generation == m.Next.Number }) {
			encoded[s] = true
		}
	}
	unencoded := slices.DeleteFunc(c.firstHeldShards(m), func(s int) bool { return encoded[s] })
	// Note the progress.
	c.mu.Lock()
	b := c.nextBuilds[m.ID]
	if b == nil || b.generation != m.Next.Number {
		b = &nextBuild{generation: m.Next.Number}
		c.nextBuilds[m.ID] = b
	}
	if len(encoded) > len(b.encoded) {
		c.wakeLoop() // opens the replicas of the new checkpoints
	}
	b.encoded = encoded
	if len(encoded) == m.Shards && b.completeSince.IsZero() {
		b.completeSince = time.Now()
	}
	waited := time.Since(b.completeSince)
	c.mu.Unlock()
	// Encode the shards that this node is the first holder of.
	if len(unencoded) > 0 && !c.isPostponed(m.ID) {
		c.startTask("encoding "+m.ID, func(ctx context.Context) { c.encodeShards(ctx, m, b, unencoded) })
	}
	// Promote the generation when its replicas are open, or after some time without waiting for the slowest.
	if len(encoded) < m.Shards || !c.isCoordinator(m) || waited < waitBeats*c.cfg.Beat && !c.nextIsOpen(ctx, m) {
		return
	}
	_, err = c.changeMapByID(ctx, m.ID, changeIf(isNext(m.Next.Number), func(now *Map) { now.promote(now.Next) }))
	c.logFailure(ctx, err, "the next generation of a collection is complete, but was not promoted", m)
}

// firstHeldShards returns the shards that this node is the first holder of, so that it gathers their changes.
func (c *Cluster) firstHeldShards(m *Map) (shards []int) {
	for s := range m.Shards {
		if holders := c.holders(m, s); len(holders) > 0 && holders[0] == c.node {
			shards = append(shards, s)
		}
	}
	return shards
}

// encodeShards puts checkpoints of shards for the next generation. It gives the generation up if a shard cannot be
// encoded.
func (c *Cluster) encodeShards(ctx context.Context, m *Map, b *nextBuild, shards []int) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() { // stop when the generation is not wanted any more
		defer stop()
		_, _ = c.waitForMap(ctx, m.ID, func(now *Map) (bool, error) { return !isNext(m.Next.Number)(now), nil })
	}()
	for _, s := range shards {
		err := c.encodeShard(ctx, m, s)
		if err == nil {
			c.announceMap(m) // makes the holders of the shard, and the coordinator, look at the store
			continue
		}
		if ctx.Err() != nil {
			return
		}
		c.log.Error("a shard was not encoded for the next generation",
			"collection", m.Name, "shard", s, "generation", m.Next.Number, "error", err)
		if isPassing(err) {
			c.postponeWork(m.ID)
			return
		}
		if b.tries++; b.tries < encodeTries {
			return // the next beat tries again
		}
		why := fmt.Errorf("shard %d, on node %s: %w", s, c.node.Name, err)
		_, err = c.changeMapByID(ctx, m.ID, changeIf(isNext(m.Next.Number), func(now *Map) { now.giveUpNext(why) }))
		c.logFailure(ctx, err, "a generation that cannot be built was not given up", m)
		return
	}
}

// encodeShard puts the checkpoint of one shard for the next generation.
func (c *Cluster) encodeShard(ctx context.Context, m *Map, shard int) error {
	if m.Current.Dim > 0 { // encoding without vectors is quick, and the first vectors wait for it
		release, err := acquireSlot(ctx, c.heavySlot)
		if err != nil {
			return err
		}
		defer release()
	}
	r, release, err := c.acquireReplica(ctx, m.ID, shard, m.Current.Number)
	if err != nil {
		return err
	}
	defer release()
	// Poll first, so that the checkpoint has all entries that the log has now. A collector that does not know of the
	// generation yet cuts by its older checkpoints only, and so keeps every entry after this one.
	if err := r.Poll(ctx); err != nil {
		return err
	}
	return r.BuildNext(ctx, *m.Next)
}

// nextIsOpen reports whether the replicas of the next generation are ready on all holders of all shards.
func (c *Cluster) nextIsOpen(ctx context.Context, m *Map) bool {
	type shardOnNode struct {
		node  *Node
		shard int
	}
	ready := map[shardOnNode]bool{}
	for n, answer := range c.askStatus(ctx, &statusRequest{IDs: []string{m.ID}}) {
		for _, r := range answer.Replicas {
			if r.Generation == m.Next.Number && r.State.Phase == replica.Ready {
				ready[shardOnNode{n, r.Shard}] = true
			}
		}
	}
	for s := range m.Shards {
		for _, n := range c.holders(m, s) {
			if !ready[shardOnNode{n, s}] {
				return false
			}
		}
	}
	return true
}

// logFailure logs the error of work for a collection, unless the collection was removed or the process ends.
func (c *Cluster) logFailure(ctx context.Context, err error, message string, m *Map) {
	if err != nil && ctx.Err() == nil && !errors.Is(err, collection.ErrUnknown) {
		c.log.Error(message, "collection", m.Name, "error", err)
	}
}

// createScratch creates a folder for temporary files. The caller calls remove at the end.
func (c *Cluster) createScratch() (dir string, remove func(), err error) {
	if err := os.MkdirAll(c.cfg.Dir, 0o777); err != nil {
		return "", nil, err
	}
	dir, err = os.MkdirTemp(c.cfg.Dir, scratchPrefix)
	return dir, func() {
		if err := os.RemoveAll(dir); err != nil {
			c.log.Warn("a temporary folder was not removed", "path", dir, "error", err)
		}
	}, err
}

// scratchPrefix begins the names of temporary folders in the cache.
const scratchPrefix = ".scratch-"

// dataPrefix returns the prefix of all objects of a collection but its maps.
func dataPrefix(id string) string { return "data/" + id + "/" }

// codecObject returns the name of the object with the codec of a generation.
func codecObject(id string, generation uint64) string {
	return fmt.Sprintf("%scodec/%08d", dataPrefix(id), generation)
}

// listCheckpoints lists the checkpoints of a collection, by shard.
func listCheckpoints(ctx context.Context, s objects.Store, m *Map) (map[int][]journal.Checkpoint, error) {
	byShard := map[int][]journal.Checkpoint{}
	err := eachObject(ctx, s, dataPrefix(m.ID)+"files/", func(e objects.Entry) error {
		if shard, p, ok := parseCheckpoint(m, e); ok {
			byShard[shard] = append(byShard[shard], p)
		}
		return nil
	})
	return byShard, err
}

// parseCheckpoint parses the name of an object. ok is false if it is not a checkpoint of the collection.
func parseCheckpoint(m *Map, e objects.Entry) (shard int, p journal.Checkpoint, ok bool) {
	shardPath, valid := strings.CutPrefix(e.Name, dataPrefix(m.ID)+"files/")
	dir, _, _ := strings.Cut(shardPath, "/")
	shard, err := strconv.Atoi(dir)
	valid = valid && err == nil && shard >= 0 && shard < m.Shards && fmt.Sprintf("%04d", shard) == dir
	p, ok = journal.ParseCheckpoint(e)
	return shard, p, ok && valid
}

// eachObject calls visit for all objects with a prefix. It lists them in pages.
func eachObject(ctx context.Context, s objects.Store, prefix string, visit func(objects.Entry) error) error {
	const page = 50_000
	for after := ""; ; {
		listed, err := s.List(ctx, prefix, after, page)
		if err != nil {
			return err
		}
		for _, e := range listed {
			if err := visit(e); err != nil {
				return err
			}
		}
		if len(listed) < page {
			return nil
		}
		after = listed[len(listed)-1].Name
	}
}

// sumGrowth combines the growth of a collection's shards, given their statistics.
func (c *Cluster) sumGrowth(m *Map, perShard []collection.Stats) collection.GrowthStats {
	g := collection.GrowthStats{Stage: collection.StageEmpty}
	if m.Current == nil {
		return g
	}
	g.Stage, g.Training = m.Current.Stage, m.Next != nil || m.Training != nil || m.Wanted != ""
	if m.Failed != nil {
		g.Failed = m.Failed.Cause.Message
	}
	d := index.Drift{Trained: m.Current.Trained}
	tokens, squares := uint64(0), 0.
	for _, s := range perShard {
		shard := s.Growth.Drift
		d.TrainRMSE, d.Centroids = max(d.TrainRMSE, shard.TrainRMSE), max(d.Centroids, shard.Centroids)
		d.Added += shard.Added
		squares += float64(shard.Added) * shard.AddedRMSE * shard.AddedRMSE
		tokens += s.Tokens
	}
	d.Wanted = codec.DefaultK(int64(tokens))
	if d.Added > 0 {
		d.AddedRMSE = math.Sqrt(squares / float64(d.Added))
	}
	if d.TrainRMSE > 0 && d.Added > 0 {
		d.Ratio = d.AddedRMSE / d.TrainRMSE
	}
	g.Drift, g.Advice = d, c.cfg.Index.Growth.Advice(g.Stage, d)
	return g
}
