// Package store keeps a folder of named collections, each an index file with one
// ordered writer.
//
//	[Open] → [Store]                      locks the folder, opens its collections
//	[Store.Create] → [Collection]        a collection without documents
//	[Collection.Update], [Collection.Delete], [Collection.UpdateMetadata]
//	[Collection.Snapshot] → [Snapshot]    one state of a collection, to search and to read
//
// When a change returns, it is on the disk, and later snapshots show it. Changes of one collection take effect in the
// order in which they were queued, whatever their kind. Changes that wait at the same time share a transaction; a
// document that is refused affects no other request.
//
// A collection begins without an index. While it is small, its vectors have 8 bits a component. The codec is trained
// again as the collection grows, while searches and changes go on; see [collection.Growth].
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
	// Threads limits the goroutines of one search and of one commit. 0 means one per processor. A training uses half
	// as many, at least one.
	Threads int
	// Device and Attach are those of [search.EngineOptions].
	Device kernels.Device
	Attach kernels.AttachOptions
	// Backend names the kernels. "" means the fastest of this machine.
	Backend string
	// Memory is the budget in bytes of one build or training. 0 means 1 GiB.
	Memory int64
	// Queue limits the waiting requests of each collection.
	Queue QueueLimits
	// Growth says when collections are trained.
	Growth collection.Growth
	// MinWaste is how many bytes of an index file have to be unused before the file is compacted. A quarter of the
	// file has to be unused too. 0 means 4 MiB.
	MinWaste int64
	// Sampling says which questions are measured in the background.
	Sampling collection.Sampling
	// Derive opens the derived data of the collection whose index file is at a path ([Collection.Derived]). A nil
	// Derive means no derived data. If write is false, as for a read-only collection, nothing may be written next to
	// the file.
	Derive func(ctx context.Context, index string, write bool, cfg collection.Config) (Derived, error)
	// Committed, unless it is nil, is called by a collection's writer after each change, before the change is answered.
	// It may take a snapshot, and must not wait for another change of the same
	// collection.
	Committed func(*Collection)
	// LockTimeout is how long to wait for another process that has the folder. 0 means not at all.
	LockTimeout time.Duration
	// Logger logs growth, repairs and faults. A nil Logger logs nothing.
	Logger *slog.Logger
}

// QueueLimits limit the requests that wait to be written to one collection. A request beyond them is refused with
// [collection.ErrBusy]. A request that is larger than the limits is accepted if the queue is empty.
type QueueLimits struct {
	Documents int   // 0 means 65,536
	Bytes     int64 // of vectors and metadata. 0 means 512 MiB
}

// complete checks the options and fills in the defaults.
func (o *Options) complete() error {
	if o.Threads < 0 || o.Queue.Documents < 0 || o.Queue.Bytes < 0 || o.Memory < 0 || o.MinWaste < 0 {
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
	if o.MinWaste == 0 {
		o.MinWaste = 4 << 20
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
	dir  string // "" for a store of indexes outside of a folder
	opts Options
	lock *os.File // of the folder, nil without one
	// training is the slot for a training: one at a time, because it takes memory and processors.
	training       chan struct{}
	checkQuestions int // questions of the self-check after a training. 0 lets the self-check choose
	panics         atomic.Uint64
	// measuring is the slot for measuring a sampled question. sampledBytes are the bytes of the waiting questions.
	measuring    chan struct{}
	sampledBytes atomic.Int64
	disk         diskState

	mu           sync.Mutex
	closed       bool
	collections  map[string]*Collection
	claimedNames map[string]chan struct{} // names that are being declared or dropped; closed at the end
	claims       sync.WaitGroup           // counts claimedNames
}

// Files of a store. Names of collections do not begin with a dot, so they cannot clash with these.
const (
	lockFile      = ".lock"
	droppedPrefix = ".dropped-"
	configFile    = "collection.json"
	indexFile     = "index.plaid"
)

// newStore returns a store without collections. It completes the options.
func newStore(dir string, o *Options) (*Store, error) {
	s := &Store{
		dir:          dir,
		collections:  map[string]*Collection{},
		claimedNames: map[string]chan struct{}{},
		training:     make(chan struct{}, 1),
		measuring:    make(chan struct{}, 1),
	}
	if o != nil {
		s.opts = *o
	}
	return s, s.opts.complete()
}

// Open opens the collections of a folder and locks it. The folder is created if it does not exist. A collection that
// cannot be opened does not stop the others: it is listed, and [Collection.Err] says why.
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

// openAll opens the collections of the folder, and removes the remains of dropped ones.
func (s *Store) openAll(ctx context.Context) error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, droppedPrefix) {
			if err := os.RemoveAll(filepath.Join(s.dir, name)); err != nil {
				s.opts.Logger.Warn("the remains of a dropped collection were not removed",
					"path", filepath.Join(s.dir, name), "error", err)
			}
			continue
		}
		if collection.CheckName(name) != nil {
			continue
		}
		if !IsCollection(filepath.Join(s.dir, name)) {
			continue // not a collection
		}
		c := s.newCollection(name)
		c.open(ctx)
		s.addCollection(c)
	}
	return ctx.Err()
}

