package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
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
	"github.com/plaid-ir/plaid/vectors"
)

// A generation is one codec, and all shards encoded with it. Collections begin with one that needs no
// training. The coordinator of a collection has another one trained when it has grown, the first holder of
// each shard puts a checkpoint of that, and when the store lists all of them the coordinator has it searched.

const (
	encodeTries = 3         // of a node, for a shard of the next generation
	waitHolders = 20        // beats that a generation waits for its replicas to be open
	maxSample   = 256 << 20 // bytes of a shard
	// passingWeight is how many errors count as one that have to do with others, who may be back soon.
	passingWeight = 10
	sampleRows    = 64 // tokens of what stands for a document in a training
)

// building is what a node knows of the next generation of a collection.
type building struct {
	generation uint64
	has        map[int]bool // shards with a checkpoint
	tries      map[int]int  // that failed here
	complete   time.Time    // when all had one
}

// begin decides how the first documents of a collection are encoded: it puts the first generation,
// or one with a dimension after one without. dim is 0 for documents without vectors.
func (c *Cluster) begin(ctx context.Context, m *Map, dim int, o collection.UpdateOptions) (*Map, error) {
	if err := o.Model.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", collection.ErrConfig, err)
	}
	m, err := c.updateID(ctx, m.ID, func(m *Map) error {
		g := &replica.Generation{Number: m.Last + 1, Dim: dim, Nbits: 8, Stage: collection.StageFlat, Model: o.Model}
		switch {
		case m.Current == nil:
			g.Begun = true
			m.Current = g
		case m.Current.Dim != 0 || dim == 0 || m.Next != nil:
			return errSame
		default:
			if m.Current.Model != nil {
				g.Model = m.Current.Model
			}
			m.Next, m.For, m.Failed, m.Trouble = g, "", nil, nil
		}
		m.Last++
		return nil
	})
	if err == nil {
		c.tell(m)() // who asks another node finds documents there
	}
	if err != nil || dim == 0 || m.Current.Dim != 0 {
		return m, err
	}
	return c.await(ctx, m.ID, func(m *Map) (bool, error) {
		if m.Failed != nil && m.Next == nil {
			return false, errors.New(m.Failed.Reason)
		}
		return m.Current != nil && m.Current.Dim != 0, nil
	})
}

// after acts on what a look has found.
func (c *Cluster) after() {
	now := time.Now()
	c.hold(now)
	if c.node == nil {
		return
	}
	growing := map[string]bool{}
	for _, m := range c.readable() {
		if m.Next != nil {
			c.aside("the next generation of "+m.ID, func(ctx context.Context) { c.advance(ctx, m) })
		}
		if !c.coordinates(m) || m.Current == nil || m.Next != nil {
			continue
		}
		if m.Training != nil && !c.runs(m.Training.By) {
			c.aside("training "+m.ID, func(ctx context.Context) { c.release(ctx, m) })
		} else if m.Wanted != "" {
			c.aside("training "+m.ID, func(ctx context.Context) { c.train(ctx, m, nil) })
		} else if m.Current.Stage != collection.StageFinal {
			growing[m.ID] = true
		}
	}
	if c.mu.Lock(); len(growing) > 0 && now.Sub(c.grew) > 3*c.c.Beat {
		c.grew = now
		c.mu.Unlock()
		c.aside("growth", func(ctx context.Context) { c.grow(ctx, growing) })
	} else {
		c.mu.Unlock()
	}
	if now.Sub(c.cleaned) > time.Hour {
		c.cleaned = now
		c.aside("cache", func(context.Context) { c.sweepCache(now) })
	}
	c.sealDue(now)
	c.aside("garbage", func(ctx context.Context) { c.tidy(ctx, now) })
}

