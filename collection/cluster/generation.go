package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
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

// A generation is one codec, and all shards encoded with it. Collections begin with one that needs no
// training. The coordinator of a collection has another one trained when it has grown, the first holder of
// each shard puts a checkpoint of that, and when the store lists all of them the coordinator has it searched.

const (
	encodeTries = 3         // of a node, for the next generation
	waitBeats   = 20        // that a generation waits for its replicas to be open, and a failed training for another
	maxSample   = 256 << 20 // bytes of a shard
	sampleRows  = 64        // tokens that stand for a document in a training
)

// nextBuild is the state of the next generation of a collection, as a node knows it.
type nextBuild struct {
	generation    uint64
	holders       map[int]bool // shards with a checkpoint
	completeSince time.Time    // when all had one
	tries         int          // to encode that failed here
}

// beginGeneration decides how the first documents of a collection are encoded: it puts the first generation,
// or one with a dimension after one without. dim is 0 for documents without vectors.
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
		c.announceMap(m)() // so that other nodes have documents too
	}
	if err != nil || dim == 0 || m.Current.Dim != 0 {
		return m, err
	}
	return c.waitForMap(ctx, m.ID, func(m *Map) (bool, error) {
		if m.Failed != nil && m.Next == nil {
			return false, m.Failed.Cause.toError()
		}
		return m.Current.Dim != 0 || m.Next == nil, nil // nil: Next had no dimension, and the caller begins again
	})
}

// actOnMaps does the work that the known maps ask for.
func (c *Cluster) actOnMaps() {
	now := time.Now()
	c.updateReplicas(now)
	if c.node == nil {
		return
	}
	var growing []*Map
	wanted := false
	for _, m := range c.readableMaps() {
		switch {
		case m.Next != nil:
			c.startTask("the next generation of "+m.ID, func(ctx context.Context) { c.advanceGeneration(ctx, m) })
		case m.Current == nil || !c.isCoordinator(m):
		case m.Training != nil && !c.isProcessAlive(m.Training.By):
			c.startTask("training "+m.ID, func(ctx context.Context) { c.releaseTraining(ctx, m) })
		case m.Wanted != "" || m.Current.Stage != collection.StageFinal:
			growing, wanted = append(growing, m), wanted || m.Wanted != ""
		}
	}
	if len(growing) > 0 && (c.isDue("growth", 3*c.cfg.Beat) || wanted) {
		c.startTask("growth", func(ctx context.Context) { c.trainGrown(ctx, growing) })
	}
	if c.isDue("cache", time.Hour) {
		c.startTask("cache", func(context.Context) { c.removeStaleCaches(now) })
	}
	c.finishRemovals(now)
	c.startTask("garbage", c.garbageCollect)
}

// isDue reports whether work is to be done that comes once in a while, and notes that it is done now.
func (c *Cluster) isDue(work string, every time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.lastDone[work]) < every {
		return false
	}
	c.lastDone[work] = time.Now()
	return true
}

// postponeWork puts off the work on the generations of a collection, which failed because others did not answer.
func (c *Cluster) postponeWork(id string) { c.isDue("rest "+id, 0) }

func (c *Cluster) isPostponed(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.lastDone["rest "+id]) < waitBeats*c.cfg.Beat
}

// advanceGeneration looks how far the next generation of a collection is, encodes this node's part of it, and has it
// searched when it is complete and this node is the coordinator.
func (c *Cluster) advanceGeneration(ctx context.Context, m *Map) {
	checkpoints, err := listCheckpoints(ctx, c.cfg.Store, m)
	if err != nil {
		return // the next look comes
	}
	has := map[int]bool{}
	for s, files := range checkpoints {
		has[s] = slices.ContainsFunc(files, func(p journal.Checkpoint) bool { return p.Generation == m.Next.Number })
	}
	todo := slices.DeleteFunc(c.firstHeldShards(m), func(s int) bool { return has[s] })
	maps.DeleteFunc(has, func(_ int, is bool) bool { return !is })
	c.mu.Lock()
	b := c.nextBuilds[m.ID]
	if b == nil || b.generation != m.Next.Number {
		b = &nextBuild{generation: m.Next.Number}
		c.nextBuilds[m.ID] = b
	}
	if len(has) > len(b.holders) {
		c.wakeLoop() // to open their replicas
	}
	b.holders = has
	if len(has) == m.Shards && b.completeSince.IsZero() {
		b.completeSince = time.Now()
	}
	waited := time.Since(b.completeSince)
	c.mu.Unlock()
	if len(todo) > 0 && !c.isPostponed(m.ID) {
		c.startTask("encoding "+m.ID, func(ctx context.Context) { c.encodeShards(ctx, m, b, todo) })
	}
	if len(has) < m.Shards || !c.isCoordinator(m) || waited < waitBeats*c.cfg.Beat && !c.nextIsOpen(ctx, m) {
		return
	}
	_, err = c.changeMapByID(ctx, m.ID, changeIf(isNext(m.Next.Number), func(now *Map) { now.promote(now.Next) }))
	c.logFailure(ctx, err, "the next generation of a collection is complete, and is not searched", m)
}

