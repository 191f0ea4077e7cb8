package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/cluster/replica"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/storage/objects"
	"github.com/plaid-ir/plaid/vectors"
)

// shardStats are the statistics of a shard, from the node that has applied most of its log.
type shardStats struct {
	node  *Node
	entry uint64 // last entry that the node has applied
	collection.Stats
}

// newestStats returns the statistics of all shards. ok is false if those of a shard are missing.
func newestStats(m *Map, from map[*Node]*statusAnswer) (perShard []shardStats, ok bool) {
	perShard = make([]shardStats, m.Shards)
	for n, answer := range from {
		for _, r := range answer.Replicas {
			if r.ID != m.ID || r.Generation != m.Current.Number || r.Shard < 0 || r.Shard >= m.Shards ||
				r.Stats == nil {
				continue
			}
			if s := &perShard[r.Shard]; s.node == nil || s.entry < r.State.Entry {
				*s = shardStats{n, r.State.Entry, *r.Stats}
			}
		}
	}
	return perShard, !slices.ContainsFunc(perShard, func(s shardStats) bool { return s.node == nil })
}

// Growth implements [collection.Trainer].
func (c *Cluster) Growth() collection.Growth { return c.cfg.Index.Growth }

// trainGrown trains collections that have grown, or whose training was requested, if all their shards answer.
func (c *Cluster) trainGrown(ctx context.Context, growing []*Map) {
	ask := &statusRequest{Stats: true}
	for _, m := range growing {
		ask.IDs = append(ask.IDs, m.ID)
	}
	answers := c.askStatus(ctx, ask)
	for _, m := range growing {
		perShard, ok := newestStats(m, answers)
		if ok && (m.Wanted != "" || m.Current.Dim > 0 && !c.isPostponed(m.ID)) {
			c.startTask("training "+m.ID, func(ctx context.Context) { c.trainCollection(ctx, m, perShard) })
		}
	}
}

// trainCollection trains the next codec of a collection, if that is due or was requested.
func (c *Cluster) trainCollection(ctx context.Context, before *Map, perShard []shardStats) {
	// Is a training due?
	tokens := int64(0)
	for _, s := range perShard {
		tokens += int64(s.Tokens)
	}
	current := before.Current
	encoding := collection.Encoding{Stage: current.Stage, Nbits: current.Nbits, Trained: int64(current.Trained)}
	growth := &c.cfg.Index.Growth
	t, due := growth.NextTraining(encoding, tokens, before.Config)
	if before.Wanted != "" {
		t, due = growth.Retraining(encoding, tokens, before.Config), true
	} else if before.Failed != nil && collection.SkipFailedTraining(int64(before.Failed.Tokens), tokens) {
		return
	}
	if !due {
		return
	}
	// Reserve a generation.
	release, err := acquireSlot(ctx, c.heavySlot)
	if err != nil {
		return
	}
	defer release()
	m, err := c.changeMapByID(ctx, before.ID, func(m *Map) error {
		if m.Next != nil || m.Current == nil || m.Current.Number != current.Number || m.Wanted != before.Wanted ||
			m.Training != nil && m.Training.By != c.node.Started && c.isProcessAlive(m.Training.By) {
			return ErrConflict
		}
		m.reserve(&m.Training, c.node.Started)
		return nil
	})
	if err != nil {
		if !errors.Is(err, ErrConflict) {
			c.logFailure(ctx, err, "a collection that has grown was not trained", before)
		}
		return
	}
	// Train the codec.
	g, failed := c.buildCodec(ctx, m, t, tokens, perShard)
	if ctx.Err() != nil {
		return // another coordinator will continue
	}
	number := m.Training.Generation
	if isPassing(failed) { // it is tried again later, even if the collection has not grown
		tokens = 0
		c.postponeWork(m.ID)
	}
	// Make it the next generation, or note the failure.
	_, err = c.changeMapByID(ctx, m.ID, func(m *Map) error {
		if !m.Training.reserves(number) {
			return ErrConflict
		}
		if m.Next != nil { // a generation for first vectors, which wait for it, has priority: train again after it
			m.release(&m.Training)
			return nil
		}
		m.Training, m.Next, m.For, m.Wanted, m.Failed = nil, g, m.Wanted, "", nil
		if failed != nil {
			m.Next = &replica.Generation{Number: number, Trained: uint64(tokens)}
			m.giveUpNext(failed)
		}
		return nil
	})
	c.logFailure(ctx, errors.Join(failed, err), "a collection was not trained", m)
}

