package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/quality"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// buildIndex builds the index file of the first documents in a temporary folder and renames it, so that an unfinished
// file never has the name of the index.
func (w *worker) buildIndex(ctx context.Context, src vectors.Source, dim int, model *storage.Model) (err error) {
	c := w.c
	o, err := c.store.opts.Growth.FirstBuild(src, dim, c.Config())
	if err != nil {
		return err
	}
	opts := &c.store.opts
	o.Model, o.Threads, o.Memory, o.Backend, o.Logger = model, opts.Threads, opts.Memory, opts.Backend, c.log
	dir, err := os.MkdirTemp(c.dir, receivedPrefix)
	if err != nil {
		return err
	}
	defer func() { // a folder that cannot be removed now is removed at the next start
		if rerr := os.RemoveAll(dir); rerr != nil {
			c.log.Warn("the temporary folder of a build was not removed", "path", dir, "error", rerr)
		}
	}()
	path := filepath.Join(dir, indexFile)
	if _, err := index.Build(ctx, path, src, o); err != nil {
		return err
	}
	if err := os.Rename(path, c.indexPath()); err != nil {
		return err
	}
	if err := files.SyncFolder(c.dir); err != nil {
		return errors.Join(err, os.Remove(c.indexPath()))
	}
	opened, err := c.openIndex(ctx)
	if err == nil && opened == nil {
		err = fmt.Errorf("%s: %w: what was built is not there", c.indexPath(), storage.ErrInternal)
	}
	if err != nil {
		return errors.Join(err, os.Remove(c.indexPath())) // no request has been answered yet
	}
	c.mu.Lock()
	c.opened = opened
	c.mu.Unlock()
	return nil
}

// setDimension gives an undecided index the dimension of its first vectors.
func (w *worker) setDimension(ctx context.Context, o *openedIndex, dim int) error {
	fixed, err := codec.NewFlat(dim)
	if err != nil {
		return err
	}
	opts := &w.c.store.opts
	_, err = o.ix.Retrain(ctx, &index.RetrainOptions{Codec: fixed, Threads: opts.Threads, Memory: opts.Memory})
	return w.settleOutcome(ctx, err, func(snap *index.Snapshot) (bool, error) { return snap.Dim() == dim, nil })
}

// Growth implements [collection.Trainer].
func (s *Store) Growth() collection.Growth { return s.opts.Growth }

// growthState is the state of trainings that growth begins. Collection.mu guards it.
type growthState struct {
	running  chan struct{} // closed when the training has ended, nil if none is running
	cancel   context.CancelFunc
	failedAt int64 // tokens of the collection when the last training failed. 0 means that it did not fail
	failure  error // the error of that training
	advised  bool  // the present advice has been logged
}

// startBackground registers background work. The returned context ends with the collection and before the file is
// reopened; its cause says which. The caller calls done at the end of the work.
func (c *Collection) startBackground(ctx context.Context) (within context.Context, done func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lifetime.Err() != nil {
		return nil, nil, context.Cause(c.lifetime)
	}
	c.background.Add(1)
	within, cancel := context.WithCancelCause(ctx)
	var stops []func() bool
	for _, end := range []context.Context{c.lifetime, c.fileContext} {
		stops = append(stops, context.AfterFunc(end, func() { cancel(context.Cause(end)) }))
	}
	return within, func() {
		for _, stop := range stops {
			stop()
		}
		cancel(nil)
		c.background.Done()
	}, nil
}