// advance looks how far the next generation of a collection is, encodes what is this node's part of it, and
// has it searched when it is complete and this node is the coordinator.
func (c *Cluster) advance(ctx context.Context, m *Map) {
	number := m.Next.Number
	has := map[int]bool{}
	err := eachObject(ctx, c.c.Store, dataOf(m.ID)+"files/", func(e objects.Entry) error {
		if s, ok := shardOfFile(m, e.Name); ok {
			if p, ok := journal.ParseCheckpoint(e); ok && p.Generation == number {
				has[s] = true
			}
		}
		return nil
	})
	if err != nil {
		return // the next look comes
	}
	c.mu.Lock()
	b := c.built[m.ID]
	if b == nil || b.generation != number {
		b = &building{generation: number, tries: map[int]int{}}
		c.built[m.ID] = b
	}
	more := len(has) > len(b.has)
	b.has = has
	if len(has) == m.Shards && b.complete.IsZero() {
		b.complete = time.Now()
	}
	waited := time.Since(b.complete)
	c.mu.Unlock()
	if more {
		c.poke() // to open their replicas
	}
	for s := range m.Shards {
		if !has[s] && c.encoder(m, s) == c.node {
			c.aside("encoding "+m.ID, func(ctx context.Context) { c.encode(ctx, m, has) })
			break
		}
	}
	if !c.coordinates(m) {
		return
	}
	if len(has) < m.Shards {
		c.giveUp(ctx, m, has)
		return
	}
	if waited < waitHolders*c.c.Beat && !c.nextIsOpen(ctx, m) {
		return
	}
	_, err = c.updateID(ctx, m.ID, func(m *Map) error {
		if m.Next == nil || m.Next.Number != number {
			return errSame
		}
		m.promote(m.Next)
		return nil
	})
	c.told(ctx, err, "the next generation of a collection is complete, and is not searched", m)
}

// encoder is the node that encodes a shard for the next generation: the first holder that did not fail; nil:
// there is none.
func (c *Cluster) encoder(m *Map, shard int) *Node {
	for _, n := range c.holders(m, shard) {
		if !slices.ContainsFunc(m.Trouble, func(t Trouble) bool { return t.Shard == shard && t.Node == n.Name }) {
			return n
		}
	}
	return nil
}

// encode puts checkpoints of the next generation of the shards whose first holder this node is.
func (c *Cluster) encode(ctx context.Context, m *Map, has map[int]bool) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() { // another generation, or none, is to be built
		defer stop()
		_, _ = c.await(ctx, m.ID, func(now *Map) (bool, error) {
			return now.Next == nil || now.Next.Number != m.Next.Number, nil
		})
	}()
	for s := range m.Shards {
		if has[s] || c.encoder(m, s) != c.node {
			continue
		}
		select {
		case c.heavy <- struct{}{}:
		case <-ctx.Done():
			return
		}
		err := func() error {
			defer func() { <-c.heavy }()
			r, done, err := c.borrow(ctx, m.ID, s, m.Current.Number)
			if err != nil {
				return err
			}
			defer done()
			// What the log has now is in the checkpoint. So whoever cuts logs by a list of checkpoints from
			// before this generation, which are all older than that, cuts nothing that it needs.
			if err := r.Poll(ctx); err != nil {
				return err
			}
			return r.BuildNext(ctx, *m.Next)
		}()
		switch {
		case err == nil:
			c.tell(m) // who holds the shard, and who coordinates, look
			continue
		case ctx.Err() != nil:
			return
		}
		c.log.Error("a shard was not encoded for the next generation",
			"collection", m.Name, "shard", s, "generation", m.Next.Number, "error", err)
		c.mu.Lock()
		b := c.built[m.ID]
		if b.tries[s]++; !passing(err) {
			b.tries[s] += passingWeight - 1
		}
		tries := b.tries[s]
		c.mu.Unlock()
		if tries < encodeTries*passingWeight {
			continue
		}
		_, err = c.updateID(ctx, m.ID, func(now *Map) error {
			if now.Next == nil || now.Next.Number != m.Next.Number {
				return errSame
			}
			now.Trouble = append(now.Trouble, Trouble{s, c.node.Name, err.Error()})
			return nil
		})
		c.told(ctx, err, "that a shard was not encoded could not be noted", m)
	}
}

