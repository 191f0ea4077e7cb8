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
	external *OpenIndex // an index that the program has open, nil if the collection owns its index file
	filePath string     // of [OpenFile]. "" means that the index is in dir, together with its configuration
	log      *slog.Logger

	queue       *queue
	startWriter sync.Once     // starts the writer's goroutine
	writerEnded chan struct{} // closed when the writer has ended, or will never start
	lifetime    context.Context
	endLifetime context.CancelCauseFunc
	background  sync.WaitGroup // trainings and other work that ends with lifetime
	worker      worker         // used by the writer's goroutine only

	derived derivedData

	mu        sync.Mutex // guards all fields below
	cfg       collection.Config
	failure   error         // why the collection cannot be used
	opened    *openedIndex  // nil without documents, and while the file is being reopened
	reopening chan struct{} // closed when the file has been reopened, nil while it is not being reopened
	// fileContext ends when the file is about to be reopened. Background work ends with it.
	fileContext    context.Context
	endFileContext context.CancelCauseFunc
	closedErr      error // why the files were closed, nil while they are open
	growth         growthState
	// sampler is created for the first question. samplingEnded means that none is created any more.
	sampler       *quality.Sampler
	samplingEnded bool
	counts        collection.Counts
}

// openedIndex is the open index file of a collection, with its search engine.
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

// open opens a collection that exists. It sets c.failure if that fails.
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
	if c.opened != nil { // the process may have ended after an update and before its eviction
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

// openIndex opens the index file. It returns nil if the file does not exist yet, or if its build was interrupted,
// unless the collection is that of [OpenFile].
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
	closeBoth := func() error { return errors.Join(engine.Close(), ix.Close()) }
	return &openedIndex{ix: ix, engine: engine, close: closeBoth}, nil
}

func (c *Collection) newEngine(ctx context.Context, ix *index.Index) (*search.Engine, error) {
	return search.New(ctx, ix, &search.EngineOptions{
		Threads: c.store.opts.Threads, Device: c.store.opts.Device, Attach: c.store.opts.Attach, Logger: c.log,
	})
}

// startWriterForGrowth starts the writer if there are documents, since their codec may be due for training. An empty
// collection needs no goroutine before its first change.
func (c *Collection) startWriterForGrowth() {
	if c.opened != nil {
		c.ensureWriter()
	}
}

// ensureWriter starts the writer unless it has been started or the collection has ended.
func (c *Collection) ensureWriter() {
	c.startWriter.Do(func() {
		go func() {
			defer close(c.writerEnded)
			c.worker.run()
		}()
	})
}

// refuseNewChanges refuses new changes with [collection.ErrClosed]. Waiting ones are still written.
func (c *Collection) refuseNewChanges() {
	c.queue.refuseNew(collection.ErrClosed)
	c.stopBackground(collection.ErrClosed)
}

// refuseAllChanges refuses waiting and new changes, and ends background work.
func (c *Collection) refuseAllChanges(why error) {
	c.queue.refuseAll(why)
	c.stopBackground(why)
}

// stopBackground ends background work, and lets none begin.
func (c *Collection) stopBackground(why error) {
	c.stopSampling()
	c.mu.Lock() // startBackground holds it too
	defer c.mu.Unlock()
	c.endLifetime(why)
}

// waitForWriter waits until the writer and all background work have ended. Its caller has called refuseNewChanges or
// refuseAllChanges before, so that a writer that never started has nothing to do.
func (c *Collection) waitForWriter() {
	c.startWriter.Do(func() { close(c.writerEnded) })
	<-c.writerEnded
	c.background.Wait()
}

// closeFiles closes the derived data and the index. Its caller has waited for the writer.
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

// Name returns the name of the collection.
func (c *Collection) Name() string { return c.name }

// Err returns why the collection cannot be used, which wraps [collection.ErrDamaged], nil if it can be used.
func (c *Collection) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failure
}

// Config returns the present configuration.
func (c *Collection) Config() collection.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cfg
}

// SetMaxDocuments changes the limit of documents, nil for no limit. The next update evicts the documents beyond it.
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

// submit queues a request and waits for its answer. If ctx ends while the request is waiting, the request is
// withdrawn and nothing of it happens. A request whose writing has begun is finished and answered, unless it is still
// looking for its documents: that ends with request.ctx.
func (c *Collection) submit(ctx context.Context, r *request) error {
	if err := c.checkWritable(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	c.ensureWriter() // before queueing: the writer of a collection that ends refuses later requests
	if err := c.queue.enqueue(r); err != nil {
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

// acquireIndex returns the open index file, which stays open until release is called. It waits while the file is
// being reopened.
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

// dimension returns the dimension of the vectors, 0 while it is not known.
func (c *Collection) dimension(ctx context.Context) (int, error) {
	v, err := c.Snapshot(ctx)
	if errors.Is(err, collection.ErrEmpty) {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	return v.Dim(), v.Close()
}

// fileBytes returns the size of the index file, 0 if it does not exist.
func (c *Collection) fileBytes() int64 {
	info, err := os.Stat(c.indexPath())
	if err != nil {
		return 0
	}
	return info.Size()
}
