package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage"
)

// OpenIndex is an index that the program has open, to be served as a collection.
type OpenIndex struct {
	Index *index.Index
	// Write lets the collection change the index, which must be open for writing. The program then changes it only by
	// [Collection.Update] and the like, so that all changes have one order. Without Write, changes are refused
	// ([storage.ErrReadOnly]), and new snapshots see the changes that the program makes itself.
	Write bool
	// Journal is the log that the index follows, nil for none. Changes are appended to it first. [Collection.Follow]
	// applies the entries that the index lacks.
	Journal Journal
	// Base identifies the ordinals of the index: an entry with another Base is applied by ids.
	Base uint64
	// Sealed says that the last entry that the index has is a [Seal].
	Sealed bool
	// Config is the configuration of the collection; the zero value means the defaults. MaxDocuments needs a Journal.
	Config collection.Config
}

// FromIndexes returns a store of indexes that are open, by the names of their collections. The indexes belong to the
// program: the store does not close or retrain them, and it does not create or remove collections
// ([collection.ErrUnsupported]).
//
// Errors: [collection.ErrName], [collection.ErrConfig], [storage.ErrReadOnly] for an OpenIndex with Write whose index
// is not open for writing, and those of [search.New].
func FromIndexes(ctx context.Context, indexes map[string]OpenIndex, o *Options) (*Store, error) {
	s, err := newStore("", o)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(indexes)) {
		if err := s.addOpened(ctx, name, indexes[name]); err != nil {
			return nil, errors.Join(err, s.Close(context.WithoutCancel(ctx)))
		}
	}
	return s, nil
}

// addOpened adds the collection of an open index.
func (s *Store) addOpened(ctx context.Context, name string, opened OpenIndex) (err error) {
	if err := collection.CheckName(name); err != nil {
		return err
	}
	switch {
	case opened.Index == nil:
		return fmt.Errorf("%w: collection %q has no index", collection.ErrConfig, name)
	case opened.Write && !opened.Index.Writable():
		return fmt.Errorf("collection %q: %s: %w", name, opened.Index.Path(), storage.ErrReadOnly)
	}
	c := s.newCollection(name)
	c.external, c.worker.sealed = &opened, opened.Sealed
	if c.cfg, err = opened.Config.Completed(); err != nil {
		return err
	}
	snap, err := opened.Index.Snapshot()
	if err != nil {
		return fmt.Errorf("collection %q: %w", name, err)
	}
	c.cfg.Nbits = snap.Header().Nbits
	if err := snap.Close(); err != nil {
		return err
	}
	engine, err := c.newEngine(ctx, opened.Index)
	if err != nil {
		return fmt.Errorf("collection %q: %w", name, err)
	}
	c.opened = &openedIndex{ix: opened.Index, engine: engine, close: engine.Close}
	s.addCollection(c)
	return nil
}

// checkWritable returns why the collection takes no changes, nil if it takes them.
func (c *Collection) checkWritable() error {
	if c.external != nil && !c.external.Write {
		return fmt.Errorf("collection %q: %w", c.name, storage.ErrReadOnly)
	}
	return c.Err()
}

// followInterval is how often a reader checks whether an index file has been replaced.
const followInterval = 2 * time.Second

// OpenReadOnly opens the collections of a folder for reading: those that have documents when it is called. It writes
// nothing to the folder. Any number of processes may open a folder like this, and none may change it meanwhile. An
// index file that is replaced is reopened. A file that cannot be read is logged and does not stop the others. closeAll
// closes the store and its files.
//
// Errors: [storage.ErrLocked] if a process has one of them open for writing, and those of
// the file system and of [FromIndexes].
func OpenReadOnly(ctx context.Context, dir string,
	o *Options) (s *Store, closeAll func(context.Context) error, err error) {
	settings, err := newStore("", o) // for the completed options
	if err != nil {
		return nil, nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("data folder: %w", err)
	}
	indexes := map[string]OpenIndex{}
	closeIndexes := func() (err error) {
		for _, opened := range indexes {
			err = errors.Join(err, opened.Index.Close())
		}
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name(), indexFile)
		if collection.CheckName(e.Name()) != nil {
			continue
		}
		ix, err := index.Open(ctx, path, &index.Options{
			LockTimeout: settings.opts.LockTimeout,
			Backend:     settings.opts.Backend,
			Follow:      followInterval,
			Logger:      settings.opts.Logger,
		})
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, storage.ErrUnfinished), err != nil && e.Type().IsRegular():
			continue // no collection, or one without documents
		case errors.Is(err, storage.ErrLocked), err != nil && ctx.Err() != nil:
			return nil, nil, errors.Join(fmt.Errorf("%s: %w", path, err), closeIndexes())
		case err != nil:
			settings.opts.Logger.Error("a collection cannot be opened", "collection", e.Name(), "error", err)
			continue
		}
		indexes[e.Name()] = OpenIndex{Index: ix}
	}
	if s, err = FromIndexes(ctx, indexes, o); err != nil {
		return nil, nil, errors.Join(err, closeIndexes())
	}
	return s, func(ctx context.Context) error { return errors.Join(s.Close(ctx), closeIndexes()) }, nil
}