// giveUp gives the next generation up if there is a shard that no node that has it could encode.
func (c *Cluster) giveUp(ctx context.Context, m *Map, has map[int]bool) {
	for s := range m.Shards {
		if has[s] || c.encoder(m, s) != nil || len(c.holders(m, s)) == 0 {
			continue
		}
		at := slices.IndexFunc(m.Trouble, func(t Trouble) bool { return t.Shard == s })
		reason := fmt.Sprintf("shard %d, on node %s: %s", s, m.Trouble[at].Node, m.Trouble[at].Reason)
		_, err := c.updateID(ctx, m.ID, func(now *Map) error {
			if now.Next == nil || now.Next.Number != m.Next.Number {
				return errSame
			}
			now.giveUp(reason)
			return nil
		})
		c.told(ctx, err, "a generation that cannot be built was not given up", m)
		return
	}
}

// nextIsOpen reports whether the holders of all shards have replicas of the next generation that are ready.
func (c *Cluster) nextIsOpen(ctx context.Context, m *Map) bool {
	ready := map[string]bool{}
	for n, answer := range c.ask(ctx, &statusAsk{IDs: []string{m.ID}}) {
		for _, r := range answer.Replicas {
			if r.Generation == m.Next.Number && r.State.Phase == replica.Ready {
				ready[fmt.Sprint(n.Name, r.Shard)] = true
			}
		}
	}
	for s := range m.Shards {
		for _, n := range c.holders(m, s) {
			if !ready[fmt.Sprint(n.Name, s)] {
				return false
			}
		}
	}
	return true
}

func (c *Cluster) told(ctx context.Context, err error, what string, m *Map) {
	if err != nil && ctx.Err() == nil && !errors.Is(err, collection.ErrUnknown) {
		c.log.Error(what, "collection", m.Name, "error", err)
	}
}

// shardStats are the statistics of a shard, as a node has it that has applied most.
type shardStats struct {
	node *Node
	at   uint64
	collection.Stats
}

// statsOf are those of all shards; ok is false if those of one are not known.
func statsOf(m *Map, from map[*Node]*statusAnswer) (all []shardStats, ok bool) {
	all = make([]shardStats, m.Shards)
	for n, answer := range from {
		for _, r := range answer.Replicas {
			if r.ID != m.ID || r.Generation != m.Current.Number || r.Shard >= m.Shards || r.Stats == nil {
				continue
			}
			if s := &all[r.Shard]; s.node == nil || s.at < r.State.Entry {
				*s = shardStats{n, r.State.Entry, *r.Stats}
			}
		}
	}
	return all, !slices.ContainsFunc(all, func(s shardStats) bool { return s.node == nil })
}

func (m *Map) coded() collection.Coded {
	return collection.Coded{Stage: m.Current.Stage, Nbits: m.Current.Nbits, Trained: int64(m.Current.Trained)}
}

// grow has collections trained that have grown.
func (c *Cluster) grow(ctx context.Context, ids map[string]bool) {
	ask := &statusAsk{Stats: true}
	for id := range ids {
		ask.IDs = append(ask.IDs, id)
	}
	answers := c.ask(ctx, ask)
	for _, m := range c.readable() {
		if !ids[m.ID] || m.Current == nil || m.Next != nil || m.Current.Dim == 0 {
			continue
		}
		c.mu.Lock()
		rests := time.Now().Before(c.resting[m.ID])
		c.mu.Unlock()
		if all, ok := statsOf(m, answers); ok && !rests {
			c.aside("training "+m.ID, func(ctx context.Context) { c.train(ctx, m, all) })
		}
	}
}

