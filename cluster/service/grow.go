package service

import (
	"context"
	"errors"
	"math"
	"sync"

	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/cluster/wire"
	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage"
)

// growth is what a front knows of the trainings that it has begun because a collection has
// grown. Other fronts may have begun some too: of those at the same time one goes on.
type growth struct {
	mu       sync.Mutex
	looking  bool // somebody looks whether one is due, or one runs
	again    bool // there were changes since
	training bool
	failed   int64 // tokens of the collection when one failed; 0: none has
	err      error // of that
}

// coded is how a collection is coded, as one of its shards says.
func coded(s *wire.ShardStats) *storage.Header {
	return &storage.Header{Nbits: s.Nbits, Centroids: s.Centroids, Build: storage.Build{Source: s.Source, Tokens: s.Trained, RMSE: s.TrainRMSE}}
}

// drift is that of all shards, which have one codec.
func drift(shards []wire.ShardStats) index.Drift {
	d := index.Drift{Trained: shards[0].Trained, TrainRMSE: shards[0].TrainRMSE, Centroids: shards[0].Centroids}
	tokens, sum := uint64(0), 0.
	for _, s := range shards {
		d.Added += s.Added
		sum += s.AddedErrors
		tokens += s.Tokens
	}
	d.Wanted = codec.DefaultK(int64(tokens))
	if d.Added > 0 {
		d.AddedRMSE = math.Sqrt(sum / float64(d.Added))
	}
	if d.TrainRMSE > 0 && d.Added > 0 {
		d.Ratio = d.AddedRMSE / d.TrainRMSE
	}
	return d
}

func tokensOf(shards []wire.ShardStats) (n int64) {
	for _, s := range shards {
		n += int64(s.Tokens)
	}
	return n
}

// growing completes what the statistics say of it.
func (c *shards) growing(st *collection.Stats, shards []wire.ShardStats) {
	h := coded(&shards[0])
	st.Growth = collection.GrowthStats{Stage: c.f.growth.StageOf(h), Drift: drift(shards)}
	st.Growth.Advice = c.f.growth.Advice(h, st.Growth.Drift)
	c.grown.mu.Lock()
	defer c.grown.mu.Unlock()
	st.Growth.Training = c.grown.training
	if m, err := c.Map(); err == nil && m.Next != nil {
		st.Growth.Training = true // by whomever
	}
	if c.grown.err != nil {
		st.Growth.Failed = c.grown.err.Error()
	}
}

// grow looks, beside everything else, whether the collection is to be trained anew because
// it has grown, and does that.
func (c *shards) grow() {
	g := &c.grown
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.looking || c.f.op == nil || c.final.Load() {
		g.again = true
		return
	}
	g.looking = c.f.aside(func() {
		for {
			c.growOnce()
			g.mu.Lock()
			if !g.again || c.f.ctx.Err() != nil {
				g.looking = false
				g.mu.Unlock()
				return
			}
			g.again = false
			g.mu.Unlock()
		}
	})
}

func (c *shards) growOnce() {
	ctx := c.f.ctx
	shards, err := c.Shards(ctx)
	if err != nil {
		return // the next change looks again
	}
	h, tokens := coded(&shards[0]), tokensOf(shards)
	c.final.Store(c.f.growth.StageOf(h) == collection.StageFinal)
	cfg := c.Config()
	_, due := c.f.growth.Due(h, tokens, cfg)
	g := &c.grown
	g.mu.Lock()
	due = due && (g.failed == 0 || tokens >= g.failed+g.failed/10)
	g.training = due
	g.mu.Unlock()
	if !due {
		return
	}
	err = c.train(ctx, func(tokens int64) collection.Training { return c.f.growth.Training(tokens, cfg) })
	g.mu.Lock()
	defer g.mu.Unlock()
	g.training, g.failed, g.err = false, 0, nil
	switch {
	case err == nil:
		g.again = true // it may have grown further meanwhile
	case errors.Is(err, operate.ErrState): // somebody else trains or builds it
	case ctx.Err() == nil:
		g.failed, g.err = tokens, err
		c.f.log.Error("a collection was not trained anew", "collection", c.name, "tokens", tokens, "error", err)
	}
}

// train has the collection encoded anew, as choose says for so many tokens: once at a time.
func (c *shards) train(ctx context.Context, choose func(tokens int64) collection.Training) error {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	d, err := c.Describe(ctx)
	if err != nil {
		return err
	}
	m, err := c.Map()
	if err != nil {
		return err
	}
	m, err = c.f.op.Retrain(ctx, m.ID(), operate.BuildOptions{Dir: c.f.c.Dir}, func(tokens int64) (index.BuildOptions, error) {
		t := choose(tokens)
		fixed, err := t.Codec(d.Dim)
		return index.BuildOptions{
			Nbits: t.Nbits, Centroids: t.Centroids, Seed: t.Seed, Codec: fixed, Backend: c.f.c.Backend, Threads: c.f.c.Threads, Logger: c.f.log,
		}, err
	})
	if err != nil {
		return err
	}
	return c.f.seen(ctx, m)
}

// Retrain implements [collection.Retrainer].
func (c *shards) Retrain(ctx context.Context) (*index.RetrainReport, error) {
	if c.f.op == nil {
		return nil, unable("training anew")
	}
	before, err := c.Shards(ctx)
	if err != nil {
		return nil, answered(err)
	}
	h, cfg := coded(&before[0]), c.Config()
	err = c.train(ctx, func(tokens int64) collection.Training { return c.f.growth.Again(h, tokens, cfg) })
	if err != nil {
		return nil, answered(err)
	}
	after, err := c.Shards(ctx)
	if err != nil {
		return nil, answered(err)
	}
	report := &index.RetrainReport{Tokens: tokensOf(after)}
	for _, s := range after {
		report.Docs += int(s.Documents)
	}
	report.Before = index.CodecReport{Nbits: before[0].Nbits, Centroids: before[0].Centroids, RMSE: drift(before).AddedRMSE}
	report.After = index.CodecReport{Nbits: after[0].Nbits, Centroids: after[0].Centroids, RMSE: after[0].TrainRMSE}
	return report, nil
}