// runInBackground runs work with a context that ends with the collection and before the file is reopened. If that ended
// the work early, the error is the cause.
func (c *Collection) runInBackground(ctx context.Context, work func(ctx context.Context) error) error {
	ctx, done, err := c.startBackground(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err = work(ctx); err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return err
}

// dueTraining returns the training that is due because the collection has grown. due is false if no training is due.
func (c *Collection) dueTraining(h *storage.Header, tokens int64) (t collection.Training, due bool) {
	return c.store.opts.Growth.NextTraining(c.store.opts.Growth.EncodingOf(h), tokens, c.Config())
}

// startDueTraining starts a training in the background if one is due and none is running.
func (c *Collection) startDueTraining() {
	if c.external != nil {
		return // the program that opened the index decides about trainings
	}

	// Is a training due, or advised?
	v, err := c.Snapshot(c.lifetime)
	if err != nil {
		return
	}
	h, tokens, drift := v.snap.Header(), int64(v.snap.State().LiveTokens), v.snap.Drift()
	_ = v.Close()
	_, due := c.dueTraining(&h, tokens)
	c.mu.Lock()
	g := &c.growth
	advice := c.store.opts.Growth.Advice(c.store.opts.Growth.EncodingOf(&h).Stage, drift)
	advise := advice != "" && !g.advised
	g.advised = advice != ""
	if !due || g.running != nil || collection.SkipFailedTraining(g.failedAt, tokens) {
		due = false
	}
	c.mu.Unlock()
	if advise {
		c.log.Warn("training the collection anew would pay", "because", advice)
	}
	if !due {
		return
	}

	// Register the training: growth runs only one at a time, and it ends with the collection.
	ctx, done, err := c.startBackground(context.Background())
	if err != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	running := make(chan struct{})
	c.mu.Lock()
	if g.running != nil { // another goroutine was faster
		c.mu.Unlock()
		cancel()
		done()
		return
	}
	g.running, g.cancel = running, cancel
	c.mu.Unlock()

	// Train. A failure is kept, so that the training is not repeated at once.
	go func() {
		defer done()
		var err error
		train := func() { _, err = c.trainNext(ctx, c.dueTraining) }
		if fault := c.store.runGuarded(c.log, "a training", train); fault != nil {
			err = fault
		}
		c.mu.Lock()
		g.running, g.cancel, g.failedAt, g.failure = nil, nil, 0, nil
		if err != nil && ctx.Err() == nil {
			g.failedAt, g.failure = tokens, err
		}
		c.mu.Unlock()
		if err != nil && ctx.Err() == nil {
			c.log.Error("training the grown collection failed", "tokens", tokens, "error", err)
		}
		ended := ctx.Err() != nil
		cancel()
		close(running)
		if !ended {
			c.startDueTraining() // it may have grown further meanwhile
		}
	}()
}

// isTraining reports whether a training that growth has begun is running.
func (c *Collection) isTraining() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.growth.running != nil
}

// stopTraining ends the training that growth has begun, and waits for its end.
func (c *Collection) stopTraining() {
	c.mu.Lock()
	running, cancel := c.growth.running, c.growth.cancel
	c.mu.Unlock()
	if running != nil {
		cancel()
		<-running
	}
}

// Retrain trains the collection on its stored vectors, with the settings for its size, whether or not it has grown.
// Searches and changes go on. When Retrain returns, the new codec is in use; see [collection.Growth.Retraining].
//
// Errors: those of [Collection.Snapshot] and of [index.Index.Retrain].
func (c *Collection) Retrain(ctx context.Context) (*index.RetrainReport, error) {
	if err := c.checkWritable(); err != nil {
		return nil, err
	}
	var r *index.RetrainReport
	err := c.runInBackground(ctx, func(ctx context.Context) (err error) {
		r, err = c.trainNext(ctx, func(h *storage.Header, tokens int64) (collection.Training, bool) {
			return c.store.opts.Growth.Retraining(c.store.opts.Growth.EncodingOf(h), tokens, c.Config()), true
		})
		return err
	})
	return r, err
}

// trainNext waits until no other collection of the store is training, and then trains this one. choose decides at that
// time how to train; ok is false if there is nothing to train.
func (c *Collection) trainNext(ctx context.Context,
	choose func(h *storage.Header, tokens int64) (t collection.Training, ok bool)) (*index.RetrainReport, error) {
	// Wait for the slot, and read the state of the collection.
	select {
	case c.store.training <- struct{}{}:
		defer func() { <-c.store.training }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	opened, done, err := c.acquireIndex(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	v, err := c.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	h, tokens := v.snap.Header(), int64(v.snap.State().LiveTokens)
	if err := v.Close(); err != nil {
		return nil, err
	}
	// Train.
	t, ok := choose(&h, tokens)
	if !ok {
		return nil, nil
	}
	ro := &index.RetrainOptions{
		Nbits:     t.Nbits,
		Centroids: t.Centroids,
		HeldOut:   t.HeldOut(),
		Seed:      t.Seed,
		Threads:   max(c.store.opts.Threads/2, 1),
		Memory:    c.store.opts.Memory,
	}
	if ro.Codec, err = t.Codec(h.Dim); err != nil {
		return nil, err
	}
	r, err := opened.ix.Retrain(ctx, ro)
	if errors.Is(err, storage.ErrOutcomeUnknown) { // the index takes no changes until it is reopened
		reopen := &request{kind: acting}
		reopen.action = func(ctx context.Context) error { return c.worker.reopen(ctx) }
		_ = c.queue.enqueue(reopen) // it fails only if the collection ends
	}
	if err != nil {
		return nil, err
	}
	// Measure the recall of searches with the new codec.
	c.mu.Lock()
	c.counts.Trainings++
	c.mu.Unlock()
	if err := c.measureSearches(ctx, opened.ix, ro.Threads, t.Seed); err != nil && ctx.Err() == nil {
		c.log.Warn("the recall of the collection's searches was not measured", "error", err)
	}
	return r, nil
}

// MeasureSearches measures the recall of searches of an index with the codec of its present generation
// ([quality.SelfCheck]). defaults is nil if the index is not worth measuring.
func MeasureSearches(ctx context.Context, ix *index.Index, threads int,
	o quality.SelfCheckOptions) (defaults *storage.Defaults, generation uint64, err error) {
	snap, err := ix.Snapshot()
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, snap.Close()) }()
	e, err := search.NewAt(ctx, snap, &search.EngineOptions{Threads: threads})
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	defaults, err = quality.SelfCheck(ctx, e, snap, o)
	return defaults, snap.Generation(), err
}