// train makes the next codec of a collection if that is due, or wanted, whatever it has grown by.
func (c *Cluster) train(ctx context.Context, m *Map, all []shardStats) {
	if all == nil {
		var ok bool
		if all, ok = statsOf(m, c.ask(ctx, &statusAsk{IDs: []string{m.ID}, Stats: true})); !ok {
			return // when all shards answer
		}
	}
	tokens := int64(0)
	for _, s := range all {
		tokens += int64(s.Tokens)
	}
	growth := &c.c.Index.Growth
	t, due := growth.Due(m.coded(), tokens, m.Config)
	if m.Wanted != "" {
		t, due = growth.Again(m.coded(), tokens, m.Config), true
	} else if m.Failed != nil && collection.FailedAgain(int64(m.Failed.Tokens), tokens) {
		return
	}
	if !due {
		return
	}
	select {
	case c.heavy <- struct{}{}:
		defer func() { <-c.heavy }()
	case <-ctx.Done():
		return
	}
	is := m
	m, err := c.updateID(ctx, m.ID, func(m *Map) error {
		if m.Next != nil || m.Current == nil || m.Current.Number != is.Current.Number || m.Wanted != is.Wanted ||
			m.Training != nil && m.Training.By != c.node.Started && c.runs(m.Training.By) {
			return ErrConflict
		}
		m.reserve(&m.Training, c.node.Started)
		return nil
	})
	if err != nil {
		if !errors.Is(err, ErrConflict) {
			c.told(ctx, err, "a collection that has grown was not trained", is)
		}
		return
	}
	g, failed := c.makeCodec(ctx, m, t, tokens, all)
	if ctx.Err() != nil {
		return // another node goes on
	}
	number := m.Training.Generation
	if failed != nil && passing(failed) { // it is tried again, however much the collection has grown
		tokens = 0
		c.mu.Lock()
		c.resting[m.ID] = time.Now().Add(waitHolders * c.c.Beat)
		c.mu.Unlock()
	}
	_, err = c.updateID(ctx, m.ID, func(m *Map) error {
		if m.Training == nil || m.Training.Generation != number {
			return ErrConflict
		}
		m.Training, m.Trouble = nil, nil
		m.Next, m.For, m.Wanted, m.Failed = g, m.Wanted, "", nil
		if failed != nil {
			m.Next = &replica.Generation{Number: number, Trained: uint64(tokens)}
			m.giveUp(failed.Error())
		}
		return nil
	})
	c.told(ctx, errors.Join(failed, err), "a collection was not trained", m)
}

// passing reports whether an error is one of the store or of other nodes.
func passing(err error) bool {
	return slices.ContainsFunc([]error{collection.ErrUnreachable, errNoAnswer, errUnsent, errNotHere, errGeneration, errTooBusy},
		func(is error) bool { return errors.Is(err, is) })
}

// release lets the generation go of a coordinator that has ended.
func (c *Cluster) release(ctx context.Context, m *Map) {
	_, err := c.updateID(ctx, m.ID, func(now *Map) error {
		if now.Training == nil || now.Training.Generation != m.Training.Generation {
			return errSame
		}
		now.retire(now.Training.Generation)
		now.Training = nil
		return nil
	})
	c.told(ctx, err, "a training that was interrupted was not given up", m)
}

// makeCodec trains the codec of the generation that is reserved, and puts it into the store.
func (c *Cluster) makeCodec(ctx context.Context, m *Map, t collection.Training, tokens int64, all []shardStats) (
	*replica.Generation, error) {
	now := m.Current
	g := &replica.Generation{
		Number: m.Training.Generation, Dim: now.Dim, Nbits: t.Nbits, Stage: t.Stage, Model: now.Model, Trained: uint64(tokens),
	}
	if t.Stage == collection.StageFlat {
		return g, nil
	}
	if now.Dim == 0 || tokens == 0 {
		return nil, index.ErrNoTokens
	}
	k := t.Centroids
	if k == 0 {
		k = codec.DefaultK(tokens)
	}
	o := &c.c.Index
	memory := o.Memory
	if memory == 0 {
		memory = index.DefaultMemory
	}
	most := min(int64(k)*256, memory*2/5/int64(4*now.Dim+16), tokens)
	var docs []vectors.Document
	for s, stats := range all {
		n := min(int64(float64(most)*float64(stats.Tokens)/float64(tokens))+1, int64(maxSample/4/now.Dim))
		if stats.Tokens == 0 {
			continue
		}
		var answer sampleAnswer
		err := c.call(ctx, stats.node, "sample", &sampleAsk{m.ID, s, now.Number, int(n), t.Seed + uint64(s)}, &answer)
		if err != nil {
			return nil, fmt.Errorf("a sample of shard %d: %w", s, err)
		}
		sample := make([]float32, len(answer.Vectors)/4)
		if _, err := binary.Decode(answer.Vectors, binary.LittleEndian, sample); err != nil || len(sample)%now.Dim != 0 {
			return nil, fmt.Errorf("a sample of shard %d: %w", s, errMessage)
		}
		for piece := range slices.Chunk(sample, sampleRows*now.Dim) {
			docs = append(docs, vectors.Document{Tokens: piece})
		}
	}
	src, err := vectors.FromDocuments(now.Dim, docs)
	if err != nil {
		return nil, err
	}
	dir, remove, err := c.scratch()
	if err != nil {
		return nil, err
	}
	defer remove()
	path := filepath.Join(dir, "codec.plaid")
	_, err = index.Train(ctx, path, src, &index.BuildOptions{
		Nbits: t.Nbits, Centroids: min(k, int(most)), SampleDocs: max(len(docs), 1), Seed: t.Seed, Model: now.Model,
		Threads: max(o.Threads/2, 1), Memory: o.Memory, Backend: o.Backend, Logger: c.log,
	})
	if err != nil {
		return nil, err
	}
	g.Codec, err = objects.PutFile(ctx, c.c.Store, codecName(m.ID, g.Number), path)
	return g, err
}

