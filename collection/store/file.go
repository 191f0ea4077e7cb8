package store

import (
	"context"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
)

// OpenFile returns a store of one existing index file that no other process writes to. Its collection has the name of
// the file without its suffix, as far as names allow. It takes changes and grows as a collection of a folder does. The
// configuration belongs to the program, not to the file. So limits of documents, and creating or removing collections,
// are [collection.ErrUnsupported].
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

// collectionName derives a valid collection name from the path of a file.
func collectionName(path string) string {
	name := strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf && collection.CheckName("a"+string(r)+"a") == nil {
			return r
		}
		return '-'
	}, strings.TrimSuffix(filepath.Base(path), ".plaid"))
	if name = strings.Trim(name, "."); len(name) > 128 { // the limit of CheckName
		name = name[:100]
	}
	if collection.CheckName(name) != nil {
		return "index"
	}
	return name
}

// Store returns the store of the collection.
func (c *Collection) Store() *Store { return c.store }

// Index returns the index file as it is open now. After a disk fault the collection opens the file again, so do not
// keep the result for long. Use it for reading only: the index may refuse changes that do not come from the
// collection's writer. Errors are those of [Collection.Snapshot].
func (c *Collection) Index(ctx context.Context) (*index.Index, error) {
	o, done, err := c.acquireIndex(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return o.ix, nil
}

// WaitForGrowth waits until no training that growth has begun is running, including those that become due meanwhile.
// The error is that of ctx.
func (c *Collection) WaitForGrowth(ctx context.Context) error {
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

// checkOwnsFolder returns an error if the collection is an index file without a folder of its own, for which
// operation is not supported.
func (c *Collection) checkOwnsFolder(operation string) error {
	if c.external != nil || c.filePath != "" {
		return collection.Unsupported(operation)
	}
	return nil
}

// location describes where the collections are, for users.
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
