package store

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
)

// OpenFile makes a store of one index file, which is there and which nobody else writes to.
// Its collection is named as the file is, without its suffix, as far as names allow; it
// takes changes and grows as one in a folder does. What else a folder keeps, its
// configuration, is the program's, so that largest numbers of documents, declaring and
// dropping are [collection.ErrUnsupported].
//
// Errors: [collection.ErrConfig], and those of [index.Open].
func OpenFile(ctx context.Context, path string, cfg collection.Config, o *Options) (*Collection, error) {
	s, err := newStore("", o)
	if err != nil {
		return nil, err
	}
	c := s.newCollection(collectionName(path))
	c.filePath, c.dir = path, filepath.Dir(path)
	if c.cfg, err = cfg.Completed(); err != nil {
		return nil, err
	}
	if cfg.MaxDocuments != nil {
		return nil, collection.Unsupported("a largest number of documents")
	}
	if c.opened, err = c.openIndex(ctx); err != nil {
		return nil, err
	}
	s.addCollection(c)
	return c, nil
}

// collectionName is a name for the collection of a file.
func collectionName(path string) string {
	name := strings.Map(func(r rune) rune {
		if r < 128 && collection.CheckName("a"+string(r)+"a") == nil {
			return r
		}
		return '-'
	}, strings.TrimSuffix(filepath.Base(path), ".plaid"))
	if name = strings.Trim(name, "."); len(name) > 128 {
		name = name[:100]
	}
	if collection.CheckName(name) != nil {
		return "index"
	}
	return name
}

// Store is the store that the collection is in.
func (c *Collection) Store() *Store { return c.store }

// Index is the index file as it is open now; after a fault of the disk the collection opens
// it again. It is to be read: changes that it is not the collection's own writer for may be
// refused. Errors are those of [Collection.Snapshot].
func (c *Collection) Index(ctx context.Context) (*index.Index, error) {
	o, done, err := c.acquireIndex(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return o.ix, nil
}

// Grown waits for a training that growth has begun, and for those that are due after it.
// The error is that of the context.
func (c *Collection) Grown(ctx context.Context) error {
	for {
		c.mu.Lock()
		running := c.growth.running
		c.mu.Unlock()
		if running == nil {
			return nil
		}
		select {
		case <-running:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// checkOwnsFolder is what cannot be done with an index file that no folder is around; nil: it can.
func (c *Collection) checkOwnsFolder(what string) error {
	if c.external != nil || c.filePath != "" {
		return collection.Unsupported(what)
	}
	return nil
}

// location is where the collections are, in words.
func (s *Store) location() string {
	if s.dir != "" {
		return s.dir
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.collections {
		if c.filePath != "" {
			return c.filePath
		}
	}
	return "indexes that are open"
}
