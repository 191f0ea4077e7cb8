// Package store keeps a folder of named collections, each an index file with one
// ordered writer.
//
//	[Open] → [Store]                      locks the folder, opens what is in it
//	[Store.Declare] → [Collection]        a collection without documents
//	[Collection.Update], [Collection.Delete], [Collection.UpdateMetadata]
//	[Collection.View] → [Snapshot]            one state of a collection, to search and read
//
// What a change returns is on the disk and is seen by every view that is taken
// afterwards. Changes of one collection take effect in the order in which they were
// queued, whatever their kind; those that wait at the same moment share a transaction.
// A document that is refused takes no other request with it.
//
// A collection begins without an index. As long as it is small its vectors are kept
// with 8 bits a component, and the codec is trained anew as it grows, beside the
// searches and the writes; see [collection.Growth].
package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels"
)

// Options of a store. The zero value, or nil, is a good choice.
type Options struct {
	// Threads bounds the goroutines of one search, and of one commit; 0: one a
	// processor. Training beside them takes half as many, at least one.
	Threads int
	// Device and Attach as in [search.EngineOptions].
	Device kernels.Device
	Attach kernels.AttachOptions
	// Backend names the kernels; "": the best there is.
	Backend string
	// Memory is the budget in bytes of one build or training; 0: 1 GiB.
	Memory int64
	// Queue bounds what waits to be written, for each collection.
	Queue QueueLimits
	// Growth says how collections grow.
	Growth collection.Growth
	// LeastWaste is how many bytes of an index file have to be out of use, as well as a quarter of it,
	// before the file is compacted; 0 means 4 MiB.
	LeastWaste int64
	// Sampling says which questions are measured for what searches find.
	Sampling collection.Sampling
	// Derive, where set, opens the derived data of the collection whose index file is at a path;
	// see [Collection.Derived]. Nothing may be written next to the file unless write is set, which
	// it is not for a read-only collection.
	Derive func(ctx context.Context, index string, write bool, cfg collection.Config) (Derived, error)
	// Committed, where set, is called after each change of a collection, before it is
	// answered, by the collection's writer. It may take a view; it must not wait for
	// another change of the same collection.
	Committed func(*Collection)
	// LockTimeout is how long to wait for another process that has the folder; 0: not
	// at all.
	LockTimeout time.Duration
	// Logger hears of growth, repairs and faults; nil: nobody does.
	Logger *slog.Logger
}

// QueueLimits bound what waits to be written to one collection. A request beyond
// them is refused with [collection.ErrBusy]; one that is larger than them all alone is taken
// when nothing else waits.
type QueueLimits struct {
	Documents int   // 0: 65,536
	Bytes     int64 // of vectors and metadata; 0: 512 MiB
}

func (o *Options) complete() error {
	if o.Threads < 0 || o.Queue.Documents < 0 || o.Queue.Bytes < 0 || o.Memory < 0 || o.LeastWaste < 0 {
		return fmt.Errorf("%w: no option may be negative", collection.ErrConfig)
	}
	if o.Threads == 0 {
		o.Threads = parallel.Processors()
	}
	if o.Queue.Documents == 0 {
		o.Queue.Documents = 1 << 16
	}
	if o.Queue.Bytes == 0 {
		o.Queue.Bytes = 512 << 20
	}
	if o.LeastWaste == 0 {
		o.LeastWaste = 4 << 20
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if _, err := kernels.Select(o.Backend); err != nil {
		return err
	}
	var err error
	if o.Sampling, err = o.Sampling.Completed(); err != nil {
		return err
	}
	o.Growth, err = o.Growth.Completed()
	return err
}

// Store is an open folder of collections. It is safe for concurrent use.
type Store struct {
	dir  string
	opts Options
	lock *os.File
	// training lets one collection at a time train: it takes memory and processors.
	training       chan struct{}
	checkQuestions int // of the check after a training: 0, as many as are worth their time
	panics         atomic.Uint64
	// measuring lets one collection at a time measure a sampled question; sampledBytes are those of
	// the questions that wait.
	measuring    chan struct{}
	sampledBytes atomic.Int64
	disk         diskState

	mu           sync.Mutex
	closed       bool
	collections  map[string]*Collection
	claimedNames map[string]chan struct{} // names that are being declared or dropped: closed at the end
	claims       sync.WaitGroup           // of them
}

// Files of a store. Names of collections do not begin with a dot.
const (
	lockFile      = ".lock"
	droppedPrefix = ".dropped-"
	configFile    = "collection.json"
	indexFile     = "index.plaid"
)

func newStore(dir string, o *Options) (*Store, error) {
	s := &Store{
		dir: dir, collections: map[string]*Collection{}, claimedNames: map[string]chan struct{}{},
		training: make(chan struct{}, 1), measuring: make(chan struct{}, 1),
	}
	if o != nil {
		s.opts = *o
	}
	return s, s.opts.complete()
}

// Open opens the collections of a folder, which is made if it is not there, and
// takes its lock. A collection that cannot be opened does not stop the others: it is
// listed, and [Collection.Err] says why.
//
// Errors: [ErrLocked], and those of the file system.
func Open(ctx context.Context, dir string, o *Options) (*Store, error) {
	s, err := newStore(dir, o)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	if s.lock, err = lockFolder(ctx, filepath.Join(dir, lockFile), time.Now().Add(s.opts.LockTimeout)); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	if err := s.openAll(ctx); err != nil {
		return nil, errors.Join(err, s.Close(context.WithoutCancel(ctx)))
	}
	return s, nil
}

func (s *Store) openAll(ctx context.Context) error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, droppedPrefix) {
			if err := os.RemoveAll(filepath.Join(s.dir, name)); err != nil {
				s.opts.Logger.Warn("the remains of a dropped collection stay", "path", filepath.Join(s.dir, name), "error", err)
			}
			continue
		}
		if collection.CheckName(name) != nil {
			continue
		}
		if !IsCollection(filepath.Join(s.dir, name)) {
			continue // something else that lies here
		}
		c := s.newCollection(name)
		c.open(ctx)
		s.addCollection(c)
	}
	return ctx.Err()
}

