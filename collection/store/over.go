package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage"
)

// Opened is an index that a program has open, to be served as a collection.
type Opened struct {
	Index *index.Index
	// Engine searches it; nil: one is made, with the options of the store.
	Engine *search.Engine
	// Write lets the collection change the index, which must be open for that. Meanwhile
	// the program changes it by [Collection.Update] and its like alone, so that there is one
	// order of changes. Without Write changes are refused ([storage.ErrReadOnly]), and the
	// program may make some: who takes a view sees them.
	Write bool
}

// Over makes a store of indexes that are open, by the names of their collections. They
// stay the program's: the store closes none of them, trains none anew by itself, and
// declares and drops no collections ([collection.ErrUnsupported]). What [Options.Derive]
// makes lies beside each, also of one that is served without Write.
//
// Errors: [collection.ErrName], [collection.ErrConfig], [storage.ErrReadOnly] for an index
// that is to be changed and is not open for that, and those of [search.New].
func Over(ctx context.Context, indexes map[string]Opened, o *Options) (*Store, error) {
	s, err := newStore("", o)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(indexes)) {
		if err := s.take(ctx, name, indexes[name]); err != nil {
			return nil, errors.Join(err, s.Close(context.WithoutCancel(ctx)))
		}
	}
	return s, nil
}

// take makes a collection of an open index.
func (s *Store) take(ctx context.Context, name string, given Opened) (err error) {
	if err := collection.CheckName(name); err != nil {
		return err
	}
	switch {
	case given.Index == nil:
		return fmt.Errorf("%w: collection %q has no index", collection.ErrConfig, name)
	case given.Write && !given.Index.Writes():
		return fmt.Errorf("collection %q: %s: %w", name, given.Index.Path(), storage.ErrReadOnly)
	}
	c := s.newCollection(name)
	c.given = &given
	if c.cfg, err = (collection.Config{}).Completed(); err != nil {
		return err
	}
	snap, err := given.Index.Snapshot()
	if err != nil {
		return fmt.Errorf("collection %q: %w", name, err)
	}
	c.cfg.Nbits = snap.Header().Nbits
	if err := snap.Close(); err != nil {
		return err
	}
	c.opened = &opened{ix: given.Index, engine: given.Engine, close: func() error { return nil }}
	if given.Engine == nil {
		if c.opened.engine, err = c.newEngine(ctx, given.Index); err != nil {
			return fmt.Errorf("collection %q: %w", name, err)
		}
		c.opened.close = c.opened.engine.Close
	}
	s.put(c)
	return nil
}

// writable is why the collection takes no changes; nil if it does.
func (c *Collection) writable() error {
	if c.given != nil && !c.given.Write {
		return fmt.Errorf("collection %q: %w", c.name, storage.ErrReadOnly)
	}
	return c.Err()
}