// IsCollection reports whether a folder holds one of the files of a collection. A folder that cannot be examined counts
// as a collection: opening it then fails with a reason, and its documents do not go missing unnoticed.
func IsCollection(dir string) bool {
	for _, name := range []string{configFile, indexFile} {
		info, err := os.Stat(filepath.Join(dir, name))
		unknown := err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR)
		if err == nil && info.Mode().IsRegular() || unknown {
			return true
		}
	}
	return false
}

// Dir returns the folder, "" for a store of indexes outside of a folder.
func (s *Store) Dir() string { return s.dir }

// Names returns the names of all collections in order, including those without documents and those that cannot be
// opened.
func (s *Store) Names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.collections))
}

// Create creates a collection without documents. It is durable when Declare returns.
//
// Errors: [collection.ErrName], [collection.ErrConfig], [collection.ErrExists],
// [collection.ErrClosed], and those of the file system.
func (s *Store) Create(ctx context.Context, name string, cfg collection.Config) (*Collection, error) {
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

// claimName keeps others from declaring or dropping a name until releaseName is called. It waits for those that are
// doing so: when a caller is told that a collection exists, Get finds it.
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

// tryClaim claims a name, or returns a channel that is closed when the present claim ends.
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

// releaseName ends a claim.
func (s *Store) releaseName(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.claimedNames[name])
	delete(s.claimedNames, name)
	s.claims.Done()
}

// addCollection lists a collection, and starts its writer if it has documents.
func (s *Store) addCollection(c *Collection) {
	c.startWriterForGrowth()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.collections[c.name] = c
}

// lookUp returns the collection with a name, nil if it does not exist.
func (s *Store) lookUp(name string) *Collection {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.collections[name]
}

// Get returns the collection with a name. The error is [collection.ErrUnknown], or [collection.ErrClosed].
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

// Remove removes a collection and its files. Waiting requests are refused with [collection.ErrUnknown], and searches
// end. Open snapshots can be read until they are closed. If the name does not exist, Remove does nothing.
func (s *Store) Remove(ctx context.Context, name string) (existed bool, err error) {
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

// removeEmpty removes a collection that has no documents. If it has some by now, it stays, and the error is
// [collection.ErrExists]: nothing that was acknowledged is lost.
func (s *Store) removeEmpty(ctx context.Context, c *Collection) error {
	if err := s.claimName(ctx, c.name); err != nil {
		return err
	}
	defer s.releaseName(c.name)
	if s.lookUp(c.name) != c {
		return nil
	}
	r := &request{kind: acting} // between two changes, so that no update is half done
	r.action = func(context.Context) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.opened != nil || c.failure != nil {
			return fmt.Errorf("%w: %q has documents", collection.ErrExists, c.name)
		}
		// No update can come between this check and the removal.
		c.queue.refuseAll(fmt.Errorf("%w: %q", collection.ErrUnknown, c.name))
		return nil
	}
	if err := c.submit(ctx, r); err != nil {
		return err
	}
	_, err := s.remove(ctx, c)
	return err
}

// remove removes a collection. The caller has claimed its name.
func (s *Store) remove(ctx context.Context, c *Collection) (existed bool, err error) {
	name := c.name
	c.refuseAllChanges(fmt.Errorf("%w: %q was dropped", collection.ErrUnknown, name))
	c.waitForWriter()
	err = c.closeFiles()
	// The rename removes the collection; deleting the files is cleaning up.
	droppedPath := filepath.Join(s.dir, fmt.Sprintf("%s%x", droppedPrefix, time.Now().UnixNano()))
	if renameErr := files.Rename(c.dir, droppedPath); renameErr != nil { // on Windows, while a snapshot is open
		reopened := s.newCollection(name)
		reopened.open(ctx)
		s.addCollection(reopened)
		return true, fmt.Errorf("dropping %q: %w", name, errors.Join(renameErr, err))
	}
	s.mu.Lock()
	delete(s.collections, name)
	s.mu.Unlock()
	if err = errors.Join(err, files.SyncFolder(s.dir), os.RemoveAll(droppedPath)); err != nil {
		err = fmt.Errorf("dropping %q: %w", name, err)
	}
	return true, err
}

// Close writes the queued changes, refuses new ones with [collection.ErrClosed], and ends trainings. When ctx ends,
// queued changes are refused too. Then searches end and files are closed; a file with open snapshots is closed with
// the last of them.
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

// ErrLocked means that another process has the folder open.
var ErrLocked = errors.New("data folder is in use by another process")

// Lock locks a folder as [Open] does, for files of another kind. unlock releases the lock.
//
// Errors: [ErrLocked], and those of the file system.
func Lock(ctx context.Context, dir string, wait time.Duration) (unlock func() error, err error) {
	f, err := lockFolder(ctx, filepath.Join(dir, lockFile), time.Now().Add(wait))
	if err != nil {
		return nil, err
	}
	return f.Close, nil
}

// lockFolder locks the folder of a lock file, so that no two processes use it. The lock ends with the process, however
// that ends.
func lockFolder(ctx context.Context, path string, deadline time.Time) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	const exclusive = true
	if err = files.WaitLock(ctx, f, exclusive, deadline, nil); err == nil {
		return f, nil
	}
	if errors.Is(err, files.ErrLocked) {
		err = ErrLocked
	}
	return nil, errors.Join(err, f.Close())
}
