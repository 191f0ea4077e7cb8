package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/quality"
	"github.com/plaid-ir/plaid/storage"
)

// Collection is a named collection of documents. It is safe for concurrent use.
type Collection struct {
	store    *Store
	name     string
	dir      string
	external *Opened // nil: the index file is the collection's own
	filePath string  // of [OpenFile]; "": it is in dir, with its configuration
	log      *slog.Logger

	queue       *queue
	startWriter sync.Once     // starts it
	writerEnded chan struct{} // closed when the writer has ended, or will not start
	// alive ends with the collection, and with it trainings.
	lifetime    context.Context
	endLifetime context.CancelCauseFunc
	background  sync.WaitGroup // trainings and the like
	worker      worker         // of the writer's goroutine alone

	derived derivedData

	mu        sync.Mutex
	cfg       collection.Config
	failure   error         // why it could not be opened
	opened    *openedIndex  // nil: no documents yet, or being opened again
	reopening chan struct{} // not nil while the file is opened again; closed then
	// fresh ends when the file is to be opened again, and with it what goes on for long.
	fileContext    context.Context
	endFileContext context.CancelCauseFunc
	closedErr      error
	growth         growthState
	// sampler begins with the first question; unsampled says that none begins any more.
	sampler       *quality.Sampler
	samplingEnded bool
	counts        collection.Counts
}

// openedIndex is the index file of a collection, and its searcher.
type openedIndex struct {
	ix        *index.Index
	engine    *search.Engine
	snapshots sync.WaitGroup
	close     func() error
}

func (s *Store) newCollection(name string) *Collection {
	c := &Collection{
		store: s, name: name, dir: filepath.Join(s.dir, name), log: s.opts.Logger.With("collection", name),
		queue: newQueue(s.opts.Queue), writerEnded: make(chan struct{}),
	}
	c.lifetime, c.endLifetime = context.WithCancelCause(context.Background())
	c.fileContext, c.endFileContext = context.WithCancelCause(context.Background())
	c.worker.c = c
	return c
}

// create makes the folder of a new collection.
func (c *Collection) create(ctx context.Context, cfg collection.Config) error {
	d, err := files.CreateAtomicFolder(c.dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Write(configFile, configWriter(cfg)); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	c.cfg = cfg
	return d.Commit()
}

// open reads a collection that is there. What it fails with is kept in c.fault.
func (c *Collection) open(ctx context.Context) {
	c.removeLeftovers()
	path := filepath.Join(c.dir, configFile)
	var err error
	if c.cfg, err = readConfig(path); err == nil {
		c.opened, err = c.openIndex(ctx)
	}
	if err != nil {
		c.failure = fmt.Errorf("%w: %q: %w", collection.ErrDamaged, c.name, err)
		c.log.Error("a collection cannot be opened", "error", err)
		return
	}
	if c.opened != nil { // an update may have ended between its documents and what went for them
		c.worker.evictOldest(ctx)
	}
}

func (c *Collection) indexPath() string {
	if c.external != nil {
		return c.external.Index.Path()
	}
	if c.filePath != "" {
		return c.filePath
	}
	return filepath.Join(c.dir, indexFile)
}

// openIndex opens the index file; nil if there is none yet, or what is there was
// never finished.
func (c *Collection) openIndex(ctx context.Context) (*openedIndex, error) {
	ix, err := index.Open(ctx, c.indexPath(), &index.Options{
		Write: true, LockTimeout: c.store.opts.LockTimeout, Backend: c.store.opts.Backend, Logger: c.log,
	})
	if c.filePath == "" && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, storage.ErrUnfinished)) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	engine, err := c.newEngine(ctx, ix)
	if err != nil {
		return nil, errors.Join(err, ix.Close())
	}
	return &openedIndex{ix: ix, engine: engine, close: func() error { return errors.Join(engine.Close(), ix.Close()) }}, nil
}

func (c *Collection) newEngine(ctx context.Context, ix *index.Index) (*search.Engine, error) {
	return search.New(ctx, ix, &search.EngineOptions{
		Threads: c.store.opts.Threads, Device: c.store.opts.Device, Attach: c.store.opts.Attach, Logger: c.log,
	})
}

// startWriterForGrowth starts the writer if there are documents, whose codec may have to grow. An empty collection
// needs no goroutine until its first change.
func (c *Collection) startWriterForGrowth() {
	if c.opened != nil {
		c.ensureWriter()
	}
}