// isPassing reports whether an error may be temporary: the store or a node does not answer, is late, or ends.
func isPassing(err error) bool {
	return wrapsAny(err, collection.ErrUnreachable, errNoAnswer, errUnsent, errNotHere, errGeneration, errTooBusy,
		context.Canceled, context.DeadlineExceeded, collection.ErrClosed, collection.ErrReopened, storage.ErrClosed)
}

// releaseTraining gives up the reservation of a coordinator that has ended.
func (c *Cluster) releaseTraining(ctx context.Context, m *Map) {
	reserved := func(now *Map) bool { return now.Training.reserves(m.Training.Generation) }
	release := func(now *Map) { now.release(&now.Training) }
	_, err := c.changeMapByID(ctx, m.ID, changeIf(reserved, release))
	c.logFailure(ctx, err, "a training that was interrupted was not given up", m)
}

// buildCodec trains the codec of the reserved generation on samples of the shards, and puts it into the store.
func (c *Cluster) buildCodec(ctx context.Context, m *Map, t collection.Training, tokens int64,
	perShard []shardStats) (*replica.Generation, error) {
	current := m.Current
	g := &replica.Generation{
		Number:  m.Training.Generation,
		Dim:     current.Dim,
		Nbits:   t.Nbits,
		Stage:   t.Stage,
		Model:   current.Model,
		Trained: uint64(tokens),
		Base:    current.Base,
	}
	if t.Stage == collection.StageFlat {
		return g, nil
	}
	if current.Dim == 0 || tokens == 0 {
		return nil, index.ErrNoTokens
	}
	// Draw a sample. faiss recommends up to 256 tokens for each centroid. The sample may take two fifths of the memory:
	// a token takes 4 bytes for each component, and 16 bytes more.
	o := &c.cfg.Index
	k := cmp.Or(int64(t.Centroids), int64(codec.DefaultK(tokens)))
	maxByMemory := cmp.Or(o.Memory, index.DefaultMemory) * 2 / 5 / int64(4*current.Dim+16)
	maxTokens := min(k*256, maxByMemory, tokens)
	var docs []vectors.Document
	for s, stats := range perShard {
		if stats.Tokens == 0 {
			continue
		}
		proportional := float64(maxTokens) * float64(stats.Tokens) / float64(tokens)
		n := min(int64(proportional)+1, int64(maxSample/4/current.Dim))
		var answer sampleAnswer
		in := &sampleRequest{
			ID:         m.ID,
			Shard:      s,
			Generation: current.Number,
			Tokens:     int(n),
			Seed:       t.Seed + uint64(s),
		}
		err := c.callNode(ctx, stats.node, "sample", in, &answer)
		sample := answer.Vectors
		if err == nil && len(sample)%current.Dim != 0 {
			err = errMessage
		}
		if err != nil {
			return nil, fmt.Errorf("a sample of shard %d: %w", s, err)
		}
		for rows := range slices.Chunk(sample, sampleRows*current.Dim) {
			docs = append(docs, vectors.Document{Tokens: rows})
		}
	}
	// Train on it.
	src, err := vectors.FromDocuments(current.Dim, docs)
	if err != nil {
		return nil, err
	}
	dir, remove, err := c.createScratch()
	if err != nil {
		return nil, err
	}
	defer remove()
	path := filepath.Join(dir, "codec.plaid")
	_, err = index.Train(ctx, path, src, &index.BuildOptions{
		Nbits:      t.Nbits,
		Centroids:  int(min(k, maxTokens)),
		SampleDocs: max(len(docs), 1),
		HeldOut:    t.HeldOut(),
		Seed:       t.Seed,
		Model:      current.Model,
		Threads:    max(o.Threads/2, 1),
		Memory:     o.Memory,
		Backend:    o.Backend,
		Logger:     c.log,
	})
	if err != nil {
		return nil, err
	}
	g.Codec, err = objects.PutFile(ctx, c.cfg.Store, codecObject(m.ID, g.Number), path)
	return g, err
}