// measureSearches measures searches with a new codec, and stores the result unless the codec has changed since.
func (c *Collection) measureSearches(ctx context.Context, ix *index.Index, threads int, seed uint64) (err error) {
	o := quality.SelfCheckOptions{Seed: seed, Questions: c.store.checkQuestions}
	defaults, generation, err := MeasureSearches(ctx, ix, threads, o)
	if err != nil || defaults == nil {
		return err
	}
	r := &request{kind: acting}
	r.action = func(ctx context.Context) error {
		o, snap, err := c.worker.newestSnapshot()
		if err != nil || o == nil {
			return err
		}
		same := snap.Generation() == generation
		if err := snap.Close(); err != nil || !same {
			return err
		}
		return c.worker.settleOutcome(ctx, o.ix.SetDefaults(defaults), nil)
	}
	return c.queue.enqueue(r)
}

// Compact rewrites the index without the deleted documents, with its segments merged into one. Searches go on, and
// changes wait. It ends early with ctx and with the collection. It returns the bytes of the file before and after.
//
// Errors: those of [Collection.Snapshot] and of [index.Index.Compact].
func (c *Collection) Compact(ctx context.Context) (before, after int64, err error) {
	r := &request{kind: acting}
	r.action = func(context.Context) error {
		o, err := c.worker.requireIndex()
		if err != nil {
			return err
		}
		before = c.fileBytes()
		err = c.worker.compact(ctx, o)
		after = c.fileBytes()
		return err
	}
	if err := c.submit(ctx, r); err != nil {
		return 0, 0, err
	}
	return before, after, nil
}

// compact compacts the index; see [Collection.Compact].
func (w *worker) compact(ctx context.Context, o *openedIndex) error {
	within, done, err := w.c.startBackground(ctx)
	if err != nil {
		return err
	}
	if err = o.ix.Compact(within, nil); errors.Is(err, context.Canceled) {
		err = context.Cause(within)
	}
	done()
	if err = w.settleOutcome(context.Background(), err, nil); err != nil {
		return err
	}
	w.c.mu.Lock()
	w.c.counts.Compactions++
	w.c.mu.Unlock()
	return nil
}

// compactIfWasteful compacts the index if at least [Options.MinWaste] bytes and a quarter of the file are not in use:
// pages that changes and merges have left free, and deleted documents in segments that are not merged yet. It runs
// between requests, which wait for it, and ends early with the collection. During a training it does nothing, because
// the training writes a new file anyway. After a failure it waits until a tenth more is wasted.
func (w *worker) compactIfWasteful(ctx context.Context) {
	notOurs := w.c.external != nil && w.journal() == nil // the program that opened the index compacts it
	if notOurs || w.c.isTraining() {
		return
	}
	o, snap, err := w.newestSnapshot()
	if err != nil || snap == nil {
		return
	}
	st := snap.State()
	pages, err := snap.Pages()
	_ = snap.Close()
	if err != nil {
		w.c.log.Error("the free pages of the collection were not counted", "error", err)
		return
	}
	waste := wastedBytes(pages, st)
	w.wasteAtFailure = min(w.wasteAtFailure, waste)
	tooLittle := waste < w.c.store.opts.MinWaste || 4*waste < pages.Size
	if tooLittle || waste < w.wasteAtFailure+w.wasteAtFailure/10 {
		return
	}
	start := time.Now()
	switch err := w.compact(ctx, o); {
	case err == nil:
		w.wasteAtFailure = 0
		w.c.log.Info("the collection was compacted", "tokens", st.LiveTokens, "deleted_tokens", st.Tokens-st.LiveTokens,
			"bytes_before", pages.Size, "bytes_unused", waste, "took", time.Since(start))
	case w.c.lifetime.Err() == nil:
		w.wasteAtFailure = waste
		w.c.log.Error("compacting the collection failed", "error", err)
	}
}

// wastedBytes estimates how many bytes a compaction gives back: free pages, and deleted documents by their share of
// the tokens.
func wastedBytes(p storage.Pages, st storage.State) int64 {
	free := min(int64(p.Free+p.Pending)*int64(p.Page), p.Size)
	if st.Tokens == 0 {
		return free
	}
	return free + int64(float64(p.Size-free)*float64(st.Tokens-st.LiveTokens)/float64(st.Tokens))
}