// IsCollection tells whether a folder holds one of the files of a collection. One of which
// that cannot be found out is one, which says why it cannot be opened: its documents are not
// missing in silence.
func IsCollection(dir string) bool {
	for _, name := range []string{configFile, indexFile} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err == nil && info.Mode().IsRegular() || err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			return true
		}
	}
	return false
}

// Dir is the folder; "" of a store that [Over] has made.
func (s *Store) Dir() string { return s.dir }

// Names are those of all collections in order, also of those without documents and
// of those that cannot be opened.
func (s *Store) Names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.collections))
}

// Declare makes a collection without documents, durable when it returns.
//
// Errors: [collection.ErrName], [collection.ErrConfig], [collection.ErrExists],
// [collection.ErrClosed], and those of the file system.
func (s *Store) Declare(ctx context.Context, name string, cfg collection.Config) (*Collection, error) {
	if err := collection.CheckName(name); err != nil {
		return nil, err
	}
	cfg, err := cfg.Completed()
	if err != nil {
		return nil, err
	}
	if s.dir == "" {
		return nil, collection.Unsupported("declaring a collection beside indexes that are open")
	}
	if err := s.claimName(ctx, name); err != nil {
		return nil, err
	}
	defer s.releaseName(name)
	if s.lookUp(name) != nil {
		return nil, fmt.Errorf("%w: %q", collection.ErrExists, name)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c := s.newCollection(name)
	if err := c.create(ctx, cfg); err != nil {
		s.noteDisk(err, false)
		return nil, fmt.Errorf("declaring %q: %w", name, err)
	}
	s.addCollection(c)
	return c, nil
}

// claimName keeps others from declaring or dropping a name meanwhile. It waits for those that do: who is
// told that a collection exists finds it.
func (s *Store) claimName(ctx context.Context, name string) error {
	for {
		busy, err := s.tryClaim(name)
		if busy == nil || err != nil {
			return err
		}
		select {
		case <-busy:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tryClaim claims a name, or returns what its present claim closes at the end.
func (s *Store) tryClaim(name string) (busy <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, collection.ErrClosed
	}
	if busy, ok := s.claimedNames[name]; ok {
		return busy, nil
	}
	s.claimedNames[name] = make(chan struct{})
	s.claims.Add(1)
	return nil, nil
}

func (s *Store) releaseName(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.claimedNames[name])
	delete(s.claimedNames, name)
	s.claims.Done()
}

func (s *Store) addCollection(c *Collection) {
	c.startWriterForGrowth()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.collections[c.name] = c
}

func (s *Store) lookUp(name string) *Collection {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.collections[name]
}

// Get finds a collection. The error is [collection.ErrUnknown], or [collection.ErrClosed].
func (s *Store) Get(name string) (*Collection, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, collection.ErrClosed
	}
	if c := s.collections[name]; c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("%w: %q", collection.ErrUnknown, name)
}

// Drop removes a collection and its files. Requests that wait are refused with
// [collection.ErrUnknown], searches end; views that are open can be read until they are closed.
// A name that is not there is no error.
func (s *Store) Drop(ctx context.Context, name string) (existed bool, err error) {
	if err := collection.CheckName(name); err != nil {
		return false, err
	}
	if err := s.claimName(ctx, name); err != nil {
		return false, err
	}
	defer s.releaseName(name)
	c := s.lookUp(name)
	if c == nil {
		return false, nil
	}
	if err := c.checkOwnsFolder("dropping an index that a program has open"); err != nil {
		return true, err
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	return s.remove(ctx, c)
}

// dropEmpty takes a collection away that has no documents; one that has got some is
// left, with [collection.ErrExists]. Nothing that was acknowledged is lost.
func (s *Store) dropEmpty(ctx context.Context, c *Collection) error {
	if err := s.claimName(ctx, c.name); err != nil {
		return err
	}
	defer s.releaseName(c.name)
	if s.lookUp(c.name) != c {
		return nil
	}
	r := &request{kind: acting}
	r.action = func(context.Context) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.opened != nil || c.failure != nil {
			return fmt.Errorf("%w: %q has documents", collection.ErrExists, c.name)
		}
		c.queue.refuseAll(fmt.Errorf("%w: %q", collection.ErrUnknown, c.name)) // no update comes between this and the end
		return nil
	}
	if err := c.submit(ctx, r); err != nil {
		return err
	}
	_, err := s.remove(ctx, c)
	return err
}

// remove takes a collection away. The caller has claimed its name.
func (s *Store) remove(ctx context.Context, c *Collection) (existed bool, err error) {
	name := c.name
	c.refuseAllChanges(fmt.Errorf("%w: %q was dropped", collection.ErrUnknown, name))
	c.waitForWriter()
	err = c.closeFiles()
	// The rename is what removes it; the rest is cleaning up.
	droppedPath := filepath.Join(s.dir, fmt.Sprintf("%s%x", droppedPrefix, time.Now().UnixNano()))
	if rerr := files.Rename(c.dir, droppedPath); rerr != nil { // on Windows while a view is open, too
		reopened := s.newCollection(name)
		reopened.open(ctx)
		s.addCollection(reopened)
		return true, fmt.Errorf("dropping %q: %w", name, errors.Join(rerr, err))
	}
	s.mu.Lock()
	delete(s.collections, name)
	s.mu.Unlock()
	if err = errors.Join(err, files.SyncFolder(s.dir), os.RemoveAll(droppedPath)); err != nil {
		err = fmt.Errorf("dropping %q: %w", name, err)
	}
	return true, err
}

// Close drains: what was queued is written, what comes is refused with [collection.ErrClosed],
// and trainings are given up. When ctx ends, what still waits is refused too. Then
// searches end, and the files are closed, with the last view of each.
func (s *Store) Close(ctx context.Context) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	s.claims.Wait()
	s.mu.Lock()
	collections := slices.Collect(maps.Values(s.collections))
	s.mu.Unlock()
	for _, c := range collections {
		c.refuseNewChanges()
	}
	stop := context.AfterFunc(ctx, func() {
		for _, c := range collections {
			c.refuseAllChanges(collection.ErrClosed)
		}
	})
	defer stop()
	var errs []error
	for _, c := range collections {
		c.waitForWriter()
		if err := c.closeFiles(); err != nil {
			errs = append(errs, fmt.Errorf("closing %q: %w", c.name, err))
		}
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}

// ErrLocked: another process has the folder open.
var ErrLocked = errors.New("data folder is in use by another process")

// Lock takes the lock of a folder, as [Open] does, for files of another kind. unlock gives it back.
//
// Errors: [ErrLocked], and those of the file system.
func Lock(ctx context.Context, dir string, wait time.Duration) (unlock func() error, err error) {
	f, err := lockFolder(ctx, filepath.Join(dir, lockFile), time.Now().Add(wait))
	if err != nil {
		return nil, err
	}
	return f.Close, nil
}

// lockFolder takes the lock that keeps two processes from one folder. It ends with
// the process, however that ends.
func lockFolder(ctx context.Context, path string, deadline time.Time) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	if err = files.WaitLock(ctx, f, true, deadline, nil); err == nil {
		return f, nil
	}
	if errors.Is(err, files.ErrLocked) {
		err = ErrLocked
	}
	return nil, errors.Join(err, f.Close())
}
