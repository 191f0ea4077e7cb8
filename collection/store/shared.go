package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage"
)

// Times of files that other processes change. A process that waits for the lock tries every 10 ms.
const (
	// sharedIdle is how long an unused file stays open: the requests of one call of an agent follow each other within
	// this time.
	sharedIdle = 100 * time.Millisecond
	// sharedMaxOpen is how long a file in constant use stays open, and sharedPause how long it is closed then, so that
	// a writer can lock it.
	sharedMaxOpen = time.Second
	sharedPause   = 50 * time.Millisecond
	// sharedMinWait is the shortest time for which a request waits for a writer.
	sharedMinWait = 10 * time.Second
)

// OpenShared returns a catalog of index files that other processes change; paths are by the names of the collections.
//
// A file is open, and so locked for other processes, only during requests and for a moment after them. The
// collections are read-only ([storage.ErrReadOnly]). A request waits for a process that is changing the file, for ten
// seconds or for Options.LockTimeout if that is longer; then the error is [storage.ErrLocked]. No questions are
// sampled. closeAll closes all collections.
//
// Errors: [collection.ErrName], [collection.ErrConfig], and those of [index.Open], except that a locked file is no
// error.
func OpenShared(ctx context.Context, paths map[string]string,
	o *Options) (catalog collection.Catalog, closeAll func() error, err error) {
	settings, err := newStore("", o) // for the completed options
	if err != nil {
		return nil, nil, err
	}
	settings.opts.Sampling.Rate = 0 // files are open for moments only
	files := sharedCatalog{}
	for _, name := range slices.Sorted(maps.Keys(paths)) {
		if err := collection.CheckName(name); err != nil {
			return nil, nil, errors.Join(err, files.close())
		}
		c := &sharedCollection{name: name, path: paths[name], opts: settings.opts}
		files[name] = c
		f, err := c.openNow(ctx, 0)
		if errors.Is(err, storage.ErrLocked) {
			continue
		}
		if err == nil {
			err = f.close()
		}
		if err != nil {
			return nil, nil, errors.Join(err, files.close())
		}
	}
	return files, files.close, nil
}

// sharedCatalog has the collections by name.
type sharedCatalog map[string]*sharedCollection

// Location implements [collection.Catalog].
func (s sharedCatalog) Location() string { return "index files" }

// Names implements [collection.Catalog].
func (s sharedCatalog) Names() []string { return slices.Sorted(maps.Keys(s)) }

// Get implements [collection.Catalog].
func (s sharedCatalog) Get(name string) (collection.Collection, error) {
	if c := s[name]; c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("%w: %q", collection.ErrUnknown, name)
}

// Create implements [collection.Catalog].
func (s sharedCatalog) Create(context.Context, string, collection.Config) (collection.Collection, error) {
	return nil, collection.Unsupported("declaring a collection beside index files")
}

// Remove implements [collection.Catalog].
func (s sharedCatalog) Remove(context.Context, string) (bool, error) {
	return false, collection.Unsupported("dropping an index file")
}

// close closes all collections for good.
func (s sharedCatalog) close() (err error) {
	for _, name := range s.Names() {
		err = errors.Join(err, s[name].closeForGood())
	}
	return err
}

// sharedCollection is the collection of a file that other processes change.
type sharedCollection struct {
	name, path string
	opts       Options

	mu          sync.Mutex
	file        *sharedFile // nil while it is closed
	keptDerived Derived     // data from the last time that the file was open, to be used again, or nil
	// changing is not nil while the file is being opened, or is about to be closed for a writer. It is closed at the
	// end of that, and wakes waiting requests.
	changing chan struct{}
	ended    bool
}

// sharedFile is the file while it is open.
type sharedFile struct {
	*Collection
	ix       *index.Index
	store    *Store
	openedAt time.Time
	users    int         // requests and snapshots that use the file
	idle     *time.Timer // closes the file when it has not been used for sharedIdle
}

func (f *sharedFile) close() error {
	return errors.Join(f.store.Close(context.Background()), f.ix.Close())
}

// openNow opens the file. It waits for the lock for at most wait.
func (c *sharedCollection) openNow(ctx context.Context, wait time.Duration) (*sharedFile, error) {
	o := &index.Options{LockTimeout: wait, Backend: c.opts.Backend, Logger: c.opts.Logger}
	ix, err := index.Open(ctx, c.path, o)
	if err != nil {
		return nil, err
	}
	st, err := FromIndexes(ctx, map[string]OpenIndex{c.name: {Index: ix}}, &c.opts)
	if err != nil {
		return nil, errors.Join(err, ix.Close())
	}
	inner, err := st.Get(c.name)
	if err != nil {
		return nil, errors.Join(err, st.Close(context.Background()), ix.Close())
	}
	c.mu.Lock()
	inner.derived.data, c.keptDerived = c.keptDerived, nil
	c.mu.Unlock()
	inner.derived.keepResting = func(data Derived) { c.keptDerived = data } // called by closeFile, which holds c.mu
	return &sharedFile{Collection: inner, ix: ix, store: st, openedAt: time.Now()}, nil
}