// scratch is a folder for files of this process.
func (c *Cluster) scratch() (dir string, remove func(), err error) {
	if err := os.MkdirAll(c.c.Dir, 0o777); err != nil {
		return "", nil, err
	}
	dir, err = os.MkdirTemp(c.c.Dir, scratchPrefix)
	return dir, func() {
		if err := os.RemoveAll(dir); err != nil {
			c.log.Warn("a folder stays that is not needed any more", "path", dir, "error", err)
		}
	}, err
}

const scratchPrefix = ".scratch-"

func dataOf(id string) string { return "data/" + id + "/" }

func codecName(id string, generation uint64) string {
	return fmt.Sprintf("%scodec/%08d", dataOf(id), generation)
}

// shardOfFile is the shard of a checkpoint, by its name.
func shardOfFile(m *Map, object string) (shard int, ok bool) {
	rest, ok := strings.CutPrefix(object, dataOf(m.ID)+"files/")
	dir, _, _ := strings.Cut(rest, "/")
	shard, err := strconv.Atoi(dir)
	return shard, ok && err == nil && shard >= 0 && shard < m.Shards && fmt.Sprintf("%04d", shard) == dir
}

// eachObject lists objects, some at a time.
func eachObject(ctx context.Context, s objects.Store, prefix string, use func(objects.Entry) error) error {
	const page = 50_000
	for after := ""; ; {
		listed, err := s.List(ctx, prefix, after, page)
		if err != nil {
			return err
		}
		for _, e := range listed {
			if err := use(e); err != nil {
				return err
			}
		}
		if len(listed) < page {
			return nil
		}
		after = listed[len(listed)-1].Name
	}
}

// growthOf is what statistics say of the growth of a collection, given those of its shards.
func (c *Cluster) growthOf(m *Map, all []collection.Stats) collection.GrowthStats {
	g := collection.GrowthStats{Stage: collection.StageEmpty}
	if m.Current == nil {
		return g
	}
	g.Stage, g.Training = m.Current.Stage, m.Next != nil || m.Training != nil || m.Wanted != ""
	if m.Failed != nil {
		g.Failed = m.Failed.Reason
	}
	d := index.Drift{Trained: m.Current.Trained}
	tokens, squares := uint64(0), 0.
	for _, s := range all {
		of := s.Growth.Drift
		d.TrainRMSE, d.Centroids = max(d.TrainRMSE, of.TrainRMSE), max(d.Centroids, of.Centroids)
		d.Added += of.Added
		squares += float64(of.Added) * of.AddedRMSE * of.AddedRMSE
		tokens += s.Tokens
	}
	d.Wanted = codec.DefaultK(int64(tokens))
	if d.Added > 0 {
		d.AddedRMSE = math.Sqrt(squares / float64(d.Added))
	}
	if d.TrainRMSE > 0 && d.Added > 0 {
		d.Ratio = d.AddedRMSE / d.TrainRMSE
	}
	g.Drift, g.Advice = d, c.c.Index.Growth.Advice(g.Stage, d)
	return g
}
