package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// Stage is how far a collection has grown; see [Growth].
type Stage string

// The stages.
const (
	StageEmpty   Stage = "empty"
	StageFlat    Stage = "flat"
	StagePrecise Stage = "precise"
	StageFinal   Stage = "final"
)

// stageOf tells the stage of an index. One that was not trained by a store is in the
// stage that its bits say.
func stageOf(h *storage.Header, g *Growth) Stage {
	switch {
	case h.Build.Source != "vectors" || h.Nbits != 8 || g.Until < 0 || int64(h.Build.Tokens) >= g.Until:
		return StageFinal
	case h.Centroids == 1 && h.Build.Tokens == 0:
		return StageFlat
	}
	return StagePrecise
}

// training is a codec that is to be trained.
type training struct {
	stage     Stage
	nbits     int
	centroids int // 0: by the rule
}

// trainingFor is how a collection of so many tokens is to be kept.
func (c *Collection) trainingFor(tokens int64) training {
	cfg := c.Config()
	return c.s.o.Growth.trainingFor(tokens, &cfg)
}

func (g *Growth) trainingFor(tokens int64, cfg *Config) training {
	switch {
	case tokens >= g.Until:
		return training{StageFinal, cfg.bits(), 0}
	case tokens >= g.Flat:
		return training{StagePrecise, 8, fewCentroids(tokens)}
	}
	return training{StageFlat, 8, 1}
}

// fewCentroids is how many centroids a collection gets that will have more documents
// soon: so many that each has some 39 of the tokens, below which faiss warns. With the
// rule of a whole collection a small one would have a centroid for each few tokens,
// which fit them so well that what comes later does not fit the levels.
func fewCentroids(tokens int64) int {
	return max(min(int(tokens/39), codec.DefaultK(tokens)), 1)
}

// due says whether a collection is to be trained anew because it has grown.
func (c *Collection) due(h *storage.Header, tokens int64) (t training, due bool) {
	t = c.trainingFor(tokens)
	switch stageOf(h, &c.s.o.Growth) {
	case StageFlat:
		return t, t.stage != StageFlat
	case StagePrecise:
		return t, t.stage == StageFinal || float64(tokens) >= c.s.o.Growth.Factor*float64(h.Build.Tokens)
	}
	return t, false
}