// acquireFile returns the open file, which stays open until release is called. It opens the file if it is closed, and
// waits while another request opens it or a writer has its pause.
func (c *sharedCollection) acquireFile(ctx context.Context) (f *sharedFile, release func(), err error) {
	for {
		c.mu.Lock()
		switch {
		case c.ended:
			c.mu.Unlock()
			return nil, nil, collection.ErrClosed
		case c.changing != nil:
			changing := c.changing
			c.mu.Unlock()
			select {
			case <-changing:
			case <-ctx.Done():
				return nil, nil, ctx.Err()
			}
			continue
		case c.file != nil && time.Since(c.file.openedAt) > sharedMaxOpen: // let a writer lock it
			c.changing = make(chan struct{})
			if c.file.users == 0 {
				c.closeFile()
			}
			c.mu.Unlock()
			continue
		case c.file != nil:
			f = c.file
			f.users++
			f.idle.Stop()
			c.mu.Unlock()
			return f, func() { c.releaseFile(f) }, nil
		}
		// The file is closed: open it, and let other requests wait for that.
		opening := make(chan struct{})
		c.changing = opening
		c.mu.Unlock()
		f, err = c.openNow(ctx, max(c.opts.LockTimeout, sharedMinWait))
		c.mu.Lock()
		c.changing = nil
		close(opening)
		if err != nil {
			c.mu.Unlock()
			// Another process may be building the file.
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, storage.ErrUnfinished) {
				err = fmt.Errorf("%w: %w", collection.ErrEmpty, err)
			}
			return nil, nil, err
		}
		// releaseFile sets the time: the timer does not run while the file is in use.
		f.idle = time.AfterFunc(time.Hour, func() { c.closeIdle(f) })
		f.users, c.file = 1, f
		c.mu.Unlock()
		return f, func() { c.releaseFile(f) }, nil
	}
}

// releaseFile ends a use of the file.
func (c *sharedCollection) releaseFile(f *sharedFile) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.users--; f.users > 0 {
		return
	}
	if c.ended || c.changing != nil {
		c.closeFile()
		return
	}
	f.idle.Reset(sharedIdle)
}

// closeIdle closes a file that is not used any more.
func (c *sharedCollection) closeIdle(f *sharedFile) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file == f && f.users == 0 {
		c.closeFile()
	}
}

// closeFile closes the file; c.mu is held. Waiting requests open it again after sharedPause.
func (c *sharedCollection) closeFile() {
	f := c.file
	c.file = nil
	f.idle.Stop()
	if err := f.close(); err != nil {
		c.opts.Logger.Error("an index file was not closed", "path", c.path, "error", err)
	}
	if c.ended {
		c.closeDerived()
	}
	if changing := c.changing; changing != nil {
		time.AfterFunc(sharedPause, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.changing = nil
			close(changing)
		})
	}
}

// closeDerived closes the derived data that was kept; c.mu is held.
func (c *sharedCollection) closeDerived() {
	if c.keptDerived == nil {
		return
	}
	if err := c.keptDerived.Close(); err != nil {
		c.opts.Logger.Error("derived data of an index file was not closed", "path", c.path, "error", err)
	}
	c.keptDerived = nil
}

// closeForGood closes the collection. Its last snapshot closes the file.
func (c *sharedCollection) closeForGood() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.file != nil && c.file.users == 0 {
		c.closeFile()
	}
	c.closeDerived()
	return nil
}

// Name implements [collection.Collection].
func (c *sharedCollection) Name() string { return c.name }

// Err implements [collection.Collection]. It is always nil: a fault of the file is found when the file is opened.
func (c *sharedCollection) Err() error { return nil }

// Config implements [collection.Collection].
func (c *sharedCollection) Config() collection.Config {
	cfg, _ := (collection.Config{}).Completed()
	return cfg
}

// Stats implements [collection.Collection].
func (c *sharedCollection) Stats(ctx context.Context) (collection.Stats, error) {
	f, done, err := c.acquireFile(ctx)
	if err != nil {
		return collection.Stats{}, err
	}
	defer done()
	return f.Stats(ctx)
}

// Snapshot implements [collection.Collection].
func (c *sharedCollection) Snapshot(ctx context.Context) (collection.Snapshot, error) {
	f, done, err := c.acquireFile(ctx)
	if err != nil {
		return nil, err
	}
	v, err := f.Snapshot(ctx)
	if err != nil {
		done()
		return nil, err
	}
	return &sharedSnapshot{Snapshot: v, release: sync.OnceFunc(done)}, nil
}

// sharedSnapshot keeps the file open until it is closed.
type sharedSnapshot struct {
	*Snapshot
	release func()
}

// Close implements [collection.Snapshot].
func (v *sharedSnapshot) Close() error {
	defer v.release()
	return v.Snapshot.Close()
}

// readOnlyError returns the error of changes.
func (c *sharedCollection) readOnlyError() error {
	return fmt.Errorf("collection %q: %w", c.name, storage.ErrReadOnly)
}

// SetMaxDocuments implements [collection.Collection].
func (c *sharedCollection) SetMaxDocuments(context.Context, *uint64) (collection.Config, error) {
	return collection.Config{}, c.readOnlyError()
}

// Update implements [collection.Collection].
func (c *sharedCollection) Update(context.Context, []collection.DocumentInput,
	collection.UpdateOptions) (collection.Receipt, error) {
	return collection.Receipt{}, c.readOnlyError()
}

// Delete implements [collection.Collection].
func (c *sharedCollection) Delete(context.Context, collection.Selection) (index.Affected, error) {
	return index.Affected{}, c.readOnlyError()
}

// UpdateMetadata implements [collection.Collection].
func (c *sharedCollection) UpdateMetadata(context.Context, collection.Selection,
	map[string]json.RawMessage) (index.Affected, error) {
	return index.Affected{}, c.readOnlyError()
}
