package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage"
)

// followEvery is how often a reader looks whether an index file has been replaced.
const followEvery = 2 * time.Second

// ReadOnly opens the collections of a folder for reading: those that have documents when it
// is called. Nothing is written to the folder, any number of processes may have it open like
// this, and none may change it meanwhile. An index file that is replaced is opened anew. A
// file that cannot be read does not stop the others; the logger hears of it. close closes
// the store and its files.
//
// Errors: [storage.ErrLocked] if a process has one of them open for writing, and those of
// the file system and of [Over].
func ReadOnly(ctx context.Context, dir string, o *Options) (s *Store, closeAll func(context.Context) error, err error) {
	settings, err := newStore("", o)
	if err != nil {
		return nil, nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("data folder: %w", err)
	}
	all := map[string]Opened{}
	closeIndexes := func() (err error) {
		for _, one := range all {
			err = errors.Join(err, one.Index.Close())
		}
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name(), indexFile)
		if collection.CheckName(e.Name()) != nil {
			continue
		}
		ix, err := index.Open(ctx, path, &index.Options{LockTimeout: settings.o.LockTimeout, Backend: settings.o.Backend, Follow: followEvery, Logger: settings.o.Logger})
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, storage.ErrUnfinished), err != nil && notFolder(e):
			continue // something else, or without documents yet
		case errors.Is(err, storage.ErrLocked), err != nil && ctx.Err() != nil:
			return nil, nil, errors.Join(fmt.Errorf("%s: %w", path, err), closeIndexes())
		case err != nil:
			settings.o.Logger.Error("a collection cannot be opened", "collection", e.Name(), "error", err)
			continue
		}
		all[e.Name()] = Opened{Index: ix}
	}
	if s, err = Over(ctx, all, o); err != nil {
		return nil, nil, errors.Join(err, closeIndexes())
	}
	return s, func(ctx context.Context) error { return errors.Join(s.Close(ctx), closeIndexes()) }, nil
}

// notFolder tells whether an entry is a file. A link may be to a folder.
func notFolder(e fs.DirEntry) bool { return e.Type().IsRegular() }