// First says how the first documents of a collection are encoded. A Growth whose fields
// are 0 is that of a store which is not told of another.
func (g Growth) First(src vectors.Source, cfg Config) (*index.BuildOptions, error) {
	if err := errors.Join(g.complete(), cfg.complete()); err != nil {
		return nil, err
	}
	tokens := int64(0)
	for i := range src.Len() {
		tokens += int64(src.Rows(i))
	}
	t := g.trainingFor(tokens, &cfg)
	o := &index.BuildOptions{Nbits: t.nbits, Centroids: t.centroids, Seed: cfg.seed()}
	if t.stage == StageFlat {
		var err error
		if o.Codec, err = codec.Flat(src.Dim()); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// build makes the index file of the first documents.
func (w *worker) build(ctx context.Context, src vectors.Source, model *storage.Model) error {
	c := w.c
	o, err := c.s.o.Growth.First(src, c.Config())
	if err != nil {
		return err
	}
	o.Model, o.Threads, o.Memory, o.Backend, o.Logger = model, c.s.o.Threads, c.s.o.Memory, c.s.o.Backend, c.log
	if _, err := index.Build(ctx, c.indexPath(), src, o); err != nil {
		return err
	}
	opened, err := c.openIndex(ctx)
	if err == nil && opened == nil {
		err = fmt.Errorf("%s: %w: what was built is not there", c.indexPath(), storage.ErrInternal)
	}
	if err != nil {
		return errors.Join(err, os.Remove(c.indexPath())) // nobody was told of what is in it
	}
	c.mu.Lock()
	c.opened = opened
	c.mu.Unlock()
	return nil
}

// growthState is guarded by Collection.mu.
type growthState struct {
	running chan struct{} // closed when the training has ended; nil: none runs
	cancel  context.CancelFunc
	failed  int64 // tokens of the collection when a training failed; 0: none has
	err     error // of that
	advised bool
}

// aside lets something run beside the writer for long. It ends with the collection, and
// when the file is to be opened again: the cause of within says so. done is to be called.
func (c *Collection) aside(ctx context.Context) (within context.Context, done func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.alive.Err() != nil {
		return nil, nil, context.Cause(c.alive)
	}
	c.beside.Add(1)
	within, cancel := context.WithCancelCause(ctx)
	var stops []func() bool
	for _, end := range []context.Context{c.alive, c.fresh} {
		stops = append(stops, context.AfterFunc(end, func() { cancel(context.Cause(end)) }))
	}
	return within, func() {
		for _, stop := range stops {
			stop()
		}
		cancel(nil)
		c.beside.Done()
	}, nil
}

// long does something aside; an error of its end is the cause.
func (c *Collection) long(ctx context.Context, do func(ctx context.Context) error) error {
	ctx, done, err := c.aside(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err = do(ctx); err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return err
}

// grow begins a training beside everything else if one is due and none runs.
func (c *Collection) grow() {
	v, err := c.View(c.alive)
	if err != nil {
		return
	}
	h, tokens, drift := v.snap.Header(), int64(v.snap.State().LiveTokens), v.snap.Drift()
	_ = v.Close()
	_, due := c.due(&h, tokens)
	c.mu.Lock()
	g := &c.growth
	advice := c.advice(&h, drift)
	advise := advice != "" && !g.advised
	g.advised = advice != ""
	if !due || g.running != nil || g.failed > 0 && tokens < g.failed+g.failed/10 {
		due = false
	}
	c.mu.Unlock()
	if advise {
		c.log.Warn("training the collection anew would pay", "because", advice)
	}
	if !due {
		return
	}
	ctx, done, err := c.aside(context.Background())
	if err != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	running := make(chan struct{})
	c.mu.Lock()
	if g.running != nil { // another was faster
		c.mu.Unlock()
		cancel()
		done()
		return
	}
	g.running, g.cancel = running, cancel
	c.mu.Unlock()
	go func() {
		defer done()
		_, err := c.train(ctx, RetrainOptions{}, c.due)
		c.mu.Lock()
		g.running, g.cancel, g.failed, g.err = nil, nil, 0, nil
		if err != nil && ctx.Err() == nil {
			g.failed, g.err = tokens, err
		}
		c.mu.Unlock()
		if err != nil && ctx.Err() == nil {
			c.log.Error("the collection was not trained anew", "tokens", tokens, "error", err)
		}
		ended := ctx.Err() != nil
		cancel()
		close(running)
		if !ended {
			c.grow() // it may have grown further meanwhile
		}
	}()
}

// stopTraining ends the training that growth has begun, and waits for that.
func (c *Collection) stopTraining() {
	c.mu.Lock()
	running, cancel := c.growth.running, c.growth.cancel
	c.mu.Unlock()
	if running != nil {
		cancel()
		<-running
	}
}

// RetrainOptions for [Collection.Retrain]. The zero value trains on what is stored.
type RetrainOptions struct {
	// Vectors, where set, are the original vectors, as in [index.RetrainOptions].
	Vectors vectors.Source
	// Progress, where set, is told how far it is.
	Progress func(index.Progress)
}

// Retrain trains the collection anew as its size asks for, whatever it has grown by:
// beside searches and changes, which go on. When it returns the new codec is in use. A
// collection in its final stage stays in that, and without the original vectors it keeps
// the bits that it has, since more would add nothing.
//
// Errors: those of [Collection.View] and of [index.Index.Retrain].
func (c *Collection) Retrain(ctx context.Context, o RetrainOptions) (*index.RetrainReport, error) {
	if err := c.Err(); err != nil {
		return nil, err
	}
	var r *index.RetrainReport
	err := c.long(ctx, func(ctx context.Context) (err error) {
		r, err = c.train(ctx, o, func(h *storage.Header, tokens int64) (training, bool) {
			t := c.trainingFor(tokens)
			if stageOf(h, &c.s.o.Growth) == StageFinal {
				cfg := c.Config()
				t = training{StageFinal, cfg.bits(), 0}
				if o.Vectors == nil {
					t.nbits = min(t.nbits, h.Nbits)
				}
			}
			return t, true
		})
		return err
	})
	return r, err
}

// train trains one collection of the store at a time, as choose says when its turn has
// come.
func (c *Collection) train(ctx context.Context, o RetrainOptions, choose func(*storage.Header, int64) (training, bool)) (*index.RetrainReport, error) {
	select {
	case c.s.training <- struct{}{}:
		defer func() { <-c.s.training }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	opened, done, err := c.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	v, err := c.View(ctx)
	if err != nil {
		return nil, err
	}
	h, tokens := v.snap.Header(), int64(v.snap.State().LiveTokens)
	if err := v.Close(); err != nil {
		return nil, err
	}
	t, ok := choose(&h, tokens)
	if !ok {
		return nil, nil
	}
	cfg := c.Config()
	ro := &index.RetrainOptions{
		Vectors: o.Vectors, Progress: o.Progress, Nbits: t.nbits, Centroids: t.centroids, Seed: cfg.seed(),
		Threads: max(c.s.o.Threads/2, 1), Memory: c.s.o.Memory,
	}
	if t.stage == StageFlat {
		if ro.Codec, err = codec.Flat(h.Dim); err != nil {
			return nil, err
		}
	}
	r, err := opened.ix.Retrain(ctx, ro)
	if errors.Is(err, storage.ErrOutcomeUnknown) { // no changes are taken until the file is opened again
		again := &request{kind: acting}
		again.act = func(ctx context.Context) error { return c.work.reopen(ctx) }
		_ = c.queue.put(again) // if the queue has ended nobody needs it
	}
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.counts.Trainings++
	c.mu.Unlock()
	return r, nil
}

// GrowthStats say how a collection is kept.
type GrowthStats struct {
	Stage Stage `json:"stage"` // how it is coded now
	// Training: a training runs because the collection has grown. Failed is why the last
	// one was given up.
	Training bool        `json:"training"`
	Failed   string      `json:"training_failed,omitempty"`
	Drift    index.Drift `json:"drift"` // how well the codec fits
	// Advice says why training anew would pay; "": it would not.
	Advice string `json:"advice,omitempty"`
}

// leastDrift is the share of the tokens trained on that must have been added before
// their error says something.
const leastDrift = 16

// advice is for collections that are not trained by themselves any more.
func (c *Collection) advice(h *storage.Header, d index.Drift) string {
	g := &c.s.o.Growth
	switch {
	case stageOf(h, g) != StageFinal:
		return ""
	case d.Ratio > g.Drift && d.Added*leastDrift > d.Trained:
		return fmt.Sprintf("vectors that were added since the training have %.2f times its error", d.Ratio)
	case d.Wanted >= 4*d.Centroids:
		return fmt.Sprintf("the collection has %d centroids, and so many tokens by now that one would train %d", d.Centroids, d.Wanted)
	}
	return ""
}

// Deleted documents take space until segments are merged or the file is compacted. The
// writer does that where they are more than what lives, and worth it.
const leastGarbage = 1 << 20 // tokens

func (w *worker) tidy(ctx context.Context) {
	o, snap, err := w.snapshot()
	if err != nil || snap == nil {
		return
	}
	st := snap.State()
	_ = snap.Close()
	if dead := st.Tokens - st.LiveTokens; dead < leastGarbage || dead < st.LiveTokens {
		return
	}
	start := time.Now()
	err = w.settle(ctx, o.ix.Compact(ctx, nil), func(*index.Snapshot) (bool, error) { return true, nil })
	if err != nil {
		w.c.log.Error("the collection was not compacted", "error", err)
		return
	}
	w.c.log.Info("the collection was compacted", "tokens", st.LiveTokens, "deleted_tokens", st.Tokens-st.LiveTokens, "took", time.Since(start))
}
