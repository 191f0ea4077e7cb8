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
	s     *Store
	name  string
	dir   string
	given *Opened // nil: the index file is the collection's own
	file  string  // of [OpenFile]; "": it is in dir, with its configuration
	log   *slog.Logger

	queue  *queue
	writer sync.Once     // starts it
	ended  chan struct{} // closed when the writer has ended, or will not start
	// alive ends with the collection, and with it trainings.
	alive  context.Context
	kill   context.CancelCauseFunc
	beside sync.WaitGroup // trainings and the like
	work   worker         // of the writer's goroutine alone

	derived derived

	mu     sync.Mutex
	cfg    collection.Config
	fault  error         // why it could not be opened
	opened *opened       // nil: no documents yet, or being opened again
	again  chan struct{} // not nil while the file is opened again; closed then
	// fresh ends when the file is to be opened again, and with it what goes on for long.
	fresh  context.Context
	stale  context.CancelCauseFunc
	closed error
	growth growthState
	// sampler begins with the first question; unsampled says that none begins any more.
	sampler   *quality.Sampler
	unsampled bool
	counts    collection.Counts
}

// opened is the index file of a collection, and its searcher.
type opened struct {
	ix     *index.Index
	engine *search.Engine
	views  sync.WaitGroup
	close  func() error
}

func (s *Store) newCollection(name string) *Collection {
	c := &Collection{
		s: s, name: name, dir: filepath.Join(s.dir, name), log: s.o.Logger.With("collection", name),
		queue: newQueue(s.o.Queue), ended: make(chan struct{}),
	}
	c.alive, c.kill = context.WithCancelCause(context.Background())
	c.fresh, c.stale = context.WithCancelCause(context.Background())
	c.work.c = c
	return c
}

// create makes the folder of a new collection.
func (c *Collection) create(ctx context.Context, cfg collection.Config) error {
	d, err := files.CreateAtomicFolder(c.dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Write(configFile, fillConfig(cfg)); err != nil {
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
	c.sweep()
	path := filepath.Join(c.dir, configFile)
	var err error
	if c.cfg, err = readConfig(path); err == nil {
		c.opened, err = c.openIndex(ctx)
	}
	if err != nil {
		c.fault = fmt.Errorf("%w: %q: %w", collection.ErrDamaged, c.name, err)
		c.log.Error("a collection cannot be opened", "error", err)
		return
	}
	if c.opened != nil { // an update may have ended between its documents and what went for them
		c.work.evict(ctx)
	}
}

func (c *Collection) indexPath() string {
	if c.given != nil {
		return c.given.Index.Path()
	}
	if c.file != "" {
		return c.file
	}
	return filepath.Join(c.dir, indexFile)
}

// openIndex opens the index file; nil if there is none yet, or what is there was
// never finished.
func (c *Collection) openIndex(ctx context.Context) (*opened, error) {
	ix, err := index.Open(ctx, c.indexPath(), &index.Options{
		Write: true, LockTimeout: c.s.o.LockTimeout, Backend: c.s.o.Backend, Logger: c.log,
	})
	if c.file == "" && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, storage.ErrUnfinished)) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	engine, err := c.newEngine(ctx, ix)
	if err != nil {
		return nil, errors.Join(err, ix.Close())
	}
	return &opened{ix: ix, engine: engine, close: func() error { return errors.Join(engine.Close(), ix.Close()) }}, nil
}

func (c *Collection) newEngine(ctx context.Context, ix *index.Index) (*search.Engine, error) {
	return search.New(ctx, ix, &search.EngineOptions{
		Threads: c.s.o.Threads, Device: c.s.o.Device, Attach: c.s.o.Attach, Logger: c.log,
	})
}

// start starts the writer if there are documents, whose codec may have to grow. An empty collection
// needs no goroutine until its first change.
func (c *Collection) start() {
	if c.opened != nil {
		c.write()
	}
}

// write starts the writer unless it has started already or nothing will be written any more.
func (c *Collection) write() {
	c.writer.Do(func() {
		go func() {
			defer close(c.ended)
			c.work.run()
		}()
	})
}

// drain takes no more changes.
func (c *Collection) drain() {
	c.queue.drain(collection.ErrClosed)
	c.stopBeside(collection.ErrClosed)
}

// end refuses what waits and what comes, and ends trainings.
func (c *Collection) end(why error) {
	c.queue.end(why)
	c.stopBeside(why)
}

func (c *Collection) stopBeside(why error) {
	c.stopSampling()
	c.mu.Lock() // nothing begins any more
	defer c.mu.Unlock()
	c.kill(why)
}

// wait returns when nothing is written any more. Its caller has drained or ended the
// collection: a writer that has not started has nothing to do.
func (c *Collection) wait() {
	c.writer.Do(func() { close(c.ended) })
	<-c.ended
	c.beside.Wait()
}

// closeFiles is for when nothing is written any more.
func (c *Collection) closeFiles() error {
	c.mu.Lock()
	o := c.opened
	c.opened = nil
	if c.closed == nil {
		c.closed = context.Cause(c.alive)
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
	return c.fault
}

// Config is what the collection was declared with, and what was set since.
func (c *Collection) Config() collection.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cfg
}

// SetMaxDocuments changes how many documents are kept; nil: all. What is too much is
// deleted with the next update.
func (c *Collection) SetMaxDocuments(ctx context.Context, most *uint64) (cfg collection.Config, err error) {
	if err := c.fixed("a largest number of documents"); err != nil {
		return cfg, err
	}
	r := &request{kind: acting}
	r.act = func(ctx context.Context) error {
		changed := c.Config()
		changed.MaxDocuments = most
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
	if err := c.do(ctx, r); err != nil {
		return collection.Config{}, err
	}
	return cfg, nil
}

// do queues a request and waits for its answer. When ctx ends before the request has
// begun it is withdrawn, and nothing of it happens; one that has begun is finished,
// and answered, unless it looks for what it is to change (request.ctx).
func (c *Collection) do(ctx context.Context, r *request) error {
	if err := c.writable(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	c.write() // before the request is queued: a queue that has ended takes none
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

// use takes the index file, until done is called.
func (c *Collection) use(ctx context.Context) (o *opened, done func(), err error) {
	for {
		c.mu.Lock()
		o, again, closed, fault := c.opened, c.again, c.closed, c.fault
		if o != nil {
			o.views.Add(1)
		}
		c.mu.Unlock()
		switch {
		case o != nil:
			return o, o.views.Done, nil
		case fault != nil:
			return nil, nil, fault
		case closed != nil:
			return nil, nil, closed
		case again == nil:
			return nil, nil, fmt.Errorf("%w: %q", collection.ErrEmpty, c.name)
		}
		select {
		case <-again:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
}

// dim is the dimension of the vectors, 0 as long as it is not known.
func (c *Collection) dim(ctx context.Context) (int, error) {
	v, err := c.Snapshot(ctx)
	if errors.Is(err, collection.ErrEmpty) {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	return v.Dim(), v.Close()
}

// size is the length of the index file in bytes, 0 as long as there is none.
func (c *Collection) size() int64 {
	info, err := os.Stat(c.indexPath())
	if err != nil {
		return 0
	}
	return info.Size()
}