// firstHeldShards are the shards whose changes this node gathers.
func (c *Cluster) firstHeldShards(m *Map) (shards []int) {
	for s := range m.Shards {
		if has := c.holders(m, s); len(has) > 0 && has[0] == c.node {
			shards = append(shards, s)
		}
	}
	return shards
}

// encodeShards puts checkpoints of shards for the next generation, and gives that up if one cannot be encoded.
func (c *Cluster) encodeShards(ctx context.Context, m *Map, b *nextBuild, shards []int) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() { // another generation, or none, is to be built
		defer stop()
		_, _ = c.waitForMap(ctx, m.ID, func(now *Map) (bool, error) { return !isNext(m.Next.Number)(now), nil })
	}()
	for _, s := range shards {
		err := c.encodeShard(ctx, m, s)
		if err == nil {
			c.announceMap(m) // the holders of the shard, and the coordinator, look
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
			return // the next look comes
		}
		why := fmt.Errorf("shard %d, on node %s: %w", s, c.node.Name, err)
		_, err = c.changeMapByID(ctx, m.ID, changeIf(isNext(m.Next.Number), func(now *Map) { now.giveUpNext(why) }))
		c.logFailure(ctx, err, "a generation that cannot be built was not given up", m)
		return
	}
}

func (c *Cluster) encodeShard(ctx context.Context, m *Map, shard int) error {
	if m.Current.Dim > 0 { // without vectors it is quick, and the first addition of vectors waits for it
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
	// The checkpoint has all that the log has now. A collector that knows only checkpoints from before this
	// generation, which are all older than that, cuts no entry that it needs.
	if err := r.Poll(ctx); err != nil {
		return err
	}
	return r.BuildNext(ctx, *m.Next)
}

// nextIsOpen reports whether the holders of all shards have replicas of the next generation that are ready.
func (c *Cluster) nextIsOpen(ctx context.Context, m *Map) bool {
	type place struct {
		node  *Node
		shard int
	}
	ready := map[place]bool{}
	for n, answer := range c.askStatus(ctx, &statusRequest{IDs: []string{m.ID}}) {
		for _, r := range answer.Replicas {
			if r.Generation == m.Next.Number && r.State.Phase == replica.Ready {
				ready[place{n, r.Shard}] = true
			}
		}
	}
	for s := range m.Shards {
		for _, n := range c.holders(m, s) {
			if !ready[place{n, s}] {
				return false
			}
		}
	}
	return true
}

// logFailure logs the error of something that is done for a collection, unless the collection or the process ends.
func (c *Cluster) logFailure(ctx context.Context, err error, what string, m *Map) {
	if err != nil && ctx.Err() == nil && !errors.Is(err, collection.ErrUnknown) {
		c.log.Error(what, "collection", m.Name, "error", err)
	}
}

// makeScratch is a folder for files of this process.
func (c *Cluster) makeScratch() (dir string, remove func(), err error) {
	if err := os.MkdirAll(c.cfg.Dir, 0o777); err != nil {
		return "", nil, err
	}
	dir, err = os.MkdirTemp(c.cfg.Dir, scratchPrefix)
	return dir, func() {
		if err := os.RemoveAll(dir); err != nil {
			c.log.Warn("a folder stays that is not needed any more", "path", dir, "error", err)
		}
	}, err
}

const scratchPrefix = ".scratch-"

func dataPrefix(id string) string { return "data/" + id + "/" }

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

// parseCheckpoint parses the name of an object; ok is false if the object is no checkpoint of the collection.
func parseCheckpoint(m *Map, e objects.Entry) (shard int, p journal.Checkpoint, ok bool) {
	shardPath, is := strings.CutPrefix(e.Name, dataPrefix(m.ID)+"files/")
	dir, _, _ := strings.Cut(shardPath, "/")
	shard, err := strconv.Atoi(dir)
	is = is && err == nil && shard >= 0 && shard < m.Shards && fmt.Sprintf("%04d", shard) == dir
	p, ok = journal.ParseCheckpoint(e)
	return shard, p, ok && is
}

// eachObject lists objects, some at a time.
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

// sumGrowth sums up the growth of a collection, given the statistics of its shards.
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
