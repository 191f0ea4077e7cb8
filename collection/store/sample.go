package store

import (
	"context"
	"time"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/quality"
	"github.com/plaid-ir/plaid/storage"
)

// sampledMemory bounds the bytes of the sampled questions of a store that wait.
const sampledMemory = 16 << 20

// sample offers questions that were answered to be measured.
func (v *Snapshot) sample(qs []search.Query, o *search.Options) {
	c := v.c
	if c.s.o.Sampling.Rate == 0 || o.Filter != nil || o.Mode != search.Pruned || collection.Undecided(v.snap) {
		return
	}
	s := c.sampling()
	if s == nil {
		return
	}
	for i := range qs {
		s.Offer(qs[i])
	}
}

// sampling returns the sampler, and makes it for the first question; nil means that the collection ends.
func (c *Collection) sampling() *quality.Sampler {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sampler == nil && !c.unsampled {
		s, err := quality.NewSampler(c.pinSample, quality.SamplerOptions{
			Rate: c.s.o.Sampling.Rate, Busy: 1, Memory: sampledMemory, Together: &c.s.sampledBytes, Logger: c.log,
		})
		if err != nil {
			c.unsampled = true
			c.log.Error("no questions are sampled", "error", err)
			return nil
		}
		c.sampler = s
	}
	return c.sampler
}

// stopSampling ends the measuring of questions, and waits for that.
func (c *Collection) stopSampling() {
	c.mu.Lock()
	s := c.sampler
	c.unsampled = true
	c.mu.Unlock()
	if s != nil {
		_ = s.Close() // never fails
	}
}

// pinSample lets one collection of the store at a time measure a question, and the next one after a
// pause by which all of them stay within their share of the time.
func (c *Collection) pinSample(ctx context.Context) (*quality.Pinned, error) {
	select {
	case c.s.measuring <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	start := time.Now()
	rest := func() {
		pause := time.Duration(float64(time.Since(start)) * (1/c.s.o.Sampling.Busy - 1))
		time.AfterFunc(pause, func() { <-c.s.measuring })
	}
	ctx, done, err := c.aside(ctx)
	if err != nil {
		rest()
		return nil, err
	}
	v, err := c.Snapshot(ctx)
	if err != nil {
		done()
		rest()
		return nil, err
	}
	return &quality.Pinned{Searcher: &sampledView{v.engine, search.InBackground(ctx)}, Release: func() error {
		defer rest()
		defer done()
		return v.Close()
	}}, nil
}

// sampledView searches a view in the background, until the collection ends or its file is opened
// again.
type sampledView struct {
	search.Searcher
	ctx context.Context
}

// Search implements [search.Searcher].
func (s *sampledView) Search(_ context.Context, q search.Query, o search.Options) (*search.Result, error) {
	r, err := s.Searcher.Search(s.ctx, q, o)
	if err != nil && s.ctx.Err() != nil {
		err = context.Cause(s.ctx)
	}
	return r, err
}

// sampled returns the recall of sampled questions together with the one stored with the index; nil means that no
// question has been offered.
func (v *Snapshot) sampled(d *storage.Defaults) *collection.Sampled {
	v.c.mu.Lock()
	s := v.c.sampler
	v.c.mu.Unlock()
	if s == nil {
		return nil
	}
	return collection.SampledOf(s.Sampled(), d)
}
