package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/files"
)

// Backup writes the collection as it is now to out: an index file, checked before its
// first byte is written. Searches and changes go on meanwhile.
//
// Errors: those of [Collection.Snapshot] and of [index.Index.Backup].
func (c *Collection) Backup(ctx context.Context, out io.Writer) (*index.BackupReport, error) {
	var report *index.BackupReport
	err := c.runInBackground(ctx, func(ctx context.Context) error {
		o, done, err := c.acquireIndex(ctx)
		if err != nil {
			return err
		}
		defer done()
		report, err = o.ix.Backup(ctx, out, nil)
		return err
	})
	return report, err
}

// Verify looks at every byte of the collection; the error wraps [storage.ErrCorrupt].
func (c *Collection) Verify(ctx context.Context) error {
	return c.runInBackground(ctx, func(ctx context.Context) error {
		v, err := c.Snapshot(ctx)
		if err != nil {
			return err
		}
		return errors.Join(v.snap.Verify(ctx), v.Close())
	})
}

// Restore fills a collection from an index file, such as [Collection.Backup] writes; see
// [collection.Restorer]. The file is checked before it takes its place.
//
// Errors: [collection.ErrExists], those of reading in and of [index.Open], and those of
// [Collection.Update].
func (s *Store) Restore(ctx context.Context, name string, in io.Reader) error {
	return s.fillCollection(ctx, name, func(_ *Collection, path string) error {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if err != nil {
			return err
		}
		if _, err := io.Copy(f, files.UntilDone(ctx, in)); err != nil {
			return errors.Join(err, f.Close())
		}
		return files.CloseSynced(f)
	})
}

// fillCollection fills a collection that has no documents yet, and is declared if it is not there: it
// goes again if filling it failed, unless somebody has put something into it meanwhile.
func (s *Store) fillCollection(ctx context.Context, name string, fill func(c *Collection, path string) error) error {
	c, err := s.Get(name)
	declared := errors.Is(err, collection.ErrUnknown)
	if declared {
		c, err = s.Declare(ctx, name, collection.Config{})
	}
	if err != nil {
		return err
	}
	if err = c.receive(ctx, func(path string) error { return fill(c, path) }); err != nil && declared {
		if uerr := s.dropEmpty(context.WithoutCancel(ctx), c); uerr != nil && !errors.Is(uerr, collection.ErrExists) {
			c.log.Warn("a collection that was declared to be filled stays", "error", uerr)
		}
	}
	return err
}

// Import fills a collection from the index folder of another engine. Documents are named as
// [interop.Index.IDs] says, else by their row.
//
// Errors: as of [Store.Restore], and those of [index.Import].
func (s *Store) Import(ctx context.Context, name, dir string) (r *index.ImportReport, err error) {
	err = s.fillCollection(ctx, name, func(c *Collection, path string) (err error) {
		r, err = index.Import(ctx, dir, path, &index.ImportOptions{
			Threads: s.opts.Threads, Memory: s.opts.Memory, Backend: s.opts.Backend, Logger: c.log,
		})
		return err
	})
	return r, err
}

// receivedPrefix begins the names of files that are to become the index file.
const receivedPrefix = ".received-"

// receive makes an index file beside, checks it, and has the writer put it in place.
func (c *Collection) receive(ctx context.Context, fill func(path string) error) (err error) {
	empty := func() error {
		_, done, err := c.acquireIndex(ctx)
		switch {
		case err == nil:
			done()
			return fmt.Errorf("%w: %q has documents", collection.ErrExists, c.name)
		case errors.Is(err, collection.ErrEmpty):
			return nil
		}
		return err
	}
	if err := empty(); err != nil {
		return err
	}
	defer func() {
		if why := context.Cause(c.lifetime); why != nil && errors.Is(err, fs.ErrNotExist) { // the files went with the collection
			err = why
		}
		c.store.noteDisk(err, false)
	}()
	dir, err := os.MkdirTemp(c.dir, receivedPrefix)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, indexFile)
	if err := fill(path); err != nil {
		return err
	}
	ix, err := index.Open(ctx, path, &index.Options{Backend: c.store.opts.Backend, Logger: c.log})
	if err == nil {
		err = errors.Join(ix.Verify(ctx), ix.Close())
	}
	if err != nil {
		return err
	}
	r := &request{kind: acting}
	r.action = func(ctx context.Context) error {
		if err := empty(); err != nil {
			return err
		}
		if err := os.Rename(path, c.indexPath()); err != nil { // over what an interrupted build left
			return err
		}
		if err := files.SyncFolder(c.dir); err != nil {
			return err
		}
		o, err := c.openIndex(ctx)
		if err != nil {
			return errors.Join(err, os.Remove(c.indexPath()))
		}
		c.mu.Lock()
		c.opened = o
		c.mu.Unlock()
		return nil
	}
	return c.submit(ctx, r)
}

// removeLeftovers removes what receptions that were interrupted have left.
func (c *Collection) removeLeftovers() {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return // opening the rest says so
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), receivedPrefix) {
			if err := os.RemoveAll(filepath.Join(c.dir, e.Name())); err != nil {
				c.log.Warn("the remains of an upload stay", "path", e.Name(), "error", err)
			}
		}
	}
}
