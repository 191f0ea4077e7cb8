package store

import (
	"context"
	"time"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/quality"
	"github.com/plaid-ir/plaid/storage"
)

// sampledMemory limits the bytes of sampled questions that are waiting, for all collections of a store.
const sampledMemory = 16 << 20

// sampleQuestions offers answered questions to the sampler. Searches with a filter, and those that do not prune, are
// not measured.
func (v *Snapshot) sampleQuestions(qs []search.Query, o *search.Options) {
	c := v.c
	if c.store.opts.Sampling.Rate == 0 || o.Filter != nil || o.Mode != search.Pruned || collection.Undecided(v.snap) {
		return
	}
	s := c.questionSampler()
	if s == nil {
		return
	}
	for i := range qs {
		s.Offer(qs[i])
	}
}

// questionSampler returns the sampler, which is created for the first question. It is nil if the collection ends.
func (c *Collection) questionSampler() *quality.Sampler {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sampler == nil && !c.samplingEnded {
		s, err := quality.NewSampler(c.pinSnapshot, quality.SamplerOptions{
			Rate:        c.store.opts.Sampling.Rate,
			MaxBusy:     1, // pinSnapshot limits the time instead, for all collections together
			Memory:      sampledMemory,
			SharedBytes: &c.store.sampledBytes,
			Logger:      c.log,
		})
		if err != nil {
			c.samplingEnded = true
			c.log.Error("no questions are sampled", "error", err)
			return nil
		}
		c.sampler = s
	}
	return c.sampler
}

// stopSampling ends the measuring of questions, and waits for its end.
func (c *Collection) stopSampling() {
	c.mu.Lock()
	s := c.sampler
	c.samplingEnded = true
	c.mu.Unlock()
	if s != nil {
		_ = s.Close() // never fails
	}
}

// pinSnapshot returns a snapshot to measure a question with. Only one collection of the store measures at a time. The
// next one begins after a pause that keeps all of them within Sampling.Busy of the time.
func (c *Collection) pinSnapshot(ctx context.Context) (*quality.PinnedSearcher, error) {
	select {
	case c.store.measuring <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	start := time.Now()
	releaseAfterPause := func() {
		// Busy of the time is t/(t+pause), where t has been used: pause = t·(1/Busy − 1).
		pause := time.Duration(float64(time.Since(start)) * (1/c.store.opts.Sampling.Busy - 1))
		time.AfterFunc(pause, func() { <-c.store.measuring })
	}
	ctx, done, err := c.startBackground(ctx)
	if err != nil {
		releaseAfterPause()
		return nil, err
	}
	v, err := c.Snapshot(ctx)
	if err != nil {
		done()
		releaseAfterPause()
		return nil, err
	}
	release := func() error {
		defer releaseAfterPause()
		defer done()
		return v.Close()
	}
	searcher := &backgroundSearcher{v.engine, search.InBackground(ctx)}
	return &quality.PinnedSearcher{Searcher: searcher, Release: release}, nil
}

// backgroundSearcher searches a snapshot with low priority, until the collection ends or its file is reopened.
type backgroundSearcher struct {
	search.Searcher
	ctx context.Context
}

// Search implements [search.Searcher].
func (s *backgroundSearcher) Search(_ context.Context, q search.Query, o search.Options) (*search.Result, error) {
	r, err := s.Searcher.Search(s.ctx, q, o)
	if err != nil && s.ctx.Err() != nil {
		err = context.Cause(s.ctx)
	}
	return r, err
}

// sampledRecall returns the recall of the sampled questions, together with the recall stored with the index, nil if
// no question has been offered.
func (v *Snapshot) sampledRecall(d *storage.Defaults) *collection.Sampled {
	v.c.mu.Lock()
	s := v.c.sampler
	v.c.mu.Unlock()
	if s == nil {
		return nil
	}
	return collection.NewSampled(s.Sampled(), d)
}