// ensureWriter starts the writer unless it has started already or nothing will be written any more.
func (c *Collection) ensureWriter() {
	c.startWriter.Do(func() {
		go func() {
			defer close(c.writerEnded)
			c.worker.run()
		}()
	})
}

// refuseNewChanges takes no more changes.
func (c *Collection) refuseNewChanges() {
	c.queue.refuseNew(collection.ErrClosed)
	c.stopBackground(collection.ErrClosed)
}

// refuseAllChanges refuses what waits and what comes, and ends trainings.
func (c *Collection) refuseAllChanges(why error) {
	c.queue.refuseAll(why)
	c.stopBackground(why)
}

func (c *Collection) stopBackground(why error) {
	c.stopSampling()
	c.mu.Lock() // nothing begins any more
	defer c.mu.Unlock()
	c.endLifetime(why)
}

// waitForWriter returns when nothing is written any more. Its caller has drained or ended the
// collection: a writer that has not started has nothing to do.
func (c *Collection) waitForWriter() {
	c.startWriter.Do(func() { close(c.writerEnded) })
	<-c.writerEnded
	c.background.Wait()
}

// closeFiles is for when nothing is written any more.
func (c *Collection) closeFiles() error {
	c.mu.Lock()
	o := c.opened
	c.opened = nil
	if c.closedErr == nil {
		c.closedErr = context.Cause(c.lifetime)
	}
	c.mu.Unlock()
	err := c.derived.close()
	if o != nil {
		err = errors.Join(err, o.close())
	}
	return err
}

// Name of the collection.
func (c *Collection) Name() string { return c.name }

// Err is why the collection could not be opened, an [collection.ErrDamaged]; nil if it was.
func (c *Collection) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failure
}

// Config is what the collection was declared with, and what was set since.
func (c *Collection) Config() collection.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cfg
}

// SetMaxDocuments changes how many documents are kept; nil: all. What is too much is
// deleted with the next update.
func (c *Collection) SetMaxDocuments(ctx context.Context, maxDocuments *uint64) (cfg collection.Config, err error) {
	if err := c.checkOwnsFolder("a largest number of documents"); err != nil {
		return cfg, err
	}
	r := &request{kind: acting}
	r.action = func(ctx context.Context) error {
		changed := c.Config()
		changed.MaxDocuments = maxDocuments
		if cfg, err = changed.Completed(); err != nil {
			return err
		}
		if err := writeConfig(ctx, filepath.Join(c.dir, configFile), cfg); err != nil {
			return err
		}
		c.mu.Lock()
		c.cfg = cfg
		c.mu.Unlock()
		return nil
	}
	if err := c.submit(ctx, r); err != nil {
		return collection.Config{}, err
	}
	return cfg, nil
}

// submit queues a request and waits for its answer. When ctx ends before the request has
// begun it is withdrawn, and nothing of it happens; one that has begun is finished,
// and answered, unless it looks for what it is to change (request.ctx).
func (c *Collection) submit(ctx context.Context, r *request) error {
	if err := c.checkWritable(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	c.ensureWriter() // before the request is queued: a queue that has ended takes none
	if err := c.queue.put(r); err != nil {
		return err
	}
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
	}
	if c.queue.withdraw(r) {
		return ctx.Err()
	}
	<-r.done
	return r.err
}

// acquireIndex takes the index file, until done is called.
func (c *Collection) acquireIndex(ctx context.Context) (o *openedIndex, release func(), err error) {
	for {
		c.mu.Lock()
		o, reopening, closed, failure := c.opened, c.reopening, c.closedErr, c.failure
		if o != nil {
			o.snapshots.Add(1)
		}
		c.mu.Unlock()
		switch {
		case o != nil:
			return o, o.snapshots.Done, nil
		case failure != nil:
			return nil, nil, failure
		case closed != nil:
			return nil, nil, closed
		case reopening == nil:
			return nil, nil, fmt.Errorf("%w: %q", collection.ErrEmpty, c.name)
		}
		select {
		case <-reopening:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
}

// dimension is the dimension of the vectors, 0 as long as it is not known.
func (c *Collection) dimension(ctx context.Context) (int, error) {
	v, err := c.Snapshot(ctx)
	if errors.Is(err, collection.ErrEmpty) {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	return v.Dim(), v.Close()
}

// fileBytes is the length of the index file in bytes, 0 as long as there is none.
func (c *Collection) fileBytes() int64 {
	info, err := os.Stat(c.indexPath())
	if err != nil {
		return 0
	}
	return info.Size()
}
